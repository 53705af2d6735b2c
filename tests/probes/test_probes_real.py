"""The transfer protocol on real data against one fit after another. Slow: several minutes per task."""

import os
from pathlib import Path

import numpy as np
import probe_oracle
import pytest
import sklearn_oracle
import torch
from realdata import real_data

from stsbench.data.fetch.sources import load
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.files import cache_root
from stsbench.probes.schemes import GRID_KFOLD, GRID_NESTED_SPLIT
from stsbench.protocols.transfer import TASKS, TransferProtocol

L2 = [1e-5, 1e-4, 1e-3, 1e-2]  # SentEval, senteval/tools/validation.py

pytestmark = pytest.mark.skipif(os.environ.get("STSBENCH_SLOW") != "1", reason="slow: set STSBENCH_SLOW=1")


def items(data, split):
    """Features as SentEval makes them, written out again: the split sorted by (words, label), then u or |u-v|, u*v."""
    chosen = [i for i, name in enumerate(data.splits) if name == split]
    second = data.second or data.first
    chosen.sort(key=lambda i: (len(data.first[i].split()), len(second[i].split()), data.labels[i]))
    return chosen, [data.first[i] or "." for i in chosen], [second[i] or "." for i in chosen]


@pytest.fixture(params=["CR", "TREC", "MRPC"])
def measured(request):
    """(task, data, embed, features and labels by split)."""
    task, folder = request.param, real_data()
    model = Path(os.environ.get("STSBENCH_MODEL", folder.parent / "models" / "minilm-l6-fp16"))
    if not model.is_dir():
        pytest.skip("needs an encoder: set STSBENCH_MODEL to a model folder")
    data = load(TASKS[task], data_dir=folder)
    embed = Embed(load_encoder(str(model), device="cpu"), EmbeddingCache(cache_root() / "embeddings"))
    x, y = {}, {}
    for split in dict.fromkeys(data.splits):
        chosen, first, second = items(data, split)
        u, v = embed(first), embed(second)
        x[split] = np.concatenate([np.abs(u - v), u * v], axis=1) if data.second else u
        y[split] = data.labels[chosen]
    return task, data, embed, x, y


def scores(task, data, seen):
    rows = TransferProtocol({}).score(seen, data.id, task)
    return {row.metric: row.value for row in rows}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lockstep_is_one_fit_at_a_time(measured, dtype):
    task, data, embed, x, y = measured
    seen = TransferProtocol({"dtype": dtype}).observe(embed, data)
    settings = {"dtype": getattr(torch, dtype)}
    if task == "CR":
        grid, best, rows, predicted, dev, accuracy = probe_oracle.inner_kfold(x["all"], y["all"], 2, L2, 10, **settings)
        order = items(data, "all")[0]
        assert [order[row] for row in rows] == seen.arrays["rows"].tolist()
    else:
        grid, best, predicted, dev, accuracy = probe_oracle.kfold(
            x["train"], y["train"], x["test"], y["test"], 6 if task == "TREC" else 2, L2, 10, **settings
        )
        grid, best = [grid], [best]
    assert seen.arrays["grid"].tolist() == grid and seen.arrays["chosen"].tolist() == best
    assert seen.arrays["predicted"].tolist() == predicted
    got = scores(task, data, seen)
    assert (got["accuracy"], got["dev accuracy"]) == (accuracy, dev)
    print(f"\n{task} {dtype}: accuracy {accuracy}, dev {dev}, chosen {best}")


def test_the_scikit_learn_mode_is_plain_loops(measured):
    task, data, embed, x, y = measured
    seen = TransferProtocol({"classifier": "sklearn"}).observe(embed, data)
    got = scores(task, data, seen)
    if task == "CR":
        want = sklearn_oracle.nested(x["all"], y["all"], 10, GRID_NESTED_SPLIT)
    else:
        both, labels = np.concatenate([x["train"], x["test"]]), np.concatenate([y["train"], y["test"]])
        split = np.split(np.arange(len(both)), [len(x["train"])])
        want = sklearn_oracle.kfold(both, labels, *split, 10, GRID_KFOLD)
    assert seen.arrays["chosen"].tolist() == want["chosen"]
    assert got["accuracy"] == pytest.approx(want["acc"], abs=0.01)
    assert got["dev accuracy"] == pytest.approx(want["devacc"], abs=0.01)
    if task == "MRPC":
        assert got["f1"] == pytest.approx(want["f1"], abs=0.01)
    print(f"\n{task} scikit-learn: {want}, ours {got}")
