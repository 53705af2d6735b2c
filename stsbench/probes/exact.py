"""Exact solver of scikit-learn's logistic regression: fits on rows of one matrix are solved together, to the optimum.

It is Newton's method with inner conjugate gradients (Nocedal & Wright 2006, section 7.1), in which a product with the matrix
serves all problems at once. Gradients are float64, and only the inner products are float32: these choose a direction, while
the gradient decides when a problem is solved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError
from stsbench.probes.schemes import Fit, Rows, checked

NEWTON_LIMIT, INNER_LIMIT, HALVINGS = 50, 250, 20
TOLERANCE = 1e-5
WIDEST = 10_000  # the most features, as the eigenvectors of a wider matrix take minutes and gigabytes
LOOSE = 0.1  # tolerance of a start, which need not be exact
SHARED = 3  # fewest fits with one regularisation for which a shared start is worth its cost
ENOUGH = 8  # fits after which a block ends where the next fit has another regularisation
BLOCK = 2**20  # rows x outputs x fits in a block: about ten arrays of 8 MiB


@dataclass
class Features:
    """The feature matrix of all problems, rotated so that its second moments are diagonal, which gives a preconditioner.

    exact, quick: (n, d) in float64 and float32, with a last column of ones; moments: float64 (d,) mean squares of
    the columns; penalty: float64 (d,) ones, zero for the last column; scale: root mean square length of a row.
    """

    exact: Any
    quick: Any
    moments: Any
    penalty: Any
    scale: float


@dataclass
class Problems:
    """f problems with k outputs each: k = 1 for two classes with one weight vector, else a softmax over k classes.

    target: float64 (k, n) of 0 and 1; weight: float64 (f, n), how often a row is trained on, 0 for other rows;
    reg: float64 (f,), scikit-learn's C. The objective is reg * sum of log losses + |w|^2 / 2.
    """

    target: Any
    weight: Any
    reg: Any

    def loss(self, margin: Any) -> Any:
        """Return (f,) weighted sums of log losses."""
        import torch

        if len(self.target) == 1:
            # torch's softplus would be inexact, as it is linear beyond 20.
            losses = -torch.nn.functional.logsigmoid(margin[:, 0]) + (1 - self.target) * margin[:, 0]
        else:
            losses = torch.logsumexp(margin, dim=1) - (self.target * margin).sum(1)
        return self.reg * (self.weight * losses).sum(1)

    def probability(self, margin: Any) -> Any:
        """Return (f, k, n) probabilities of the classes, of the second one for k = 1."""
        return margin.sigmoid() if margin.shape[1] == 1 else margin.softmax(dim=1)

    def residual(self, margin: Any) -> Any:
        """Return (f, k, n) derivatives of the loss with respect to the margins."""
        return self.probability(margin).sub_(self.target).mul_((self.reg[:, None] * self.weight)[:, None])

    def keep(self, mask: Any) -> Problems:
        """Return the problems where `mask` (f,) is true."""
        return Problems(self.target, self.weight[mask], self.reg[mask])


@dataclass
class Minimum:
    """Minima of f problems. coef: float64 (f, k, d); margin: (f, k, n) of all rows; iterations, solved: int, bool (f,)."""

    coef: Any
    margin: Any
    iterations: Any
    solved: Any


def minimise(features: Features, problems: Problems, start: Any, tolerance: float, limit: int = NEWTON_LIMIT) -> Minimum:
    """Minimise every problem from `start` (f, k, d) until |gradient| <= tolerance, or for `limit` steps (solved = False).

    The gradient is multiplied by `scale`, except for the intercept's. The objective is 1-strongly convex in the penalised
    weights, so their gradient bounds their distance from the optimum, and times `scale` the error of the decision value of
    a row of that length. Where C * rows * scale^2 is so large that float64 sums cannot resolve such a gradient (over 1e9 for
    a tolerance of 1e-5), the smallest that they can resolve is the tolerance.
    """
    import torch

    f, (k, n) = len(problems.weight), problems.target.shape
    steps, solved = torch.zeros(f, dtype=torch.int64), torch.zeros(f, dtype=torch.bool)
    minimum = Minimum(start.clone(), start.new_zeros(f, k, n), steps, solved)
    active = torch.arange(f, device=start.device)
    unit = features.penalty * features.scale + (1 - features.penalty)
    bar = (1e-14 * max(1, features.scale**2) * problems.reg * problems.weight.sum(1)).clamp(min=tolerance)
    coef = _centred(start)
    margin = _times(coef, features.exact.T)
    residual, first = problems.residual(margin), None
    for step in range(limit + 1):
        gradient = _times(residual, features.exact).add_(features.penalty * coef)
        size = (unit * gradient).norm(dim=(1, 2))
        first = size.clone() if first is None else first
        going = (size > bar) & (step < limit) & size.isfinite()
        if not bool(going.all()):
            left = active[~going]
            minimum.coef[left], minimum.margin[left] = coef[~going], margin[~going]
            minimum.iterations[left.cpu()], minimum.solved[left.cpu()] = step, (size <= bar)[~going].cpu()
            if not bool(going.any()):
                break
            active, problems = active[going], problems.keep(going)
            size, first, bar = size[going], first[going], bar[going]
            coef, margin, gradient = coef[going], margin[going], gradient[going]
        # The accuracy grows near the optimum, for superlinear convergence, but not beyond what the tolerance needs.
        accuracy = torch.maximum(0.1 * (size / first).sqrt().clamp(max=1), 0.3 * bar / size)
        move = _direction(features, problems, margin, gradient, accuracy)
        coef, margin, residual = _line_search(features, problems, coef, margin, gradient, move)
    return minimum


def _times(rows: Any, matrix: Any) -> Any:
    """Return (f, k, b), rows (f, k, a) times matrix (a, b). Rows of several classes sum to 0, which saves one product."""
    import torch

    some = rows if rows.shape[1] == 1 else rows[:, :-1]
    product = (some.flatten(0, 1) @ matrix).view(*some.shape[:2], -1)
    return product if some is rows else torch.cat([product, -product.sum(1, keepdim=True)], dim=1)


def _centred(rows: Any) -> Any:
    """Return (f, k, d) less the mean over several classes, 0 at a softmax's optimum, and arbitrary for its intercept."""
    return rows if rows.shape[1] == 1 else rows - rows.mean(1, keepdim=True)


