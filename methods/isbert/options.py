"""Options of IS-BERT (Zhang et al. 2020). Those of its CNN are in the recipe's backbone.mean_cnn. Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.settings import setting
from stsbench.training.api.options import Options


class ISBERTOptions(Options):
    """By default, vectors do not depend on the other texts of a batch."""

    default_recipe = "bert-base-nli"

    padding: Literal["zeros", "states"] = setting(
        "zeros", "what the convolutions read behind a text's end in training: zeros, or the encoder's states there, as the "
        "authors' code, which pads a batch to one token more than its longest text", "states: yanzhangnlp/IS-BERT@ea6622c",
    )
