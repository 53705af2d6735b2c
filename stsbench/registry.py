"""Registry of protocols, methods and encoders by name: entry points, built-in ones included, that are loaded lazily.

It also suggests names for misspelt ones, and calls plugins' code, whose errors become a line that names class and file.
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

DEFAULT_PROTOCOL = "sts"  # the protocol of an evaluation that names none, and the first board of a leaderboard
T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str], before: str = "", otherwise: str | None = None) -> str:
    """Return '; did you mean ...?' with the closest known names, else those that begin with `name`, else '; known: ...'.

    before: a prefix of the suggested names, such as `data.`; otherwise: the text if no name is close.
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
    """Return the known name that differs from `name` only by case and punctuation, as simcse from SimCSE and STS-B from
    stsb; `name` itself if it is known, or if there is no such name or more than one."""
    names = list(known)
    fitting = [one for one in names if _plain(one) == _plain(name)]
    return fitting[0] if name not in names and len(fitting) == 1 else name


class Suggesting:
    """A base class whose AttributeError suggests the attribute that is meant."""

    meant: ClassVar[Mapping[str, str]] = {}  # a name that people try -> what to write

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or hasattr(type(self), name):  # a property that failed: its own error is raised again
            return object.__getattribute__(self, name)
        text = f"'{type(self).__name__}' object has no attribute '{name}'{suggestion(name, self)}"
        raise AttributeError(text, name=name, obj=None)  # without an object Python adds no suggestion of its own


def suggestion(name: str, owner: Any) -> str:
    """Return "; write ..." for a name in `owner.meant`, else a suggestion of the closest public names of `owner`, "" if none
    is close. owner: an object or module."""
    if name in owner.meant:
        return f"; write {owner.meant[name]}"
    return did_you_mean(name, [other for other in dir(owner) if not other.startswith("_")], otherwise="")


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def namesakes(name: str, meaning: str, before: str = "") -> tuple[str, ...]:
    """Return, in a tuple, a line on how to use a file or folder of the working folder whose name is also a built-in name, as
    the built-in one is used; () if there is no such file.

    meaning: of the built-in name; before: what is written before names, such as `sts:`.
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
    """Return the entry point of an installed name, without loading it; None if there is none."""
    return _points(group).get(name)


_of_files: dict[str, dict[str, Any]] = {}  # group -> name -> a class of a user's file, registered in this process only


def names(group: str) -> list[str]:
    """Return the registered names of a group such as "stsbench.protocols", sorted."""
    return sorted({*_points(group), *_of_files.get(group, ())})


def register(group: str, name: str, kind: type) -> None:
    """Register a class of a user's file for this process. Raises StsbenchError if the name is that of an installed one."""
    if name in _points(group):
        raise StsbenchError(f"{where(kind)}: its name, {name}, is that of an installed one: give it another")
    _of_files.setdefault(group, {})[name] = kind


def is_file_class(word: str) -> bool:
    """Return whether a word names a class as FILE.py:CLASS."""
    return word.rpartition(":")[0].endswith(".py")


def class_of_file(word: str) -> Any:
    """Return the class FILE.py:CLASS. Raises StsbenchError, one line, if file or class do not exist or the file fails."""
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
    """Return a Python file as a module, run once for each content. Raises StsbenchError, one line with `label`."""
    digest = sha256_file(file)
    name = "stsbench_file_" + hashlib.sha256(f"{file} {digest}".encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is not a Python file")
        module = sys.modules[name] = module_from_spec(spec)  # pydantic and inspect read sys.modules while the file runs
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
    """Return the error of a file that was run, in one line; for a syntax error with FILE:LINE."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {error.msg}"
    return repr(error)


def source_file(kind: type) -> dict[str, str] | None:
    """Return name and digest of the user's file from which a class was read; None for an installed class."""
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

    public: module -> its public names; the module is a name inside the package, or a full name with dots. group: entry
    points whose names are names of the package, too.
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
    """Return for messages CLASS (FILE) or, for the class's function `name`, CLASS.name (FILE:LINE)."""
    qualified_name, location = f"{kind.__name__}.{name}" if name else kind.__name__, _location(kind, name)
    return f"{qualified_name} ({location})" if location else qualified_name


def calling(
    kind: type, name: str, call: Callable[[], T], during: str = "", raising: type[StsbenchError] = StsbenchError
) -> T:
    """Return call(), which runs code of the class `kind`. Raises `raising`, with the line in the class and the cause, for
    any error other than StsbenchError.

    name: the called function's; during: when it is called, such as "at step 3 of stage main".
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
    """Raise `raising` for a class that does not define all abstract methods."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise raising(f"{where(kind)} does not define {' and '.join(missing)}")


def _location(kind: type, name: str) -> str:
    """Return FILE:LINE of a function that the class defines, else FILE; "" for a class without a file (from a prompt)."""
    function = vars(kind).get(name)
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)) if function else None, "__code__", None)
    if code is not None:
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    file = _source(kind)
    return Path(file).name if file else ""


def _source(kind: type) -> str | None:
    """Return the source file of a class; None for a class that was typed at a prompt."""
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None