def _direction(features: Features, problems: Problems, margin: Any, gradient: Any, accuracy: Any) -> Any:
    """Return (f, k, d) approximate Newton steps: preconditioned conjugate gradients until |rest| <= accuracy *
    |gradient|."""
    import torch

    matrix, penalty = features.quick, features.penalty.float()
    probability = problems.probability(margin).float()
    weight = (problems.reg[:, None] * problems.weight).float()[:, None]
    spread = probability * (1 - probability) * weight
    middle = spread.sum(2, keepdim=True)  # (f, k, 1): the preconditioner uses the average curvature of all rows
    inverse = 1 / (features.moments.float() * middle + penalty).clamp(min=1e-30)
    length = gradient.norm(dim=(1, 2))[:, None, None]
    rest = (-gradient / length).float()
    limit = accuracy.float() ** 2
    move = torch.zeros_like(rest)
    scaled = _centred(inverse * rest)
    along = scaled.clone()
    product = (rest * scaled).sum((1, 2))
    for _ in range(INNER_LIMIT):
        bent = _times(along, matrix.T)
        if bent.shape[1] == 1:
            bent *= spread
        else:
            bent -= (probability * bent).sum(1, keepdim=True)
            bent *= probability
            bent *= weight
        bent = _times(bent, matrix).add_(penalty * along)
        curvature = (along * bent).sum((1, 2))
        going = (rest * rest).sum((1, 2)) > limit
        rate = torch.where(going & (curvature > 0), product / curvature.clamp(min=1e-37), 0)[:, None, None]
        move += rate * along
        rest -= rate * bent
        if not bool(((rest * rest).sum((1, 2)) > limit).any()):
            break
        scaled = _centred(inverse * rest)
        before, product = product, (rest * scaled).sum((1, 2))
        along = scaled.add_(along * (product / before.clamp(min=1e-37))[:, None, None])
    return _centred(move.double() * length)


