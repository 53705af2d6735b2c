"""The leaderboard: what was measured here and what papers print, checked, ranked and shown.

    from stsbench import leaderboard

    board = leaderboard.load()

The functions are those of `stsbench leaderboard` and of the board's extensions, and load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an editor and mypy see; the same names as below, and those of extensions
    from .api import add as add
    from .api import build as build
    from .api import index as index
    from .api import init as init
    from .api import load as load
    from .api import placement as placement
    from .api import plot as plot
    from .api import serve as serve
    from .api import submit as submit
    from .functions import *  # noqa: F403
    from .loaded_board import Board as Board

_GROUP = "stsbench.board_functions"  # entry points: what extensions add
_PUBLIC = {
    "Board": "loaded_board", "add": "api", "build": "api", "index": "api", "init": "api",
    "load": "api", "placement": "api", "plot": "api", "serve": "api", "submit": "api",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    if name == "__all__" or not name.startswith("_"):
        from stsbench.registry import names, resolve

        extensions = names(_GROUP)
        if name == "__all__":
            return sorted([*_PUBLIC, *extensions])
        if name in extensions:
            return resolve(_GROUP, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))])
