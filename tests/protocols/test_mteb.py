"""The mteb protocol and adapter: equal to scipy on the sample, other tasks through mteb's mock tasks, and no traces left."""

import functools
import json
import logging
import os
import random
import sys
import zlib

import numpy as np
import pytest
import training_runs
from clirun import refuses
from scipy import stats
from scipy.spatial import distance

from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.fetch.sources import load_data
from stsbench.encoders.base import EncoderSpec
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.mteb import MtebEncoder
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.errors import ScoreError, StsbenchError
from stsbench.protocols.mteb import TASKS, HubData, MtebProtocol


@functools.cache
def mock_tasks():
    """mteb's own; not at import, or whoever tests something else would load its two thousand modules."""
    with undisturbed():
        from mteb.mocks import mock_tasks

    return mock_tasks


class Projected:
    """Words to 24 random numbers each, summed with a weight for the place; `asked` keeps every text it was given."""

    def __init__(self, fingerprint="p1"):
        self.fingerprint, self.asked = fingerprint, []

    def __call__(self, texts):
        self.asked += texts
        words = [enumerate(text.lower().split(), start=1) for text in texts]
        return np.array([sum((_word(word) * (1 + 0.1 * i) for i, word in each), _word("")) for each in words])


def _word(word, held={}):  # noqa: B006
    if word not in held:
        held[word] = np.random.default_rng(zlib.crc32(word.encode())).normal(size=24)
    return held[word]


def embed(function=None):
    return Embed(CallableEncoder(function or Projected()))


def sample(set_id):
    return load_data(set_id, sample=True)


def values(rows):
    return {row.metric: row.value / 100 for row in rows}


@pytest.mark.parametrize("task", ["STS-B", "SICK-R-MTEB"])
def test_sample_scores_equal_scipy(task):
    protocol, data, vectors = MtebProtocol({}), sample(TASKS[task]), embed()
    seen = protocol.observe(vectors, data)
    rows = protocol.score(seen, data.id, task)
    pairs = [(np.float64(u), np.float64(v)) for u, v in zip(vectors(data.first), vectors(data.second), strict=True)]
    oracles = {"cosine": distance.cosine, "euclidean": distance.euclidean, "manhattan": distance.cityblock}
    got = values(rows)
    for name, function in oracles.items():
        predicted = [-function(u, v) for u, v in pairs]
        # mteb's float32 may break a tie of two equal pairs of sentences
        assert got[f"{name}_spearman"] == pytest.approx(stats.spearmanr(predicted, data.gold).statistic, abs=1e-4)
        assert got[f"{name}_pearson"] == pytest.approx(stats.pearsonr(predicted, data.gold).statistic, abs=1e-6)
    assert got["spearman"] == pytest.approx(got["cosine_spearman"], abs=1e-4)
    assert rows[0].metric == "cosine_spearman" and len(rows) == 8
    assert {(r.protocol, r.task, r.n, r.subset, r.low) for r in rows} == {("mteb", task, len(data), None, None)}
    assert seen.names["mteb_task"] == [{"STS-B": "STSBenchmark", "SICK-R-MTEB": "SICK-R"}[task]]
    result = json.loads(seen.names["task_result"][0])
    assert result["scores"]["test"][0]["main_score"] == pytest.approx(got["cosine_spearman"], abs=1e-12)
    assert data.digest in result["dataset_revision"]  # the sample is no revision of MTEB's data


def test_importing_mteb_leaves_the_home_alone(tmp_path):
    home, said = tmp_path / "home", tmp_path / "said"
    home.mkdir()
    importing = training_runs.forked(_import_mteb, home, said)
    importing.join(120)
    assert importing.exitcode == 0
    assert said.read_text() == f"{home}/.cache/mteb\n"  # where a user's own mteb.evaluate goes, as ever
    assert not list(home.rglob("*"))


