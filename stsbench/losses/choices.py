"""Named choices of losses, which methods' options take, too. Imports no torch, so that options are read without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

Similarity = Literal["cosine", "dot"]
RegressedSimilarity = Literal["cosine", "rescaled_cosine"]
# Input blocks of a classifier of sentence pairs with the vectors u and v, elementwise. difference: |u - v|; product: u * v;
# max_square: max(u, v)^2
Feature = Literal["u", "v", "difference", "product", "max_square"]
SBERT_FEATURES: tuple[Feature, ...] = ("u", "v", "difference")
Reduction = Literal["mean", "sum"]
# InfoNCE in several directions
Direction = Literal["query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"]
DIRECTIONS = get_args(Direction)
Partition = Literal["joint", "per_direction"]
Hardness = Literal["none", "in_batch_negatives", "hard_negatives", "all_negatives"]
# guided losses
Threshold = Literal["absolute", "relative", "fixed"]
Masked = Literal["remove", "zero"]
GuidedLoss = Literal["ce", "bce_of_softmax"]
# rankings, distillation and groups
Ranks = Literal["sum", "mean"]
Consistency = Literal["js", "entropy"]
DistilObjective = Literal["vectors", "similarities", "ranks"]
DistilLoss = Literal["mse", "cosine", "contrastive", "kl", "listmle", "listnet"]
DISTIL_LOSSES = {
    "vectors": ("mse", "cosine", "contrastive"), "similarities": ("mse", "kl"), "ranks": ("listmle", "listnet"),
}
GroupPositive = Literal["bce_of_softmax", "bce"]
Reduce = Literal["element", "row"]


def _some_and_different(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
    if not features:
        raise ValueError(f"needs one block at least, of {', '.join(get_args(Feature))}")
    if len(set(features)) < len(features):
        raise ValueError("names a block twice")
    return features


Features = Annotated[tuple[Feature, ...], AfterValidator(_some_and_different)]  # a method's options have this type


def check_directions(directions: Sequence[str], partition: str, hardness: str, strength: float) -> None:
    """Raise ValueError for unknown or repeated directions, and for choices that contradict one another."""
    if "query_to_doc" not in directions or len(set(directions)) < len(directions) or not set(directions) <= set(DIRECTIONS):
        raise ValueError(f"directions are query_to_doc and others of {', '.join(DIRECTIONS)}, each once")
    if partition == "per_direction" and {"query_to_query", "doc_to_doc"} & set(directions):
        raise ValueError("partition per_direction takes no query_to_query and doc_to_doc, which hold no positive: set joint")
    if (hardness == "none") != (strength == 0) or strength < 0:
        raise ValueError(f"hardness {hardness} and strength {strength:g} do not go together: both, or none and 0")
