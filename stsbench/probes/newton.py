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
    """One matrix for all problems, turned so that its second moments are diagonal: a preconditioner at no cost.

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

    target: float64 (k, n) of 0 and 1; weight: float64 (f, n), how often a row is trained on, 0 for the others;
    reg: float64 (f,), scikit-learn's C: reg * sum of log losses + |w|^2 / 2 is what is minimised.
    """

    target: Any
    weight: Any
    reg: Any

    def loss(self, margin: Any) -> Any:
        """(f,) weighted sums of log losses."""
        import torch

        if len(self.target) == 1:
            # Not softplus: torch replaces it by a straight line beyond 20.
            losses = -torch.nn.functional.logsigmoid(margin[:, 0]) + (1 - self.target) * margin[:, 0]
        else:
            losses = torch.logsumexp(margin, dim=1) - (self.target * margin).sum(1)
        return self.reg * (self.weight * losses).sum(1)

    def probability(self, margin: Any) -> Any:
        """(f, k, n)."""
        return margin.sigmoid() if margin.shape[1] == 1 else margin.softmax(dim=1)

    def residual(self, margin: Any) -> Any:
        """(f, k, n) derivatives of the loss with respect to the margins."""
        return self.probability(margin).sub_(self.target).mul_((self.reg[:, None] * self.weight)[:, None])

    def keep(self, mask: Any) -> Problems:
        """The problems where `mask` (f,) is true."""
        return Problems(self.target, self.weight[mask], self.reg[mask])


@dataclass
class Minimum:
    """coef: float64 (f, k, d); margin: (f, k, n) of every row; iterations: (f,); solved: bool (f,)."""

    coef: Any
    margin: Any
    iterations: Any
    solved: Any


def minimise(features: Features, problems: Problems, start: Any, tolerance: float, limit: int = NEWTON_LIMIT) -> Minimum:
    """Solve every problem from `start` (f, k, d) until |gradient| <= tolerance, or report it as not solved.

    The gradient is multiplied by `scale`, except for the intercept's. The objective is 1-strongly convex in the penalised
    weights, so their gradient bounds their distance from the optimum, and times `scale` it bounds how far the decision
    value of a row of that length is off. Where C * rows * scale^2 is so large that float64 sums cannot show a gradient
    of that size (over 1e9 for a tolerance of 1e-5), what they can show counts as solved.
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
        # Loose far away, tighter as the optimum nears (superlinear), but never tighter than the tolerance needs.
        accuracy = torch.maximum(0.1 * (size / first).sqrt().clamp(max=1), 0.3 * bar / size)
        move = _direction(features, problems, margin, gradient, accuracy)
        coef, margin, residual = _line_search(features, problems, coef, margin, gradient, move)
    return minimum


def _times(rows: Any, matrix: Any) -> Any:
    """rows (f, k, a) with matrix (a, b): (f, k, b). Rows of several classes sum to 0, so the last is spared."""
    import torch

    some = rows if rows.shape[1] == 1 else rows[:, :-1]
    product = (some.flatten(0, 1) @ matrix).view(*some.shape[:2], -1)
    return product if some is rows else torch.cat([product, -product.sum(1, keepdim=True)], dim=1)


def _centred(rows: Any) -> Any:
    """(f, k, d) less the mean over several classes: 0 at a softmax's optimum, and free for its intercept."""
    return rows if rows.shape[1] == 1 else rows - rows.mean(1, keepdim=True)


def _direction(features: Features, problems: Problems, margin: Any, gradient: Any, accuracy: Any) -> Any:
    """(f, k, d) approximate Newton steps: preconditioned conjugate gradients until |rest| <= accuracy * |gradient|."""
    import torch

    matrix, penalty = features.quick, features.penalty.float()
    probability = problems.probability(margin).float()
    weight = (problems.reg[:, None] * problems.weight).float()[:, None]
    spread = probability * (1 - probability) * weight
    middle = spread.sum(2, keepdim=True)  # (f, k, 1): the average curvature is what the preconditioner knows of the weights
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
    """The new coefficients, margins and residuals: the whole step, halved until the objective does not rise.

    A step is good when the slope at its end is at most half the slope at its start (Hager & Zhang 2005's approximate
    Wolfe condition) and the objective is no larger up to rounding: sums cannot show the last steps' gain.
    """
    import torch

    penalty = features.penalty
    along = _times(move, features.exact.T)
    slope = (gradient * move).sum((1, 2))
    before = problems.loss(margin) + (penalty * coef * coef).sum((1, 2)) / 2
    # A row's loss is a difference of numbers as large as its margins.
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
