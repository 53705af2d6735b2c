"""Threads of processes that are started: so many each, and the environment is afterwards what it was."""

import os

import numpy as np

from stsbench.processes import cores, forget_peak, limit_threads, peak_memory, peak_since


def test_what_the_user_has_set_stays_unless_it_may_not(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for name in ("RAYON_NUM_THREADS", "PYTHONSAFEPATH"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with limit_threads(2):
        assert (os.environ["OMP_NUM_THREADS"], os.environ["RAYON_NUM_THREADS"]) == ("7", "2")
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert os.environ == before
    with limit_threads(1, whatever_is_set=True):
        assert (os.environ["OMP_NUM_THREADS"], os.environ["RAYON_NUM_THREADS"]) == ("1", "1")
    assert os.environ == before


def test_cores_are_those_that_this_process_may_use():
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, allowed[:1])
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)


def test_peaks_are_counted_anew():
    before = peak_memory()
    block = np.ones(30_000_000)
    del block
    high = peak_memory()
    assert high > before or high > 240_000_000
    forget_peak()
    assert peak_since() < high - 100_000_000 and peak_memory() == high
