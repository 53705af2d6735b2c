"""Calling code that someone else wrote (encoders, protocols, methods): its mistakes are one line, naming class and file."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stsbench.errors import StsbenchError

T = TypeVar("T")


def where(kind: type) -> str:
    """CLASS (FILE): for messages."""
    file = _source(kind)
    return f"{kind.__name__} ({Path(file).name})" if file else kind.__name__


def calling(
    kind: type, name: str, call: Callable[[], T], during: str = "", raising: type[StsbenchError] = StsbenchError
) -> T:
    """call(), which runs code of the class `kind`; an error in it becomes `raising` with the class's line and the cause.

    name: of what is called; during: when, such as "at step 3 of stage main". A StsbenchError passes as it is.
    """
    try:
        return call()
    except StsbenchError:
        raise
    except Exception as error:
        file = _source(kind) or "?"
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        place = Path(file).name + (f":{lines[-1]}" if lines else "")
        failed = " ".join(filter(None, (f"{kind.__name__}.{name} failed", during)))
        cause = " ".join(str(error).split())
        raise raising(f"{failed} ({place}): {type(error).__name__}: {cause}") from error


def check_written(kind: type, raising: type[StsbenchError] = StsbenchError) -> None:
    """Raises `raising` for a class that leaves out methods it must have."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise raising(f"{where(kind)} does not define {' and '.join(missing)}")


def _source(kind: type) -> str | None:
    """The file a class is written in; None for one that was typed at a prompt."""
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None
