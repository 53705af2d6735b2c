"""Many logistic regressions on the rows of one matrix, all solved to their optimum together.

Newton's method with conjugate gradients inside (Nocedal & Wright 2006, section 7.1): every product with the matrix
serves all problems at once. Gradients are float64, only the inner products are float32: they choose a direction, the
gradient alone decides when a problem is solved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NEWTON_LIMIT, INNER_LIMIT, HALVINGS = 50, 250, 20


@dataclass
class Features:
    """One matrix for all problems, turned so that its second moments are diagonal: a preconditioner for nothing.

    exact, quick: (n, d) the same in float64 and float32, the last column ones; moments: float64 (d,) mean squares of
    the columns; penalty: float64 (d,) ones, zero for the last column; scale: root mean square length of a row.
    """

    exact: Any
    quick: Any
    moments: Any
    penalty: Any
    scale: float


@dataclass
class Problems:
    """f problems with k outputs each: k = 1 two classes, one weight vector; else softmax over k classes.

    target: float64 (n, k, f) of 0 and 1; weight: float64 (n, f), how often a row is trained on, 0 for the others;
    reg: float64 (f,), scikit-learn's C: reg * sum of log losses + |w|^2 / 2 is what is minimised.
    """

    target: Any
    weight: Any
    reg: Any

    def loss(self, margin: Any) -> Any:
        """(f,) weighted sums of log losses."""
        import torch

        if self.target.shape[1] == 1:
            # Not softplus: torch replaces it by a straight line beyond 20.
            each = -torch.nn.functional.logsigmoid(margin[:, 0]) + (1 - self.target[:, 0]) * margin[:, 0]
        else:
            each = torch.logsumexp(margin, dim=1) - (self.target * margin).sum(1)
        return self.reg * (self.weight * each).sum(0)

    def probability(self, margin: Any) -> Any:
        """(n, k, f)."""
        return margin.sigmoid() if margin.shape[1] == 1 else margin.softmax(dim=1)

    def residual(self, margin: Any) -> Any:
        """(n, k, f) derivatives of the loss by the margins."""
        return self.probability(margin).sub_(self.target).mul_((self.reg * self.weight)[:, None])

    def keep(self, mask: Any) -> Problems:
        """The problems where `mask` (f,) is true."""
        return Problems(self.target[:, :, mask], self.weight[:, mask], self.reg[mask])


@dataclass
class Found:
    """coef: float64 (d, k, f); margin: (n, k, f) of every row; iterations: (f,); solved: bool (f,)."""

    coef: Any
    margin: Any
    iterations: Any
    solved: Any


def minimise(features: Features, problems: Problems, start: Any, tolerance: float, limit: int = NEWTON_LIMIT) -> Found:
    """Solve every problem from `start` (d, k, f) until |gradient| <= tolerance, or report it as not solved.

    The gradient is taken times `scale`, but for the intercept's. The objective is 1-strongly convex in the penalised
    weights, so their gradient bounds their distance from the optimum, and times `scale` it bounds how far the decision
    value of a row of that length is off. Where C * rows * scale^2 is so large that float64 sums cannot show a gradient
    of that size (over 1e9 for a tolerance of 1e-5), what they can show counts as solved.
    """
    import torch

    n, k, f = problems.target.shape
    steps, solved = torch.zeros(f, dtype=torch.int64), torch.zeros(f, dtype=torch.bool)
    found = Found(start.clone(), start.new_zeros(n, k, f), steps, solved)
    active = torch.arange(f, device=start.device)
    penalty = features.penalty[:, None, None]
    unit = penalty * features.scale + (1 - penalty)
    bar = (1e-14 * max(1, features.scale**2) * problems.reg * problems.weight.sum(0)).clamp(min=tolerance)
    coef, margin = start.clone(), _times(features.exact, start)
    residual, first = problems.residual(margin), None
    for step in range(limit + 1):
        gradient = _times(features.exact.T, residual).add_(penalty * coef)
        size = (unit * gradient).norm(dim=(0, 1))
        first = size.clone() if first is None else first
        going = (size > bar) & (step < limit) & size.isfinite()
        if not bool(going.all()):
            left = active[~going]
            found.coef[:, :, left], found.margin[:, :, left] = coef[:, :, ~going], margin[:, :, ~going]
            found.iterations[left.cpu()], found.solved[left.cpu()] = step, (size <= bar)[~going].cpu()
            if not bool(going.any()):
                break
            active, problems = active[going], problems.keep(going)
            size, first, bar = size[going], first[going], bar[going]
            coef, margin, gradient = coef[:, :, going], margin[:, :, going], gradient[:, :, going]
        # Loose far away, tighter as the optimum nears (superlinear), but never tighter than the tolerance needs.
        accuracy = torch.maximum((size / first).sqrt().clamp(max=0.1), 0.3 * bar / size)
        move = _direction(features, problems, margin, gradient, accuracy)
        coef, margin, residual = _line_search(features, problems, coef, margin, gradient, move)
    return found


def _times(matrix: Any, columns: Any) -> Any:
    """matrix (a, b) with columns (b, k, f): (a, k, f)."""
    return (matrix @ columns.reshape(len(columns), -1)).view(len(matrix), *columns.shape[1:])


def _direction(features: Features, problems: Problems, margin: Any, gradient: Any, accuracy: Any) -> Any:
    """(d, k, f) approximate Newton steps: preconditioned conjugate gradients until |rest| <= accuracy * |gradient|."""
    import torch

    matrix, penalty = features.quick, features.penalty.float()[:, None, None]
    probability = problems.probability(margin).float()
    weight = (problems.reg * problems.weight).float()[:, None]
    spread = probability * (1 - probability) * weight
    middle = spread.sum(0)  # (k, f): the average curvature is what the preconditioner knows of the weights
    inverse = 1 / (features.moments.float()[:, None, None] * middle + penalty).clamp(min=1e-30)
    length = gradient.norm(dim=(0, 1))
    rest = (-gradient / length).float()
    limit = accuracy.float() ** 2
    move = torch.zeros_like(rest)
    scaled = inverse * rest
    along = scaled.clone()
    product = (rest * scaled).sum((0, 1))
    for _ in range(INNER_LIMIT):
        bent = _times(matrix, along)
        if bent.shape[1] == 1:
            bent *= spread
        else:
            bent -= (probability * bent).sum(1, keepdim=True)
            bent *= probability
            bent *= weight
        bent = _times(matrix.T, bent).add_(penalty * along)
        curvature = (along * bent).sum((0, 1))
        going = (rest * rest).sum((0, 1)) > limit
        rate = torch.where(going & (curvature > 0), product / curvature.clamp(min=1e-37), 0)
        move += rate * along
        rest -= rate * bent
        if not bool(((rest * rest).sum((0, 1)) > limit).any()):
            break
        scaled = inverse * rest
        before, product = product, (rest * scaled).sum((0, 1))
        along = scaled.add_(along * (product / before.clamp(min=1e-37)))
    return move.double() * length


def _line_search(
    features: Features, problems: Problems, coef: Any, margin: Any, gradient: Any, move: Any
) -> tuple[Any, Any, Any]:
    """The new coefficients, margins and residuals: the whole step, halved until the objective does not rise.

    A step is good when the slope at its end is at most half the slope at its start (Hager & Zhang 2005's approximate
    Wolfe condition) and the objective is no larger but for rounding: sums cannot show the last steps' gain.
    """
    import torch

    penalty = features.penalty[:, None, None]
    along = _times(features.exact, move)
    slope = (gradient * move).sum((0, 1))
    before = problems.loss(margin) + (penalty * coef * coef).sum((0, 1)) / 2
    length = torch.ones_like(slope)
    for _ in range(HALVINGS):
        new_margin, new_coef = margin + length * along, coef + length * move
        residual = problems.residual(new_margin)
        after = problems.loss(new_margin) + (penalty * new_coef * new_coef).sum((0, 1)) / 2
        end = (residual * along).sum((0, 1)) + (penalty * new_coef * move).sum((0, 1))
        good = (end <= -0.5 * slope) & (after <= before + 1e-12 * before.abs())
        if bool(good.all()):
            break
        length = torch.where(good, length, length / 2)
    return new_coef, new_margin, residual
