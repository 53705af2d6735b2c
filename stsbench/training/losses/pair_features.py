"""What a classifier of sentence pairs sees of two vectors u and v: a list of named blocks. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

if TYPE_CHECKING:
    from torch import Tensor

# difference: |u - v|; product: u * v; max_square: max(u, v)^2, all element by element
Feature = Literal["u", "v", "difference", "product", "max_square"]
SBERT_FEATURES: tuple[Feature, ...] = ("u", "v", "difference")

_BLOCKS: dict[Feature, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "difference": lambda u, v: (u - v).abs(),
    "product": lambda u, v: u * v,
    "max_square": lambda u, v: u.maximum(v) ** 2,
}


def _some_and_different(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
    if not features:
        raise ValueError(f"needs one block at least, of {', '.join(_BLOCKS)}")
    if len(set(features)) < len(features):
        raise ValueError("names a block twice")
    return features


Features = Annotated[tuple[Feature, ...], AfterValidator(_some_and_different)]  # of a method's options


def feature_blocks(u: Tensor, v: Tensor, features: tuple[Feature, ...] = SBERT_FEATURES) -> list[Tensor]:
    """The blocks, (n, d) each, in the order of `features`, of u and v (n, d).

    Sources: Reimers and Gurevych (2019), Sentence-BERT, section 6, Table 6; max_square: the code of Yan et al. (2021),
    ConSERT.
    """
    return [_BLOCKS[name](u, v) for name in features]
