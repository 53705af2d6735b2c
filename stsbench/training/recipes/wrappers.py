"""Recipe sections that change the contrastive term of any method: shortened vectors, and a guide. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stsbench.errors import StsbenchError
from stsbench.training.recipes.sections import Section


class MatryoshkaSettings(Section):
    """sum over k of w_k L(first d_k numbers of every vector, normalised), L the contrastive term (Kusupati et al. 2022).

    Weights are not divided by their sum: beside other terms of a loss, m dims with weight 1 count m times.
    """

    dims: tuple[int, ...] = Field(min_length=1)  # the full width is trained only where it is among them
    weights: tuple[float, ...] | None = None  # one a dim; null: 1 each

    @model_validator(mode="after")
    def _go_together(self) -> MatryoshkaSettings:
        if min(self.dims) < 1 or len(set(self.dims)) < len(self.dims):
            raise ValueError("dims are different numbers of coordinates, 1 at least")
        if self.weights is not None and (len(self.weights) != len(self.dims) or min(self.weights) <= 0):
            raise ValueError(f"weights must be {len(self.dims)} numbers above 0, one for each of dims")
        return self

    @property
    def pairs(self) -> tuple[tuple[int, float], ...]:
        """(dim, weight), one for each of dims."""
        return tuple(zip(self.dims, self.weights or (1.0,) * len(self.dims), strict=True))


class GuideSettings(Section):
    """A frozen encoder masks texts of a batch that are no negatives (Solatorio 2024, GISTEmbed; Wang et al. 2024, MultiCSR).

    Defaults are those of sentence-transformers' GISTEmbedLoss but for the diagonals, which it masks by the guide alone.
    """

    model: str  # as after --model
    settings: dict[str, str | int | bool | None] = Field(default={})  # further arguments of load_encoder, e.g. {pooler: cls}
    # a text is masked where the guide's cosine with the anchor is greater than that of the positive, g, less the margin
    # (absolute), than g - margin |g| (relative), or than phi (fixed)
    threshold: Literal["absolute", "relative", "fixed"] = "absolute"
    margin: float = 0.0
    phi: float | None = Field(default=None, gt=-1, lt=1)
    contrast_anchors: bool = True  # the other anchors are negatives, too
    contrast_positives: bool = True  # and of a positive the other positives, in the same softmax
    diagonals: Literal["masked", "by_guide"] = "masked"  # a text among its kind; by_guide: kept where g is 1 (library)
    masked: Literal["remove", "zero"] = "remove"  # from the softmax; zero: left in it with the exponent 0 (MultiCSR's code)
    dropout: bool = False  # the guide's dropout is on (MultiCSR's code)
    loss: Literal["ce", "bce_of_softmax"] = "ce"  # bce_of_softmax: over all columns, 1 at the positive (MultiCSR's code)


def check_guide(guide: GuideSettings) -> None:
    """Raises StsbenchError, one line, for settings without an effect, and for code that a recipe names."""
    if guide.model.startswith("python:") or guide.settings.get("trust_remote_code"):
        raise StsbenchError(
            f"guide.model: {guide.model} would run code that a recipe names: a guide is a model, without python: and "
            "trust_remote_code"
        )
    if guide.threshold == "fixed":
        if guide.phi is None:
            raise StsbenchError("guide.threshold fixed needs guide.phi, e.g. 0.95")
        if guide.margin:
            raise StsbenchError("guide.margin has no effect with guide.threshold fixed: leave it at 0")
    elif guide.phi is not None:
        raise StsbenchError(f"guide.phi has no effect with guide.threshold {guide.threshold}: set it to null")
    if guide.diagonals != "masked" and not (guide.contrast_anchors or guide.contrast_positives):
        raise StsbenchError("guide.diagonals has no effect: no anchors and no positives are contrasted; leave it at masked")
