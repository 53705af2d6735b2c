"""Which changes of A give B's vectors: one of them, or two.

A change is a cause where A changed so has B's vectors, each of them, within the tolerance. What is computed in other places
than here (int8, bfloat16 by another program) cannot be had again number by number: there B's differences are compared with
those that the same rounding makes here, and the cause is said to be consistent with them, not proven.
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

_SCREENED = 12  # texts on which a hypothesis is tried first: what fails there cannot explain all
_FIRST = 5  # hypotheses that a second one is added to
_PART = 0.02  # the least share of the squared distances that a partial cause takes away
_NEAREST = 0.2  # from which on a change that explains nothing whole is worth a word
_ROWS = 2000  # texts of which another order is looked for
# Of the differences by rounding: how alike in direction, and in size; docs/how-to/parity.md has what was measured.
_LIKE, _SMALLEST, _LARGEST = 0.35, 0.5, 2.0
_SPREAD = 4  # times as far as the farthest text by the same rounding a text of B's may be


@dataclass(frozen=True)
class Cause:
    """What B does otherwise. certain: A changed so has B's vectors; otherwise their difference is like that of such a
    rounding. or_else: what gives the same vectors of these texts."""

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
    """causes: which together give B's vectors; none where nothing that was tried does.

    residual: the largest distance of directions that is left; tried: every hypothesis, in words; nearest: the one that takes
    most away where none explains, with its share of the squared distances.
    """

    causes: tuple[Cause, ...] = ()
    residual: float | None = None
    tried: tuple[str, ...] = ()
    nearest: tuple[str, float] | None = None


@dataclass(frozen=True)
class _State:
    """A variant of A, its vectors of all texts, B's in their order, the distances, and what led to it."""

    variant: Variant
    vectors: Floats
    b: Floats
    fit: Fit
    causes: tuple[Cause, ...] = ()


def explain(
    shop: Workshop | Sealed, texts: tuple[str, ...], a: Floats, b: Floats, tolerance: float, rough: float
) -> Explanation:
    """Return what gives the vectors b (n, k) of n texts, of which A has a (n, d). rough: what may pass for rounding of 8
    bits."""
    return Search(shop, texts, tolerance, rough).run(_State(Variant(), a, b, _fit(a, b)))


def reordered(vectors: Floats, b: Floats, tolerance: float) -> bool:
    """Return whether b has the rows of `vectors` in another order."""
    state = _State(Variant(), vectors, b, _fit(vectors, b))
    ordered = None if state.fit.explains(tolerance) else _ordered(state, tolerance)
    return ordered is not None and ordered.fit.explains(tolerance)


def lengths_cause(
    shop: Workshop | Sealed, texts: tuple[str, ...], variant: Variant, a: Floats, vectors: Floats, b: Floats,
    tolerance: float,
) -> Cause | None:
    """Return why vectors of the same directions have other lengths; None where they have not. a: A's own, of which is
    said what A does; vectors: the variant's."""
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
    """The search for one explanation."""

    def __init__(self, shop: Workshop | Sealed, texts: tuple[str, ...], tolerance: float, rough: float) -> None:
        self.shop, self.texts, self.tolerance, self.rough = shop, texts, tolerance, rough
        self.tried: dict[str, None] = {}

    def run(self, start: _State) -> Explanation:
        """From A as it is."""
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
        """Return the state after one change more, which explains B; with `shares` filled by what each one takes away."""
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
        """After the first hypothesis that explains B, with those that do so as well."""
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
        ended = whole or ended  # what gives the lengths as well needs no word on them
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
        """Return some of the texts that differ, of all lengths."""
        off = np.flatnonzero(state.fit.distance > self.tolerance)
        order = off[np.argsort([len(self.texts[i]) for i in off], kind="stable")]
        chosen = np.linspace(0, len(order) - 1, min(_SCREENED, len(order))).round().astype(int)
        return list(dict.fromkeys(order[chosen].tolist()))

    def _rough(self, state: _State, hypotheses: Sequence[Hypothesis]) -> _State | None:
        """After the rounding whose differences are most like B's, where any are like them."""
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
        """After two changes: each of the best ones, and a second."""
        best = sorted((one for one in shares if shares[one] > _PART), key=lambda one: -shares[one])[:_FIRST]
        firsts = [_ordered(start, self.tolerance), *(self._after(start, one) for one in best)]
        for state in firsts:
            if state is not None and state.fit.share(start.fit) > _PART:
                ended = self._step(state, {})
                if ended is not None:
                    return ended
        return None


def _ordered(state: _State, tolerance: float) -> _State | None:
    """With the rows that differ put in the order that fits best; None where there are too many, or only one."""
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
    """Of vectors of another width all texts are as far away as can be."""
    return Fit(turned(vectors, b) if vectors.shape == b.shape else np.full(len(b), 2.0))


def _moved_words(shop: Workshop | Sealed) -> str:
    """Return how the weights of two known models differ."""
    try:
        assert isinstance(shop, Workshop) and shop.other is not None
        differing, every, most = moved(shop.parts.model, shop.other.model)
    except ValueError as error:
        return str(error)
    return f"{differing} of {every} tensors differ, by up to {most:.3g}"
