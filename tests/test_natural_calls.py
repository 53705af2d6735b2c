"""What people type in a notebook without reading the manual, and what each call gives: run in one folder, in this order.
Files and folders that are called as something built in: a line says what is taken, and how to get the other. Numbers in
sentences, and foreign text in cells. Each public function's example runs as it stands."""

import csv
import doctest
import inspect
import io
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from clirun import place  # noqa: F401 - a fixture

import stsbench
from stsbench import load_encoder
from stsbench.display.markup import comment, escaped, plain_markdown
from stsbench.display.table import Table, csv_table, html_lines
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.transformer import config, find
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import EvalOptions, run
from stsbench.registry import namesakes
from stsbench.training.recipes.recipes import shadowed_recipes
from stsbench.wording import counted, csv_cell, sized

SAMPLE = {"sample": True, "resamples": 0, "tasks": "STS-B"}
TEXTS = ["A cat sleeps.", "A dog runs.", "It rains."]
START = (
    "import numpy as np, stsbench\n"
    "from stsbench import compare, evaluate, load, load_encoder, losses, methods\n"
    "model, e = 'lexical:token-set', load_encoder('lexical:tfidf')\n"
    "a = evaluate(model, output='a', **SAMPLE); b = evaluate(e, output='b', **SAMPLE)\n")
CALLS = {  # expression -> what it is equal to
    "len(evaluate(model, protocols='sts:all', **SAMPLE).rows)": 2,
    "[record.data.task for record in evaluate(model, 'STS:All', tasks=['stsb', 'STS-12'], sample=True).records]": [
        "STS12", "STS-B"],
    "evaluate(model, 'sts:all', tasks='STSBenchmark', sample=True).rows[0].task": "STS-B",
    "stsbench.load_recipe('SimCSE/unsup-bert-base').method": "simcse",
    "a['STS-B'] == a.scores['STS-B'] == a['stsb'] == a.rows[0].value": True,
    "compare(a, b, resamples=100)['STS-B'].difference == compare(a, b, resamples=100).tables[0].rows[0].difference": True,
    "round(float(load_encoder(model).similarity('a cat', 'a cat')[0, 0]), 4)": 1.0,
    "round(float(load_encoder(model).similarity('a cat', 'a dog')[0, 0]), 4)": 0.5,
    "load_encoder('minilm').max_seq_length": 256,
    "{'encode', 'similarity', 'dimension'} <= set(dir(e)) and 'of_call' not in dir(e)": True,
    "{'sts:mean', 'simcse'} <= {*stsbench.list_protocols(), *stsbench.list_methods()}": True,
    "stsbench.list_recipes('SimCSE')[0].partition('/')[0]": "simcse",
    "len(stsbench.load_data('stsb/test', sample=True)) == a.rows[0].n and 'stsb/test' in stsbench.list_data()": True,
    "evaluate(e, **SAMPLE).rows == b.rows": True,
    "stsbench.score(a).rows == load('a').rows == load(a.folder).rows == a.rows": True,
    "compare(a, b, resamples=100).tables[0].rows == compare('a', 'b', resamples=100).tables[0].rows": True,
    "compare(a, b, protocol='sts', metric='pearson', resamples=100).tables[0].setting.metric": "pearson",
    "load_encoder(model).encode('one string').ndim": 1,
    "load_encoder(model).encode(np.array(['two', 'texts'])).shape[0]": 2,
    "load_encoder(model).encode(('a', 'b'), batch_size=1, show_progress_bar=False).shape[0]": 2,
    "methods.SimCSE(temperature=0.1).temperature": 0.1,
    "{'SimCSE', 'DiffCSE'} <= set(dir(methods)) and {'simcse', 'diffcse'} <= set(dir(losses))": True,
    "{'evaluate', 'train', 'load', 'losses', 'methods', 'leaderboard'} <= set(dir(stsbench))": True,
}
REFUSED = {  # call -> what its one line names
    "evaluate(model, protocol='stss', **SAMPLE)": "stss",
    "evaluate(3, **SAMPLE)": "not callable",
    "compare('a', 'no-such-run')": "no-such-run",
    "load_encoder(model).encode(['a', None])": r"texts\[1\]",
}


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
def test_a_call_gives_what_it_looks_like(capsys):
    names = {"SAMPLE": SAMPLE, "TEXTS": TEXTS}
    exec(START, names)
    for call, expected in CALLS.items():
        assert eval(call, names) == expected, call
        assert capsys.readouterr().out == "", call
    for call, said in REFUSED.items():
        with pytest.raises(StsbenchError, match=said) as caught:
            eval(call, names)
        assert "\n" not in str(caught.value), call


def test_the_public_names_are_few_and_all_there():
    assert len(stsbench.__all__) <= 39
    assert all(getattr(stsbench, name) is not None for name in stsbench.__all__)


class Letters(Encoder):
    spec = EncoderSpec("letters", "letters", "0" * 64)

    def run(self, texts, progress=None):
        counts = [[text.count(chr(97 + i)) + i / 9 for i in range(26)] for text in texts]
        return Encoded(np.array(counts, np.float32), np.zeros(len(texts), bool))


