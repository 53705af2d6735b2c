"""Two processes train what one trains, on a CPU by gloo, dropout off, since each process draws its own masks: torchrun; and
FSDP2, as accelerate's own variables ask for it, with checkpoints that go on in another number of processes."""

import json
import os
import sys
from pathlib import Path

import pytest
import tiny_models
import torch
import training_runs
from job_server import JobServer
from method_runs import cached_place, recipe_of, train
from safetensors.torch import load_file
from tiny_decoders import decoder_folder
from training_runs import log_of, serve, weights_of
from two_processes import check_two_are_one, stopped, train_each

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


def test_two_ranks_equal_one_for_each_of_several_seeds(tmp_path):
    place, model = tmp_path, tiny_models.build(tmp_path / "tiny", pooler=False, layers=1)
    # 65 rows in batches of 10, four a step: the last one has 5, which two processes share as 3 and 2, beside two of 10
    more = {"backbone.dropout": 0.0, "options.mlm_weight": 0.1, "training.epochs": 1, "training.accumulate": 4,
            "training.clip": 0.5, "training.epsilon": 1e-2}
    values = training_runs.settings(model, training_runs.make_text(place, 65), **more)
    alone, both = place / "alone", place / "both" / "seed-43"
    assert training_runs.train(alone, {**values, "seed": 43}) == (0, None)
    code, said = run(place, "both", values)
    assert code == 0, said
    assert json.loads((place / "both" / "seeds.json").read_text())["seeds"] == [42, 43]
    summaries = [json.loads((folder / "train.json").read_text()) for folder in (alone, both)]
    assert [(summary["seed"], summary["processes"]) for summary in summaries] == [(43, 1), (43, 2)]
    one, two = ([line["score"] for line in log_of(folder) if line["kind"] == "dev"] for folder in (alone, both))
    assert one == pytest.approx(two, abs=0.2)
    # the large epsilon keeps Adam from blowing up the rounding of gradients that are 0 by mathematics (key biases)
    check_two_are_one(alone, both, place / "tiny")


FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
# 55 rows in batches of 7, which two processes share as 4 and 3
CHANGES = {"training.batch_size": 7, "training.max_steps": 2, "training.epsilon": 1e-2, "training.clip": 0.5,
           "checkpoint_every": 1, "selection.every": 2}
RECIPES = {
    # a head, a batch of its own for the MLM term, several passes a step, rows held out
    "bert": ("simcse", {**CHANGES, "backbone.layers": [1], "training.accumulate": 2, "selection.at_end": True}),
    "llama": ("simcse-lora", {
        **CHANGES, "backbone.model": "llama", "backbone.lora": {"rank": 2, "dropout": 0.0}, "backbone.pooler": "mean",
        "options.head": "none", "options.mlm_weight": 0.0, "adaptive_layers": None, "training.average": None,
        "backbone.gradient_checkpointing": "offload", "selection.by": "none",
        "checkpoint_every": 100, "checkpoint_minutes": 1e-9,  # a checkpoint comes before the log's line
    })}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def runs(root):
    """Folders of runs: by one process, by two, by two that went on from step 1 of two's and of one's, and by one
    that did from two's."""
    serve()
    decoder_folder(root / "llama", num_hidden_layers=2)
    recipes, once = {}, {"training.max_steps": 1}
    variants = {**RECIPES, **{name: ("simcse-lora", {**RECIPES["llama"][1], **once, "precision": name})
                              for name in ("float32", "bf16")}}
    for name, (kind, changes) in variants.items():
        changes = {**changes, **({"backbone.model": str(root / "llama")} if kind == "simcse-lora" else {})}
        recipes[name] = recipe_of(root, kind, **changes)
        train(recipes[name], root / f"one-{name}", root, device="cpu")
    bert = recipes["bert"]
    train_each({
        "two": (bert, root / "two"), "llama": (recipes["llama"], root / "two-llama"),
        "bf16": (recipes["bf16"], root / "two-bf16"), "again": (bert, root / "again", root / "two", 1),
        "more": (bert, root / "more", root / "one-bert", 1)}, root / "data", **FSDP)
    stopped(root / "two", 1, root / "fewer")
    train(bert, root / "fewer", root, device="cpu", resume=True)
    return root


def files(folder):
    """Weights of the last checkpoint and of best/, and the optimiser's state, by name."""
    newest = sorted((folder / "checkpoints").glob("[0-9]*"))[-1]
    weights = {f"{path.name} {name}": weight for path in (newest, folder / "best")
               for name, weight in load_file(path / "model.safetensors").items()}
    state = torch.load(newest / "optimiser.pt", weights_only=True)["optimiser"]["state"]
    return {**weights, **{f"{number} {key}": value for number, part in state.items() for key, value in part.items()}}


@pytest.mark.parametrize(("one", "other"), [("bert", "two"), ("llama", "two-llama"), ("bert", "more"), ("bert", "fewer")])
def test_shards_train_what_one_process_trains(runs, one, other):
    first, second = log_of(runs / f"one-{one}"), log_of(runs / other)
    assert [(line["kind"], line.get("step")) for line in first] == [(line["kind"], line.get("step")) for line in second]
    for line, same in zip(first, second, strict=True):
        if line["kind"] == "train":
            assert same["loss"] == pytest.approx(line["loss"], abs=2e-6)
            assert same["gradient_norm"] == pytest.approx(line["gradient_norm"], rel=1e-5)
            assert same["terms"] == pytest.approx(line["terms"], abs=2e-6)
        if line["kind"] == "dev":
            assert same["score"] == pytest.approx(line["score"], abs=1e-3)
    first, second = files(runs / f"one-{one}"), files(runs / other)
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-6


def test_shards_go_on_bit_for_bit_in_as_many_processes_and_bf16_rounds_what_it_rounds_without_them(runs):
    assert weights_of(runs / "again") == weights_of(runs / "two")
    assert log_of(runs / "again") == log_of(runs / "two")
    assert json.loads((runs / "two" / "train.json").read_text("utf-8"))["processes"] == 2
    exact, one, two = (next(line["loss"] for line in log_of(runs / name) if line["kind"] == "train")
                       for name in ("one-float32", "one-bf16", "two-bf16"))
    assert abs(two - one) < abs(one - exact) / 2
