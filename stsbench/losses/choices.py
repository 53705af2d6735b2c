"""What losses and the options of methods may be asked for by name. Imports no torch: options are read without it."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

Similarity = Literal["cosine", "dot"]
RegressedSimilarity = Literal["cosine", "rescaled_cosine"]
# What a classifier of sentence pairs sees of two vectors u and v, named blocks. difference: |u - v|; product: u * v;
# max_square: max(u, v)^2, all element by element
Feature = Literal["u", "v", "difference", "product", "max_square"]
SBERT_FEATURES: tuple[Feature, ...] = ("u", "v", "difference")
Reduction = Literal["mean", "sum"]
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
