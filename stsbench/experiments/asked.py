"""What a user of Python asks for, in the words of the command line: method, recipe, rows in memory, own scored pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.training.api.options import Options
from stsbench.training.recipes.methods import is_file_method, method_of
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.sections import OWN_PAIRS
from stsbench.training.rows.in_memory import is_in_memory, named_rows, rows_file

FilePath = str | PathLike[str]
Rows = FilePath | Iterable[Any]  # a file or a set's name; or a list, or a table


@dataclass(frozen=True)
class Asked:
    """values: settings by dotted key, the method's options among them; files: what rows in memory became, by their name."""

    method: str
    recipe: str | Recipe | None
    values: dict[str, Any]
    backbone: str | None
    data: str | None
    labelled: str | None
    dev: str | None
    files: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def in_users_words(self) -> Iterator[None]:
        """An error about rows in memory names them as such, and not by the file that they became."""
        try:
            yield
        except StsbenchError as error:
            message = str(error)
            for name, file in self.files.items():
                message = named_rows(message, file, name)
            if message == str(error):
                raise
            raise type(error)(message) from error


def asked(
    method: str | Options | Recipe, recipe: FilePath | Recipe | None, settings: Mapping[str, Any] | None, *,
    backbone: FilePath | None, data: Rows | None, labelled: Rows | None, dev: Rows | None,
) -> Asked:
    """The words for it. Raises StsbenchError, one line, for what is no method, and for rows that cannot be written."""
    if settings is not None and not isinstance(settings, Mapping):
        raise StsbenchError(f"settings must be dotted key -> value, and not of type {type(settings).__name__}")
    name, recipe, options = _method(method, recipe)
    if twice := sorted({*(settings or {})} & {*options}):
        raise StsbenchError(f"{twice[0]} is set twice: in settings, and among the method's options")
    sections = {"data": data, "labelled": labelled, "dev": dev}
    files = {key: str(rows_file(rows, key)) for key, rows in sections.items() if rows is not None and is_in_memory(rows)}
    words = {key: None if rows is None else files.get(key) or fspath(rows) for key, rows in sections.items()}  # type: ignore[arg-type]  # no rows in memory are left
    if (pairs := words.pop("dev")) is not None and Path(pairs).expanduser().is_file():
        pairs = f"{OWN_PAIRS}{pairs}"
    return Asked(
        name, recipe if isinstance(recipe, Recipe) or recipe is None else path_word(recipe, "recipe"),
        {**options, **(settings or {})}, None if backbone is None else path_word(backbone, "backbone"), **words, dev=pairs,
        files=files,
    )


def _method(
    method: str | Options | Recipe, recipe: FilePath | Recipe | None
) -> tuple[str, FilePath | Recipe | None, dict[str, Any]]:
    """The method's name, the recipe, and the options that were written."""
    if isinstance(method, Recipe):
        if recipe is not None:
            raise StsbenchError("two recipes: give the method's name first, or leave recipe out")
        if is_file_method(method.method):  # a recipe may be somebody else's: no file is run because it is named there
            raise StsbenchError(f"the recipe is of a Python file: name it, too: '{method.method}', recipe=...")
        return method.method, method, {}
    if isinstance(method, Options):
        written = method.model_dump(mode="json", include=method.model_fields_set)
        return method_of(method), recipe, {f"options.{name}": value for name, value in written.items()}
    if not isinstance(method, str):
        kind = getattr(method, "__name__", type(method).__name__)
        raise StsbenchError(f"a method is a name, FILE.py:CLASS, options of stsbench.methods or a recipe, and not a {kind}")
    return method, recipe, {}


def check_counts(**counts: int | None) -> None:
    """Raises StsbenchError for a number of things that is none."""
    for name, count in counts.items():
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise StsbenchError(f"{name} must be a whole number from 1 on, not {count!r}")


def listed(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    """Several; a string is one. Raises StsbenchError, naming the option, for anything else."""
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if stray := [word for word in words if not isinstance(word, str)]:
        raise StsbenchError(f"{option} must be a name or a list of names, not {stray[0]!r}")
    return words


def path_word(value: FilePath, option: str) -> str:
    """A path or a name as text. Raises StsbenchError, naming the option, for what is none."""
    try:
        return fspath(value)
    except TypeError:
        raise StsbenchError(f"{option}={value!r}: must be a path or a name, not of type {type(value).__name__}") from None
