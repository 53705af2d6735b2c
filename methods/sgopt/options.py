"""SG-OPT's choices (Kim et al. 2021), and what its released code does otherwise. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options

Objective = Literal["sg-opt", "sg", "opt1", "opt2"]


class SGOPTOptions(Options):
    """Defaults: SG-OPT of the paper. c is a sentence's vector, h_k the one of the guide's layer k."""

    default_recipe = "bert-base"

    # sg: NT-Xent of c and the h of one layer, drawn for each sentence; opt1: c alone is an anchor; opt2: nor is another
    # sentence's c a negative; sg-opt: each c with the h of all layers
    objective: Objective = "sg-opt"  # sg, opt1, opt2: the positive is of one layer, drawn for each sentence (card)
    # whose layers give h; trained: the model's own as they are now, read with other dropout masks than c, and both have a
    # gradient (the released code with args.clone false)
    guide: Literal["frozen", "trained"] = "frozen"  # frozen: the copy's
    temperature: float = Field(default=0.01, gt=0)
    first_layer: int = Field(default=0, ge=0)  # 0: the embedding output
    last_layer: int | None = Field(default=None, ge=0)  # this one included; null: the model's last
    layer_pooling: Literal["mean", "max", "sum"] = "mean"  # over a layer's tokens
    projection_width: int = Field(default=4096, ge=1)
    freeze_embeddings: bool = True  # positions, token types and their LayerNorm too
    regulariser_weight: float = Field(default=0.1, ge=0)  # lambda, of the squared distance to the weights at the start
    reference_dropout: bool = False  # the frozen copy's dropout is on in training (released code)
    skip_negative: bool = False  # opt2 leaves out one of the B - 1 negatives, too (released code)
