"""The base of a method's own choices. Imports no torch: recipes can be checked and listed quickly."""

from __future__ import annotations

from typing import ClassVar, Literal

from stsbench.settings import Settings, setting


class Options(Settings):
    """A method's choices, as in a recipe's `options`, with its stages; an unknown key is an error."""

    stages: ClassVar[tuple[str, ...]] = ("main",)  # all that there may be, in their order
    default_recipe: ClassVar[str | None] = None  # recipes/NAME.yaml or NAME.yaml beside the module


class Repetition(Settings):
    """Some sub-words, or words, of every view but the first stand twice (Wu et al. 2022, ESimCSE): api/views.py."""

    unit: Literal["subword", "word"] = setting(
        "subword", "subword: token ids, after the text was cut at max_length; word: between blanks, before it is tokenised",
    )
    rate: float = setting(0.32, "the share that is repeated at most", gt=0, lt=1)
    count: Literal["released", "paper"] = setting(
        "released", "how many are, and which may be: as in the released code, or as in the paper",
    )


class Queue(Settings):
    """Vectors of earlier batches as further negatives, by a momentum encoder (Wu et al. 2022, ESimCSE): contrasting.py."""

    size: int = setting(160, "vectors held", ge=1)
    momentum: float = setting(
        0.995, "mu of theta_m = mu theta_m + (1 - mu) theta before each forward pass; 0: the encoder itself", ge=0, lt=1,
    )
    start: Literal["copy", "random"] = setting(
        "copy", "what theta_m starts from: a copy of the encoder, or, as in the released code, random weights",
    )
