"""Search for the changes of A, one or two, that give B's vectors.

A change is a cause if the changed A has B's vector for every text, within the tolerance. Rounding by other programs (int8,
bfloat16) cannot be reproduced exactly: B's differences are then compared with those that the same rounding makes in A, and
the cause is reported as consistent with them, not as proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from stsbench.extensions.parity.hypotheses import Hypothesis, hypotheses, limits
from stsbench.extensions.parity.measures import Fit, Floats, directions, likeness, same_lengths, stretched, turned, unit
from stsbench.extensions.parity.parts import NORMALIZE, moved
from stsbench.extensions.parity.variant import OTHER, Sealed, Variant, Workshop
from stsbench.wording import counted

_SCREENED = 12  # texts on which a hypothesis is tried first: one that fails on them cannot explain all
_FIRST = 5  # hypotheses that a second one is added to
_PART = 0.02  # the least share of the squared distances that a partial cause takes away
_NEAREST = 0.2  # the least share of the squared distances from which a change that explains only a part is reported
_ROWS = 2000  # most differing rows for which another order is looked for
# Bounds for differences by rounding, on their correlation and their ratio of sizes; docs/how-to/parity.md has measurements.
_LIKE, _SMALLEST, _LARGEST = 0.35, 0.5, 2.0
_SPREAD = 4  # B's largest distance may be so many times the largest one by the same rounding of A


@dataclass(frozen=True)
class Cause:
    """A difference between B and A. certain: the changed A has B's vectors; if False, B's differences only resemble those of
    such a rounding. or_else: other changes that give the same vectors of these texts."""

    kind: str
    words: str
    certain: bool = True
    detail: str = ""
    or_else: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = self.words if self.certain else f"consistent with: {self.words}"
        either = f" (or: {'; '.join(self.or_else)})" if self.or_else else ""
        return f"{words}{f' ({self.detail})' if self.detail else ''}{either}"


@dataclass(frozen=True)
class Explanation:
    """The result of a search. causes: together they give B's vectors; () where nothing that was tried does.

    residual: the largest remaining distance of directions; tried: every hypothesis, in words; nearest: where no hypothesis
    explains B, the one that explains the largest share of the squared distances, with that share.
    """

    causes: tuple[Cause, ...] = ()
    residual: float | None = None
    tried: tuple[str, ...] = ()
    nearest: tuple[str, float] | None = None


@dataclass(frozen=True)
class _State:
    """A variant of A with its vectors, B's vectors (reordered if order is a cause), their distances, the causes so far."""

    variant: Variant
    vectors: Floats
    b: Floats
    fit: Fit
    causes: tuple[Cause, ...] = ()


def explain(
    shop: Workshop | Sealed, texts: tuple[str, ...], a: Floats, b: Floats, tolerance: float, rough: float
) -> Explanation:
    """Return the explanation of B's vectors b (n, k) by changes of A, whose vectors are a (n, d). tolerance: distance that
    counts as equal; rough: the same for rounding to few bits."""
    return Search(shop, texts, tolerance, rough).run(_State(Variant(), a, b, _fit(a, b)))


def reordered(vectors: Floats, b: Floats, tolerance: float) -> bool:
    """Return whether b consists of the rows of `vectors` in another order."""
    state = _State(Variant(), vectors, b, _fit(vectors, b))
    ordered = None if state.fit.explains(tolerance) else _ordered(state, tolerance)
    return ordered is not None and ordered.fit.explains(tolerance)


def lengths_cause(
    shop: Workshop | Sealed, texts: tuple[str, ...], variant: Variant, a: Floats, vectors: Floats, b: Floats,
    tolerance: float,
) -> Cause | None:
    """Return why b's vectors have other lengths than the variant's `vectors`, of the same directions; None where lengths
    agree. a: the vectors of A itself, which tell whether A normalises."""
    if same_lengths(vectors, b, tolerance) or (unit(a) and unit(b)):
        return None
    steps = shop.parts.steps if isinstance(shop, Workshop) else ()
    if steps and steps[-1][0] == NORMALIZE:
        plain = shop.vectors(texts, replace(variant, without=variant.without | {len(steps) - 1}))
        if plain is not None and same_lengths(plain, b, tolerance):
            return Cause("normalisation", "vectors are not normalised at the end")
    if unit(b, tolerance) and not unit(a):
        return Cause("normalisation", "vectors are normalised to length 1, which A does not do")
    ratio = stretched(vectors, b)
    ratio = ratio[np.isfinite(ratio)]
    if len(ratio) and np.ptp(ratio) <= tolerance * abs(float(np.median(ratio))):
        return Cause("scale", f"vectors are {float(np.median(ratio)):.6g} times as long")
    return Cause("lengths", "lengths differ from text to text, and nothing that was tried gives them", certain=False)


