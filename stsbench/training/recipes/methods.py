"""Where a method is: an entry point's name, or FILE.py:CLASS. What its class says is read without torch where possible."""

from __future__ import annotations

import ast
import hashlib
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.errors import StsbenchError
from stsbench.files import sha256_file
from stsbench.registry import did_you_mean, names
from stsbench.training.api.options import Options

if TYPE_CHECKING:
    from stsbench.training.api.method import Method

GROUP = "stsbench.methods"  # entry points; each names a class


@dataclass(frozen=True)
class MethodSource:
    """Where a method's class is written. said: its name in messages; module: None for FILE.py:CLASS; folder: of its card and
    recipes."""

    said: str
    module: str | None
    file: Path | None
    attribute: str
    folder: Path


def is_file_method(method: str) -> bool:
    """Whether a method is named as FILE.py:CLASS."""
    return method.rpartition(":")[0].endswith(".py")


def canonical(method: str, folder: Path | None = None) -> str:
    """A method as recipes and run folders name it: FILE.py:CLASS with the file's full path (relative to `folder`, by default
    the working folder), and an entry point's name as it is."""
    if not is_file_method(method):
        return method
    file, _, attribute = method.rpartition(":")
    return f"{((folder or Path()) / Path(file).expanduser()).resolve()}:{attribute}"


def short_name(method: str) -> str:
    """The method without its file's folder: what cards, records and the names of run folders say."""
    return method.rpartition("/")[2] if is_file_method(method) else method


def method_file(method: str) -> dict[str, str]:
    """{"method file": sha256} of FILE.py:CLASS, {} of an installed method: a run is resumed with the same file only."""
    file = find_method(method).file
    return {"method file": sha256_file(file)} if is_file_method(method) and file is not None else {}


@cache  # looking through all installed packages takes 30 ms
def find_method(method: str) -> MethodSource:
    """Where the method is; it is not loaded. Raises StsbenchError, one line, for an unknown name and a missing file."""
    if is_file_method(method):
        file, _, attribute = method.rpartition(":")
        if not Path(file).is_file():
            raise StsbenchError(f"{method}: there is no file {file}")
        if not attribute.isidentifier():
            raise StsbenchError(f"{method}: name the class after the colon, FILE.py:CLASS")
        return MethodSource(method, None, Path(file), attribute, Path(file).parent)
    if method.endswith(".py"):
        raise StsbenchError(f"{method}: name the method's class, too: {method}:CLASS")
    point = next(iter(entry_points(group=GROUP, name=method)), None)
    if point is None:
        raise StsbenchError(f"unknown method '{method}'{did_you_mean(method, names(GROUP))}, or FILE.py:CLASS")
    said = f"the method '{method}' ({point.value})"
    try:
        spec = find_spec(point.module)
    except (ImportError, ValueError) as error:
        raise StsbenchError(f"{said} failed to load: {error!r}") from error
    if spec is None:
        raise StsbenchError(f"{said} failed to load: there is no module {point.module}")
    source = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    places = [Path(place) for place in spec.submodule_search_locations or []] or ([source.parent] if source else [])
    if not places:
        raise StsbenchError(f"{said} has no folder: it is not installed as files")
    return MethodSource(said, point.module, source, point.attr, places[0])


def load_method(method: str) -> type[Method]:
    """The method's class. Raises StsbenchError, one line, where it cannot be loaded or lacks what a method needs."""
    from stsbench.training.api.checks import check_class

    source = find_method(method)
    module = _module(source)
    kind = getattr(module, source.attribute, None)
    if kind is None:
        known = [name for name, value in vars(module).items() if _is_method(value) and value.__module__ == module.__name__]
        hint = did_you_mean(source.attribute, known) if known else ""
        raise StsbenchError(f"{source.said}: {source.file} has no class {source.attribute}{hint}")
    return check_class(kind, source.said)


def default_recipe_of(method: str) -> str | None:
    """The name of the recipe that the class calls its default; None where it names none."""
    name = _class_value(method, "default_recipe")
    if name is not None and not isinstance(name, str):
        raise StsbenchError(f"{find_method(method).said}: default_recipe must be the name of a recipe, not {name!r}")
    return name


