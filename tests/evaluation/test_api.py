"""What users of Python type: one name for a list, paths as text, models of other libraries; and what they get back."""

from dataclasses import replace
from pathlib import Path

import light_process
import numpy as np
import pytest
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


def test_temporary_records_end_with_the_process():
    code = (
        "import stsbench, sys, warnings; warnings.simplefilter('ignore')\n"
        "assert 'torch' not in sys.modules and {'compare', 'evaluate', 'train'} <= set(dir(stsbench))\n"
        "r = stsbench.evaluate('lexical:token-set', sample=True, tasks='STS12', resamples=0); assert r.folder.is_dir()\n"
        "print(r.folder)"
    )
    done = light_process.run(code)
    assert done.returncode == 0 and not Path(done.stdout.strip()).exists(), done.stderr
    assert set(stsbench.__all__) <= set(dir(stsbench))


@pytest.mark.parametrize(("own_text", "words", "named"), [
    (True, "the last weights will be kept", "texts.txt"), (False, "trained on the package's sample", "wiki_sentences.txt"),
])
def test_a_trainings_warnings_come_from_the_callers_line(tmp_path, own_text, words, named):
    (tmp_path / "texts.txt").write_text("a cat\nthe dog\na bird\n")
    settings = {"training.max_steps": 1, "training.batch_size": 2, "selection.every": 50}
    more = {"data": tmp_path / "texts.txt"} if own_text else {}
    with pytest.warns(StsbenchWarning, match=words) as caught:
        stsbench.train("simcse", output=tmp_path / "run", sample=True, backbone=build(tmp_path / "model"), device="cpu",
                       settings=settings, **more)
    assert {Path(each.filename) for each in caught if each.category is StsbenchWarning} == {Path(__file__)}
    assert named in (tmp_path / "run" / "recipe.yaml").read_text("utf-8")


def test_a_p_below_the_decimals_is_not_printed_as_zero(plain):
    """One table for Python and the terminal: a p of .00001 is no 0.0000."""
    other = evaluate(lambda texts: letters(texts)[:, :9], tasks="STS-B", **ASKED)
    table = compare(plain, other, resamples=100).tables[0]
    table = replace(table, rows=(replace(table.rows[0], corrected=0.00001),) * 2, average=None)
    assert table.columns()[-2].texts == ["<0.0001"] * 2  # before what is detectable
