"""Names to objects, lazily, through entry points, and calls of what somebody else wrote: its mistakes are one line.

Built-in protocols and methods use the same mechanism as plugins; an error names class and file.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from stsbench.errors import StsbenchError
from stsbench.files import sha256_file

DEFAULT_PROTOCOL = "sts"  # what is measured where nobody names a protocol, and what a leaderboard opens with
T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str], before: str = "", otherwise: str | None = None) -> str:
    """Return '; did you mean ...?' with the closest known names, else those that begin with `name`, else '; known: ...'.

    before: what stands before the closest ones where they are given, as `data.`; otherwise: the text where none is close.
    """
    names = list(known)
    lower = {candidate.lower().lstrip("-"): candidate for candidate in names}
    close = [lower[match] for match in difflib.get_close_matches(name.lower().lstrip("-"), lower, n=2, cutoff=0.7)]
    if not close and len(_plain(name)) > 1:
        close = [candidate for candidate in names if _plain(candidate).startswith(_plain(name))][:2]
    if close:
        return f"; did you mean {' or '.join(before + match for match in close)}?"
    return f"; known: {', '.join(names)}" if otherwise is None else otherwise


def match_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` is but for case and marks, as SimCSE is simcse and stsb is STS-B; `name` itself
    where it is known, or there is none or several."""
    names = list(known)
    fitting = [one for one in names if _plain(one) == _plain(name)]
    return fitting[0] if name not in names and len(fitting) == 1 else name


class Suggesting:
    """An object that says, of an attribute which it does not have, which one is meant."""

    meant: ClassVar[Mapping[str, str]] = {}  # a name that people try -> what to write

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or hasattr(type(self), name):  # of a property that failed this raises its own error again
            return object.__getattribute__(self, name)
        text = f"'{type(self).__name__}' object has no attribute '{name}'{suggestion(name, self)}"
        raise AttributeError(text, name=name, obj=None)  # without an object Python adds no suggestion of its own


def suggestion(name: str, owner: Any) -> str:
    """Return "; write ..." for a name in the `meant` of an object or module, else the closest of its public names; "" for
    none."""
    if name in owner.meant:
        return f"; write {owner.meant[name]}"
    return did_you_mean(name, [other for other in dir(owner) if not other.startswith("_")], otherwise="")


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def namesakes(name: str, meaning: str, before: str = "") -> tuple[str, ...]:
    """Return a line where the working folder holds something that is called as a built-in name, which was taken: how to get
    it.

    meaning: of the built-in one; before: what stands before the name where it is given, as `sts:`.
    """
    path = Path(name)
    if not path.exists():
        return ()
    kind = "folder" if path.is_dir() else "file"
    return (f"{before}{name} is {meaning}; for the {kind} of that name in this folder write {before}./{name}",)


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def entry_point(group: str, name: str) -> EntryPoint | None:
    """Return the entry point of an installed name, which is not loaded; None where there is none."""
    return _points(group).get(name)


_of_files: dict[str, dict[str, Any]] = {}  # group -> name -> a class of a user's file, in this process alone


def names(group: str) -> list[str]:
    """Return the registered names of a group such as "stsbench.protocols", sorted."""
    return sorted({*_points(group), *_of_files.get(group, ())})


def register(group: str, name: str, kind: type) -> None:
    """Register a class of a user's file for this process. Raises StsbenchError where an installed one has the name."""
    if name in _points(group):
        raise StsbenchError(f"{where(kind)}: its name, {name}, is that of an installed one: give it another")
    _of_files.setdefault(group, {})[name] = kind


def is_file_class(word: str) -> bool:
    """Return whether a word names a class as FILE.py:CLASS."""
    return word.rpartition(":")[0].endswith(".py")


