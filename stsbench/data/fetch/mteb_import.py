"""The package mteb, imported and called without a trace of it in the process or in the user's home."""

from __future__ import annotations

import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np


@contextmanager
def undisturbed() -> Iterator[Any]:
    """mteb (imported here at the latest) for the time of the block, and no trace of it after.

    Building its tasks and evaluators reseeds random, numpy and torch: their states are put back. What it prints goes to
    standard error; warnings and log lines below errors are dropped (it advises newer versions of the tasks asked for).
    """
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    loggers = [logging.getLogger(name) for name in ("mteb", "sentence_transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield _imported()
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        else:  # mteb's seed waits for CUDA to begin: the one that torch was given takes its place
            torch.cuda.manual_seed_all(torch.initial_seed())


def _imported() -> Any:
    """mteb, imported without the folder that its import makes in the user's home."""
    if "mteb" in sys.modules or "MTEB_CACHE" in os.environ:
        import mteb

        return mteb
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MTEB_CACHE"] = folder
        try:
            import mteb
        finally:
            del os.environ["MTEB_CACHE"]
    # Its default cache keeps the path of that moment: a user's own call of mteb.evaluate must find the usual place.
    default = (mteb.evaluate.__kwdefaults__ or {}).get("cache")
    if isinstance(default, mteb.ResultCache):
        default.cache_path = default.default_cache_path
    return mteb
