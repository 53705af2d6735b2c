"""DiffAug's choices (Wang and Lu 2022): its variants, and its released code's oddities. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class DiffAugOptions(Options):
    """Defaults: DiffAug with different prefixes as the paper describes it."""

    stages = ("prefix", "joint")
    default_recipe = "bert-base-semi"

    template: str = 'This sentence of "{}" means [MASK].'  # of all views and of the test
    module: Literal["prefix", "adapter", "lora"] = "prefix"  # what makes views differ (Table 3)
    views: Literal["different", "same"] = "different"  # one module a view, or one for all views
    prefix_length: int = Field(default=8, ge=1)  # l, of each prefix
    rank: int = Field(default=4, ge=1)  # r of adapter and lora
    adapter_activation: Literal["relu", "gelu"] = "relu"
    lora_scale: float = Field(default=1.0, gt=0)  # s >= 1 in the paper
    joint_trains: Literal["all", "model", "module"] = "all"  # in stage joint: model: fixed prefix; module: prefix-tuning
    view: Literal["dropout", "given"] = "dropout"  # stage joint: the sentence under both modules, or what the data give
    similarity: Literal["cosine", "dot"] = "cosine"
    temperature: float = Field(default=0.05, gt=0)
    aux_weight: float = Field(default=0.0, ge=0)  # alpha of the NLI loss in stage joint; 0: none
    denoise: bool = True  # in stage joint: subtract the vector that the template alone gives under the view's module
    denoise_offset: int = Field(default=0, ge=0)  # tokens by which the template alone is taken too long (released code: 8)
    denoise_start: Literal["own", "zero"] = "own"  # its first position: the model's, or 0 after the prefix (released code)
    clip_frozen: bool = False  # stage prefix: clip over the gradients of frozen weights, too (released code)
    at_test: Literal["both", "first", "second", "average"] = "both"  # modules attended; average: of both views' vectors
    text: Literal["pieces", "inside"] = "pieces"  # tokenised alone in training (released code), or as inside the template
    full_stop: bool = False  # at test: a full stop behind a text that ends in none of . ? " '
    diagnose: int = Field(default=256, ge=0)  # texts of stage prefix that delta and kappa are measured on; 0: neither is
