"""What makes the suite quick and repeatable: no search for garbage among all that is imported, no wait for the disk, and
hypothesis' examples the same every time."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)  # the same examples every time
settings.load_profile("repeatable")


def pytest_collection_finish():
    """A training looks for garbage twice: a quarter of a second each time once torch and transformers are imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk():
    """A training syncs forty files, which matters after a power cut alone: what a killed process wrote is there without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda stream: None)
        yield
