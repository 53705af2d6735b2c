"""Pretended CoT and Knowledge Enhancement: PromptEOL behind an introduction, read one layer earlier."""

from __future__ import annotations

from typing import Any, ClassVar

from stsbench.encoders.decoders.base import Preset
from stsbench.encoders.decoders.prompts import KNOWLEDGE, PRETENDED_COT
from stsbench.encoders.decoders.reading import Reading

_SOURCE = "Zhang, Chang and Li 2024, arXiv 2404.03921"
_PENULTIMATE: dict[str, dict[str, Any]] = {"released": {"layer": -2}}  # settings.py, by the prompt's name


class PretendedCoT(Preset):
    """PromptEOL behind `After thinking step by step ,`."""

    name = "pretended-cot"
    sentence = "PromptEOL behind 'After thinking step by step ,', read at the output of the layer before the last"
    source = _SOURCE
    forms: ClassVar[dict[str, dict[str, Any]]] = _PENULTIMATE

    def reading(self) -> Reading:
        return Reading(self.spelled, (PRETENDED_COT,), self.options.clean_up, layer=self.options.layer)


class Knowledge(Preset):
    """PromptEOL behind two sentences on what matters in a sentence."""

    name = "knowledge"
    sentence = "PromptEOL behind a sentence on what matters in a sentence, read at the output of the layer before the last"
    source = _SOURCE
    forms: ClassVar[dict[str, dict[str, Any]]] = _PENULTIMATE

    def reading(self) -> Reading:
        return Reading(self.spelled, (KNOWLEDGE,), self.options.clean_up, layer=self.options.layer)
