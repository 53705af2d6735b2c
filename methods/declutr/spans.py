"""Which spans of a document are anchors and positives: the sampling of DeCLUTR, draw by draw.

Source: Giorgi et al. (2021), section 3.1, and the released code, declutr/common/contrastive_utils.py in
JohnGiorgi/DeCLUTR@b78ac57.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .options import DeCLUTROptions

_ANCHOR, _POSITIVE = (4, 2), (2, 4)  # parameters of the Beta distributions of lengths: anchors long, positives short


class Draws(Protocol):
    """Where random numbers come from; given ones replay a sample."""

    def beta(self, a: float, b: float) -> float:
        """Return a number in [0, 1]."""

    def integer(self, low: int, high: int) -> int:
        """Return uniform from `low` to `high`, both among them."""


class RandomDraws:
    """Draws from a generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def beta(self, a: float, b: float) -> float:
        """See Draws."""
        return float(self.rng.beta(a, b))

    def integer(self, low: int, high: int) -> int:
        """See Draws."""
        return int(self.rng.integers(low, high, endpoint=True))


@dataclass(frozen=True)
class Span:
    """Tokens start ... end - 1 of a document."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def least(options: DeCLUTROptions) -> int:
    """Return word pieces that a document needs: room for every anchor, 2 l_max each."""
    return 2 * options.anchors * options.l_max


def sample_spans(tokens: int, options: DeCLUTROptions, draws: Draws) -> list[tuple[Span, list[Span]]]:
    """Return the anchors of a document of `tokens` word pieces, each with its positives.

    Anchors begin within slots of l_max tokens. A slot that was drawn goes, and its neighbours with it, so two anchors never
    overlap. ValueError for a document shorter than `least`.
    """
    if tokens < least(options):
        raise ValueError(f"a document of {tokens} word pieces, and {least(options)} are needed")
    slots = list(range(0, tokens - options.l_max + 1, options.l_max))
    pairs = []
    for number in range(options.anchors):
        anchor = _anchor(slots, options.anchors - number, options, draws)
        pairs.append((anchor, [_positive(anchor, tokens, options, draws) for _ in range(options.positives)]))
    return pairs


def _anchor(slots: list[int], missing: int, options: DeCLUTROptions, draws: Draws) -> Span:
    """Return one anchor; its slot and the neighbours are taken out of `slots`. missing: anchors to be drawn, this one
    included."""
    length = _length(_ANCHOR, options.l_min, options.l_max, draws)
    last = len(slots) - 1
    scarce = len(slots) // missing < missing  # a slot in the middle might leave too few for the others
    slot = last * draws.integer(0, 1) if scarce else draws.integer(0, last)
    start = draws.integer(slots[slot], slots[slot] + options.l_max - length)
    del slots[max(0, slot - 1) : slot + 2]
    return Span(start, start + length)


def _positive(anchor: Span, tokens: int, options: DeCLUTROptions, draws: Draws) -> Span:
    longest = options.l_max
    if options.sampling == "subsuming":
        longest = len(anchor)
    length = _length(_POSITIVE, options.l_min, longest, draws)
    if options.sampling == "subsuming":
        start = draws.integer(anchor.start, anchor.end - length)
    elif options.sampling == "adjacent":
        # `least` leaves room for l_max tokens on one side; as in the code none begins with the document's first token
        starts = [anchor.start - length] * (anchor.start > length) + [anchor.end] * (anchor.end + length <= tokens)
        start = starts[draws.integer(0, len(starts) - 1)]
    else:
        start = draws.integer(max(0, anchor.start - length), min(anchor.end, tokens - length))
    return Span(start, start + length)


def _length(shape: tuple[int, int], shortest: int, longest: int, draws: Draws) -> int:
    return int(draws.beta(*shape) * (longest - shortest) + shortest)
