"""From a registered name to a post-processing's class."""

from __future__ import annotations

import inspect
from pathlib import Path

from stsbench.encoders.post.base import Post
from stsbench.errors import StsbenchError
from stsbench.registry import check_written, names, resolve

GROUP = "stsbench.post"


def post_names() -> list[str]:
    """What may stand in --post, sorted."""
    return names(GROUP)


def load_post(name: str) -> type[Post]:
    """The class registered as `name`. StsbenchError, one line, with a suggestion: there is none, or it cannot be used."""
    kind = resolve(GROUP, name)
    if not (isinstance(kind, type) and issubclass(kind, Post)):
        raise StsbenchError(f"entry point {name}: {kind!r} is not a class derived from stsbench.encoders.post.base.Post")
    check_written(kind)
    return kind


def card(name: str) -> str:
    """What a post-processing is: the text beside its module, else its class's docstring."""
    kind = load_post(name)
    path = card_beside(Path(inspect.getfile(kind)))
    return path.read_text("utf-8").rstrip() if path else inspect.getdoc(kind) or ""


def card_beside(module: Path) -> Path | None:
    """Return the text beside a module, NAME.md or card.md; None without one."""
    return next((path for path in (module.with_suffix(".md"), module.with_name("card.md")) if path.is_file()), None)
