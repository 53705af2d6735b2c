"""The options of `stsbench distil-static`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stsbench.options import GIVEN, OptionGroup, option

# Options of an encoder that make a difference: which model it is, how it pools and where it computes.
READ = {"model", "pooler", "prompt", "revision", "trust_remote_code", "device", "attention", "offline"}


@dataclass(frozen=True, kw_only=True)
class StaticOptions(OptionGroup):
    """Which tokens the table has, and how their vectors are reduced and weighted."""

    dimensions: int = option(
        256, "Numbers of a vector: principal components of the tokens' vectors.", least=1,
        renamed={"dims": "dimensions", "pca_dims": "dimensions"},
    )
    sif: float = option(
        1e-4, "A of the weight A / (A + p) of a token, whose probability p is estimated by Zipf's law from its place in the "
        "vocabulary; 0: no weights.", least=0, metavar="A", renamed={"sif_coefficient": "sif"},
    )
    remove: str = option(
        r"\[unused\d+\]", "Tokens to leave out: those whose beginning a regular expression matches; '': none.",
        metavar="REGEX", renamed={"token_remove_pattern": "remove"},
    )
    vocabulary: Path | None = option(
        None, "Words to add as tokens of their own, one a line; with --words a file of texts.", metavar="FILE",
    )
    words: int | None = option(
        None, "So many of the commonest words of --vocabulary's texts, in lower case, as tokenlearn counts them.", least=1,
        goes_with={"vocabulary": GIVEN}, metavar="N",
    )
