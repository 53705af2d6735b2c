"""Calling code that someone else wrote (encoders, protocols, methods): its mistakes are one line, naming class and file."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stsbench.errors import StsbenchError

T = TypeVar("T")


def where(kind: type, name: str = "") -> str:
    """CLASS (FILE), or CLASS.name (FILE:LINE) of one of its functions: for messages."""
    qualified_name, location = f"{kind.__name__}.{name}" if name else kind.__name__, _location(kind, name)
    return f"{qualified_name} ({location})" if location else qualified_name


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
        location = f"{Path(file).name}:{lines[-1]}" if lines else _location(kind, name) or "?"
        failed = " ".join(filter(None, (f"{kind.__name__}.{name} failed", during)))
        cause = " ".join(str(error).split())
        raise raising(f"{failed} ({location}): {type(error).__name__}: {cause}") from error


def check_written(kind: type, raising: type[StsbenchError] = StsbenchError) -> None:
    """Raises `raising` for a class that leaves out methods it must have."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise raising(f"{where(kind)} does not define {' and '.join(missing)}")


def _location(kind: type, name: str) -> str:
    """FILE:LINE of a function that the class defines, else FILE; "" for a class that was typed at a prompt."""
    function = vars(kind).get(name)
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)) if function else None, "__code__", None)
    if code is not None:
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    file = _source(kind)
    return Path(file).name if file else ""


def _source(kind: type) -> str | None:
    """The file a class is written in; None for one that was typed at a prompt."""
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None
