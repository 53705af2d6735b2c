"""The lockstep probe gives the classes that one-at-a-time training gives; the oracle is tests/support/probe_oracle.py.
The schemes: which rows every fit sees and how the grid decides, without a classifier; the scikit-learn mode against the
library, and what it counts. What is refused: tests/refusals/metrics.yaml."""

import warnings

import numpy as np
import probe_oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_data import clouds, some_fits
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from stsbench.probes import lockstep
from stsbench.probes.lockstep import FeatureTable, Model, initial_weight, lockstep_solver
from stsbench.probes.schemes import Fit, cross_validated, given_splits, nested, sklearn_solver


def blobs(n, classes, d=7, seed=0, noise=1.5):
    """float32 (n, d), int64 (n,): classes that overlap, so that accuracies stay below 1 and move between checks."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    return (rng.normal(size=(classes, d))[y] + noise * rng.normal(size=(n, d))).astype(np.float32), y.astype(np.int64)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.integers(2, 50), min_size=1, max_size=4), st.integers(2, 4), st.sampled_from([0, lockstep._CACHE]),
    st.fixed_dictionaries({
        "batch": st.integers(1, 20), "epoch_size": st.integers(1, 3), "tenacity": st.integers(0, 3),
        "max_epoch": st.integers(0, 6), "optimizer": st.sampled_from(["adam", "rmsprop"]), "seed": st.integers(0, 2**31),
        "validation": st.just(0.5),
    }),
)
def test_any_mixture_of_fits(sizes, classes, cache, setting):
    """Fits of any sizes, with and without rows to stop on, with and without common rows, all at once or a stack at a time,
    are what each is alone."""
    rng = np.random.default_rng(setting["seed"])
    x, y = blobs(60, classes, d=3, seed=setting["seed"])
    fits = []
    for size in sizes:
        rows = rng.permutation(60).astype(np.int64)
        stop = rows[size:] if rng.random() < 0.6 else None
        fits += [Fit(rows[:size], stop, rows[-7:], reg) for reg in rng.choice([1e-5, 1e-4, 1e-3, 1e-2], rng.integers(1, 4))]
    rng.shuffle(fits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lockstep, "_CACHE", cache)
        got = lockstep_solver(x, y, classes, device="cpu", **setting)(fits)
    for fit, classes_given in zip(fits, got, strict=True):
        probe = probe_oracle.Probe(classes, fit.reg, **setting)
        probe.fit(x[fit.train], y[fit.train], None if fit.stop is None else (x[fit.stop], y[fit.stop]))
        assert classes_given.dtype == np.int64
        assert classes_given.tolist() == probe.predict(x[fit.predict]).tolist()


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
        got = lockstep_solver(x, y, 2, device="cpu", **setting)([fit])[0].tolist()
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


SCHEMES_REGS = [1.0, 2.0, 3.0]


def labels(*counts):
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int64)


class Recorder:
    """A solver that is right on the share of rows `skill` gives for a fit's reg, and remembers what it was asked."""

    def __init__(self, y, skill=lambda reg: 1.0):
        self.y, self.skill, self.calls = y, skill, []

    def __call__(self, fits):
        self.calls.append(list(fits))
        out = []
        for fit in fits:
            truth = self.y[fit.predict]
            out.append(np.where(np.arange(len(truth)) < round(self.skill(fit.reg) * len(truth)), truth, 1 - truth))
        return out


def test_nested_rows():
    y = labels(33, 31)
    solver = Recorder(y)
    got = nested(y, 4, 7, SCHEMES_REGS, solver)
    grid, last = solver.calls
    assert (len(grid), len(last)) == (4 * 4 * 3, 4)
    assert sorted(got.rows.tolist()) == list(range(64))  # every item is tested once
    assert np.bincount(got.fold).tolist() == [len(fit.predict) for fit in last]
    for o, (train, test) in enumerate(StratifiedKFold(4, shuffle=True, random_state=7).split(y, y)):
        assert (last[o].train.tolist(), last[o].predict.tolist(), last[o].stop) == (train.tolist(), test.tolist(), None)
        inner = list(StratifiedKFold(4, shuffle=True, random_state=7).split(train, y[train]))
        for r, reg in enumerate(SCHEMES_REGS):
            for i, (fitted, held) in enumerate(inner):
                fit = grid[(o * 3 + r) * 4 + i]
                assert (fit.reg, fit.train.tolist()) == (reg, train[fitted].tolist())
                assert fit.predict.tolist() == fit.stop.tolist() == train[held].tolist()


def test_cross_validated_rows():
    y = labels(40, 38)
    train, test = np.arange(10, 78), np.arange(10)
    solver = Recorder(y)
    got = cross_validated(y, train, test, 5, 7, SCHEMES_REGS, solver)
    grid, (last,) = solver.calls
    assert len(grid) == 15
    assert not any(np.isin(test, np.concatenate([fit.train, fit.predict])).any() for fit in grid)
    assert all(sorted([*fit.train, *fit.predict]) == train.tolist() for fit in grid)
    assert (last.train.tolist(), last.stop, last.predict.tolist()) == (train.tolist(), None, test.tolist())
    assert (got.rows.tolist(), got.fold.tolist()) == (test.tolist(), [0] * 10)


