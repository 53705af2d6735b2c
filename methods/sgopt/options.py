"""Options of SG-OPT (Kim et al. 2021), including where its released code differs. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.settings import setting
from stsbench.training.api.options import Options

Objective = Literal["sg-opt", "sg", "opt1", "opt2"]


class SGOPTOptions(Options):
    """Defaults: the paper's SG-OPT. c is a sentence's vector, h_k its vector from layer k of the guide."""

    default_recipe = "bert-base"

    objective: Objective = setting(
        "sg-opt", "sg: NT-Xent of c and the h of one layer, drawn for each sentence; opt1: c alone is an anchor; opt2: nor "
        "is another sentence's c a negative; sg-opt: each c with the h of all layers", "released code; the card has a table",
    )
    guide: Literal["frozen", "trained"] = setting(
        "frozen", "whose layers give h; frozen: the copy's; trained: the model's own as they are now, read with other "
        "dropout masks than c, and both have a gradient", "trained: the released code with args.clone false",
    )
    temperature: float = setting(0.01, "divides the cosine", "released code", gt=0)
    first_layer: int = setting(0, "the first that gives an h; 0: the embedding output", "released code", ge=0)
    last_layer: int | None = setting(None, "this one included; null: the model's last", "released code", ge=0)
    layer_pooling: Literal["mean", "max", "sum"] = setting("mean", "over a layer's tokens", "released code")
    projection_width: int = setting(4096, "of both layers of the projection", "released code", ge=1)
    freeze_embeddings: bool = setting(True, "positions, token types and their LayerNorm too", "released code")
    regulariser_weight: float = setting(
        0.1, "lambda, of the squared distance to the weights at the start", "released code", ge=0,
    )
    reference_dropout: bool = setting(
        False, "the frozen copy's dropout is on in training", "true: released code", goes_with={"guide": "frozen"},
    )
    skip_negative: bool = setting(
        False, "opt2 leaves out one of the B - 1 negatives, too", "true: released code", goes_with={"objective": "opt2"},
    )

    @model_validator(mode="after")
    def _some_layer_is_left(self) -> Self:
        if self.last_layer is not None and self.last_layer < self.first_layer:
            raise ValueError(f"first_layer {self.first_layer} is above last_layer {self.last_layer}: no layer is left")
        return self
