"""Encoders, post-processings and probes on a device that refuses the CPU's tensors: their numbers are the CPU's."""

import numpy as np
import pytest
import torch
from pretend_device import pretend_device
from probe_data import clouds, some_fits
from prompted import MORE, models, with_prompt  # noqa: F401
from tiny_models import sentences
from training_runs import one_thread  # noqa: F401

from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.probes.exact import exact_solver
from stsbench.probes.lockstep import lockstep_solver
from stsbench.training.export.export import export_model

TEXTS = [*sentences(6, longest=9), "", "a"]
POOLERS = ["max", "weighted_mean", "first_last:layer1", "mean_padded:20", "cls+dense"]
DEVICE = "pretend:0"


def check_same(folder, **options):
    """The vectors on either device, and on the pretended one from the cache, too."""
    expected = load_encoder(str(folder), device="cpu", **options).encode(TEXTS)
    with pretend_device() as pretended:
        encoder = load_encoder(str(folder), device=DEVICE, **options)
        np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
        assert encoder.built.device == pretended.device
    assert np.abs(expected).max() > 0


def test_poolers_and_templates(folder):
    for pooler in POOLERS:
        check_same(folder, pooler=pooler)
    check_same(folder, pooler="mask", template="the cat : {} means [MASK] .", full_stop=True, normalize=True)


@pytest.mark.parametrize("more", [MORE[1], ("bert", {"rank": 2})], ids=str)
def test_trained_prompts(models, tmp_path, more):
    export_model(with_prompt(models, more[0], more[1]), tmp_path / "model", card="")
    check_same(tmp_path / "model")


def test_the_cache_holds_what_the_device_gave(folder, tmp_path):
    cache = EmbeddingCache(tmp_path)
    with pretend_device() as pretended:
        first = Embed(load_encoder(str(folder), pooler="mean", device=DEVICE), cache)(TEXTS)
        waits = pretended.waits.copy()
        again = load_encoder(str(folder), pooler="mean", device=DEVICE)
        assert np.array_equal(Embed(again, cache)(TEXTS), first) and pretended.waits == waits
    cpu = load_encoder(str(folder), pooler="mean", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(first, cpu, atol=2e-6)


@pytest.mark.parametrize("solver", ["lockstep", "exact"])
def test_probes(solver):
    x, y = clouds(48, 5, 3)

    def classes(device):
        fits = some_fits(48, regs=(1e-3, 1e-2) if solver == "lockstep" else (0.5, 2.0), k=2)
        options = {"max_epoch": 8} if solver == "lockstep" else {}
        return list({"lockstep": lockstep_solver, "exact": exact_solver}[solver](x, y, 3, device=device, **options)(fits))

    expected = classes("cpu")
    with pretend_device():
        predicted = classes(DEVICE)
    assert all(np.array_equal(one, other) for one, other in zip(predicted, expected, strict=True))


def test_the_pretended_device_refuses_and_takes_what_cuda_does_and_notes_where_it_would_wait():
    with pretend_device() as pretended:
        states = torch.randn(2, 3, device=pretended.device)
        for refused in (
            lambda: states.masked_fill(torch.ones(2, 3, dtype=torch.bool), 0),
            lambda: torch.nn.functional.linear(states, torch.randn(4, 3)),
            lambda: torch.randn(2, 3)[torch.zeros(2, dtype=torch.long, device=pretended.device)],
            lambda: torch.stack([states.sum(), torch.tensor(1.0)]),
        ):
            with pytest.raises(RuntimeError, match="same device"):
                refused()
        pretended.waits.clear()
        assert (states * torch.tensor(2.0))[torch.tensor([1, 0])].device == pretended.device
        assert not pretended.waits
        states[states > 0], float(states.sum()), states.cpu(), states.nonzero(), states.tolist()
        names = " ".join(pretended.waits)
        assert all(each in names for each in ("by a mask", "_local_scalar_dense", "copy to the CPU", "nonzero", "tolist"))
        with pytest.raises((TypeError, RuntimeError)):
            states.numpy()
