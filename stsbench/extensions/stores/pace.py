"""How far a long encoding is, on stderr: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stsbench.cli.output.messages import is_quiet, tell
from stsbench.cli.output.progress import drawn
from stsbench.extensions.stores.build import Pace

EVERY = 30.0  # seconds between two lines


@contextmanager
def pace_shown() -> Iterator[Callable[[Pace], None]]:
    """Yield a function that shows a pace."""
    if is_quiet():
        yield lambda pace: None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.progress import BarColumn, TextColumn

    columns = (TextColumn("encoding"), BarColumn(), TextColumn("{task.fields[count]}"), TextColumn("{task.fields[left]}"))
    with drawn(*columns) as bar:
        task, clock = bar.add_task("encoding", total=None, count="", left=""), Clock()
        yield lambda pace: bar.update(task, completed=pace.texts, total=pace.total, count=_count(pace), left=clock(pace))


class Clock:
    """Texts a second and the time left, of what is encoded in this call."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()

    def __call__(self, pace: Pace) -> str:
        """"1,200 texts/s, 2 h 10 min left"; of a stream the speed alone, and nothing before the first new text."""
        seconds, new = self._now() - self._began, pace.texts - pace.kept
        if new <= 0 or seconds <= 0:
            return ""
        speed = f"{new / seconds:,.0f} texts/s"
        return speed if pace.total is None else f"{speed}, {duration((pace.total - pace.texts) * seconds / new)} left"


def duration(seconds: float) -> str:
    """"2 h 10 min", "5 min", "40 s"."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class _Lines:
    def __init__(self) -> None:
        self._clock, self._last_report = Clock(), time.monotonic()

    def __call__(self, pace: Pace) -> None:
        if time.monotonic() - self._last_report < EVERY:
            return
        self._last_report = time.monotonic()
        left = self._clock(pace)
        tell(f"{_count(pace)} texts" + (f", {left}" if left else ""))


def _count(pace: Pace) -> str:
    """"1,200 of about 20,057": the number of texts in a file is estimated from its size."""
    return f"{pace.texts:,}" + ("" if pace.total is None else f" of about {pace.total:,}")
