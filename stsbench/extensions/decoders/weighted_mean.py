"""The mean in which token i counts i times, of a text without a template."""

from __future__ import annotations

from typing import ClassVar

from stsbench.extensions.decoders.base import Preset, PresetOptions
from stsbench.extensions.decoders.reading import PresetReading


class WeightedMean(Preset):
    """SGPT's pooling on a model that was not trained for it."""

    name = "weighted-mean"
    sentence = "The mean over all tokens of the text alone, in which token i counts i times"
    source = "Muennighoff 2022 (SGPT), arXiv 2202.08904"
    Options: ClassVar[type[PresetOptions]] = PresetOptions

    def reading(self) -> PresetReading:
        return PresetReading(self.spelled, pooler="weighted_mean", layer=self.options.layer, own_ends=True)
