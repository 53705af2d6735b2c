"""Bars on a terminal: what is being done, elapsed and left, by a clock that the test turns."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from stsbench.cli.output.messages import Bar, TrainingProgress, columns
from stsbench.evaluation.announce import EncodingTime


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def row(clock):
    """(a bar by the clock, what it shows now)"""
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, legacy_windows=False)
    bar = Progress(*columns(), console=console, get_time=clock, auto_refresh=False)

    def shown():
        with console.capture() as capture:
            console.print(bar.get_renderable())
        return " ".join(capture.get().split())

    return Bar(bar), shown


def test_encoding_shows_elapsed_and_what_is_left_of_the_work(row, clock):
    """Longest texts first: by texts done the bar would promise far too much time."""
    bar, shown = row
    texts = ["x" * length for length in range(2000, 0, -1)]
    step = EncodingTime(texts, lambda line: None, bar(len(texts)), clock)
    whole = sum(8 + len(text) for text in texts)
    step(1)
    for at in range(1, 1000):
        clock.now += (8 + len(texts[at])) / whole * 100  # a hundred seconds for all of it
        step(1)
    assert "encoding" in shown() and "75%" in shown() and "in 0:01:14" in shown()
    left = int(shown().split()[-2].split(":")[-1])
    assert shown().endswith("left") and abs(left - 25) <= 2
    clock.now += 2
    assert "in 0:01:16" in shown()  # it moves while a batch is waited for
    step(1000)
    assert "100%" in shown() and "left" not in shown()


def test_what_has_no_length_shows_what_it_is_and_how_long(row, clock):
    bar, shown = row
    bar(10)(5)
    bar.doing("transfer [red]MR[/red]\x1b[2J")
    clock.now += 61
    assert shown().startswith(r"transfer [red]MR[/red]\x1b[2J") and "in 0:01:01" in shown() and "%" not in shown()


def test_a_training_shows_every_step_and_what_it_waits_for(monkeypatch, clock):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    progress = TrainingProgress(lambda line: pytest.fail(line), clock=clock)
    progress.stage("main", 100)
    console = Console(file=io.StringIO(), width=80, color_system=None, legacy_windows=False)

    def shown():
        with console.capture() as capture:
            console.print(progress._render())
        return " ".join(capture.get().split())

    try:
        progress.doing(0, "scoring sts-b dev")
        clock.now = 90
        assert "0/100" in shown() and shown().endswith("scoring sts-b dev, 0:01:30")
        progress.dev(0, "sts-b dev", 60.0, False)
        progress.doing(0)
        for step in range(1, 13):
            clock.now += 36  # DiffAug's steps at 128
            if step == 10:
                progress.step(10, 0.5, 12.0)
            progress.doing(step)
            assert f"{step}/100" in shown()
        assert "loss 0.5000" in shown() and "sts-b dev 60.00" in shown() and "left" in shown()
        progress.doing(100, "saving a checkpoint")
        assert "all steps done" in shown() and "saving a checkpoint, 0:00:00" in shown()
    finally:
        progress.close()
    assert "saving" not in shown()  # what stays on the screen is what was done
