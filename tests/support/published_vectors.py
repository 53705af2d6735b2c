"""What sentence-transformers itself gives for a folder: the vectors that its author published."""

from __future__ import annotations

import logging
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@cache
def library(folder: Path, trusted: bool = False) -> Any:
    """The SentenceTransformer of a folder that is not changed afterwards, in float32, on one thread's CPU."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as noisy

    noisy.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, trust_remote_code=trusted,
            model_kwargs={"dtype": torch.float32},
        )


def published(folder: Path, texts: list[str], *, alone: bool = False, trusted: bool = False, **encode: Any) -> Any:
    """float32 (n, d). alone: text by text, where the library's vectors depend on their company; encode: of its encode()."""
    made = library(folder, trusted).encode(texts, batch_size=1 if alone else 32, show_progress_bar=False, **encode)
    return np.asarray(made, dtype=np.float32)


def fresh_library(folder: Path, trusted: bool = False) -> Any:
    """The same for a folder that may have changed since."""
    return library.__wrapped__(folder, trusted)
