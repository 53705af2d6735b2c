"""The leaderboard: what was measured here and what papers print, checked, ranked and shown.

    from stsbench import leaderboard

    board = leaderboard.load()

The functions are those of `stsbench leaderboard`, and load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an editor and mypy see; the same names as below
    from .api import add as add
    from .api import build as build
    from .api import import_mteb as import_mteb
    from .api import index as index
    from .api import init as init
    from .api import load as load
    from .api import placement as placement
    from .api import plot as plot
    from .api import serve as serve
    from .api import submit as submit
    from .loaded_board import Board as Board
    from .reproduce.api import papers as papers
    from .reproduce.prompt_study import prompt_sensitivity as prompt_sensitivity

_PUBLIC = {
    "Board": "loaded_board", "add": "api", "build": "api", "import_mteb": "api", "index": "api", "init": "api",
    "load": "api",
    "papers": "reproduce.api", "placement": "api", "plot": "api", "prompt_sensitivity": "reproduce.prompt_study",
    "serve": "api", "submit": "api",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


__all__ = [
    "Board", "add", "build", "import_mteb", "index", "init", "load", "papers", "placement", "plot", "prompt_sensitivity",
    "serve", "submit",
]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
