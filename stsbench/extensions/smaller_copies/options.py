"""Options of `stsbench eval` and `stsbench.measure_variants`: the truncated and quantised copies to measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stsbench.evaluation.options import Names
from stsbench.options import OptionGroup, option


@dataclass(frozen=True, kw_only=True)
class VariantOptions(OptionGroup):
    """Which smaller copies of the vectors are measured beside them (`stsbench.measure_variants`)."""

    quantise: Names = option(
        (), "Measure smaller copies of the vectors beside the full ones, from one pass over the texts: int8, uint8, binary, "
        "ubinary, several with commas.", metavar="NAME,NAME",
    )
    truncate_dims: Names = option(
        (), "As --quantise: how many of the first numbers are kept, e.g. 256,128; each in every precision.", metavar="N,N",
        renamed={"dims": "truncate_dims"},
    )
    calibration: str | Path = option(
        "shared", "Of int8 and uint8: the range of each dimension is that of all texts of a set (shared), of those of each "
        "call (call, as in mteb's CompressionWrapper) or of a file.", metavar="shared|call|FILE",
    )
    clip: Names | None = option(
        None, "Of int8 and uint8: cut numbers below and above these quantiles of a dimension.", metavar="LOW,HIGH",
    )
