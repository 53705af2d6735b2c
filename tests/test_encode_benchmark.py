"""The encoding benchmark's own parts: shapes, texts, and a peer that is not installed."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "encode"


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(FOLDER))
    import models
    import texts

    yield SimpleNamespace(models=models, texts=texts)
    sys.path.remove(str(FOLDER))
    for name in ("models", "texts"):
        del sys.modules[name]


def test_shapes_have_the_sizes_of_their_models(modules):
    """Weights without embeddings, in millions, by the models' cards and papers."""
    for name, millions in (("bert-base", 85), ("modernbert-base", 110), ("qwen3-0.6b", 440), ("gemma3-300m", 100)):
        kind, shape, _ = modules.models.SHAPES[name]
        with torch.device("meta"):
            model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(vocab_size=60_000, **shape))
        assert modules.models.multiply_adds(model, [1]) == pytest.approx(1e6 * millions, rel=0.06)


def test_a_sample_is_whole_batches_of_the_library(modules):
    texts = ["a" * length for length in range(1, 641)]
    some = modules.texts.sample(texts, 128, 0)
    assert len(some) == 128 and some == sorted(some, key=len, reverse=True)
    assert all((len(some[start]) - len(some[start + 31])) == 31 for start in range(0, 128, 32))


def test_scores_are_those_of_the_pairs(modules):
    pairs = [("a", "b", 1.0), ("a", "c  c", 2.0), ("b", "c  c", 3.0)]
    vectors = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c c": [1.0, 3.0]}
    assert modules.texts.spearman(vectors, pairs) == pytest.approx(100.0)


def test_a_peer_that_is_not_installed_says_so(tmp_path, monkeypatch, capsys):
    job = {"backend": "onnx-int8", "folder": str(tmp_path), "texts": ["a"], "more": [], "work": str(tmp_path),
           "calibration": [], "threads": torch.get_num_threads(), "repeats": 1, "cpu_time": True}
    (tmp_path / "job.json").write_text(json.dumps(job))
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(sys, "argv", ["peer.py", str(tmp_path / "job.json"), str(tmp_path / "out.npz")])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(FOLDER / "peer.py"), run_name="__main__")
    assert stop.value.code == 1
    assert "onnxruntime" in capsys.readouterr().out.splitlines()[-1]
