"""What a server answers, read with distrust: its vectors in the order of the texts, or why they are none."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_NUMBERS = 65_536  # of a vector
_DIGITS = 32  # bytes of a number in JSON, at most


class BadAnswerError(Exception):
    """An answer that no second try would change; the message says what is wrong with it."""


class HalfAnswerError(BadAnswerError):
    """An answer that is cut off, or another program's."""


@dataclass(frozen=True)
class Answer:
    """vectors: float32 (n, d), numbers that are not finite among them; tokens: as the server counts them, None: it does not;
    model, build: by which names the server calls what computed, "" where it does not say."""

    vectors: NDArray[np.float32]
    tokens: int | None
    model: str = ""
    build: str = ""


def most_bytes(count: int, width: int | None) -> int:
    """What an answer of so many vectors may take."""
    return count * ((width or MOST_NUMBERS) * _DIGITS + 4096) + 65_536


def read_answer(body: bytes, count: int) -> Answer:
    """The vectors of `count` texts. BadAnswerError: they are not there, or are of different widths."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise HalfAnswerError("an answer that is not JSON, or half of one") from None
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadAnswerError(f"an answer without vectors: {stated(body)}")
    if len(items) != count:
        raise BadAnswerError(f"{len(items)} vectors for {count} texts")
    indices = [item.get("index") for item in items]
    if any(type(index) is not int for index in indices) or sorted(indices) != list(range(count)):
        raise BadAnswerError(f"vectors that are not numbered from 0 to {count - 1}, so that their texts are not known")
    rows = [_numbers(item.get("embedding")) for item in sorted(items, key=lambda item: item["index"])]
    widths = sorted({len(row) for row in rows})
    if len(widths) != 1 or not 0 < widths[0] <= MOST_NUMBERS:
        raise BadAnswerError(f"vectors of {' and '.join(map(str, widths[:3]))} numbers in one answer")
    named = [name if isinstance(name, str) else "" for name in map(answer.get, ("model", "system_fingerprint"))]
    return Answer(np.stack(rows), _tokens(answer.get("usage")), *named)


def stated(body: bytes) -> str:
    """The reason in the body of an error, where it has one of the usual forms; else its text."""
    text = body.decode("utf-8", "replace")
    try:
        reason = json.loads(text)
    except (ValueError, RecursionError):
        return text
    while isinstance(reason, dict):
        reason = next((reason[key] for key in ("error", "message", "detail", "error_msg") if reason.get(key)), None)
    return reason if isinstance(reason, str) else text


def _numbers(written: Any) -> NDArray[np.float32]:
    """A vector as base64 of little-endian float32, or as a list of numbers, in which null is NaN."""
    try:
        if isinstance(written, str):
            return np.frombuffer(base64.b64decode(written, validate=True), "<f4").astype(np.float32)
        listed = [np.nan if number is None else number for number in written]
        with np.errstate(over="ignore"):  # infinity is for the caller to find
            array = np.asarray(listed)
            numbers = array.astype(np.float32) if array.ndim == 1 and array.dtype.kind in "fi" else None
    except (ValueError, TypeError, OverflowError):
        numbers = None
    if numbers is None:
        raise BadAnswerError("an embedding that is neither a list of numbers nor base64 of float32")
    return numbers


def _tokens(usage: Any) -> int | None:
    """What the server counts: of the texts, or in all."""
    counts = [usage.get(name) for name in ("prompt_tokens", "total_tokens")] if isinstance(usage, dict) else []
    return next((count for count in counts if type(count) is int and 0 <= count < 2**53), None)