def class_of_file(word: str) -> Any:
    """Return what FILE.py:CLASS names. Raises StsbenchError, one line: no such file or class, or the file's own error."""
    file, _, attribute = word.rpartition(":")
    if not Path(file).is_file():
        raise StsbenchError(f"{word}: there is no file {file}")
    module = file_module(Path(file), word)
    if not hasattr(module, attribute):
        written = [name for name, value in vars(module).items()
                   if isinstance(value, type) and value.__module__ == module.__name__]
        raise StsbenchError(f"{word}: {file} has no class {attribute}{did_you_mean(attribute, written)}")
    return getattr(module, attribute)


def file_module(file: Path, label: str) -> ModuleType:
    """Return a Python file as a module, run once for each content. Raises StsbenchError, `label` and the error in a line."""
    digest = sha256_file(file)
    name = "stsbench_file_" + hashlib.sha256(f"{file} {digest}".encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is not a Python file")
        module = sys.modules[name] = module_from_spec(spec)  # pydantic and inspect look there while the file runs
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    except Exception as error:
        raise StsbenchError(f"{label} failed to load: {error_line(error)}") from error
    vars(module)["__sha256__"] = digest
    return module


def error_line(error: Exception) -> str:
    """Return an error of a file that was run in a line; of a syntax error FILE:LINE."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {error.msg}"
    return repr(error)


def source_file(kind: type) -> dict[str, str] | None:
    """Return name and digest of the user's file that a class was read from; None for an installed one."""
    module = vars(sys.modules.get(kind.__module__, sys))
    if "__sha256__" not in module:
        return None
    return {"name": f"{Path(str(module['__file__'])).name}:{kind.__name__}", "sha256": module["__sha256__"]}


def resolve(group: str, name: str) -> Any:
    """Return the object registered as `name`. Raises StsbenchError for an unknown name or a plugin that fails to import."""
    if name in (of_files := _of_files.get(group, {})):
        return of_files[name]
    kind = group.rpartition(".")[2].replace("ies", "ys").rstrip("s")
    point = entry_point(group, name)
    if point is None:
        raise StsbenchError(f"unknown {kind} '{name}'{did_you_mean(name, names(group))}")
    try:
        return point.load()
    except Exception as error:
        raise StsbenchError(f"the {kind} '{name}' ({point.value}) failed to load: {error!r}") from error


def lazy_names(
    package: str, public: Mapping[str, Sequence[str]], group: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, the `__dir__` and the `__all__` of a package whose names load on first use.

    public: module -> the names that it has; a module beside the package's __init__.py, or with dots its whole name. group:
    entry points, which are names, too.
    """
    modules = {name: module if "." in module else f"{package}.{module}" for module, its in public.items() for name in its}
    further = names(group) if group else []

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        if name in further:
            return resolve(group, name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    def listed() -> list[str]:
        return sorted([*modules, *further, *(name for name in vars(sys.modules[package]) if name.startswith("__"))])

    return get, listed, sorted([*modules, *further])


def where(kind: type, name: str = "") -> str:
    """Return CLASS (FILE), or CLASS.name (FILE:LINE) of one of its functions: for messages."""
    qualified_name, location = f"{kind.__name__}.{name}" if name else kind.__name__, _location(kind, name)
    return f"{qualified_name} ({location})" if location else qualified_name


def calling(
    kind: type, name: str, call: Callable[[], T], during: str = "", raising: type[StsbenchError] = StsbenchError
) -> T:
    """Return call(), which runs code of the class `kind`; an error in it becomes `raising` with the class's line and the
    cause.

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
    """Raise `raising` for a class that leaves out methods it must have."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise raising(f"{where(kind)} does not define {' and '.join(missing)}")


def _location(kind: type, name: str) -> str:
    """Return FILE:LINE of a function that the class defines, else FILE; "" for a class that was typed at a prompt."""
    function = vars(kind).get(name)
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)) if function else None, "__code__", None)
    if code is not None:
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    file = _source(kind)
    return Path(file).name if file else ""


def _source(kind: type) -> str | None:
    """Return the file a class is written in; None for one that was typed at a prompt."""
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None
