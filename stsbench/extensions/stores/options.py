"""Options of `stsbench encode` and `stsbench neighbours`, beside those of an encoder."""

from __future__ import annotations

from dataclasses import dataclass

from stsbench.options import option


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How vectors stand in a folder."""

    store_dtype: str = option(
        "float32", "How numbers are stored.", choices=("float32", "float16", "int8", "binary"),
    )
    shard_size: int | None = option(None, "Texts a shard, which a kill loses at most; default 32,768.", least=1)


@dataclass(frozen=True, kw_only=True)
class NearestOptions:
    """How many texts are looked for, and by what."""

    top: int = option(3, "Neighbours of each query.", least=1)
    backend: str = option("exact", "faiss needs faiss-cpu.", choices=("exact", "faiss"))
