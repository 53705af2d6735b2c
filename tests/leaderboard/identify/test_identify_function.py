"""`stsbench.identify` against its command: the same settings and words, whatever its numbers and models are given as."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from board_runs import read_once  # noqa: F401  fixture
from clirun import cli, place  # noqa: F401  fixtures
from synthetic_sts import B2, observations, said, write_run

import stsbench
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.result import Result
from stsbench.leaderboard.identify import command
from stsbench.leaderboard.identify.numbers import ORDER

ROW = B2["sbert"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("b2") / "sbert", observations(ROW["all"], ROW["wmean"]))


def length(texts):
    return np.array([[len(text), text.count("e") + 1, text.count("a")] for text in texts], dtype=float)


def test_options_are_the_command_s():
    """top is the table's and json the file's: the object has both."""
    options = {option.name: option for option in command.identify.params}
    parameters = inspect.signature(stsbench.identify).parameters
    plural = {"models": "model", "poolers": "pooler"}
    assert {plural.get(name, name) for name in options} - {"top", "json_target"} == set(parameters) - {"output"}
    assert parameters["sample"].default is options["sample"].to_info_dict()["default"] is False
    assert all(parameters[name].default is None for name in ("pooler", "data_dir", "output"))


def test_the_outcome_is_the_command_s(run, cli, capsys):
    found = stsbench.identify(dict(zip(ORDER, ROW["reported"], strict=True)), run)
    assert capsys.readouterr() == ("", "")
    assert cli("identify", said(ROW["reported"]), "--model", run, "--json", "-") == (0, found.to_json() + "\n", "")
    printed = cli("identify", said(ROW["reported"]), "--model", run)[1].splitlines()
    lines = str(found).splitlines()
    assert lines[0] == printed[0] and lines[-1] == printed[-1] == found.sentence
    settings = json.loads(found.to_json())["settings"]
    frame = found.to_frame()
    assert [*frame.place] == [each["place"] for each in settings] and len(found.candidates) == len(settings)
    assert [*frame["STS-B"]] == [each["differences"]["STS-B"] for each in settings]
    assert frame.papers[0] == ", ".join(settings[0]["papers"]) and "simcse" in frame.papers[0]
    html = found._repr_html_()
    assert html.count("<table>") == 1 and html.count("<tr>") == 1 + len(settings)
    assert found.verdict == "nearest" and len(repr(found)) < 100


@pytest.mark.parametrize("numbers", [
    {"STS12": "70.97", "STS-B": 77.03}, "STS12=70.97,STS-B=77.03", Path("numbers.json"),
    {"STS12": 70.97, "STS-B": np.float64(77.03)},
    ["70.97", None, None, None, None, 77.03, None], (70.97, "-", "-", "-", "-", "77.03", "-"),
])
@pytest.mark.parametrize("form", [str, Path, lambda folder: [folder], Result])
def test_whatever_numbers_and_runs_are_given_as(run, numbers, form):
    Path("numbers.json").write_text('{"STS12": 70.97, "STS-B": 77.03}')
    found = stsbench.identify(numbers, form(run))
    assert [(name, number.printed, number.digits) for name, number in found.result.numbers.items.items()] == [
        ("STS12", 70.97, 2), ("STS-B", 77.03, 2),
    ]
    assert {*found.candidates[0].papers} >= {"sbert", "simcse"}


def test_the_zero_that_a_float_has_lost_is_its_neighbours_digit(run):
    numbers = stsbench.identify({"STS12": 70.9, "STS13": 76.53, "STS14": "73.1", "STS15": 79}, run).result.numbers.items
    assert {name: number.digits for name, number in numbers.items()} == {"STS12": 2, "STS13": 2, "STS14": 1, "STS15": 0}
    with pytest.raises(StsbenchError, match="'1e-05' is not a number"):
        stsbench.identify({"STS12": 1e-5, "STS13": 76.53}, run)


@pytest.mark.parametrize("model", [length, "lexical:token-set"])
def test_a_model_is_measured_first_and_leaves_nothing_behind(model):
    rows = {row.task: row for row in stsbench.evaluate(model, sample=True, tasks=["STS-B"], protocols="sts:all").rows
            if row.metric == "spearman" and row.subset is None}
    before = {*Path().iterdir()}
    found = stsbench.identify({"STS-B": f"{rows['STS-B'].value:.2f}"}, model, sample=True)
    assert found.verdict == "reproduced" and {*Path().iterdir()} == before
    kept = stsbench.identify({"STS-B": f"{rows['STS-B'].value:.2f}"}, model, sample=True, output="kept")
    assert kept.as_json() == found.as_json()
    [folder] = Path("kept").iterdir()
    assert stsbench.identify({"STS-B": f"{rows['STS-B'].value:.2f}"}, folder).as_json() == found.as_json()


def test_a_failed_task_is_a_warning():
    with pytest.warns(StsbenchWarning, match="failed: sts STS-B: ") as heard:
        stsbench.identify({"STS-B": 50.0, "STS12": 50.0}, "python:mine_cli:constant_on_stsb", sample=True)
    assert {warning.filename for warning in heard} == {__file__}


@pytest.mark.parametrize(("words", "options"), [
    (("--pooler", "mean"), {"pooler": "mean"}), (("--sample", "--data-dir", "x"), {"sample": True, "data_dir": "x"}),
])
def test_options_that_exclude_each_other(run, cli, words, options):
    code, _, err = cli("identify", said(ROW["all"]), "--model", run, *words)
    with pytest.raises(StsbenchError) as error:
        stsbench.identify(said(ROW["all"]), run, **options)
    assert code == 2 and str(error.value) in err


def test_what_is_refused_is_refused_in_the_command_s_words(run, cli):
    for numbers, model in (("STS12=x", run), ("1 2 3", run), ("STS12=50", "nowhere/at/all"), ("STS99=50", run)):
        _, _, err = cli("identify", numbers, "--model", model)
        with pytest.raises(StsbenchError) as error:
            stsbench.identify(numbers, model)
        assert err.endswith(f"stsbench: error: {error.value}\n")


def test_what_only_python_can_get_wrong_is_one_line():
    for model, options, says in (([], {}, "needs a model"), ("lexical:tfidf", {"sample": "perhaps"}, "identify: sample=")):
        with pytest.raises(StsbenchError, match=says) as error:
            stsbench.identify("STS-B=50", model, **options)
        assert "\n" not in str(error.value)
    with pytest.raises(TypeError, match="poolr"):
        stsbench.identify("STS-B=50", "lexical:token-set", poolr="cls")


def test_what_cannot_be_checked_is_an_outcome_of_its_own(run, cli):
    code, _, err = cli("identify", "MR=80", "--model", run)
    found = stsbench.identify({"MR": 80}, run)
    assert code == 1 and found.verdict == "nothing checked" and found.to_frame().empty
    assert err.splitlines()[0] in str(found) and err.splitlines()[0] in found._repr_html_().replace("&#x27;", "'")
