"""Signals that are held back: when they act, and that whoever handled them before does so again. Threads of processes
that are started: so many each, and the environment is afterwards what it was."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from stsbench import processes
from stsbench.processes import StopNow, StopRequest, Terminated, cores, forget_peak, limit_threads, peak_memory, peak_since

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def told():
    numbers, before = [], {number: signal.getsignal(number) for number in BOTH}

    def handler(number, frame):
        numbers.append(number)
        if len(numbers) < 3:
            raise KeyboardInterrupt

    for number in BOTH:
        signal.signal(number, handler)
    yield numbers
    assert all(signal.getsignal(number) is handler for number in BOTH)
    for number, earlier in before.items():
        signal.signal(number, earlier)


def test_it_is_held_until_it_is_delivered(told):
    with pytest.raises(KeyboardInterrupt), StopRequest().hold() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # `timeout` sends two
        assert (stop.asked, told) == (signal.SIGTERM, [])
        stop.deliver()
    assert told == [signal.SIGTERM]


def test_one_that_is_still_held_acts_at_the_end(told):
    with pytest.raises(KeyboardInterrupt), StopRequest().hold():
        signal.raise_signal(signal.SIGINT)
    assert told == [signal.SIGINT]


def test_a_second_one_acts_at_once(told, monkeypatch):
    monkeypatch.setattr(processes, "_SAME", 0.0)
    with pytest.raises(KeyboardInterrupt), StopRequest().hold():
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it was held back")
    assert told == [signal.SIGINT]


def test_a_handler_that_lets_the_process_go_on(told):
    told += BOTH
    with StopRequest().hold() as stop:
        for number in BOTH:
            signal.raise_signal(number)
            stop.deliver()
            assert stop.asked is None
    assert told == [*BOTH, *BOTH]


def test_where_nothing_has_to_come_to_an_end(told):
    with pytest.raises(KeyboardInterrupt), StopRequest().hold() as stop:
        with pytest.raises(StopNow), stop.at_once():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(StopNow), stop.at_once():
            pytest.fail("it was asked to stop before")
        assert told == []
    assert told == [signal.SIGINT]


def test_one_that_another_process_was_sent():
    with StopRequest().hold() as stop, pytest.raises(Terminated):
        stop.deliver()


def test_what_is_ignored_stays_so_and_other_threads_set_no_handler():
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopRequest().hold() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.asked is None
    signal.signal(signal.SIGINT, handler)
    errors = []

    def elsewhere():
        with StopRequest().hold() as stop:
            errors.append(stop.asked)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert errors == [None]


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
    block = np.ones(15_000_000)
    del block
    high = peak_memory()
    assert high > before or high > 120_000_000
    forget_peak()
    assert peak_since() < high - 50_000_000 and peak_memory() == high
