"""`mteb:NAME` under our protocols gives what mteb.evaluate gives for the same model, prompts included."""

import pytest

pytest.importorskip("sentence_transformers")
import registered_models
from registered_models import MODELS, entry, registered, retrieval_task, scores_of_mteb, similarity_task

from stsbench import evaluate, load_encoder
from stsbench.data.fetch.mteb import undisturbed
from stsbench.encoders.cache.embed import Embed
from stsbench.protocols.mteb import HubData, MtebProtocol

POINTS = 1e-4


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A file of scored pairs, and a folder of queries with a corpus."""
    place = tmp_path_factory.mktemp("sources")
    return registered_models.write_pairs(place / "pairs.tsv"), registered_models.write_judged(place / "judged")


def values(result, metrics):
    return {row.metric: row.value for row in result.rows if row.metric in metrics}


@pytest.mark.parametrize("name", MODELS)
def test_our_protocols_mteb_s_and_mteb_itself_agree(name, tmp_path, sources, monkeypatch):
    build, like = MODELS[name]
    folder = tmp_path / "org" / "model"
    build(folder)
    with undisturbed() as package:
        meta = entry(folder, like)
        direct = meta.load_model(device="cpu")
        similar, retrieved = scores_of_mteb(package, direct, [similarity_task(), retrieval_task()])
    asked = {"device": "cpu", "offline": True, "trust_remote_code": True}
    pairs, judged = sources
    with registered(meta) as model:
        encoder = load_encoder(model, **asked)
    own = evaluate(encoder, protocol=[f"sts:{pairs}", f"retrieval:{judged}"], resamples=0, no_cache=True,
                   output=tmp_path / "run")
    assert not own.failures
    assert values(own, ("spearman",))["spearman"] == pytest.approx(100 * similar["spearman"], abs=POINTS)
    got = values(own, ("recall@1", "recall@5", "recall@10", "mrr"))
    expected = {"mrr": retrieved["mrr_at_1000"], **{f"recall@{k}": retrieved[f"recall_at_{k}"] for k in (1, 5, 10)}}
    for key, value in got.items():  # mteb rounds all but MRR to five digits
        assert round(value / 100, 5) == round(expected[key], 5), key

    for task, scores in ((similarity_task(), similar), (retrieval_task(), retrieved)):
        monkeypatch.setattr(MtebProtocol, "_task", lambda self, mteb, name, task=task: task)
        monkeypatch.setattr(type(task), "load_data", lambda self, *arguments, **more: None)
        protocol = MtebProtocol({"tasks": {"X": "mteb:X"}})
        data = HubData("mteb:X", "X", "own", (), origin="", known=False)
        seen = protocol.observe(Embed(encoder), data)
        for row in protocol.score(seen, data.id, "X"):
            assert row.value == pytest.approx(100 * scores[row.metric], abs=POINTS), row.metric
