"""Two processes train what one trains: torchrun on CPU, gloo; dropout off, since each process draws its own masks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import tiny_models
import torch
import training_runs
from job_server import JobServer
from safetensors.torch import load_file

# In the place of `stsbench`, which torchrun starts: the command runs in a fork of the server, by the environment given here.
PROGRAM = """#!{python} -IS
import json, os, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect({address!r})
told = {{"words": sys.argv[1:], "folder": os.getcwd(), "log": {log!r}, "environment": dict(os.environ)}}
socket.send_fds(client, [json.dumps(told).encode()], [0])
sys.exit([int(line) for line in client.makefile()][-1])
"""


def run(place: Path, name: str, values):
    """`torchrun --nproc_per_node 2 stsbench train simcse --seeds 2` into place/name: (exit code, what the two say)."""
    sets = [word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    # without an accelerator as the documentation has it: nothing is said of a device
    device = ["--device", "cpu"] if torch.cuda.is_available() else []
    program, log = place / "stsbench", place / f"{name}.log"
    log.touch()
    with JobServer(place) as server:
        program.write_text(PROGRAM.format(python=sys.executable, address=server.address, log=str(log)), "utf-8")
        program.chmod(0o755)
        words = ["--no-python", "--nproc_per_node", "2", "--master_port", "0", "--rdzv_backend", "c10d",
                 "--rdzv_endpoint", "localhost:0", str(program), "train", "simcse", "--output", str(place / name),
                 "--sample", "--seeds", "2", *device, *sets]
        agent = training_runs.forked(_torchrun, words, {"OMP_NUM_THREADS": "1", "STSBENCH_CACHE": str(place / "cache")})
        agent.join(240)
        agent.kill()
    return agent.exitcode, log.read_text("utf-8")


def _torchrun(words, environment):
    os.environ.update(environment)
    from torch.distributed.run import main

    main(words)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def values(place):
    model = tiny_models.build(place / "tiny", pooler=False, layers=1)
    # 65 rows in batches of 10, four a step: the last one has 5, which two processes share as 3 and 2, beside two of 10
    more = {"backbone.dropout": 0.0, "options.mlm_weight": 0.1, "training.epochs": 1, "training.accumulate": 4,
            "training.clip": 0.5, "training.epsilon": 1e-2}
    return training_runs.settings(model, training_runs.make_text(place, 65), **more)


def test_two_ranks_equal_one_for_each_of_several_seeds(place, values):
    alone, both = place / "alone", place / "both" / "seed-43"
    assert training_runs.train(alone, {**values, "seed": 43}) == (0, None)
    code, said = run(place, "both", values)
    assert code == 0, said
    assert json.loads((place / "both" / "seeds.json").read_text())["seeds"] == [42, 43]
    summaries = [json.loads((folder / "train.json").read_text()) for folder in (alone, both)]
    assert [(summary["seed"], summary["processes"]) for summary in summaries] == [(43, 1), (43, 2)]
    one, two = map(training_runs.log_of, (alone, both))
    assert [line["kind"] for line in one] == [line["kind"] for line in two]
    for mine, theirs in zip(one, two, strict=True):
        if mine["kind"] == "train":
            assert mine["loss"] == pytest.approx(theirs["loss"], abs=2e-5)
            assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=2e-4)
            for name in ("contrastive", "mlm"):
                assert mine["terms"][name] == pytest.approx(theirs["terms"][name], abs=2e-5)
        if mine["kind"] == "dev":
            assert mine["score"] == pytest.approx(theirs["score"], abs=0.2)
    first, second = (load_file(folder / "best" / "model.safetensors") for folder in (alone, both))
    assert first.keys() == second.keys()
    start = load_file(place / "tiny" / "model.safetensors")
    moved = max(float((first[name] - start[name]).abs().max()) for name in first)
    distance = max(float((first[name] - second[name]).abs().max()) for name in first)
    # the large epsilon keeps Adam from blowing up the rounding of gradients that are 0 by mathematics (key biases)
    assert distance < 2e-3 * moved, (distance, moved)
