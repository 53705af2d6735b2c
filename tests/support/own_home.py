"""A cache, a place for models' code and one thread for the tests of a file that loads many tiny models."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache
from pathlib import Path

import pytest


def _loaded_code() -> dict[str, object]:
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