def lines_of(**asked):
    lines = []
    run(EvalOptions(model=Letters(), output=Path("run"), sample=True, no_cache=True, resamples=0, **asked), log=lines.append)
    return lines


def test_a_line_says_which_of_two_namesakes_is_taken_and_how_to_get_the_other(place):
    assert namesakes("minilm", "a model") == () == shadowed_recipes("simcse", "unsup-bert-base")
    assert not load_encoder("lexical:token-set").notes
    (place / "lexical:token-set").mkdir()
    [note] = load_encoder("lexical:token-set").notes
    assert "for the folder of that name in this folder write ./lexical:token-set" in note
    (place / "mean").write_text("")
    lines = lines_of(protocols=["sts:mean"])
    assert any("for the file of that name in this folder write sts:./mean" in line for line in lines)
    (place / "target").write_text("a\nb\n")
    lines = lines_of(tasks=["STS12"], post="whitening:dimensions=4", fit_on="target")
    assert any(line.startswith("target is each set's own texts; for the file") for line in lines)
    (place / "unsup-bert-base").write_text("")
    assert shadowed_recipes("simcse", "unsup-bert-base")[0].endswith("write ./unsup-bert-base")


def test_one_is_singular_and_sizes_have_two_digits_or_three():
    assert [counted(number, "text") for number in (0, 1, 2, 12345)] == ["0 texts", "1 text", "2 texts", "12,345 texts"]
    sizes = {0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 9_949: "9.9 kB", 9_951: "10 kB", 999_499: "999 kB",
             999_500: "1.0 MB", 17_400_000: "17 MB", 1_850_000_000: "1.9 GB", 5 * 10**15: "5,000 TB"}
    assert {count: sized(count) for count in sizes} == sizes


HOSTILE = "a|b <img src=x> \x1b[31m \u202e\\input{x} $x$ & c"


def test_foreign_text_is_text_in_every_form():
    """No terminal, page or paper obeys what a name holds; a comment has one line."""
    table = Table.from_rows(HOSTILE, [HOSTILE], [[HOSTILE]], notes=[HOSTILE, f"    {HOSTILE}"])
    forms = [table.html(), html_lines([HOSTILE]), plain_markdown(HOSTILE), escaped(HOSTILE), table.latex().split("%")[0],
             comment(f"a\n{HOSTILE}"), table.text(), table.text(40), table.csv(), table.markdown()]
    assert not any("\x1b" in form or "\u202e" in form for form in forms)
    assert not any("<img" in form for form in forms[:3]) and not any("\\input" in form for form in forms[3:5])
    assert "\n" not in forms[5] and "a\\|b" in forms[2] and forms[9].count("<img") == 1  # in a block of code


@pytest.mark.parametrize(("text", "cell"), [
    ("=cmd|A1", "'=cmd|A1"), ("+1", "'+1"), ("@SUM(1)", "'@SUM(1)"), ("-A1", "'-A1"), ("a;=B1", "a;'=B1"),
    ("\t=B1", "\t'=B1"), ("\r=B1", "\\r=B1"), ("a\n=B1", "a\n'=B1"), ("\uff1dB1", "'\uff1dB1"),
    ("\x1b[31mred", "\\x1b[31mred"), ("\u202eevil", "\\u202eevil"), ("-0.5", "-0.5"), ("-1e-09", "-1e-09"),
    ("-0.5+B1", "'-0.5+B1"), ("-\u0661", "'-\u0661"), ("a - b", "a - b"), ("x=1", "x=1")])
def test_a_cell_of_csv_runs_nothing(text, cell):
    assert csv_cell(text) == cell
    assert list(csv.DictReader(io.StringIO(csv_table(["a", "b"], [{"a": text, "b": -0.5}])))) == [{"a": cell, "b": "-0.5"}]


PUBLIC = {name: getattr(stsbench, name) for name in stsbench.__all__}
PUBLIC |= {f"leaderboard.{name}": getattr(stsbench.leaderboard, name) for name in stsbench.leaderboard.__all__}
FUNCTIONS = [name for name, value in PUBLIC.items() if inspect.isfunction(value)]


def example(name):
    """The doctest of a public function; None where its docstring has none."""
    tests = doctest.DocTestFinder(recurse=False, exclude_empty=True).find(PUBLIC[name], name, globs={})
    return next((test for test in tests if test.examples), None)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny model of MiniLM's width: no example that names MiniLM prints a number of it."""
    return tiny_models.build_for_sample(tmp_path_factory.mktemp("model") / "tiny", width=384, layers=1)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if example(name)])
def test_an_example_gives_what_it_says(name, tiny, monkeypatch):
    for module in (find, config):
        monkeypatch.setattr(module, "find_minilm", lambda: tiny)
    with suppress(ImportError):  # without the extension; no example prints a speed
        monkeypatch.setattr(import_module("stsbench.extensions.cost.measure"), "_ROUND", 0.005)
    printed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stsbench.errors.StsbenchWarning)
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        failures, _ = runner.run(example(name), out=printed.append)
    assert not failures, "".join(printed)


def test_each_function_has_an_example_and_a_wrong_one_fails():
    assert not [name for name in FUNCTIONS if example(name) is None]
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "planted", None, 0)
    assert doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=lambda text: None).failed == 1
