"""What users of Python type: one name for a list, paths as text, models of other libraries; and what they get back."""

import inspect
import subprocess
import sys
from dataclasses import MISSING, fields, replace
from pathlib import Path

import numpy as np
import pytest
from tiny_models import build

import stsbench
from stsbench import compare, evaluate, load_encoder, load_records
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.options import EvalOptions

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


@pytest.mark.parametrize("asked", [
    {"protocols": "sts:all", "tasks": "STS-B,STS12"}, {"protocol": "sts:all", "tasks": ("STS12", "STS-B")},
    {"protocol": ["sts:all"], "tasks": "STS-B, STS12"},
])
def test_one_name_is_a_list_of_one(plain, asked):
    assert rows(evaluate(letters, **asked, **ASKED)) == rows(plain)


def test_names_hold_commas_in_brackets():
    from stsbench.evaluation.plan import words_of

    assert words_of("mteb:MTEB(eng, v2), sts") == ("mteb:MTEB(eng, v2)", "sts")


@pytest.mark.parametrize(("asked", "reason"), [
    ({"resamples": "many"}, "resamples='many': Input"),
    ({"tasks": "STS-C"}, "unknown task 'STS-C'"),
    ({"data_dir": 3}, "data_dir=3"),
    ({"data_dir": "/no/such/folder", "sample": False}, "no/such/folder"),
    ({"fingerprint": "1", "model": "minilm"}, "fingerprint is for a function"),
])
def test_what_cannot_be_meant_is_one_line(asked, reason):
    model = asked.pop("model", letters)
    with pytest.raises(StsbenchError, match=reason) as caught:
        evaluate(model, **{**ASKED, **asked})
    assert "\n" not in str(caught.value)


def test_an_option_by_both_of_its_words_is_an_error():
    with pytest.raises(TypeError, match="got protocols twice, as protocol, too"):
        evaluate(letters, protocol="sts", protocols="sts")


def test_models_of_every_kind(tmp_path, plain):
    task = {"protocols": "sts:all", "tasks": "STS-B,STS12", **ASKED}
    assert rows(evaluate(Model(), **task)) == rows(evaluate(Model().encode, **task)) == rows(plain)
    with pytest.raises(StsbenchError, match="not callable: its type is int; give a model's name"):
        evaluate(3, **ASKED)
    build(tmp_path / "model")
    by_name = load_encoder(str(tmp_path / "model"), pooler="mean", offline=True)
    assert load_encoder(tmp_path / "model", pooler="mean", offline=True).spec == by_name.spec
    assert load_encoder(by_name) is by_name
    assert np.array_equal(load_encoder(letters).encode("a b"), letters(["a b"])[0].astype(np.float32))
    with pytest.raises(TypeError, match="unexpected keyword argument 'poolr'"):
        load_encoder("minilm", poolr="cls")