class Search:
    """One search for an explanation of B's vectors."""

    def __init__(self, shop: Workshop | Sealed, texts: tuple[str, ...], tolerance: float, rough: float) -> None:
        self.shop, self.texts, self.tolerance, self.rough = shop, texts, tolerance, rough
        self.tried: dict[str, None] = {}

    def run(self, start: _State) -> Explanation:
        """Return the explanation found from `start`, A as it is: one change or two, and a cause of other lengths."""
        shares: dict[Hypothesis, float] = {}
        end = self._step(start, shares) or self._two(start, shares)
        if end is None:
            best = max(shares, key=lambda known: shares[known], default=None)
            near = None if best is None or shares[best] < _NEAREST else (best.words, shares[best])
            return Explanation(tried=tuple(self.tried), nearest=near)
        rounded = not all(cause.certain for cause in end.causes)
        tolerance = self.rough if rounded else self.tolerance
        last = lengths_cause(self.shop, self.texts, end.variant, start.vectors, end.vectors, end.b, tolerance)
        causes = (*end.causes, *([] if last is None else [last]))
        return Explanation(causes, float(end.fit.distance.max()), tuple(self.tried))

    def _step(self, state: _State, shares: dict[Hypothesis, float]) -> _State | None:
        """Return the state after one more change that explains B, or None. Fills `shares`: hypothesis -> share explained."""
        known = hypotheses(self.shop, state.b.shape[1])
        near = state.fit.distance <= self.tolerance
        level = self.tolerance if near.any() else self.rough
        known += limits(self.shop, self.texts, state.variant, state.b, state.fit.distance, level)
        known = [one for one in known if one.kind not in {cause.kind for cause in state.causes}]
        self.tried.update(dict.fromkeys(one.words for one in known if one.kind != "truncation"))
        self.tried["texts are cut at another number of tokens"] = self.tried["rows stand in another order"] = None
        exact = [one for one in known if one.change(state.variant).weights != OTHER]
        for group in (exact, [one for one in known if one not in exact]):
            if (ended := self._exact(state, group, shares)) is not None:
                return ended
        ordered = _ordered(state, self.tolerance)
        if ordered is not None and ordered.fit.explains(self.tolerance):
            return ordered
        return self._rough(state, [one for one in known if one.rough])

    def _exact(self, state: _State, hypotheses: Sequence[Hypothesis], shares: dict[Hypothesis, float]) -> _State | None:
        """Return the state after the first hypothesis that explains B, with all others that do as its alternatives."""
        rows = self._screen(state)
        before, ended = Fit(state.fit.distance[rows]), []
        for one in hypotheses:
            variant = one.change(state.variant)
            part = None if variant == state.variant else self.shop.vectors([self.texts[i] for i in rows], variant)
            if part is None:
                continue
            on_part = _fit(part, state.b[rows])
            shares[one] = on_part.share(before)
            if on_part.explains(self.tolerance) and (after := self._after(state, one)) is not None:
                ended += [after] if after.fit.explains(self.tolerance) else []
        if not ended:
            return None
        whole = [after for after in ended if same_lengths(after.vectors, state.b, self.tolerance)]
        ended = whole or ended  # prefer those that explain the lengths, too
        words = tuple(dict.fromkeys(after.causes[-1].words for after in ended[1:]))
        return replace(ended[0], causes=(*ended[0].causes[:-1], replace(ended[0].causes[-1], or_else=words)))

    def _after(self, state: _State, hypothesis: Hypothesis, certain: bool = True) -> _State | None:
        variant = hypothesis.change(state.variant)
        vectors = self.shop.vectors(self.texts, variant)
        if vectors is None:
            return None
        detail = _moved_words(self.shop) if variant.weights == OTHER else ""
        cause = Cause(hypothesis.kind, hypothesis.words, certain, detail)
        if hypothesis.kind == "precision" and (lost := int((~np.isfinite(vectors).all(1)).sum())):
            cause = replace(cause, detail=f"it overflows: {counted(lost, 'text')} without a finite vector")
        return _State(variant, vectors, state.b, _fit(vectors, state.b), (*state.causes, cause))

    def _screen(self, state: _State) -> list[int]:
        """Return indices of at most _SCREENED texts that differ, spread over all lengths."""
        off = np.flatnonzero(state.fit.distance > self.tolerance)
        order = off[np.argsort([len(self.texts[i]) for i in off], kind="stable")]
        chosen = np.linspace(0, len(order) - 1, min(_SCREENED, len(order))).round().astype(int)
        return list(dict.fromkeys(order[chosen].tolist()))

    def _rough(self, state: _State, hypotheses: Sequence[Hypothesis]) -> _State | None:
        """Return the state after the rounding whose differences correlate best with B's; None where none is close enough."""
        best: tuple[float, _State] | None = None
        for one in hypotheses:
            after = self._after(state, one)
            if after is None or after.vectors.shape != state.vectors.shape or state.vectors.shape != state.b.shape:
                continue
            like, size = likeness(state.vectors, after.vectors, state.b)
            if like < _LIKE or not _SMALLEST <= size <= _LARGEST or np.isinf(after.fit.distance).any():
                continue
            finite = np.isfinite(state.fit.distance)
            rounding = turned(state.vectors, after.vectors)[finite]
            if state.fit.distance[finite].max(initial=0) > _SPREAD * rounding.max(initial=0):
                continue
            if best is None or like > best[0]:
                lost = after.causes[-1].detail
                detail = "; ".join(filter(None, [f"correlation of the differences {like:.2f}", lost]))
                best = like, replace(after, causes=(*state.causes, replace(after.causes[-1], certain=False, detail=detail)))
        return None if best is None else best[1]

    def _two(self, start: _State, shares: dict[Hypothesis, float]) -> _State | None:
        """Return the state after two changes that explain B, the first one of the best single changes; None without any."""
        best = sorted((one for one in shares if shares[one] > _PART), key=lambda one: -shares[one])[:_FIRST]
        firsts = [_ordered(start, self.tolerance), *(self._after(start, one) for one in best)]
        for state in firsts:
            if state is not None and state.fit.share(start.fit) > _PART:
                ended = self._step(state, {})
                if ended is not None:
                    return ended
        return None


