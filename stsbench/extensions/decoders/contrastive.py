"""Contrastive Prompting: what a prompt for the irrelevant attends to is taken away, in one layer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from stsbench.extensions.decoders.base import Preset, PresetOptions, PromptOptions
from stsbench.extensions.decoders.prompts import BY_NAME, IRRELEVANT
from stsbench.extensions.decoders.reading import Contrast, PresetReading
from stsbench.settings import setting


class ContrastiveOptions(PromptOptions):
    """Of `contrastive`."""

    prompt: Literal["prompteol", "pretended-cot", "knowledge", "ck"] = setting(
        "prompteol", "the preset that is changed; ck: the mean of pretended-cot and knowledge", "--prompt_method"
    )
    kind: Literal["scaled", "norm"] = setting(
        "scaled", "scaled: alpha (A - B), CP-NS; norm: A - B brought to the length of A, CP-NR", "--intervention_plan"
    )
    alpha: float = setting(0.5, "of `scaled`", "--coeff 0.5 in README and script; 2 in the paper")
    at: int = setting(4, "the layer, counted from 0", "--act_layer 4")


class Contrastive(Preset):
    """alpha (A - B) in the place of A, the input of the attention's output projection at the last position."""

    name = "contrastive"
    sentence = "What a prompt for the irrelevant information attends to is taken away at the last position of one layer"
    source = "Cheng et al. 2025, arXiv 2505.12831"
    Options: ClassVar[type[PresetOptions]] = ContrastiveOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {  # for LLaMA-2-7B where no model is named
        "released": {"layer": 27},
        "released-llama-3-8b": {"alpha": 0.25, "at": 6, "layer": -2},
        "paper": {"alpha": 2.0, "layer": 27},
        "paper-pretended-cot": {"prompt": "pretended-cot", "alpha": 3.0, "at": 6, "layer": 27},
        "paper-knowledge": {"prompt": "knowledge", "alpha": 3.0, "at": 6, "layer": -2},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        contrast = Contrast(IRRELEVANT, asked.at, asked.kind, asked.alpha if asked.kind == "scaled" else None)
        return PresetReading(self.spelled, BY_NAME[asked.prompt], asked.clean_up, layer=asked.layer, contrast=contrast)
