"""Recipe sections that change the contrastive term of any method: shortened vectors, and a guide. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.rules import Where
from stsbench.settings import Settings, setting


class MatryoshkaSettings(Settings):
    """sum over k of w_k L(first d_k numbers of every vector, normalised), L the contrastive term (Kusupati et al. 2022).

    Weights are not divided by their sum: beside other terms of a loss, m dims with weight 1 count m times.
    """

    dims: tuple[int, ...] = setting(..., "the full width is trained only where it is among them", min_length=1)
    weights: tuple[float, ...] | None = setting(None, "one a dim; null: 1 each")

    @model_validator(mode="after")
    def _a_weight_a_dim(self) -> Self:
        if min(self.dims) < 1 or len(set(self.dims)) < len(self.dims):
            raise ValueError("dims are different numbers of coordinates, 1 at least")
        if self.weights is not None and (len(self.weights) != len(self.dims) or min(self.weights) <= 0):
            raise ValueError(f"weights must be {len(self.dims)} numbers above 0, one for each of dims")
        return self

    @property
    def pairs(self) -> tuple[tuple[int, float], ...]:
        """(dim, weight), one for each of dims."""
        return tuple(zip(self.dims, self.weights or (1.0,) * len(self.dims), strict=True))


class GuideSettings(Settings):
    """A frozen encoder masks texts of a batch that are no negatives (Solatorio 2024, GISTEmbed; Wang et al. 2024, MultiCSR).

    Defaults are those of sentence-transformers' GISTEmbedLoss but for the diagonals, which it masks by the guide alone.
    """

    model: str = setting(
        ..., "as after --model, but for python:; it reads the rows' texts as they are, in every process the whole batch",
    )
    settings: dict[str, str | int | bool | None] = setting(
        {}, "further arguments of load_encoder, e.g. {pooler: cls}; not trust_remote_code",
    )
    threshold: Literal["absolute", "relative", "fixed"] = setting(
        "absolute", "a text is masked where the guide's cosine with the anchor is greater than that of the positive, g, "
        "less the margin (absolute), than g - margin |g| (relative), or than phi (fixed)",
    )
    margin: float = setting(
        0.0, "what the positive's cosine is lessened by", goes_with={"threshold": ("absolute", "relative")},
    )
    phi: float | None = setting(
        None, "the cosine above which a text is masked", gt=-1, lt=1, goes_with={"threshold": "fixed"}, needed=True,
        why="e.g. 0.95",
    )
    contrast_anchors: bool = setting(True, "the other anchors are negatives, too; NT-Xent has them anyway")
    contrast_positives: bool = setting(True, "and of a positive the other positives, in the same softmax")
    diagonals: Literal["masked", "by_guide"] = setting(
        "masked", "a text among its kind is no negative of itself; by_guide: only by the rule, which leaves it in where g "
        "is 1 or the margin negative", "by_guide: sentence-transformers' GISTEmbedLoss",
        goes_with=Where(lambda guide: guide.contrast_anchors or guide.contrast_positives,
                        "contrast_anchors or contrast_positives"),
    )
    masked: Literal["remove", "zero"] = setting(
        "remove", "out of the softmax; zero: the exponent is 0, so that it still counts as a cosine of 0",
        "zero: MultiCSR's code",
    )
    dropout: bool = setting(False, "the guide's dropout is on", "MultiCSR's code")
    loss: Literal["ce", "bce_of_softmax"] = setting(
        "ce", "bce_of_softmax: the mean over all columns of the binary cross-entropy of the softmax, 1 at the positive",
        "bce_of_softmax: MultiCSR's code",
    )

    @model_validator(mode="after")
    def _runs_no_code(self) -> Self:
        if self.model.startswith("python:") or self.settings.get("trust_remote_code"):
            raise ValueError(
                f"model {self.model} would run code that a recipe names: a guide is a model, without python: and "
                "trust_remote_code"
            )
        return self
