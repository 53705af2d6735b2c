"""What stands in for the processes of stsbench.extensions.devices: this one, or forks of it, which start in a moment."""

import multiprocessing
from types import SimpleNamespace

import pytest

from stsbench.extensions.devices import parallel


def in_this_process(encoder, count=1):
    """As many workers, whose tasks all run here, with this encoder."""
    return SimpleNamespace(count=count, run=lambda task, jobs, progress=None: (
        task(encoder, job, progress or (lambda done: None)) for job in jobs))


@pytest.fixture
def forks(monkeypatch):
    """Workers are forks of this process, where they are new interpreters elsewhere."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(parallel.multiprocessing, "get_context", lambda kind: fork)
    yield
    assert not multiprocessing.active_children()
