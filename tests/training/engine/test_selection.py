"""Development scores during training are those of the exported encoder under the protocols."""

from __future__ import annotations

import json

import numpy as np
import pytest
import training_runs
from scipy.stats import spearmanr
from training_runs import cache, one_thread, place

import stsbench
from stsbench.data.fetch import sources
from stsbench.errors import StsbenchError
from stsbench.training.engine.selection import Selection

__all__ = ["cache", "one_thread", "place"]


def run(place, name, **values):
    values = training_runs.settings(place / "tiny", place / "text.txt", **values)
    return stsbench.train("simcse", output=place / name, settings=values, sample=True, device="cpu")


def lines(folder, kind):
    return [line for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines()) if line["kind"] == kind]


@pytest.mark.parametrize("head", ["mlp_train_only", "mlp"])
def test_sts_b_dev_is_the_exported_encoders_own(place, head):
    summary = run(place, head, **{"options.head": head})
    encoder = stsbench.load_encoder(str(place / head))
    assert encoder.spec.pooler == ("cls+dense" if head == "mlp" else "cls")
    data = sources.load("stsb/dev", sample=True)
    u, v = (np.asarray(encoder.encode(list(texts)), np.float64) for texts in (data.first, data.second))
    cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    assert summary["best"]["score"] == pytest.approx(100 * spearmanr(cosines, data.gold).statistic, abs=1e-3)
    assert summary["dev_data"] == {"stsb/dev": data.digest}
    best = [line for line in lines(place / head, "dev") if line["best"]][-1]
    assert (best["step"], best["score"]) == (summary["best"]["step"], summary["best"]["score"])


def test_the_score_before_training_is_the_backbones(place):
    dev = lines(place / "mlp_train_only", "dev")[0]
    result = stsbench.load_encoder(str(place / "tiny"), pooler="cls")
    data = sources.load("stsb/dev", sample=True)
    u, v = (np.asarray(result.encode(list(texts)), np.float64) for texts in (data.first, data.second))
    cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    assert dev["step"] == 0 and dev["score"] == pytest.approx(100 * spearmanr(cosines, data.gold).statistic, abs=1e-3)


def test_avg_sts_is_the_mean_of_two_development_sets_and_says_so(place):
    summary = run(place, "avg", **{"selection.by": "avg_sts", "training.max_steps": 4})
    result, scores = stsbench.load_encoder(str(place / "avg"), pooler="cls"), []
    for name in ("stsb/dev", "sick-r/trial"):
        data = sources.load(name, sample=True)
        u, v = (np.asarray(result.encode(list(texts)), np.float64) for texts in (data.first, data.second))
        cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
        scores.append(100 * spearmanr(cosines, data.gold).statistic)
        assert summary["dev_data"][name] == data.digest
    assert summary["best"]["score"] == pytest.approx(np.mean(scores), abs=1e-3) and len(summary["dev_data"]) == 2
    assert summary["selected_by"] == "avg_sts (sample)"


def test_transfer_dev_is_the_protocols_mean(place):
    summary = run(place, "transfer", **{"selection.by": "transfer dev", "training.max_steps": 4})
    result = stsbench.evaluate(str(place / "transfer"), output=place / "eval", protocols=["transfer"], sample=True)
    found = [row.value for row in result.rows if row.metric == "dev accuracy"]
    assert len(found) == 7 and summary["best"]["score"] == pytest.approx(np.mean(found), abs=0.5)
    assert len(summary["dev_data"]) == 7


def test_held_out_rows_are_not_trained_on(place, monkeypatch):
    from stsbench.methods.simcse.method import SimCSE

    seen = {True: set(), False: set()}
    real = SimCSE.views

    def views(self, rows, rng):
        seen[self.training] |= set(rows.rows)
        return real(self, rows, rng)

    monkeypatch.setattr(SimCSE, "views", views)
    summary = run(place, "held", **{"selection.by": "held-out", "data.held_out": 20, "training.batch_size": 8})
    assert len(seen[False]) == 20 and len(seen[True]) == 40 and not seen[True] & seen[False]
    assert summary["data"]["main"] == {**summary["data"]["main"], "rows": 40, "held_out": 20}
    scores = [line["score"] for line in lines(place / "held", "dev")]
    assert all(score < 0 for score in scores)  # the loss, negated: more is better
    assert summary["best"]["score"] == max(scores[1:-1] if lines(place / "held", "dev")[-1]["step"] % 4 else scores[1:])


def test_scoring_changes_nothing(place):
    """With and without dev evaluations between the steps, the same weights come out."""
    run(place, "often", **{"selection.every": 1, "training.max_steps": 6})
    run(place, "never", **{"selection.by": "none", "training.max_steps": 6})
    newest = [sorted((place / name).glob("checkpoints/[0-9]*"))[-1] / "model.safetensors" for name in ("often", "never")]
    assert newest[0].read_bytes() == newest[1].read_bytes()


def test_held_out_without_rows():
    with pytest.raises(StsbenchError, match=r"data\.held_out"):
        Selection("held-out")
