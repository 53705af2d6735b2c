"""Training methods, installed ones or FILE.py:CLASS: where they are, how they load, and their cards, titles and options.

Options in a module of their own are read without importing torch.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.errors import StsbenchError
from stsbench.files import sha256_file
from stsbench.registry import did_you_mean, entry_point, error_line, file_module, is_file_class, match_name, names
from stsbench.settings import Described, described, setting_defaults
from stsbench.training.api.options import Options

if TYPE_CHECKING:
    from stsbench.training.api.method import Method

GROUP = "stsbench.methods"  # entry points; each names a class


@dataclass(frozen=True)
class MethodSource:
    """The source of a method's class. label: its name in messages; module: None for FILE.py:CLASS; folder: the folder of its
    card and recipes."""

    label: str
    module: str | None
    file: Path | None
    attribute: str
    folder: Path


def canonical(method: str, folder: Path | None = None) -> str:
    """Return the method's name as recipes and run folders store it: FILE.py:CLASS with the file's absolute path (resolved
    from `folder`, by default the working folder), or an entry point's name in its own case."""
    if not is_file_class(method):
        return match_name(method, names(GROUP))
    file, _, attribute = method.rpartition(":")
    return f"{((folder or Path()) / Path(file).expanduser()).resolve()}:{attribute}"


def short_name(method: str) -> str:
    """Return the method's name as in cards, records and names of run folders: FILE.py:CLASS without the file's folder."""
    return method.rpartition("/")[2] if is_file_class(method) else method


def method_file(method: str) -> dict[str, str]:
    """Return {"method file": sha256} for FILE.py:CLASS, {} for an installed method. A run can only be resumed with the same
    file."""
    file = find_method(method).file
    return {"method file": sha256_file(file)} if is_file_class(method) and file is not None else {}


@cache
def find_method(method: str) -> MethodSource:
    """Return the source of a method, without loading it. Raises StsbenchError, one line, for an unknown name or a missing
    file."""
    if is_file_class(method):
        file, _, attribute = method.rpartition(":")
        if not Path(file).is_file():
            raise StsbenchError(f"{method}: there is no file {file}")
        if not attribute.isidentifier():
            raise StsbenchError(f"{method}: name the class after the colon, FILE.py:CLASS")
        return MethodSource(method, None, Path(file), attribute, Path(file).parent)
    if method.endswith(".py"):
        raise StsbenchError(f"{method}: name the method's class, too: {method}:CLASS")
    point = entry_point(GROUP, method)
    if point is None:
        raise StsbenchError(f"unknown method '{method}'{did_you_mean(method, names(GROUP))}, or FILE.py:CLASS")
    label = f"the method '{method}' ({point.value})"
    try:
        spec = find_spec(point.module)
    except (ImportError, ValueError) as error:
        raise StsbenchError(f"{label} failed to load: {error!r}") from error
    if spec is None:
        raise StsbenchError(f"{label} failed to load: there is no module {point.module}")
    source = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    folders = [Path(folder) for folder in spec.submodule_search_locations or []] or ([source.parent] if source else [])
    if not folders:
        raise StsbenchError(f"{label} has no folder: it is not installed as files")
    return MethodSource(label, point.module, source, point.attr, folders[0])


def load_method(method: str) -> type[Method]:
    """Return the method's class. Raises StsbenchError, one line, where it cannot be loaded or lacks what a method needs."""
    from stsbench.training.api.checks import check_class
    from stsbench.training.api.method import Method

    source = find_method(method)
    module = _module(source)
    kind = getattr(module, source.attribute, None)
    if kind is None:
        known = [name for name, value in vars(module).items()
                 if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module.__name__]
        hint = did_you_mean(source.attribute, known) if known else ""
        raise StsbenchError(f"{source.label}: {source.file} has no class {source.attribute}{hint}")
    kind = check_class(kind, source.label)
    if (model := _options_class(source)) not in (None, kind.Options):
        raise StsbenchError(f"{source.label}: {kind.__name__}.Options must be {model.__name__} of the module beside it")
    return kind


def options_class(method: str) -> type[Options]:
    """Return the class of the method's options, without importing torch where it has a module of its own."""
    source = find_method(method)
    return _options_class(source) or load_method(method).Options


def method_name(options: Options) -> str:
    """Return the name of the installed method that these options belong to: "simcse" for methods.SimCSE(temperature=0.07).

    Raises StsbenchError, one line, for options that belong to no installed method.
    """
    kind = type(options)
    for name in names(GROUP):
        module = find_method(name).module or ""
        near = kind.__module__ in (module, f"{module.rpartition('.')[0]}.options")
        if near and options_class(name) is kind:
            return name
    raise StsbenchError(
        f"{kind.__name__} of {kind.__module__} is not the options of an installed method: name the method itself, "
        "NAME or FILE.py:CLASS"
    )


def card(method: str) -> str:
    """Return the text of the method's card.md, or its name and its class's docstring where it has no card."""
    path = find_method(method).folder / "card.md"
    if path.is_file():
        return path.read_text("utf-8")
    return f"# {short_name(method)}\n\n{inspect.cleandoc(load_method(method).__doc__ or '')}"


def title(method: str) -> str:
    """Return the first heading of the method's card, "" where there is none."""
    path = find_method(method).folder / "card.md"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")


def options(method: str) -> list[Described]:
    """Return the method's options, in the order of its source."""
    model = options_class(method)
    return described(model, setting_defaults(model))


def _options_class(source: MethodSource) -> type[Options] | None:
    """Return the class NAMEOptions of the module `options` in the same package as the method NAME; None where there is
    none."""
    package = (source.module or "").rpartition(".")[0]
    module = f"{package}.options"
    if not package or find_spec(module) is None:
        return None
    try:
        model = getattr(import_module(module), f"{source.attribute}Options", None)
    except Exception as error:
        raise StsbenchError(f"{source.label}: its options ({module}) failed to load: {error!r}") from error
    return model if isinstance(model, type) and issubclass(model, Options) else None


def _module(source: MethodSource) -> Any:
    """Return the method's module, imported. Raises StsbenchError, one line that names the line at fault, where it fails."""
    if source.module is None:
        return file_module(Path(str(source.file)), source.label)
    try:
        return import_module(source.module)
    except Exception as error:
        raise StsbenchError(f"{source.label} failed to load: {error_line(error)}") from error