def _line_search(
    features: Features, problems: Problems, coef: Any, margin: Any, gradient: Any, move: Any
) -> tuple[Any, Any, Any]:
    """Return the new coefficients, margins and residuals, after the whole step, or a step halved until it is good.

    A step is good when the slope at its end is at most half the slope at its start (Hager & Zhang 2005's approximate
    Wolfe condition) and the objective is no larger up to rounding, which may exceed the gain of the last steps.
    """
    import torch

    penalty = features.penalty
    along = _times(move, features.exact.T)
    slope = (gradient * move).sum((1, 2))
    before = problems.loss(margin) + (penalty * coef * coef).sum((1, 2)) / 2
    # The rounding error of a row's loss grows with its margins, as the loss is a difference of numbers of their size.
    rounding = 1e-12 * before + 1e-15 * problems.reg * (problems.weight * margin.abs().amax(1)).sum(1)
    length = torch.ones_like(slope)
    for _ in range(HALVINGS):
        new_margin, new_coef = margin + length[:, None, None] * along, coef + length[:, None, None] * move
        residual = problems.residual(new_margin)
        after = problems.loss(new_margin) + (penalty * new_coef * new_coef).sum((1, 2)) / 2
        end = (residual * along).sum((1, 2)) + (penalty * new_coef * move).sum((1, 2))
        good = (end <= -0.5 * slope) & (after <= before + rounding)
        if bool(good.all()):
            break
        length = torch.where(good, length, length / 2)
    return new_coef, new_margin, residual


@dataclass(frozen=True)
class Fitted:
    """A fitted classifier.

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
    """A solver that finds the optimum of scikit-learn's LogisticRegression(C=reg); `Fit.stop` is not used.

    x: (n, d) vectors; y: int64 (n,) of 0 to classes - 1. The objective is reg * (sum of log losses) + |w|^2 / 2, with a free
    intercept: one weight vector where the training rows have two classes, else a softmax over their classes. `tolerance`:
    about how far a decision value may be from the optimum's (see `minimise`). Each call adds to counts: "fits",
    "unconverged" and "iterations" (of Newton's method, summed).
    Separable problems with hardly any penalty (C * scale^2 of 1e10) exceed float32 products, and count as unconverged.
    Memory: x twice (float64 and float32) and about a dozen float64 arrays of max(BLOCK, n * outputs) values.
    Raises ScoreError for vectors that are not finite, labels out of range, training rows of one class.
    """

    def __init__(
        self, x: Any, y: Rows, classes: int, tolerance: float = TOLERANCE, counts: dict[str, int] | None = None,
        device: str = "cpu",
    ) -> None:
        import torch

        x, self.y = checked(x, y)
        if len(self.y) and not 0 <= self.y.min() <= self.y.max() < classes:
            raise ScoreError(f"labels must be 0 to {classes - 1}, found {self.y.min()} to {self.y.max()}")
        if x.shape[1] > WIDEST:
            raise ScoreError(f"the exact mode takes at most {WIDEST} features, not {x.shape[1]}: use the sklearn mode")
        if hasattr(x, "toarray"):
            x = x.toarray()
        self.starts: dict[tuple[float, ...], Any] = {}  # classes and regularisation -> (k, d) coefficients
        self.tolerance, self.counts, self.device = tolerance, counts, torch.device(device)
        full = torch.as_tensor(np.ascontiguousarray(x), device=self.device).double()
        self.mean = full.mean(0)
        full = full - self.mean  # not in place, as it may share memory with the caller's array
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
        """Return the fitted classifiers, in the order of the fits. Raises ScoreError for training rows of one class."""
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
        """Return the classifiers of fits whose training rows have the same classes, solved in blocks."""
        outputs = 1 if len(present) == 2 else len(present)
        width = max(1, BLOCK // (len(self.y) * outputs))
        blocks: list[list[int]] = [[]]
        for number in sorted(range(len(fits)), key=lambda i: fits[i].reg):  # fits of similar difficulty end together
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
        """Solve for all rows, with each regularisation that several fits share, as a start close to each fold's optimum.

        Solved from strong to weak, each from the one before, and kept, as fits of a later call are similar.
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
        if intercept.shape[1] > 1:  # a softmax does not depend on a constant in all intercepts
            intercept = intercept - intercept.mean(axis=1, keepdims=True)
        margin = minimum.margin.cpu().numpy()
        for i, fit in enumerate(fits):
            values = margin[i][:, fit.predict]
            best = (values[0] > 0).astype(np.int64) if len(values) == 1 else values.argmax(axis=0)
            yield Fitted(present, coef[i], intercept[i], present[best], int(minimum.iterations[i]), bool(minimum.solved[i]))
