"""Token Prepending: what the last position knows goes back to a placeholder before the text, layer after layer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from stsbench.extensions.decoders.base import Preset, PresetOptions, PromptOptions
from stsbench.extensions.decoders.prompts import BY_NAME
from stsbench.extensions.decoders.reading import Prepend, PresetReading
from stsbench.settings import setting


class TokenPrependingOptions(PromptOptions):
    """Of `token-prepending`."""

    prompt: Literal["prompteol", "pretended-cot", "knowledge", "metaeol"] = setting(
        "prompteol", "the preset whose template it is put into", "config.yaml: prompt_method"
    )
    start: int = setting(1, "the first layer before which the placeholder is replaced, counted from 0", "config.yaml")
    exit: int = setting(7, "the first layer before which it no longer is", "config.yaml; in the paper the 8th layer")
    token: Literal["random", "zero"] = setting("random", "the placeholder's embedding: N(0, 1), or zeros", "evaluate.py")
    seed: int = setting(3407, "of the random numbers", "evaluate.py, where it acts on a GPU alone")


class TokenPrepending(Preset):
    """A placeholder directly behind the colon, before the opening quote."""

    name = "token-prepending"
    sentence = "A placeholder before the text takes the last position's state before each early layer"
    source = "Fu et al. 2025 (ACL), arXiv 2412.11556"
    Options: ClassVar[type[PresetOptions]] = TokenPrependingOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {  # config.yaml, by model
        "released": {"layer": 27},  # LLaMA-2-7B
        "llama-2-13b": {"prompt": "pretended-cot", "layer": -2},
        "llama-3-8b": {"prompt": "pretended-cot", "exit": 3, "layer": -2},
        "qwen2-7b": {"prompt": "pretended-cot", "exit": 6, "layer": -2},
        "gemma2-9b": {"prompt": "pretended-cot", "exit": 6, "layer": -2},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        prepend = Prepend(asked.start, asked.exit, asked.token, asked.seed)
        return PresetReading(self.spelled, BY_NAME[asked.prompt], asked.clean_up, layer=asked.layer, prepend=prepend)
