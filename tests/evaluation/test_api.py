"""What users of Python type: one name for a list, paths as text, models of other libraries; and what they get back.

The command line's warnings among it, once each; and bad input costs its own task only."""

import importlib
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import light_process
import numpy as np
import pytest
from clirun import SAMPLE
from geometry_runs import vectors
from tiny_models import build

import stsbench
from stsbench import compare, evaluate, load_encoder
from stsbench.errors import StsbenchWarning

ASKED = {"sample": True, "resamples": 0, "no_cache": True}
pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")


def letters(texts):
    return np.array([[text.count(chr(97 + i)) + i / 9 for i in range(26)] for text in texts])


class Model:
    def encode(self, texts):
        return letters(texts)


def rows(result):
    return [(row.task, row.subset, row.metric, row.aggregation, row.value) for row in result.rows]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    return evaluate(letters, output=folder / "run", protocols=["sts:all"], tasks=["STS-B", "STS12"], **ASKED)


def test_one_name_is_a_list_of_one(plain):
    for asked in ({"protocols": "sts:all", "tasks": "STS-B,STS12"}, {"protocol": ["sts:all"], "tasks": ("STS12", "STS-B")}):
        assert rows(evaluate(letters, **asked, **ASKED)) == rows(plain)


def test_models_of_every_kind(tmp_path, plain):
    task = {"protocols": "sts:all", "tasks": "STS-B,STS12", **ASKED}
    assert rows(evaluate(Model(), **task)) == rows(evaluate(Model().encode, **task)) == rows(plain)
    build(tmp_path / "model")
    by_name = load_encoder(str(tmp_path / "model"), pooler="mean", offline=True)
    assert load_encoder(tmp_path / "model", pooler="mean", offline=True).spec == by_name.spec
    assert load_encoder(by_name) is by_name
    assert np.array_equal(load_encoder(letters).encode("a b"), letters(["a b"])[0].astype(np.float32))


@pytest.mark.parametrize("room", ["stsbench.evaluation", "stsbench.protocols"])
def test_every_name_that_a_room_lists_is_there(room):
    package = importlib.import_module(room)
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_temporary_records_end_with_the_process():
    code = (
        "import stsbench, sys, warnings; warnings.simplefilter('ignore')\n"
        "import stsbench.evaluation, stsbench.protocols\n"
        "assert not {'torch', 'sklearn', 'huggingface_hub', 'mteb'} & set(sys.modules)\n"
        "assert {'compare', 'evaluate', 'train'} <= set(dir(stsbench))\n"
        "r = stsbench.evaluate('lexical:token-set', sample=True, tasks='STS12', resamples=0); assert r.folder.is_dir()\n"
        "print(r.folder)"
    )
    done = light_process.run(code)
    assert done.returncode == 0 and not Path(done.stdout.strip()).exists(), done.stderr
    assert set(stsbench.__all__) <= set(dir(stsbench))


def test_a_trainings_warnings_come_from_the_callers_line(tmp_path):
    settings = {"training.max_steps": 1, "training.batch_size": 2, "selection.by": "none"}
    with pytest.warns(StsbenchWarning, match="trained on the package's sample") as caught:
        stsbench.train("simcse", output=tmp_path / "run", sample=True, backbone=build(tmp_path / "model"), device="cpu",
                       settings=settings)
    assert {Path(each.filename) for each in caught if each.category is StsbenchWarning} == {Path(__file__)}
    assert "wiki_sentences.txt" in (tmp_path / "run" / "recipe.yaml").read_text("utf-8")


def constant(texts):
    return np.ones((len(texts), 3))


def heard(model, output, **asked):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate(model, output=output, no_cache=True, resamples=0, **asked)
    assert all(issubclass(each.category, UserWarning) for each in caught)
    lines = [str(each.message) for each in caught if each.category is StsbenchWarning]
    assert len(lines) == len(set(lines))
    return [line for line in lines if "cannot enter the public leaderboard" not in line]


def test_failed_tasks_and_unidentified_functions(tmp_path):
    assert heard(letters, tmp_path / "good", sample=True, tasks=["STS12"]) == []
    lines = heard(constant, tmp_path / "bad", sample=True, tasks=["STS12", "STS13"], fingerprint="1")
    assert [line.split(":")[0] for line in lines] == ["failed", "failed"] and "STS12" in lines[0] and "STS13" in lines[1]
    assert "has no identity" in heard(constant, tmp_path / "none", sample=True, tasks=["STS12"])[0]


def test_a_loop_over_models_is_told_of_each_in_the_command_lines_words(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # Python's own: once for each line and text
        for name in "ab":
            asked = {"sample": True, "tasks": ["STS-B"], "fingerprint": name, "resamples": 0, "no_cache": True}
            result = evaluate(constant, output=tmp_path / name, protocols="sts,transfer", **asked)
    lines = [str(each.message) for each in caught if "failed" in str(each.message)]
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].count("STS-B") == 1
    assert {each.filename for each in caught} == {__file__}
    assert "left out: transfer: it has none of the tasks STS-B" in str(result)


def test_a_p_below_the_decimals_is_not_printed_as_zero(plain):
    """One table for Python and the terminal: a p of .00001 is no 0.0000."""
    other = evaluate(lambda texts: letters(texts)[:, :9], tasks="STS-B", **ASKED)
    table = compare(plain, other, resamples=100).tables[0]
    table = replace(table, rows=(replace(table.rows[0], corrected=0.00001),) * 2, average=None)
    assert table.columns()[-2].texts == ["<0.0001"] * 2  # before what is detectable


def test_bad_input_costs_its_own_task_only(tmp_path):
    """MPQA has one class, CR misses a file, SUBJ has too few items, TREC a line of rubbish; a vector of MR is NaN."""
    folder = tmp_path / "data"
    shutil.copytree(SAMPLE, folder)
    down = folder / "downstream"
    (down / "MPQA/mpqa.neg").write_text("", "utf-8")
    (down / "CR/custrev.pos").unlink()
    for path in (down / "SUBJ").iterdir():
        path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:4]), "utf-8")
    (down / "TREC/TREC_10.label").write_text("no label here\n", "utf-8")
    broken = (down / "MR/rt-polarity.pos").read_text("utf-8").splitlines()[3]

    def encoder(texts):
        made = vectors(texts)
        made[[text == " ".join(broken.split()) for text in texts]] = np.nan
        return made

    protocols = ["transfer:exact", "geometry"]
    result = evaluate(encoder, output=tmp_path / "run", data_dir=folder, protocols=protocols, no_cache=True)
    want = {
        "CR": f"{down}/CR/custrev.pos is missing", "MPQA": "only class 1", "SUBJ": "8 items are fewer than",
        "TREC": f"{down}/TREC/TREC_10.label:1", "MR": f"NaN or infinity for 1 of 64 texts, the first: '{broken}",
    }
    assert set(result.failures) == {f"transfer:exact {task}" for task in want}
    for task, part in want.items():
        assert part in result.failures[f"transfer:exact {task}"], result.failures
        assert "\n" not in result.failures[f"transfer:exact {task}"]
    assert {record.data.id for record in result.records} == {"sst2", "mrpc", "stsb/test"}
    assert not [row for row in result.rows if row.task == "Avg"]