def docstring_of(method: str) -> str:
    """The class's docstring, "" without one."""
    parsed = _parsed(find_method(method))
    return (ast.get_docstring(parsed[1]) or "") if parsed is not None else ""


def stages_of(method: str) -> tuple[str, ...]:
    """The method's stages."""
    return tuple(map(str, _class_value(method, "stages") or ("main",)))


def options_of(method: str) -> type[Options]:
    """The class's Options. Where it imports them from another module, only that is loaded."""
    source = find_method(method)
    parsed = _parsed(source)
    if parsed is not None and source.module is not None:
        tree, node = parsed
        value = _assigned(node, "Options")
        if value is None and _derives_from_method_only(node):
            return Options
        origin = _imported_from(tree, value.id) if isinstance(value, ast.Name) else None
        if origin is not None:
            return _checked_options(source, _import_options(source, *origin))
    return _checked_options(source, load_method(method).Options)


def _import_options(source: MethodSource, module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        raise StsbenchError(f"{source.said}: its options ({module}) failed to load: {error!r}") from error


def _checked_options(source: MethodSource, model: Any) -> type[Options]:
    if not (isinstance(model, type) and issubclass(model, Options)):
        raise StsbenchError(f"{source.said}: {source.attribute}.Options must derive from stsbench.training.api.Options")
    return model


def _module(source: MethodSource) -> Any:
    """The imported module, or the file as one; its own errors become one line with the line at fault."""
    try:
        if source.module is not None:
            return import_module(source.module)
        content = f"{source.file}\0{sha256_file(Path(str(source.file)))}"
        name = f"stsbench_method_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        if name not in sys.modules:
            spec = spec_from_file_location(name, source.file)
            if spec is None or spec.loader is None:
                raise ImportError(f"{source.file} is not a Python file")
            module = module_from_spec(spec)
            sys.modules[name] = module  # pydantic and inspect look there while the file runs
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[name]
                raise
        return sys.modules[name]
    except Exception as error:
        raise StsbenchError(f"{source.said} failed to load: {_cause(error)}") from error


def _is_method(value: Any) -> bool:
    from stsbench.training.api.method import Method

    return isinstance(value, type) and issubclass(value, Method)


def _cause(error: Exception) -> str:
    """The error in a line; of a syntax error FILE:LINE."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {error.msg}"
    return repr(error)


def _class_value(method: str, name: str) -> Any:
    """A class attribute: from the source where it is written as a literal, else of the loaded class, with torch."""
    parsed = _parsed(find_method(method))
    if parsed is not None:
        value = _assigned(parsed[1], name)
        if value is None and _derives_from_method_only(parsed[1]):
            return None
        try:
            if value is not None:
                return ast.literal_eval(value)
        except ValueError:
            pass  # not a literal
    return getattr(load_method(method), name, None)


def _parsed(source: MethodSource) -> tuple[ast.Module, ast.ClassDef] | None:
    """The source file and the class in it; None where the class does not stand there."""
    if source.file is None:
        return None
    try:
        tree = _tree(source.file.read_text("utf-8"), str(source.file))
    except (SyntaxError, ValueError) as error:
        raise StsbenchError(f"{source.said} failed to load: {_cause(error)}") from error
    nodes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == source.attribute)
    node = next(nodes, None)
    return None if node is None else (tree, node)


@lru_cache(maxsize=32)  # a recipe asks for a class's options, its stages and its default recipe
def _tree(source: str, file: str) -> ast.Module:
    return ast.parse(source, file)


def _derives_from_method_only(node: ast.ClassDef) -> bool:
    return [base.id for base in node.bases if isinstance(base, ast.Name)] == ["Method"]


def _assigned(node: ast.ClassDef, name: str) -> ast.expr | None:
    """The expression that the class body assigns to `name`; None without one."""
    for each in node.body:
        targets = each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
    return None


def _imported_from(tree: ast.Module, name: str) -> tuple[str, str] | None:
    """(module, name there) of what the file imports as `name`; None where it defines it itself."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module, alias.name
    return None
