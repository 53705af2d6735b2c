"""One file over HTTP: resumable, size-limited, and under its final name only when it is complete."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from stsbench.errors import DataError

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all (None: not announced)
_BLOCK = 1 << 20


class NoConnectionError(DataError):
    """The server cannot be reached at all: most likely this machine is offline."""


class _CutError(Exception):
    """The connection ended early; the bytes received are kept, and the next attempt resumes there."""


def download(
    url: str, target: Path, *, limit: int, tries: int = 4, pause: float = 1.0, timeout: float = 30.0,
    progress: Progress | None = None,
) -> None:
    """Fetch `url` to `target` by way of `target`.part, which a later call resumes if the server's file is unchanged.

    `tries` counts consecutive attempts that received nothing new. One process at a time may write a target (install.alone).
    Raises DataError: no connection, an HTTP error, more than `limit` bytes, or a connection that keeps breaking.
    """
    if not url.startswith(("http://", "https://")):
        raise DataError(f"cannot download {url}: HF_ENDPOINT must start with http:// or https://")
    part = target.with_name(target.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        _until_complete(url, part, limit, tries, pause, timeout, progress)
        part.replace(target)
        _state(part).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"cannot write {part}: {error.strerror or error}") from error


def _until_complete(
    url: str, part: Path, limit: int, tries: int, pause: float, timeout: float, progress: Progress | None
) -> None:
    failures, best = 0, _size(part)
    while True:
        unreachable = False
        try:
            return _once(url, part, limit, timeout, progress)
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"HTTP {error.code} {error.reason}"
            if error.code == 416:  # our part is not a prefix of what the server has now
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code not in (408, 429):
                raise DataError(f"cannot download {url}: {reason}") from error
        except urllib.error.URLError as error:
            reason = f"no connection ({error.reason})"
            unreachable = isinstance(error.reason, socket.gaierror | ConnectionRefusedError)
        except (TimeoutError, ConnectionError, http.client.HTTPException, _CutError) as error:
            reason = str(error) or type(error).__name__
        failures = 1 if _size(part) > best else failures + 1
        best = max(best, _size(part))
        if failures >= (min(2, tries) if unreachable else tries):  # offline: do not keep the user waiting
            kind = NoConnectionError if unreachable else DataError
            raise kind(f"cannot download {url}: {reason}" + (
                f"; {best} bytes are kept in {part}; the next attempt resumes there" if best else ""))
        time.sleep(pause * 2 ** (failures - 1))


def _once(url: str, part: Path, limit: int, timeout: float, progress: Progress | None) -> None:
    """One request; returns when `part` is complete, raises _CutError when the server stopped early."""
    validator = _resumable(part, url)
    have = _size(part) if validator else 0
    request = urllib.request.Request(url, headers={"User-Agent": "stsbench", "Accept-Encoding": "identity"})
    if have and validator:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", validator)  # a changed file is sent whole (200), never appended to the old part
    with urllib.request.urlopen(request, timeout=timeout) as response:
        if response.status == 206:
            begin = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if not begin or int(begin[1]) != have:
                part.unlink(missing_ok=True)
                raise _CutError("the server sent a different byte range from the one requested")
        else:
            have = 0
            _note(part, url, response.headers)
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        if total is not None and total > limit:
            raise DataError(f"{url} is {total} bytes, more than the {limit} expected at most: refused")
        with part.open("ab" if have else "wb") as stream:
            have = _copy(response, stream, have, total, limit, url, progress)
    if total is not None and have != total:
        raise _CutError(f"the connection broke after {have} of {total} bytes")


def _copy(
    response: Any, stream: IO[bytes], have: int, total: int | None, limit: int, url: str, progress: Progress | None
) -> int:
    while block := _received(response):
        have += len(block)
        if have > limit:
            raise DataError(f"{url} is more than the {limit} bytes expected at most: refused")
        try:
            stream.write(block)
        except OSError as error:
            # Raised as DataError here because a network fault is an OSError too, and only network faults are retried.
            raise DataError(f"cannot write {stream.name}: {error.strerror or error}") from error
        if progress:
            progress(have, total)
    return have


def _received(response: Any) -> bytes:
    try:
        return bytes(response.read1(_BLOCK))
    except OSError as error:  # reset, timeout, broken TLS: all handled alike
        raise _CutError(f"the connection broke: {error}") from error


def _state(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _note(part: Path, url: str, headers: Any) -> None:
    """Remember which file the part belongs to; a weak ETag does not identify bytes, so it is ignored."""
    tag = headers.get("ETag", "")
    validator = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
    _state(part).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")


def _resumable(part: Path, url: str) -> str:
    """The validator with which `part` may be resumed, or "" where the download must start again."""
    try:
        state = json.loads(_state(part).read_text(encoding="utf-8"))
        return str(state["validator"]) if state["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