def test_a_model_of_sentence_transformers(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    build(tmp_path / "model")
    from sentence_transformers.models import Pooling, Transformer

    modules = [Transformer(str(tmp_path / "model")), Pooling(32)]
    model = library.SentenceTransformer(modules=modules, device="cpu")
    encoder = load_encoder(model)
    np.testing.assert_allclose(encoder.encode(["a cat", "the dog"]), model.encode(["a cat", "the dog"]), atol=1e-6)
    assert encoder.spec.options["identity"] == "probe 1"
    other = library.SentenceTransformer(modules=[modules[0], Pooling(32, pooling_mode="cls")], device="cpu")
    assert load_encoder(other).spec.fingerprint() != encoder.spec.fingerprint()


def test_records_and_comparisons_by_name(plain, tmp_path, monkeypatch):
    other = evaluate(lambda texts: letters(texts)[:, :9], tasks="STS-B,STS12", **ASKED)
    assert other.folder.is_dir() and len(load_records(str(other.folder))) == 2
    monkeypatch.chdir(plain.folder.parent)
    tables = compare("run", str(other.folder), protocols="sts", resamples=100).tables
    assert [row.task for row in tables[0].rows] == ["STS12", "STS-B"]
    assert compare(plain, other, resamples=100).tables[0].rows == tables[0].rows


def test_temporary_records_end_with_the_process():
    code = (
        "import stsbench, sys, warnings; warnings.simplefilter('ignore')\n"
        "assert 'torch' not in sys.modules and {'compare', 'evaluate', 'train'} <= set(dir(stsbench))\n"
        "r = stsbench.evaluate('lexical:token-set', sample=True, tasks='STS12', resamples=0); assert r.folder.is_dir()\n"
        "print(r.folder)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not Path(done.stdout.strip()).exists(), done.stderr
    assert set(stsbench.__all__) <= set(dir(stsbench))


def test_a_backbone_of_a_training(tmp_path):
    (tmp_path / "texts.txt").write_text("a cat\nthe dog\na bird\n")
    settings = {"data.file": str(tmp_path / "texts.txt")}
    with pytest.raises(StsbenchError, match="--backbone /no/such/model: no such folder"):
        stsbench.train("simcse", output=tmp_path / "run", backbone="/no/such/model", settings=settings, offline=True)


def test_a_trainings_warnings_come_from_the_callers_line(tmp_path):
    (tmp_path / "texts.txt").write_text("a cat\nthe dog\na bird\n")
    with pytest.warns(StsbenchWarning, match="the last weights will be kept") as caught:
        stsbench.train("simcse", output=tmp_path / "run", sample=True, backbone=build(tmp_path / "model"), device="cpu",
                       settings={"training.max_steps": 1, "training.batch_size": 2, "selection.every": 50,
                                 "data.file": str(tmp_path / "texts.txt")})
    assert {Path(each.filename) for each in caught if each.category is StsbenchWarning} == {Path(__file__)}


def test_an_encoder_names_itself_without_being_run():
    assert repr(load_encoder("minilm")).endswith(" minilm, pooler mean>")
    ran = []
    assert repr(load_encoder(ran.append)) == "<CallableEncoder>" and not ran


def test_a_p_below_the_decimals_is_not_printed_as_zero(plain):
    """One table for Python and the terminal: a p of .00001 is no 0.0000."""
    other = evaluate(lambda texts: letters(texts)[:, :9], tasks="STS-B", **ASKED)
    table = compare(plain, other, resamples=100).tables[0]
    table = replace(table, rows=(replace(table.rows[0], corrected=0.00001),), average=None)
    assert table.columns()[-2].texts == ["<0.0001"]  # before what is detectable


def test_titles_name_changed_settings_and_a_comparison_one_encoder(tmp_path):
    result = evaluate(letters, tasks="STS-B", similarity="dot", fingerprint="1", **{**ASKED, "resamples": 20})
    assert str(result).startswith("sts (similarity dot, resamples 20)") or str(result).startswith("sts (similarity dot)")
    same = compare(result, result, resamples=20)
    assert str(same).splitlines()[2] == "A and B name the same encoder" and "(similarity dot" in str(same)
    other = evaluate(letters, tasks="STS-B", similarity="dot", fingerprint="2", **ASKED)
    assert "same encoder" not in str(compare(result, other, resamples=20))


def test_the_sample_means_for_a_training_what_it_means_on_the_command_line(tmp_path):
    settings = {"training.max_steps": 1, "training.batch_size": 4}
    with pytest.warns(StsbenchWarning, match="trained on the package's sample"):
        stsbench.train("simcse", output=tmp_path / "run", sample=True, backbone=build(tmp_path / "model"), device="cpu",
                       settings=settings)
    assert "wiki_sentences.txt" in (tmp_path / "run" / "recipe.yaml").read_text("utf-8")


def test_evaluate_takes_what_the_command_takes():
    """The names and defaults of its options are those from which the command is made, and a few names more."""
    written = inspect.signature(evaluate).parameters
    entries = {entry.name: entry for entry in fields(EvalOptions) if entry.name not in ("command", "extra_provenance")}
    assert set(written) - {"protocol", "task", "text", "cache"} == set(entries)
    entries.pop("model")
    for name, entry in entries.items():
        default = written[name].default
        if entry.default is not MISSING:
            assert default == entry.default, name
        elif entry.default_factory is not MISSING:
            assert dict(default) == entry.default_factory(), name
        assert written[name].kind is inspect.Parameter.KEYWORD_ONLY
    with pytest.raises(TypeError, match="protocls"):
        evaluate(letters, protocls="sts")
