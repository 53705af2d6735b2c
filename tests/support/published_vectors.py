"""What sentence-transformers itself gives for a folder, the vectors that its author published; and a cache, a place for
models' code and one thread for the tests of a file that loads many tiny models."""

import importlib
import logging
import sys
import warnings
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest


@cache
def library(folder, trusted=False):
    """The SentenceTransformer of a folder that is not changed afterwards, in float32, on one thread's CPU."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as noisy

    noisy.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=trusted,
                                   model_kwargs={"dtype": torch.float32})


def published(folder, texts, *, alone=False, trusted=False, **encode):
    """float32 (n, d). alone: text by text, where the library's vectors depend on their company; encode: of its encode()."""
    made = library(folder, trusted).encode(texts, batch_size=1 if alone else 32, show_progress_bar=False, **encode)
    return np.asarray(made, dtype=np.float32)


def fresh_library(folder, trusted=False):
    """The same for a folder that may have changed since."""
    return library.__wrapped__(folder, trusted)


def _loaded_code():
    """Take out what transformers has imported from models' folders: it is bound to the place where it was copied."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "transformers_modules"}


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory):
    import torch

    from stsbench.evaluation import plan

    threads, before, path = torch.get_num_threads(), _loaded_code(), list(sys.path)
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        # a folder of modules that an earlier test left on the path would be looked in first
        patch.setattr(sys, "path", [place for place in sys.path if not Path(place, "transformers_modules").is_dir()])
        # both the same for every evaluation here: git's answer, and the protocols' files
        patch.setattr("stsbench.evaluation.measure.provenance", lambda *given, **named: {})
        patch.setattr(plan, "presets", lru_cache(plan.presets))
        yield
    _loaded_code()
    sys.modules.update(before)
    sys.path[:] = path
    importlib.invalidate_caches()
    torch.set_num_threads(threads)