@pytest.mark.parametrize(("skill", "chosen"), [([0.5, 0.75, 0.25], 1), ([0.5, 0.75, 0.75], 1), ([0.5, 0.5, 0.5], 0)])
def test_the_best_reg_is_refitted_and_ties_go_to_the_first(skill, chosen):
    y = labels(40, 40)
    solver = Recorder(y, dict(zip(SCHEMES_REGS, skill, strict=True)).get)
    parts = np.arange(40), np.arange(40, 60), np.arange(60, 80)
    got = given_splits(y, *parts, SCHEMES_REGS, solver)
    grid, (last,) = solver.calls
    assert [fit.reg for fit in grid] == SCHEMES_REGS
    assert all((fit.train, fit.stop, fit.predict) == (parts[0], parts[1], parts[1]) for fit in grid)
    assert (last.train, last.stop, last.predict) == parts
    assert (got.grid.tolist(), got.chosen.tolist()) == ([[100 * value for value in skill]], [chosen])
    assert last.reg == SCHEMES_REGS[chosen]
    assert np.mean(got.predicted == y[got.rows]) == skill[chosen]


def test_accuracies_are_rounded_before_the_best_is_chosen():
    """Two grid values 0.0025 points apart tie at two decimals, and the first is taken although the second is better."""
    y = labels(20000, 20000)
    solver = Recorder(y, {1.0: 0.5, 2.0: 0.50002}.get)  # 50.00 % either way, rounded
    dev = np.arange(10, 40000)
    got = given_splits(y, np.arange(10), dev, dev, [1.0, 2.0], solver)
    assert (got.grid.tolist(), got.chosen.tolist()) == ([[50.0, 50.0]], [0])
    first, second = (np.mean(a == y[dev]) for a in solver([fit for fit in solver.calls[0]]))
    assert second > first


def test_a_fold_counts_as_much_as_another():
    """The grid is the mean of fold accuracies, not the accuracy over all rows: folds are of 8, 7 and 7 rows."""
    y, calls = labels(11, 11), []

    def solver(fits):
        calls.append(fits)
        return [np.where(np.arange(len(f.predict)) < len(f.predict) - 8 + 4, y[f.predict], 1 - y[f.predict]) for f in fits]

    got = cross_validated(y, np.arange(22), np.arange(22), 3, 1, [1.0], solver)
    sizes = [len(fit.predict) for fit in calls[0]]
    assert sorted(sizes) == [7, 7, 8]
    assert got.grid[0, 0] == round(100 * float(np.mean([(size - 4) / size for size in sizes])), 2)


def test_a_rare_class_is_no_error(recwarn):
    y = labels(30, 28, 2)
    cross_validated(y, np.arange(60), np.arange(5), 3, 1111, SCHEMES_REGS, Recorder(y))
    assert not recwarn.list


@pytest.mark.parametrize(("classes", "form"), [(4, np.asarray), (2, sparse.csr_array)])
def test_fits_are_the_librarys_own(classes, form):
    x, y = clouds(90, 7, classes)
    x, fits = form(x), some_fits(90)
    want = [LogisticRegression(C=f.reg, random_state=1111).fit(x[f.train], y[f.train]).predict(x[f.predict]) for f in fits]
    assert all(np.array_equal(a, b) and a.dtype == np.int64 for a, b in zip(sklearn_solver(x, y)(fits), want, strict=True))


def test_features_keep_their_dtype(monkeypatch):
    seen, fit = set(), LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", lambda self, x, y: (seen.add(x.dtype), fit(self, x, y))[1])
    x, y = clouds(30, 3, 2)
    sklearn_solver(x, y, jobs=1)(some_fits(30))
    assert seen == {np.dtype(np.float32)}


def test_unconverged_fits_are_counted_and_silent():
    x, y = clouds(120, 30, 2, spread=3)
    x *= np.geomspace(0.01, 1000, 30, dtype=np.float32)  # scales so different that 100 iterations do not do
    fits, expected = some_fits(120, regs=(1e-9, 1.0), k=2), 0
    for fit in fits:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            LogisticRegression(C=fit.reg, random_state=1111).fit(x[fit.train], y[fit.train])
        expected += bool(caught)
    assert 0 < expected < len(fits)
    counts = {}
    solve = sklearn_solver(x, y, jobs=2, counts=counts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning that got out would fail here
        solve(fits)
        assert counts == {"fits": len(fits), "unconverged": expected}
        solve(fits)
    assert counts == {"fits": 2 * len(fits), "unconverged": 2 * expected}
