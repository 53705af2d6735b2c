"""Reading of untrusted YAML and JSON, with limits on size, depth and aliases, and one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from stsbench.errors import StsbenchError

MOST_YAML = 1_000_000  # characters of a YAML text with its aliases expanded; the largest of ours has 40,000
MOST_JSON = 64_000_000  # bytes of a JSON file; the index of a model's shards has some 100,000, a tokenizer 30 million
SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the loader in C is eight times as fast
DEEPEST = 64  # levels of nested lists and mappings; settings have ten at most


class TooLargeError(ValueError):
    """A text exceeds one of the limits."""


def read_text(path: Path, most: int, error_class: type[StsbenchError] = StsbenchError) -> str:
    """Return the text of a UTF-8 file. Raises `error_class`, one line that names the file, if it cannot be read or has more
    than `most` bytes."""
    if path.is_fifo() and not str(path).startswith(("/dev/", "/proc/")):  # shells' pipes; another may never have a writer
        raise error_class(f"{path} is a pipe, not a file: not read")
    try:
        with path.open("rb") as stream:  # reading finds out the size, as pipes have none in path.stat
            content = stream.read(most + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise error_class(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        if len(content) <= most:
            raise error_class(f"{path} is not UTF-8 text (byte {error.start})") from error
    if len(content) > most:
        raise error_class(f"{path} is larger than {most:,} bytes: not read")
    return text


# JSON ------------------------------------------------------------------------------------------------------------


def read_json(path: Path, error_class: type[StsbenchError] = StsbenchError) -> Any:
    """Return the content of a JSON file. Raises `error_class`, one line that names the file, if it is missing, not JSON,
    larger than MOST_JSON or nested deeper than DEEPEST."""
    try:
        return parse_json(read_text(path, MOST_JSON, error_class))
    except ValueError as error:
        raise error_class(f"{path} is not valid JSON: {error}") from error


def read_json_object(path: Path, error_class: type[StsbenchError] = StsbenchError) -> dict[str, Any]:
    """Return the object in a JSON file. Raises `error_class` as `read_json`, and for a file that does not hold an object."""
    value = read_json(path, error_class)
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "null" if value is None else "a single value"
        raise error_class(f"{path} must hold a JSON object, not {kind}")
    return value


def parse_json(text: str, **options: Any) -> Any:
    """Return the content of a JSON text. options: of `json.loads`. Raises ValueError for invalid JSON, and for JSON that is
    nested too deeply."""
    try:
        value = json.loads(text, **options)
    except RecursionError as error:
        raise _too_deep() from error
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for container in level for inner in _inside(container) if isinstance(inner, dict | list | tuple)]
        if not level:
            return value
    raise _too_deep()


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()


# YAML ------------------------------------------------------------------------------------------------------------


def load_yaml(text: str, loader: Any = SafeLoader) -> Any:
    """Return the content of a YAML text, read by the class `loader`. Raises the errors of `compose_yaml`."""
    node, reading = compose_yaml(text, loader)
    return None if node is None else reading.construct_document(node)


def compose_yaml(text: str, loader: Any) -> tuple[Any, Any]:
    """Return the root node of a YAML text, None if it is empty, and the `loader` that read it.

    Raises TooLargeError beyond the limits, before any alias is expanded, and yaml.YAMLError for invalid YAML.
    """
    if len(text) > MOST_YAML:
        raise TooLargeError(f"it has {len(text):,} characters, at most {MOST_YAML:,} are read")
    depth, aliases = 0, False
    for event in yaml.parse(text, loader):  # before composing, which recurses in C, without a limit
        depth += _DEEPER.get(type(event), 0)
        aliases = aliases or type(event) is yaml.AliasEvent
        if depth > DEEPEST:
            raise _too_deep()
    reading = loader(text)
    node = reading.get_single_node()
    if aliases:
        _check_aliases(node, {}, set())
    return node, reading


_DEEPER = {
    yaml.SequenceStartEvent: 1, yaml.MappingStartEvent: 1, yaml.SequenceEndEvent: -1, yaml.MappingEndEvent: -1,
}


def _check_aliases(node: Any, sizes: dict[int, int], above: set[int]) -> int:
    """Return the number of characters of `node` with all aliases expanded. Raises TooLargeError.

    sizes: the numbers of nodes that were visited, by id; above: the ids of the nodes that contain this one.
    """
    if id(node) in above:
        raise TooLargeError("an alias stands for something that holds the alias itself")
    if id(node) not in sizes:
        above.add(id(node))
        size = 1
        if isinstance(node, yaml.ScalarNode):
            size += len(node.value)
        else:
            for child in node.value:
                size += sum(_check_aliases(part, sizes, above) for part in (child if isinstance(child, tuple) else (child,)))
        above.remove(id(node))
        if size > MOST_YAML:
            raise TooLargeError(f"with its aliases written out it has over {MOST_YAML:,} characters")
        sizes[id(node)] = size
    return sizes[id(node)]


def _too_deep() -> TooLargeError:
    return TooLargeError(f"its lists and mappings are nested more than {DEEPEST} deep")