def _import_mteb(home, said):
    """In a process that has loaded what mteb needs: seven seconds of a fresh one's nine."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "mteb"]:
        del sys.modules[name]
    os.environ.clear()
    os.environ["HOME"] = str(home)
    for stream, path in ((1, said), (2, os.devnull)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    random.seed(3)
    first = random.random()
    random.seed(3)
    with undisturbed() as mteb:
        print("to standard error")
    assert random.random() == first
    print(mteb.evaluate.__kwdefaults__["cache"].cache_path, flush=True)


def test_a_task_reseeds_nothing_and_prints_nothing(capsys):
    import torch

    def draws():
        return random.random(), np.random.rand(), torch.rand(1).item()

    def seed():
        random.seed(5)
        np.random.seed(5)
        torch.manual_seed(5)

    seed()
    expected = draws()
    seed()
    MtebProtocol({}).observe(embed(), sample("stsb/test"))
    assert draws() == expected
    assert capsys.readouterr().out == "" and logging.getLogger("mteb").level == logging.NOTSET


def test_what_cannot_be_scored_is_refused_and_zero_vectors_are_said():
    data = sample("stsb/test")
    gap = data.texts[3]

    def collinear(texts):  # every cosine is 1, and in float32 almost
        return np.array([[len(t) + 1.0, 2 * len(t) + 2.0, 0.3 * len(t) + 0.3] for t in texts])

    def holed(texts):
        vectors = Projected()(texts)
        vectors[[t == gap for t in texts]] = np.nan
        return vectors

    for function, kind, reason in ((collinear, ScoreError, "predictions are equal"), (holed, StsbenchError, "NaN")):
        refuses(kind, reason, MtebProtocol({}).observe, embed(function), data)

    def some_zero(texts):
        vectors = Projected()(texts)
        vectors[[t in data.texts[:2] for t in texts]] = 0
        return vectors

    [note] = MtebProtocol({}).observe(embed(some_zero), data).names["notes"]
    assert note.startswith("2 of ") and "zero vector" in note


def hub(monkeypatch, task):
    monkeypatch.setattr(MtebProtocol, "_task", lambda self, mteb, name: task)
    protocol = MtebProtocol({"tasks": {"X": "mteb:X"}})
    return protocol, protocol.load("mteb:X")


@pytest.mark.parametrize(("kind", "n", "main"), [
    ("MockMultilingualSTSTask", 4, "cosine_spearman"), ("MockRetrievalTask", 4, "ndcg_at_10"),
    ("MockAggregatedTask", 4, "ndcg_at_10")])
def test_other_tasks_run_on_data_that_mteb_loads(monkeypatch, kind, n, main):
    with undisturbed():
        protocol, data = hub(monkeypatch, getattr(mock_tasks(), kind)())
    assert isinstance(data, HubData) and (data.texts, data.known, data.text_version) == ((), False, "own")
    seen = protocol.observe(embed(), data)
    rows = protocol.score(seen, data.id, "X")
    with undisturbed() as mteb:
        result = mteb.TaskResult.model_validate_json(seen.names["task_result"][0])
        assert rows[0].value == pytest.approx(100 * result.get_score())
    assert (rows[0].metric, rows[0].n, rows[0].subset) == (main, n, None) and seen.names["notes"] == []
    parts = [row for row in rows if row.metric == main and row.subset]
    assert len(parts) == (0 if rows[0].aggregation is None else len({row.subset for row in rows[1:]}))
    if parts:
        assert rows[0].value == pytest.approx(np.mean([row.value for row in parts]))
        assert rows[0].n == sum(row.n for row in parts)


def test_data_that_cannot_be_loaded_and_a_task_that_breaks_are_one_line(monkeypatch):
    with undisturbed():
        task = mock_tasks().MockSTSTask()
        broken = mock_tasks().MockSTSTask()

    def unreachable(**more):
        raise ConnectionError("no route\nto the Hub")

    def fails(*arguments, **more):
        raise ZeroDivisionError

    monkeypatch.setattr(task, "load_data", unreachable, raising=False)
    monkeypatch.setattr(broken, "_evaluate_subset", fails, raising=False)
    for each, reason in ((task, "ConnectionError: no route to the Hub"), (broken, "ZeroDivisionError")):
        protocol, data = hub(monkeypatch, each)
        refuses(ScoreError, reason, protocol.observe, embed(), data)


def test_a_main_score_that_does_not_exist_is_refused_and_another_metric_left_out():
    data = sample("stsb/test")
    seen = MtebProtocol({}).observe(embed(), data)
    seen.arrays["value"][seen.names["metric"].index("manhattan_pearson")] = np.nan
    assert "manhattan_pearson" not in values(MtebProtocol({}).score(seen, data.id, "STS-B"))
    seen.arrays["value"][0] = np.nan
    refuses(ScoreError, "computes no cosine_spearman", MtebProtocol({}).score, seen, data.id, "STS-B")


def test_names_after_the_colon():
    def variant(word):
        return MtebProtocol(MtebProtocol.variant(word))

    assert variant("SICK-R").tasks() == {"SICK-R-MTEB": "sick-r/mteb"}  # mteb's SICK-R is the one of 9,927 pairs
    assert variant("STS16").tasks() == {"STS16": "sts16/test"}
    assert variant("BIOSSES").tasks() == {"BIOSSES": "mteb:BIOSSES"}
    english = variant("MTEB(eng, v2)")
    assert len(english.tasks()) == 41 and english.label == "mteb:MTEB(eng, v2)"
    assert english.tasks()["STS-B"] == "mteb:STSBenchmark" and english.tasks()["SICK-R-MTEB"] == "mteb:SICK-R"
    assert variant("MTEB(eng)").settings == english.settings  # an alias
    again = MtebProtocol(json.loads(json.dumps(english.settings)), english.label)  # as a record gives it back
    assert (again.label, again.tasks()) == (english.label, english.tasks())
    # The benchmark runs one of its languages: other data than the task as a whole.
    assert english.load("mteb:STS22.v2").digest != variant("STS22.v2").load("mteb:STS22.v2").digest
    assert variant("STS12").load("mteb:STS12").digest == variant("BIOSSES").load("mteb:STS12").digest


def test_the_adapter_is_what_mteb_takes_for_an_encoder():
    encoder = MtebEncoder(embed())
    with undisturbed() as package:
        assert isinstance(encoder, package.EncoderProtocol)
        assert not isinstance(encoder, package.SearchProtocol | package.CrossEncoderProtocol)
        meta = encoder.mteb_model_meta
    texts = ["a b", "c", "a b"]
    vectors = encoder.encode([{"text": texts[:2]}, {"text": texts[2:]}], task_metadata=None, hf_split="", hf_subset="")
    assert vectors.dtype == np.float32 and np.array_equal(vectors, np.float32(Projected()(texts)))
    cosines = 1 - distance.cdist(vectors, vectors, "cosine")
    np.testing.assert_allclose(encoder.similarity(vectors, vectors).numpy(), cosines, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(vectors, vectors).numpy(), np.ones(3), atol=1e-12)
    assert meta.name.count("/") == 1 and encoder.embed.spec.fingerprint() in meta.revision
    with pytest.raises(ScoreError, match="gives image"):
        encoder.encode([{"image": [0]}], task_metadata=EncoderSpec("Photos", "", ""), hf_split="", hf_subset="")
