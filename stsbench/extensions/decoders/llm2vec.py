"""LLM2Vec: attention in both directions, and the mean over the text's own tokens."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from stsbench.extensions.decoders.base import Preset, PresetOptions
from stsbench.extensions.decoders.reading import PresetReading
from stsbench.settings import setting

_AROUND = {
    "none": ("", ""), "inst": ("[INST] ", " [/INST]"),
    "llama-3": ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
}


class Llm2VecOptions(PresetOptions):
    """Of `llm2vec`."""

    instruction: str = setting(
        "Retrieve semantically similar text:", "before the text, and not pooled; '' for none", "MTEB's tasks STS"
    )
    wrapper: Literal["none", "inst", "llama-3"] = setting(
        "none", "what is around both: Mistral-Instruct and Llama-2-chat have inst", "llm2vec.py: prepare_for_tokenization"
    )
    pooling: Literal["mean", "weighted_mean", "last"] = setting("mean", "of the text's own tokens", "llm2vec.py")
    attention: Literal["bidirectional", "causal"] = setting("bidirectional", "the switch", "enable_bidirectional")


class Llm2Vec(Preset):
    """For folders that were trained so; on others it shows what the switch alone does."""

    name = "llm2vec"
    sentence = "Attention in both directions, and the mean over the text's own tokens behind an instruction"
    source = "BehnamGhader et al. 2024, arXiv 2404.05961"
    Options: ClassVar[type[PresetOptions]] = Llm2VecOptions
    forms: ClassVar[dict[str, dict[str, Any]]] = {
        "released": {}, "inst": {"wrapper": "inst"}, "llama-3": {"wrapper": "llama-3"},
    }

    def reading(self) -> PresetReading:
        asked = self.options
        before, after = _AROUND[asked.wrapper]
        instruction = f"{asked.instruction.strip()} " if asked.instruction else ""
        return PresetReading(
            self.spelled, (f"{before}{instruction}{{}}{after}",), pooler=asked.pooling, over="alone", layer=asked.layer,
            bidirectional=asked.attention == "bidirectional",
        )
