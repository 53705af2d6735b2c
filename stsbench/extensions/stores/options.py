"""Options of `stsbench encode`, `neighbours` and `mine`, besides those of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stsbench.options import OptionGroup, SetOptions, option


@dataclass(frozen=True, kw_only=True)
class StoreOptions(OptionGroup):
    """How vectors are stored in a folder."""

    store_dtype: str = option(
        "float32", "How numbers are stored.", choices=("float32", "float16", "int8", "binary"),
    )
    shard_size: int | None = option(None, "Texts a shard, which a kill loses at most; default 32,768.", least=1)


@dataclass(frozen=True, kw_only=True)
class NearestOptions(SetOptions):
    """The corpus, the queries and the search of `neighbours`."""

    column: int | str | None = option(
        None, "Which column of the corpus holds the text, as for `stsbench encode`; needed where lines hold tabs "
        "(Flickr30k's image.jpg#0<TAB>caption: 2).", metavar="NAME|N",
    )
    query_file: Path | None = option(None, "More queries, one per line.", metavar="FILE")

    top: int = option(3, "Neighbours of each query.", least=1, renamed={"k": "top"})
    backend: str = option("exact", "faiss needs faiss-cpu.", choices=("exact", "faiss"))


@dataclass(frozen=True, kw_only=True)
class MiningOptions(OptionGroup):
    """How hard negatives are chosen among the texts near an anchor."""

    corpus: Path | None = option(None, "Further candidates, one text a line; else the positives alone.", metavar="FILE")
    negatives: int = option(3, "Negatives of each anchor.", least=1)
    skip: int = option(0, "Nearest candidates that are passed over.", least=0)
    depth: int | None = option(
        None, "Candidates looked at; default: as many as are asked for, ten times as many with a bound.", least=1,
    )
    absolute_margin: float | None = option(None, "How far below the positive's cosine a negative's is at least.")
    relative_margin: float | None = option(None, "The same, as a share of the positive's.")
    max_score: float | None = option(None, "The greatest cosine of a negative.")
    min_score: float | None = option(None, "The least.")
    guide: str | None = option(
        None, "An encoder by whose cosines margins and bounds are asked; the order stays the model's.", metavar="MODEL",
    )
    draw: str = option("top", "The nearest of what is left, or drawn from it.", choices=("top", "random"))
    seed: int = option(42, "Of --draw random.", least=0, goes_with={"draw": "random"})
