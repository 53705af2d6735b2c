"""Signals that are held back: when they act, and that whoever handled them before does so again."""

import signal
import threading
import time

import pytest

from stsbench import processes
from stsbench.processes import StopNow, StopRequest, Terminated

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
