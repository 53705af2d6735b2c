"""PromptEOL behind one introduction, read a layer earlier (Pretended CoT, Knowledge), or behind eight (MetaEOL)."""

from __future__ import annotations

from typing import Any, ClassVar

from stsbench.extensions.decoders.base import Preset
from stsbench.extensions.decoders.prompts import KNOWLEDGE, METAEOL, PRETENDED_COT
from stsbench.extensions.decoders.reading import PresetReading

_SOURCE = "Zhang, Chang and Li 2024, arXiv 2404.03921"
_PENULTIMATE: dict[str, dict[str, Any]] = {"released": {"layer": -2}}  # settings.py, by the prompt's name


class PretendedCoT(Preset):
    """PromptEOL behind `After thinking step by step ,`."""

    name = "pretended-cot"
    sentence = "PromptEOL behind 'After thinking step by step ,', read at the output of the layer before the last"
    source = _SOURCE
    forms: ClassVar[dict[str, dict[str, Any]]] = _PENULTIMATE

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, (PRETENDED_COT,), self.options.clean_up, layer=self.options.layer)


class Knowledge(Preset):
    """PromptEOL behind two sentences on what matters in a sentence."""

    name = "knowledge"
    sentence = "PromptEOL behind a sentence on what matters in a sentence, read at the output of the layer before the last"
    source = _SOURCE
    forms: ClassVar[dict[str, dict[str, Any]]] = _PENULTIMATE

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, (KNOWLEDGE,), self.options.clean_up, layer=self.options.layer)


class MetaEOL(Preset):
    """PromptEOL behind eight descriptions of tasks; the vectors are averaged as they come."""

    name = "metaeol"
    sentence = "The mean of eight vectors, each at the last position of a prompt that describes a task; eight times the cost"
    source = "Lei et al. 2024, arXiv 2402.18458"

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, METAEOL, self.options.clean_up, layer=self.options.layer)
