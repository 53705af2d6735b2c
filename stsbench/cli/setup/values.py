"""What the shell completes as an option's value: models, poolers, protocols, methods, recipes, sets, files.

A value is known by the name of its parameter, so that no command says anything of it. A tab key waits for what is listed
here: it imports no torch, and what cannot be listed completes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from stsbench.errors import StsbenchError
from stsbench.registry import names, resolve

Completed = list[CompletionItem]
Complete = Callable[[click.Context, str], Completed]  # the words before, and the word so far -> what it may become


def complete_values(command: click.Command) -> None:
    """Let the values of a command's parameters, and of its sub-commands', be completed."""
    for parameter in command.params:
        complete = _BY_NAME.get((command.name, parameter.name), _BY_NAME.get((None, parameter.name)))
        if complete and not isinstance(parameter.type, click.Choice):
            setattr(parameter, "shell_complete", complete)  # noqa: B010 - it hides a method
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        complete_values(below)


def _beginning(names: Iterable[str], incomplete: str, before: str = "") -> Completed:
    return [CompletionItem(before + name) for name in names if name.startswith(incomplete)]


def _models(ctx: click.Context, incomplete: str) -> Completed:
    """Kinds of encoders with what stands behind their colon where that is known; else files, a model folder among them."""
    words = ["minilm", "lexical:token-set", "lexical:char-ngrams", "lexical:tfidf"]
    words += [f"{kind}:" for kind in names("stsbench.encoders") if kind not in ("transformers", "lexical")]
    _, colon, file = incomplete.partition(":")
    return _beginning(words, incomplete) or ([] if colon and not file else [CompletionItem(incomplete, type="file")])


def _poolers() -> Iterable[str]:
    from stsbench.encoders.forward.pooling import POOLERS

    return (*POOLERS, "mean_padded:")


def _protocols(ctx: click.Context, incomplete: str) -> Completed:
    """Protocols, papers and `all`; behind a colon the forms of that protocol; behind a comma the next one."""
    group = "stsbench.protocols"
    before, comma, last = incomplete.rpartition(",")
    base, colon, _ = last.partition(":")
    if not colon:
        return _beginning(_protocol_names(), last, before + comma)
    forms = resolve(group, base).variants if base in names(group) else ()
    return _beginning((f"{base}:{word}" for word in forms), last, before + comma)


def _protocol_names() -> list[str]:
    from importlib import resources

    presets = resources.files("stsbench.protocols").joinpath("presets").iterdir()
    papers = (file.name.removesuffix(".yaml") for file in presets if file.name.endswith(".yaml"))
    return [*names("stsbench.protocols"), *sorted(papers), "all"]


def _methods() -> list[str]:
    return names("stsbench.methods")


def _method_or_file(ctx: click.Context, incomplete: str) -> Completed:
    """Methods, else files: a method may be FILE.py:CLASS."""
    return _beginning(_methods(), incomplete) or [CompletionItem(incomplete, type="file")]


def _recipes(ctx: click.Context, incomplete: str) -> Completed:
    """The recipes of the method on the line, else files."""
    # click gives an option without its value up, and all arguments with it: the words stay in ctx.args
    method = ctx.params.get("method") or next(iter(ctx.args), None)
    listed = _beginning(_recipes_of(method), incomplete) if isinstance(method, str) else []
    return listed or [CompletionItem(incomplete, type="file")]


def _recipes_of(method: str) -> list[str]:
    from stsbench.training.recipes.recipes import recipe_names

    try:
        return recipe_names(method)
    except (StsbenchError, OSError):
        return []


def _recipes_by_method() -> list[str]:
    return [f"{method}/{name}" for method in _methods() for name in _recipes_of(method)]


def _posts() -> list[str]:
    return names("stsbench.post")


def _sets() -> list[str]:
    from stsbench.data.sets.catalog import entries

    return list(dict.fromkeys(item.id for item in entries()))


def _shown(ctx: click.Context, incomplete: str) -> Completed:
    """What `stsbench show KIND` can show."""
    listed: dict[Any, Callable[[], Iterable[str]]] = {
        "protocol": _protocol_names, "method": _methods, "post": _posts, "data": _sets, "recipe": _recipes_by_method,
        **_PAGES,
    }
    kind = listed.get(ctx.params.get("kind"))
    return _beginning(kind(), incomplete) if kind else []


def _files(ctx: click.Context, incomplete: str) -> Completed:
    """Files, for options that take a file's name and other words, too."""
    return [CompletionItem(incomplete, type="file")]


def _from(names: Callable[[], Iterable[str]]) -> Complete:
    return lambda ctx, incomplete: _beginning(names(), incomplete)


def _of_pages(kind: str) -> Callable[[], list[str]]:
    return lambda: [row[0] for row in resolve("stsbench.pages", kind).rows()]


_PAGES = {kind: _of_pages(kind) for kind in names("stsbench.pages")}
# (command, or None for all others, and parameter) -> what completes it
_BY_NAME: dict[tuple[str | None, Any], Complete] = {
    (None, "model"): _models, (None, "models"): _models, (None, "backbone"): _models,
    (None, "pooler"): _from(_poolers), (None, "poolers"): _from(_poolers),
    (None, "protocols"): _protocols, (None, "protocol"): _protocols, (None, "runs"): _files,
    (None, "method"): _method_or_file, (None, "recipe"): _recipes,
    (None, "post"): _from(_posts), (None, "fit_on"): _files, ("train", "data"): _files, (None, "labelled"): _files,
    (None, "corpus"): _files, ("show", "name"): _shown, (None, "without_overlap"): _from(_sets),
    ("fetch", "sets"): _from(_sets), ("verify", "sets"): _from(_sets), ("overlap", "target"): _from(_sets),
    **{(None, kind): _from(listed) for kind, listed in _PAGES.items()},
}
