"""Options of DiffAug (Wang and Lu 2022), including its variants and where its released code differs. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.settings import setting
from stsbench.training.api.options import Options

_CODE = "TianduoWang/DiffAug@e6292b6"
_DENOISED = {"denoise": True}


class DiffAugOptions(Options):
    """Defaults: DiffAug with a different prefix for each view, as the paper describes it."""

    stages = ("prefix", "joint")
    default_recipe = "bert-base-semi"

    template: str = setting('This sentence of "{}" means [MASK].', "of all views and of the test", f"{_CODE}, template 00")
    module: Literal["prefix", "adapter", "lora"] = setting("prefix", "what makes views differ", "Table 3")
    views: Literal["different", "same"] = setting("different", "one module a view, or one for all views", "Table 3")
    prefix_length: int = setting(8, "l, of each prefix", "Table 5, Figure 4", ge=1, goes_with={"module": "prefix"})
    rank: int = setting(4, "r of adapter and lora", "Table 3", ge=1, goes_with={"module": ("adapter", "lora")})
    adapter_activation: Literal["relu", "gelu"] = setting(
        "relu", "between an adapter's two layers", "inferred: the paper names none", goes_with={"module": "adapter"},
    )
    lora_scale: float = setting(1.0, "s, factor of LoRA's update", "the paper: s >= 1", gt=0, goes_with={"module": "lora"})
    joint_trains: Literal["all", "model", "module"] = setting(
        "all", "in stage joint: model: fixed prefix; module: prefix-tuning", "Table 3",
    )
    view: Literal["dropout", "given"] = setting(
        "dropout", "positive of stage joint: the sentence under both modules, or what the data give", "Table 1",
    )
    similarity: Literal["cosine", "dot"] = setting("cosine", "of the contrastive loss; dot: without temperature")
    temperature: float = setting(0.05, "divides the cosine", "Table 5", gt=0, goes_with={"similarity": "cosine"})
    aux_weight: float = setting(0.0, "alpha of the NLI loss in stage joint; 0: none", "Table 8", ge=0)
    denoise: bool = setting(
        True, "in stage joint: subtract the vector that the template alone gives under the view's module", "as PromptBERT",
    )
    denoise_offset: int = setting(
        0, "tokens by which the template alone is taken too long", f"{_CODE}: 8", ge=0, goes_with=_DENOISED,
    )
    denoise_start: Literal["own", "zero"] = setting(
        "own", "the template's first position: the model's, or 0 after the prefix", f"zero: {_CODE}", goes_with=_DENOISED,
    )
    clip_frozen: bool = setting(
        False, "stage prefix: clip over the gradients of frozen weights, too", f"true: {_CODE}",
        goes_with={"module": "prefix"},
    )
    at_test: Literal["both", "first", "second", "average"] = setting(
        "both", "modules attended in the test; average: of both views' vectors", f"both: {_CODE}",
        goes_with={"views": "different"},
    )
    text: Literal["pieces", "inside"] = setting(
        "pieces", "in training tokenised alone, or as inside the template", f"pieces: {_CODE}",
    )
    full_stop: bool = setting(False, "at test: a full stop behind a text that ends in none of . ? \" '")
    diagnose: int = setting(
        256, "texts of stage prefix that delta and kappa are measured on; 0: neither is", "section 5.2", ge=0,
    )

    @model_validator(mode="after")
    def _check_test(self) -> Self:
        if self.module != "prefix" and self.at_test == "average":
            raise ValueError(
                f"at_test average runs two prefixes one after another: with module {self.module} choose both "
                "(the sum of the two), first or second"
            )
        return self
