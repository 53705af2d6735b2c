"""Random span masking of raw text: some characters of a string become one mask token, wherever words begin or end.

Source: Liu et al. (2021), Mirror-BERT, section 2, and its released code, from which the range of the draw is taken: the
last character of a text is never masked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .options import MirrorBERTOptions

LITERAL = "[MASK]"


def mask_spans(
    texts: Sequence[str], options: MirrorBERTOptions, mask_token: str, rng: np.random.Generator
) -> list[str]:
    """The texts, each with a span masked; too short ones as they are. One number is drawn for each text, in their order."""
    mask = LITERAL if options.literal_mask else mask_token
    return [mask_span(text, float(draw), options, mask) for text, draw in zip(texts, rng.random(len(texts)), strict=True)]


def mask_span(text: str, draw: float, options: MirrorBERTOptions, mask: str) -> str:
    """`text` with `mask` between blanks for the span_chars characters from place floor(draw * (length - span_chars)) on.

    draw: in [0, 1). A text of fewer than min_chars characters, or of no more than span_chars, comes back as it is.
    """
    size = options.span_chars
    if len(text) < options.min_chars or len(text) <= size:
        return text
    start = int(draw * (len(text) - size))
    if options.first_occurrence:
        start = text.index(text[start : start + size])
    return f"{text[:start]} {mask} {text[start + size :]}"
