"""Options of `stsbench encode` and `stsbench neighbours`, beside those of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stsbench.options import OptionGroup, SetOptions, option


@dataclass(frozen=True, kw_only=True)
class StoreOptions(OptionGroup):
    """How vectors stand in a folder."""

    store_dtype: str = option(
        "float32", "How numbers are stored.", choices=("float32", "float16", "int8", "binary"),
    )
    shard_size: int | None = option(None, "Texts a shard, which a kill loses at most; default 32,768.", least=1)


@dataclass(frozen=True, kw_only=True)
class NearestOptions(SetOptions):
    """How many texts are looked for, in what, and by what."""

    column: int | str | None = option(
        None, "Which column of the corpus holds the text, as for `stsbench encode`; needed where lines hold tabs "
        "(Flickr30k's image.jpg#0<TAB>caption: 2).", metavar="NAME|N",
    )
    query_file: Path | None = option(None, "More queries, one per line.", metavar="FILE")

    top: int = option(3, "Neighbours of each query.", least=1, renamed={"k": "top"})
    backend: str = option("exact", "faiss needs faiss-cpu.", choices=("exact", "faiss"))
