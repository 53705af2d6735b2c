"""MetaEOL: the mean of the vectors behind eight task prompts."""

from __future__ import annotations

from stsbench.encoders.decoders.base import Preset
from stsbench.encoders.decoders.prompts import METAEOL
from stsbench.encoders.decoders.reading import Reading


class MetaEOL(Preset):
    """PromptEOL behind eight descriptions of tasks; the vectors are averaged as they come."""

    name = "metaeol"
    sentence = "The mean of eight vectors, each at the last position of a prompt that describes a task; eight times the cost"
    source = "Lei et al. 2024, arXiv 2402.18458"

    def reading(self) -> Reading:
        return Reading(self.spelled, METAEOL, self.options.clean_up, layer=self.options.layer)
