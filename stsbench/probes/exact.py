"""Logistic regression to the optimum: scikit-learn's objective, every fit of a call solved together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError
from stsbench.probes.newton import Features, Minimum, Problems, minimise
from stsbench.probes.schemes import Fit, Rows, Solver
from stsbench.probes.sklearn_solver import checked

TOLERANCE = 1e-5
WIDEST = 10_000  # features: the eigenvectors of a wider matrix take minutes and gigabytes
LOOSE = 0.1  # the tolerance of a start
SHARED = 3  # fits of one strength: fewer do not repay the cost of a shared start
ENOUGH = 8  # fits that fill a product: fits of another strength do not join them
BLOCK = 2**20  # rows x outputs x fits at a time: about ten arrays of 8 MiB


@dataclass(frozen=True)
class Fitted:
    """One classifier at its optimum.

    classes: int64 (c,), those in its training rows; coef: float64 (1, d) for two classes, else (c, d), and intercept
    (1,) or (c,), as LogisticRegression's coef_ and intercept_; predicted: int64, of the fit's `predict` rows.
    """

    classes: Rows
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    predicted: Rows
    iterations: int
    solved: bool


class Exact:
    """A solver for the rows of x (n, d) with labels y (n,): see `exact_solver`."""

    def __init__(self, x: Any, y: Rows, classes: int, tolerance: float, counts: dict[str, int] | None, device: str) -> None:
        import torch

        x, self.y = checked(x, y)
        if len(self.y) and not 0 <= self.y.min() <= self.y.max() < classes:
            raise ScoreError(f"labels must be 0 to {classes - 1}, found {self.y.min()} to {self.y.max()}")
        if x.shape[1] > WIDEST:
            raise ScoreError(f"the exact mode takes at most {WIDEST} features, not {x.shape[1]}: use the sklearn mode")
        if hasattr(x, "toarray"):
            x = x.toarray()
        self.starts: dict[tuple[float, ...], Any] = {}  # (k, d) by the classes and the strength
        self.tolerance, self.counts, self.device = tolerance, counts, torch.device(device)
        full = torch.as_tensor(np.ascontiguousarray(x), device=self.device).double()
        self.mean = full.mean(0)
        full = full - self.mean  # not in place: it may be the caller's own array
        moments, self.turn = torch.linalg.eigh(full.T @ full / len(full))
        ones = torch.ones(len(full), 1, dtype=torch.float64, device=self.device)
        exact = torch.cat([full @ self.turn, ones], dim=1)
        moments, one = moments.clamp(min=0), ones[0]
        self.features = Features(
            exact, exact.float(), torch.cat([moments, one]), torch.cat([torch.ones_like(moments), one * 0]),
            float(moments.sum().sqrt()),
        )

    def __call__(self, fits: Sequence[Fit]) -> list[Rows]:
        return [classifier.predicted for classifier in self.fitted(fits)]

    def fitted(self, fits: Sequence[Fit]) -> list[Fitted]:
        """The classifiers themselves, in the order of the fits."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, fit in enumerate(fits):
            groups.setdefault(tuple(np.unique(self.y[fit.train]).tolist()), []).append(number)
        out: dict[int, Fitted] = {}
        for present, members in groups.items():
            if len(present) < 2:
                raise ScoreError("a classifier's training rows hold fewer than two classes: nothing can be learnt")
            for number, classifier in zip(members, self._group([fits[i] for i in members], np.array(present)), strict=True):
                out[number] = classifier
        if self.counts is not None:
            for key, value in (
                ("fits", len(fits)),
                ("unconverged", sum(not classifier.solved for classifier in out.values())),
                ("iterations", sum(classifier.iterations for classifier in out.values())),
            ):
                self.counts[key] = self.counts.get(key, 0) + value
        return [out[number] for number in range(len(fits))]

    def _group(self, fits: Sequence[Fit], present: Rows) -> list[Fitted]:
        """Fits whose training rows hold the same classes."""
        outputs = 1 if len(present) == 2 else len(present)
        width = max(1, BLOCK // (len(self.y) * outputs))
        blocks: list[list[int]] = [[]]
        for number in sorted(range(len(fits)), key=lambda i: fits[i].reg):  # alike in difficulty: they finish together
            other = len(blocks[-1]) >= ENOUGH and fits[number].reg != fits[blocks[-1][-1]].reg
            if other or len(blocks[-1]) == width:
                blocks.append([])
            blocks[-1].append(number)
        self._prepare(fits, present)
        out: dict[int, Fitted] = {}
        for chosen in blocks:
            block = [fits[i] for i in chosen]
            starts = [self.starts.get((*present.tolist(), fit.reg)) for fit in block]
            minimum = self._solve(block, present, starts, self.tolerance)
            out.update(zip(chosen, self._unpack(block, minimum, present), strict=True))
        return [out[number] for number in range(len(fits))]

    def _prepare(self, fits: Sequence[Fit], present: Rows) -> None:
        """For each strength that several fits share, solve for all their rows: a short way from each fold's optimum.

        From strong to weak, each from the one before. Kept: the fits of a later call are much the same.
        """
        regs = [fit.reg for fit in fits]
        union = np.unique(np.concatenate([fit.train for fit in fits]))
        start = None
        for reg in sorted(set(regs)):
            key = (*present.tolist(), reg)
            if key not in self.starts and regs.count(reg) >= SHARED:
                self.starts[key] = self._solve([Fit(union, None, union[:0], reg)], present, [start], LOOSE).coef[0]
            start = self.starts.get(key, start)

    def _solve(self, fits: Sequence[Fit], present: Rows, starts: Sequence[Any], tolerance: float) -> Minimum:
        import torch

        truth = (self.y == present[1])[None] if len(present) == 2 else self.y == present[:, None]
        weight = np.stack([np.bincount(fit.train, minlength=len(self.y)) for fit in fits])
        target = torch.as_tensor(truth, device=self.device).double()
        problems = Problems(
            target, torch.as_tensor(weight, device=self.device).double(),
            torch.tensor([fit.reg for fit in fits], dtype=torch.float64, device=self.device),
        )
        start = target.new_zeros(len(fits), len(target), self.features.exact.shape[1])
        for i, coef in enumerate(starts):
            if coef is not None:
                start[i] = coef
        with torch.inference_mode():
            return minimise(self.features, problems, start, tolerance)

    def _unpack(self, fits: Sequence[Fit], minimum: Minimum, present: Rows) -> Iterator[Fitted]:
        turned = minimum.coef[:, :, :-1] @ self.turn.T
        coef, intercept = turned.cpu().numpy(), (minimum.coef[:, :, -1] - turned @ self.mean).cpu().numpy()
        if intercept.shape[1] > 1:  # a constant added to all is free
            intercept = intercept - intercept.mean(axis=1, keepdims=True)
        margin = minimum.margin.cpu().numpy()
        for i, fit in enumerate(fits):
            values = margin[i][:, fit.predict]
            best = (values[0] > 0).astype(np.int64) if len(values) == 1 else values.argmax(axis=0)
            yield Fitted(present, coef[i], intercept[i], present[best], int(minimum.iterations[i]), bool(minimum.solved[i]))


def exact_solver(
    x: Any, y: Rows, classes: int, *, tolerance: float = TOLERANCE, counts: dict[str, int] | None = None,
    device: str = "cpu",
) -> Solver:
    """A solver that finds the optimum of scikit-learn's LogisticRegression(C=reg); `Fit.stop` is not used.

    x: (n, d) vectors; y: int64 (n,) of 0 to classes - 1. Minimised is reg * (sum of log losses) + |w|^2 / 2, the
    intercept free: one weight vector where the training rows hold two classes, a softmax over the classes they hold
    otherwise. `tolerance`: about how far a decision value may be from the optimum's (see `minimise`).
    counts: "fits", "unconverged" and "iterations" (Newton's, summed) are added to it by every call.
    A problem with next to no penalty (C * scale^2 of 1e10 and separable) is beyond the float32 products: it is counted.
    Memory: x twice (float64 and float32) and about a dozen float64 arrays of max(BLOCK, n * outputs) values.
    Raises ScoreError for vectors that are not finite, labels out of range, training rows of one class.
    """
    return Exact(x, y, classes, tolerance, counts, device)
