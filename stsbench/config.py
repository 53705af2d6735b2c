"""Configuration: YAML with `extends` and `--set a.b=c`, validated by pydantic; errors are one line with file, line and
key."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from stsbench.errors import StsbenchError
from stsbench.parsing import MOST_YAML, SafeLoader, TooLargeError, load_yaml, read_text
from stsbench.registry import did_you_mean

ModelT = TypeVar("ModelT", bound=BaseModel)
OptionsT = TypeVar("OptionsT")
LONGEST = 80  # characters of a wrong value that are shown
_FLOAT = re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_NUMBER_STARTS = list("-+.0123456789")


class _Loader(SafeLoader):
    """YAML loader that reads 1e-5 as a number and refuses duplicate keys, of which PyYAML's loader keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key '{key.value}' is given twice", key.start_mark
                    )
                keys.add(key.value)
        return dict(super().construct_mapping(node, deep))


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes texts that `_Loader` would read as numbers, escapes rare line ends and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        rare = any(character in data for character in "\x85\u2028\u2029")  # unescaped they would be folded to spaces
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if rare else None)


_Dumper.add_representer(str, _Dumper.represent_str)

for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, _NUMBER_STARTS)


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Return `data` as YAML, in the same order, which `read_yaml` reads as the same data."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def parse_yaml(text: str, where: str) -> Any:
    """Return the content of a YAML text. Raises StsbenchError, one line that begins with `where` (and `:LINE`, where an
    error has one in a text of several lines), for invalid YAML and for texts beyond the limits of stsbench/parsing.py.
    """
    try:
        return load_yaml(text, _Loader)
    except TooLargeError as error:
        raise StsbenchError(f"{where}: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark and "\n" in text else ""
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise StsbenchError(f"{where}{line}: not valid YAML: {' '.join(problem.split())}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError for an invalid date, such as 2020-13-01
        raise StsbenchError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, without following `extends`. Raises StsbenchError naming the file and the line."""
    return copy.deepcopy(_mapping(read_text(path, MOST_YAML), path))


@lru_cache(maxsize=512)
def _mapping(text: str, path: Path) -> dict[str, Any]:
    """Return the mapping for `read_yaml` to copy; cached, as a hundred recipes extend the same few files."""
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise StsbenchError(f"{path}: needs a mapping, a line 'key: value' for each setting")
    return data


def load_config(
    path: Path, *, not_inherited: Collection[str] = (), folders: Sequence[Path] = (), above: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Return a file's mapping, merged over that of the file it `extends`, without the latter's keys `not_inherited`.

    extends: the name of a file beside this one (or in one of `folders`), without .yaml, or a path relative to this file.
    Mappings merge, key by key; all other values, lists included, are replaced. above: the files that extend this one. Raises
    StsbenchError for a circle.
    """
    if path.resolve() in above:
        circle = " -> ".join(file.name for file in (*above[above.index(path.resolve()) :], path))
        raise StsbenchError(f"{path}: extends runs in a circle: {circle}")
    data = read_yaml(path)
    if "extends" not in data:
        return data
    parent = find_parent(path, data.pop("extends"), folders)
    below = load_config(parent, not_inherited=not_inherited, folders=folders, above=(*above, path.resolve()))
    return merge({key: value for key, value in below.items() if key not in not_inherited}, data)


def find_parent(path: Path, name: Any, folders: Sequence[Path]) -> Path:
    if not isinstance(name, str) or not name:
        raise StsbenchError(f"{path}: extends must be the name of a recipe or a path, not {shorten(name)}")
    if name.endswith((".yaml", ".yml")) or "/" in name:
        parent = path.parent / Path(name).expanduser()
        if not parent.is_file():
            raise StsbenchError(f"{path}: extends {name}: there is no file {parent}")
        return parent
    candidates = [folder / f"{name}.yaml" for folder in (path.parent, *folders)]
    if name == path.stem:  # a file may extend the shipped file of the same name; without one it extends itself
        candidates = [candidate for candidate in candidates if candidate.resolve() != path.resolve()] or candidates
    existing = next((candidate for candidate in candidates if candidate.is_file()), None)
    if existing is None:
        known = sorted({recipe.stem for folder in (path.parent, *folders) for recipe in folder.glob("*.yaml")} - {path.stem})
        raise StsbenchError(f"{path}: extends {name}: no such recipe{did_you_mean(name, known, otherwise='')}")
    return existing


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` updated by `above`: mappings merge at every depth, other values are replaced. Neither is changed."""
    merged = copy.deepcopy(dict(below))
    for key, value in above.items():
        both = isinstance(merged.get(key), dict) and isinstance(value, dict)
        merged[key] = merge(merged[key], value) if both else copy.deepcopy(value)
    return merged


def apply_sets(data: Mapping[str, Any], sets: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `data` with each "a.b=value" of `sets` applied, the value read as YAML. Raises StsbenchError for an
    invalid one."""
    result = copy.deepcopy(dict(data))
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not all(re.fullmatch(r"[\w-]+", part) for part in key.split(".")):
            raise StsbenchError(f"--set {text}: write it as key.sub=value")
        if not value.strip():
            raise StsbenchError(f"--set {text}: lacks a value; null stands for none")
        put(result, key, parse_yaml(value, f"--set {text}"), f"--set {text}")
    return result


def put(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set the dotted `key` of `data`, creating mappings as needed. Raises StsbenchError if a part is not a mapping."""
    *way, last = key.split(".")
    inner = data
    for depth, part in enumerate(way, 1):
        if inner.get(part) is None:
            inner[part] = {}
        inner = inner[part]
        if not isinstance(inner, dict):
            raise StsbenchError(f"{where}: {'.'.join(way[:depth])} is not a section, but {shorten(inner)}")
    inner[last] = value


def validate(model: type[ModelT], data: Mapping[str, Any], where: str, above: str = "") -> ModelT:
    """Return `data` validated as a `model`. above: the dotted key of `data`, with a last dot, for messages.

    Raises StsbenchError, one line that begins with `where`, for the first error, unknown keys before others.
    """
    try:
        return parse(model, data, above)
    except ValueError as error:
        raise StsbenchError(f"{where}: {error}") from error


def parse(model: type[ModelT], data: Mapping[str, Any], above: str = "") -> ModelT:
    """Return `data` validated as a `model`, with strict types ("64" is not a number). Raises ValueError as `validate`."""
    try:
        text = json.dumps(data, default=str)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"holds what no setting can be: {error}") from error
    try:
        made = model.model_validate_json(text, strict=True)  # from JSON, strict validation takes lists as tuples
    except ValidationError as error:
        first = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
        raise ValueError(_in_words(model, first, above)) from error
    for key, value in flatten(made.model_dump(), lists=True).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{above}{key} must be a finite number, not {value}")
    return made


def checked_options(kind: type[OptionsT], where: str, **values: Any) -> OptionsT:
    """Return the dataclass of options `kind` (stsbench/options.py) with these values; numbers and paths may be text.

    Raises StsbenchError, one line that begins with `where`, for a wrong type, and UsageError as `stsbench.options.check`.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise StsbenchError(f"{where}: {first['loc'][0]}={shorten(first['input'])}: {first['msg']}") from error


def flatten(data: Any, *, joint: str = ".", whole: Collection[str] = (), lists: bool = False) -> dict[str, Any]:
    """Return the leaves of nested mappings by joined keys, "a.b"; with `lists` also the items of lists, "a.0".

    whole: keys whose mappings are leaves. An empty mapping has no leaves.
    """
    leaves: dict[str, Any] = {}
    for name, value in data.items() if isinstance(data, Mapping) else enumerate(data):
        if (isinstance(value, Mapping) and name not in whole) or (lists and isinstance(value, list | tuple)):
            inner = flatten(value, joint=joint, whole=whole, lists=lists)
            leaves |= {f"{name}{joint}{key}": leaf for key, leaf in inner.items()}
        else:
            leaves[str(name)] = value
    return leaves


_WORDS = {
    "bool": "true or false", "int": "a whole number", "float": "a number", "finite": "a finite number", "string": "a text",
    "dict": "a mapping", "model": "a mapping", "list": "a list", "tuple": "a list",
}
_BOUNDS = {"greater_than": ("gt", "above"), "greater_than_equal": ("ge", "at least"), "less_than": ("lt", "below"),
           "less_than_equal": ("le", "at most")}


def _in_words(model: type[BaseModel], error: Any, above: str) -> str:
    """Return an error of pydantic as a sentence with the dotted key, the value and a suggestion for misspelt words."""
    *outer, last = error["loc"] or ("",)
    key = above + ".".join(map(str, error["loc"]))
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        whole = key.removesuffix(str(last))
        return f"unknown key '{key}'{did_you_mean(str(last), _fields(model, outer), whole)}"
    if kind == "missing":
        return f"needs a value for {key}"
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        hint = did_you_mean(value, words, otherwise="") if isinstance(value, str) else ""
        return f"{key} must be {context['expected']}, not {shorten(value)}{hint}"
    if kind in _BOUNDS:
        name, words_ = _BOUNDS[kind]
        return f"{key} must be {words_} {_bound(context[name])}, not {shorten(value)}"
    if kind in ("too_long", "too_short"):
        return f"{key} has {context['actual_length']} values, and should have another number of them"
    if kind == "requirement":  # a validator's phrase, such as "must be a list of different values"
        return f"{key} {error['msg']}, not {shorten(value)}"
    if kind == "value_error":
        text = " ".join(error["msg"].removeprefix("Value error, ").split())
        if not error["loc"]:
            return f"{above}{text}"
        return f"{key}{'.' if text.partition(' ')[0] in _fields(model, error['loc']) else ': '}{text}"
    what = _WORDS.get(kind.partition("_")[0])
    return f"{key} must be {what}, not {shorten(value)}" if what else f"{key}: {error['msg']}, not {shorten(value)}"


def _fields(model: Any, loc: Iterable[Any]) -> list[str]:
    """Return the keys of the model at a location inside `model`, as in pydantic's errors."""
    for part in loc:
        if isinstance(part, str) and part in getattr(model, "model_fields", {}):
            model = model_in(model.model_fields[part].annotation)
    return list(getattr(model, "model_fields", {}))


def allowed_values(field: Any) -> str:
    """Return a pydantic field's type or choices, and its bounds: "float, > 0", "list of 'all', 'mean', 'wmean'"."""
    return ", ".join([_type_in_words(field.annotation), *_bounds(field.metadata)])


def _type_in_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        constraints = [part for one in inner[1:] for part in (one.metadata if isinstance(one, FieldInfo) else [one])]
        return ", ".join([_type_in_words(inner[0]), *_bounds(constraints)])
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if origin in (Union, UnionType):
        return " | ".join(_type_in_words(argument) for argument in inner)
    if origin in (list, tuple):
        return f"list of {', '.join(dict.fromkeys(_type_in_words(argument) for argument in inner if argument is not ...))}"
    if origin is dict:
        return f"mapping of {_type_in_words(inner[0])} to {_type_in_words(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"mapping: {'; '.join(f'{name} {allowed_values(field)}' for name, field in annotation.model_fields.items())}"
    return "None" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def _bounds(metadata: Iterable[Any]) -> list[str]:
    bounds = [(sign, getattr(constraint, name)) for constraint in metadata
              for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")) if hasattr(constraint, name)]
    return [f"{sign} {_bound(bound)}" for sign, bound in bounds]


def _bound(bound: Any) -> str:
    """Return a bound as text: 0 for 0.0, and all digits of an integer."""
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def model_in(annotation: Any) -> Any:
    """Return the model X in an annotation `X`, `X | None` or `list[X]`; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := model_in(argument))), None)


def shorten(value: Any) -> str:
    """Return the repr of a value for errors: on one line, of at most LONGEST characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
