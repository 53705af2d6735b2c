"""Texts in batches by count and by tokens, and batches that are sent so many at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

TEXTS = 31  # a request, and one of the probe: text-embeddings-inference takes 32
TOKENS = 16_384
_BYTES = 3  # of UTF-8 a token, an estimate: English has 4 to 5, Chinese 3; the server's tokenizer is not known here
_AROUND = 2  # special tokens of a text

T = TypeVar("T")


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return -(-len(text.encode()) // _BYTES) + _AROUND


def batches(texts: Sequence[str], tokens: int | None = None) -> list[list[int]]:
    """The positions of texts in batches of at most TEXTS texts and `tokens` tokens by estimate, the longest texts first; a
    longer text is alone in its batch."""
    sizes, most = [estimated_tokens(text) for text in texts], tokens or TOKENS
    parts: list[list[int]] = []
    room = 0
    for row in sorted(range(len(texts)), key=lambda row: -sizes[row]):
        if not parts or len(parts[-1]) == TEXTS or sizes[row] > room:
            parts.append([])
            room = most
        parts[-1].append(row)
        room -= sizes[row]
    return parts


def at_once(
    jobs: Sequence[Any], work: Callable[[Any, threading.Event], T], count: int
) -> Iterator[tuple[Any, T]]:
    """(job, what `work` made of it) for every job, `count` of them at a time, in the order in which they end.

    The first error ends all; so does whoever stops asking. `work` gets an event that is set then. The threads do not keep
    the process alive: Ctrl-C does not wait for a slow server.
    """
    todo, lock, stopped = iter(jobs), threading.Lock(), threading.Event()
    done: queue.Queue[tuple[Any, Any, BaseException | None]] = queue.Queue()

    def working() -> None:
        while not stopped.is_set():
            with lock:
                job = next(todo, None)
            if job is None:
                return
            try:
                done.put((job, work(job, stopped), None))
            except BaseException as error:  # it is raised where it is waited for
                done.put((job, None, error))
                return

    for _ in range(min(count, len(jobs))):
        threading.Thread(target=working, daemon=True).start()
    try:
        for _ in jobs:
            job, made, error = done.get()
            if error is not None:
                raise error
            yield job, made
    finally:
        stopped.set()