def _ordered(state: _State, tolerance: float) -> _State | None:
    """Return the state with B's differing rows in the best order; None for one row, too many rows, or if no row moves."""
    off = np.flatnonzero(state.fit.distance > tolerance)
    comparable = state.vectors.shape == state.b.shape and np.isfinite(state.b[off]).all()
    if not comparable or not 1 < len(off) <= _ROWS or not np.isfinite(state.vectors[off]).all():
        return None
    _, match = linear_sum_assignment(-(directions(state.vectors[off]) @ directions(state.b[off]).T))
    order = np.arange(len(state.b))
    order[off] = off[match]
    wrong = [i for i in off if order[i] != i]
    if not wrong:
        return None
    shown = ", ".join(f"{order[i] + 1} for {i + 1}" for i in wrong[:3])
    cause = Cause("order", "rows stand in another order", detail=f"{counted(len(wrong), 'row')}, such as {shown}")
    b = state.b[order]
    return _State(state.variant, state.vectors, b, _fit(state.vectors, b), (*state.causes, cause))


def _fit(vectors: Floats, b: Floats) -> Fit:
    """Return the distances of the vectors from b; 2, the largest, for vectors of another width."""
    return Fit(turned(vectors, b) if vectors.shape == b.shape else np.full(len(b), 2.0))


def _moved_words(shop: Workshop | Sealed) -> str:
    """Return in words how the weights of A's and B's models differ."""
    try:
        assert isinstance(shop, Workshop) and shop.other is not None
        differing, every, most = moved(shop.parts.model, shop.other.model)
    except ValueError as error:
        return str(error)
    return f"{differing} of {every} tensors differ, by up to {most:.3g}"
