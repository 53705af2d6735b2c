"""What two processes that share a batch compute, and the checks that one process computes the same."""

import os
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from training_runs import leave, log_of, spawn

from stsbench import registry
from stsbench.training.api.batch import Shares
from stsbench.training.runs import run
from stsbench.training.runs.options import TrainOptions


def both_find(place, find, *arguments):
    """[rank] -> find(rank, *arguments), in two processes joined by gloo. `find`: a function of a module, not a lambda."""
    spawn(_worker, str(place), find, arguments)
    return [torch.load(place / f"{rank}.pt", weights_only=False) for rank in range(2)]


def _worker(rank, place, find, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=2)
    torch.save(find(rank, *arguments), f"{place}/{rank}.pt")
    leave()


def second_pass(method, batch, processes=1):
    """(term -> mean over all processes, weight -> gradient) after two passes over this process's share of a batch."""
    wrapped = nn.parallel.DistributedDataParallel(method) if processes > 1 else method
    for _ in range(2):  # a weight without a gradient would be noticed by the second pass
        method.zero_grad()
        terms = wrapped(batch)
        summed = torch.tensor([[term.value.item() * term.count, term.count] for term in terms.values()], dtype=torch.float64)
        if processes > 1:
            torch.distributed.all_reduce(summed)
        counts = summed[:, 1].tolist()  # the loop's scaling, before DDP's mean
        loss = sum(processes * term.count / count * term.weight * term.value
                   for term, count in zip(terms.values(), counts, strict=True))
        loss.backward()
    means = dict(zip(terms, (summed[:, 0] / summed[:, 1]).tolist(), strict=True))
    return means, {name: weight.grad for name, weight in method.named_parameters()}


def same_gradients(actual, expected, rel=1e-9):
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        if gradient is None:
            assert actual[name] is None, name
        else:
            assert (actual[name] - gradient).abs().max() < 1e-12 + rel * gradient.abs().max(), name


def shares_of(total, split, rank):
    """Of `total` rows those of process `rank`; split: the rows of each process, None where there is one."""
    return Shares((total,)) if split is None else Shares(split, rank)


def check_two_are_one(alone, both, model, but=()):
    """Two runs of one recipe from `model`, without dropout, by one process and by two: the same log and, up to rounding, the
    same weights, `but` for those so named."""
    for mine, theirs in zip(log_of(alone), log_of(both), strict=True):
        assert mine["kind"] == theirs["kind"]
        if mine["kind"] == "train":
            assert mine["loss"] == pytest.approx(theirs["loss"], abs=2e-5)
            assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=2e-4)
            assert mine["terms"] == pytest.approx(theirs["terms"], abs=2e-5)
    newest = [sorted((folder / "checkpoints").glob("[0-9]*"))[-1] for folder in (alone, both)]
    first, second = (load_file(path / "model.safetensors") for path in newest)
    start = load_file(model / "model.safetensors")
    start = {f"backbone.model.{name.removeprefix('bert.')}": weight for name, weight in start.items()}
    start |= {name: torch.zeros_like(weight) for name, weight in first.items() if "lora_B" in name}
    moved = max(float((first[name] - start[name]).abs().max()) for name in start.keys() & first.keys())
    apart = max(float((first[name] - second[name]).abs().max()) for name in first.keys() - set(but))
    assert apart < 5e-3 * moved, (apart, moved)


def train_each(jobs, data_dir, **environment):
    """Train (recipe, folder) after (recipe, folder) in two processes, which find what torchrun would tell them; with a third
    one, a run's folder and a step, by going on from that step (`stopped`)."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    spawn(_train_each, store.port, list(jobs.values()), data_dir, [*sys.path], environment)


def stopped(run, step, folder):
    """Copy a finished run of one stage as it was when its checkpoint of `step` was the newest."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("best", "train.json"))
    for path in folder.glob("checkpoints/[0-9]*"):
        if int(path.name.rpartition("-")[2]) > step:
            shutil.rmtree(path)


def _train_each(rank, port, jobs, data_dir, path, environment):
    sys.path[:] = path
    registry._points.cache_clear()
    torch.set_num_threads(1)
    os.environ.update({
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "RANK": str(rank),
        "LOCAL_RANK": str(rank), **environment})
    for recipe, folder, *source in jobs:
        if source and not rank:
            stopped(*source, folder)
        options = TrainOptions(recipe=recipe, output=folder, device="cpu", data_dir=data_dir, resume=bool(source))
        run.train(options, lambda line: None)
    leave()
