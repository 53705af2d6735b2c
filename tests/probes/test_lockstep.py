"""The lockstep probe gives the classes that one-at-a-time training gives; the oracle is tests/support/probe_oracle.py."""


import numpy as np
import probe_oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.errors import ScoreError, StsbenchError
from stsbench.probes import lockstep
from stsbench.probes.lockstep import FeatureTable, Model, initial_weight, lockstep_solver
from stsbench.probes.schemes import Fit, nested

REGS = [1e-5, 1e-4, 1e-3, 1e-2]
def blobs(n, classes, d=7, seed=0, noise=1.5):
    """float32 (n, d), int64 (n,): classes that overlap, so that accuracies stay below 1 and move between checks."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    centres = rng.normal(size=(classes, d))
    return (centres[y] + noise * rng.normal(size=(n, d))).astype(np.float32), y.astype(np.int64)


@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 50), min_size=1, max_size=4),
    classes=st.integers(2, 4),
    batch=st.integers(1, 20),
    epoch_size=st.integers(1, 3),
    tenacity=st.integers(0, 3),
    max_epoch=st.integers(0, 6),
    optimizer=st.sampled_from(["adam", "rmsprop"]),
    seed=st.integers(0, 2**31),
)
def test_any_mixture_of_fits(sizes, classes, batch, epoch_size, tenacity, max_epoch, optimizer, seed):
    """Fits of any sizes, with and without rows to stop on, with and without common rows, are what each is alone."""
    setting = {"batch": batch, "epoch_size": epoch_size, "tenacity": tenacity, "max_epoch": max_epoch,
               "optimizer": optimizer, "seed": seed, "validation": 0.5}
    rng = np.random.default_rng(seed)
    x, y = blobs(60, classes, d=3, seed=seed)
    fits = []
    for size in sizes:
        rows = rng.permutation(60).astype(np.int64)
        stop = rows[size:] if rng.random() < 0.6 else None
        fits += [Fit(rows[:size], stop, rows[-7:], reg) for reg in rng.choice(REGS, rng.integers(1, 4))]
    rng.shuffle(fits)
    got = lockstep_solver(x, y, classes, device="cpu", **setting)(fits)
    for fit, classes_given in zip(fits, got, strict=True):
        probe = probe_oracle.Probe(classes, fit.reg, **setting)
        watch = None if fit.stop is None else (x[fit.stop], y[fit.stop])
        probe.fit(x[fit.train], y[fit.train], watch)
        assert classes_given.dtype == np.int64
        assert classes_given.tolist() == probe.predict(x[fit.predict]).tolist()


def test_chunks_do_not_matter(monkeypatch):
    x, y = blobs(120, 2)
    rng = np.random.default_rng(1)
    fits = [Fit(r[:90], r[90:], r[90:], reg) for r in (rng.permutation(120) for _ in range(5)) for reg in REGS]
    together = lockstep_solver(x, y, 2, device="cpu")(fits)
    monkeypatch.setattr(lockstep, "_CACHE", 0)
    alone = lockstep_solver(x, y, 2, device="cpu")(fits)
    assert [a.tolist() for a in together] == [b.tolist() for b in alone]


def solved(x, y, fit, **setting):
    return lockstep_solver(x, y, 2, device="cpu", **setting)([fit])[0].tolist()


def test_failures_are_counted_from_the_start():
    """A fit that improves late, after `tenacity` failures in all: a counter that forgot would go on and change classes."""
    setting, differing = {"epoch_size": 1, "tenacity": 2, "max_epoch": 60, "batch": 50}, 0
    for seed in range(8):
        x, y = blobs(110, 2, d=20, seed=seed)
        x *= np.float32(0.3)  # learnt slowly, with pauses
        rows = np.arange(110)
        fit = Fit(rows[:50], rows[50:], rows, 1e-4)
        watch = x[50:], y[50:]
        kept = probe_oracle.Probe(2, 1e-4, **setting).fit(x[:50], y[:50], watch)
        reset = probe_oracle.Probe(2, 1e-4, **setting, resets=True).fit(x[:50], y[:50], watch)
        got = solved(x, y, fit, **setting)
        assert got == kept.predict(x).tolist()
        differing += got != reset.predict(x).tolist()
    assert differing >= 3


def test_the_start_is_torchs_and_leaves_its_stream_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    start = initial_weight(6, 3, 1111)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(1111)
    layer = torch.nn.Linear(6, 3)
    assert torch.equal(start, torch.cat([layer.weight, layer.bias[:, None]], dim=1))


@pytest.mark.parametrize(("classes", "optimizer"), [(2, "rmsprop"), (5, "adam")])
def test_a_step_is_autograds(classes, optimizer):
    """Weights after four steps, batches of unequal sizes among them, against autograd and torch.optim."""
    x, y = blobs(40, classes, d=6)
    regs = [[1e-3, 0.5], [0.0, 2.0]]
    table = FeatureTable(x, y, classes, torch.float64, torch.device("cpu"))
    start = initial_weight(6, classes, 3)
    model = Model(table, start, regs, optimizer)
    rng = np.random.default_rng(0)
    batches = [torch.from_numpy(rng.integers(0, 40, (2, 9))) for _ in range(4)]
    scale = torch.zeros(2, 1, 1, 9, dtype=torch.float64)
    scale[0], scale[1, ..., :5] = 1 / 9, 1 / 5
    for rows in batches:
        model.step(rows, scale)
    for g, size in ((0, 9), (1, 5)):
        for r in range(2):
            layer = torch.nn.Linear(6, classes).double()
            layer.load_state_dict({"weight": start[:, :-1].double(), "bias": start[:, -1].double()})
            kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[optimizer]
            stepper = kind(layer.parameters(), lr=1e-3 if optimizer == "adam" else 1e-2, weight_decay=regs[g][r])
            for rows in batches:
                some = rows[g, :size]
                stepper.zero_grad()
                torch.nn.functional.cross_entropy(layer(table.features[some, :-1]), torch.from_numpy(y)[some]).backward()
                stepper.step()
            expected = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()
            torch.testing.assert_close(model.weight[g, r], expected, rtol=1e-10, atol=1e-12)


def test_float32_is_close_to_its_own_oracle():
    x, y = blobs(200, 2, noise=2.5)
    rows = np.arange(200)
    probe = probe_oracle.Probe(2, 1e-4, dtype=torch.float32).fit(x[:120], y[:120], (x[120:], y[120:]))
    got = solved(x, y, Fit(rows[:120], rows[120:], rows, 1e-4), dtype="float32")
    assert np.mean(np.array(got) == probe.predict(x)) > 0.98


def test_progress_counts_every_fit_once():
    x, y = blobs(90, 2)
    counts = []
    nested(y, 3, 1111, REGS, lockstep_solver(x, y, 2, device="cpu", max_epoch=8, progress=counts.append))
    assert sum(counts) == 4 * 9 + 3
    assert 0 not in counts


def test_features_that_are_no_numbers():
    x, y = blobs(30, 2)
    x[3, 1], x[7, 0], x[7, 2] = np.nan, np.inf, -np.inf
    with pytest.raises(ScoreError, match="2 of 30 items have features that are NaN or infinite"):
        lockstep_solver(x, y, 2)


def test_wrong_arguments():
    x, y = blobs(30, 2)
    for change in ({"optimizer": "sgd"}, {"dtype": "float16"}, {"device": "no such"}, {"classes": 1}, {"y": y[:5]}):
        with pytest.raises(StsbenchError):
            lockstep_solver(**{"x": x, "y": y, "classes": 2, **change})


def test_too_few_items_to_stop_early_on():
    x, y = blobs(19, 2)
    rows = np.arange(19)
    with pytest.raises(ScoreError, match="19 to train on, 0 to stop early on"):
        lockstep_solver(x, y, 2, device="cpu")([Fit(rows, None, rows, 1e-4)])
