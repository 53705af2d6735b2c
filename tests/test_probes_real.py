"""The transfer protocol on real data against one fit at a time. Slow: several minutes a task."""

import os
from pathlib import Path

import numpy as np
import probe_oracle
import pytest
import torch
from realdata import real_data
from stsbench.protocols.transfer import L2, TASKS, TransferProtocol

from stsbench.data.sources import load
from stsbench.encoders.embed import Embed
from stsbench.encoders.load import load_encoder

pytestmark = pytest.mark.skipif(os.environ.get("STSBENCH_SLOW") != "1", reason="slow: set STSBENCH_SLOW=1")


def items(data, split):
    """Features as SentEval makes them, written out again: the split sorted by (words, label), then u or |u-v|, u*v."""
    chosen = [i for i, name in enumerate(data.splits) if name == split]
    second = data.second or data.first
    chosen.sort(key=lambda i: (len(data.first[i].split()), len(second[i].split()), data.labels[i]))
    return chosen, [data.first[i] or "." for i in chosen], [second[i] or "." for i in chosen]


@pytest.mark.parametrize("task", ["CR", "TREC", "MRPC"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lockstep_is_one_fit_at_a_time(task, dtype):
    folder = real_data()
    model = Path(os.environ.get("STSBENCH_MODEL", folder.parent / "models" / "minilm-l6-fp16"))
    if not model.is_dir():
        pytest.skip("needs an encoder: set STSBENCH_MODEL to a model folder")
    data = load(TASKS[task], data_dir=folder)
    embed = Embed(load_encoder(str(model), device="cpu"))
    seen = TransferProtocol({"dtype": dtype}).observe(embed, data)
    x, y = {}, {}
    for split in dict.fromkeys(data.splits):
        chosen, first, second = items(data, split)
        u, v = embed(first), embed(second)
        x[split] = np.concatenate([np.abs(u - v), u * v], axis=1) if data.second else u
        y[split] = data.labels[chosen]
    settings = {"dtype": getattr(torch, dtype)}
    if task == "CR":
        grid, best, rows, predicted, dev, accuracy = probe_oracle.inner_kfold(x["all"], y["all"], 2, L2, 10, **settings)
        assert [items(data, "all")[0][row] for row in rows] == seen.arrays["rows"].tolist()
    else:
        grid, best, predicted, dev, accuracy = probe_oracle.kfold(
            x["train"], y["train"], x["test"], y["test"], 6 if task == "TREC" else 2, L2, 10, **settings
        )
        grid, best = [grid], [best]
    assert seen.arrays["grid"].tolist() == grid and seen.arrays["chosen"].tolist() == best
    assert seen.arrays["predicted"].tolist() == predicted
    got = {row.metric: row.value for row in TransferProtocol({}).score(seen, data.id, task)}
    assert (got["accuracy"], got["dev accuracy"]) == (accuracy, dev)
    print(f"{task} {dtype}: accuracy {accuracy}, dev {dev}, chosen {best}")
