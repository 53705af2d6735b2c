"""Two processes train what one trains: torchrun on CPU, gloo; dropout off, since each process draws its own masks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models
import torch
import training_runs
from clirun import cli  # noqa: F401 - a fixture
from safetensors.torch import load_file

BIN = Path(sys.executable).parent


def run(place: Path, name: str, values):
    """`torchrun --nproc_per_node 2 stsbench train simcse` into place/name: the finished process."""
    sets = [word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    # without an accelerator as the documentation has it: nothing is said of a device
    device = ["--device", "cpu"] if torch.cuda.is_available() else []
    command = [str(BIN / "torchrun"), "--no-python", "--nproc_per_node", "2", "--master_port", "0", "--rdzv_backend", "c10d",
               "--rdzv_endpoint", "localhost:0", str(BIN / "stsbench"), "train", "simcse", "--output", str(place / name),
               "--sample", *device, *sets]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "STSBENCH_CACHE": str(place / "cache")}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def values(place):
    model = tiny_models.build(place / "tiny", pooler=False)
    # 65 rows in batches of 10, four a step: the last one has 5, which two processes share as 3 and 2, beside two of 10
    more = {"backbone.dropout": 0.0, "options.mlm_weight": 0.1, "training.epochs": 1, "training.accumulate": 4,
            "training.clip": 0.5, "training.epsilon": 1e-2}
    return training_runs.settings(model, training_runs.make_text(place, 65), **more)


def test_two_ranks_equal_one(place, values):
    assert training_runs.train(place / "alone", values) == (0, None)
    both = run(place, "both", values)
    assert both.returncode == 0, both.stderr
    summaries = [json.loads((place / name / "train.json").read_text()) for name in ("alone", "both")]
    assert [summary["processes"] for summary in summaries] == [1, 2]
    one, two = (training_runs.log_of(place / name) for name in ("alone", "both"))
    assert [line["kind"] for line in one] == [line["kind"] for line in two]
    for mine, theirs in zip(one, two, strict=True):
        if mine["kind"] == "train":
            assert mine["loss"] == pytest.approx(theirs["loss"], abs=2e-5)
            assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=2e-4)
            for name in ("contrastive", "mlm"):
                assert mine["terms"][name] == pytest.approx(theirs["terms"][name], abs=2e-5)
        if mine["kind"] == "dev":
            assert mine["score"] == pytest.approx(theirs["score"], abs=0.2)
    first, second = (load_file(place / name / "best" / "model.safetensors") for name in ("alone", "both"))
    assert first.keys() == second.keys()
    start = load_file(place / "tiny" / "model.safetensors")
    moved = max(float((first[name] - start[name]).abs().max()) for name in first)
    distance = max(float((first[name] - second[name]).abs().max()) for name in first)
    # the large epsilon keeps Adam from blowing up the rounding of gradients that are 0 by mathematics (key biases)
    assert distance < 2e-3 * moved, (distance, moved)


def test_several_processes_need_one_folder(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("train", "simcse")
    assert code == 2 and "several processes need --output" in err


def test_two_ranks_train_several_seeds(place, values):
    short = {**values, "training.max_steps": 2, "selection.by": "none"}
    assert training_runs.train_ranks(place / "seeds", short, seeds=2) == [(0, None)] * 2
    summaries = [json.loads((place / "seeds" / f"seed-{seed}" / "train.json").read_text()) for seed in (42, 43)]
    assert [(summary["seed"], summary["processes"]) for summary in summaries] == [(42, 2), (43, 2)]
    assert json.loads((place / "seeds" / "seeds.json").read_text())["seeds"] == [42, 43]
