"""Fitting on texts, which are encoded, or on a folder of vectors, which are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from stsbench.encoders.base import Progress
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.post.source import vector_format
from stsbench.encoders.post.texts import FitTexts, listed_texts, read_texts
from stsbench.wording import counted


def fitted_on_data(
    wrapped: PostProcessed, data: Path | Iterable[str], log: Callable[[str], None],
    progress: Callable[[int], Progress] | None = None, post: str | None = None,
) -> tuple[PostProcessed, int]:
    """Return `wrapped` fitted on texts, on a file of them or on a folder of vectors, and how many texts there are.

    post: what the fit is called in `log`, by default with all its settings. StsbenchError, one line: not readable, or the
    folder holds the vectors of another encoder.
    """
    label = post or wrapped.chain.spelled()
    if isinstance(data, Path) and (folder_format := vector_format(data)):
        stored = folder_format.source(data, wrapped.base)
        log(f"fitting {label} on {stored.name.partition('@')[0]}: {counted(len(stored), 'text')}, whose vectors are read")
        return wrapped.fit_vectors(stored), len(stored)
    texts: FitTexts = read_texts(data, log) if isinstance(data, Path) else listed_texts(data)
    count = texts.items * texts.sides
    log(f"fitting {label} on {texts.name.partition('@')[0]}: {counted(count, 'text')}")
    return wrapped.fit_on(texts, progress(count) if progress else None), count
