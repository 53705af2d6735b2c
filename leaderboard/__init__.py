"""The leaderboard: measured scores, checked and ranked, beside the scores that papers publish.

    from stsbench import leaderboard

    board = leaderboard.load()

Its functions do what the commands of `stsbench leaderboard` do; each is imported on first use.
"""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:  # for editors and mypy: the names below, and those of extensions
    from .api import add as add
    from .api import build as build
    from .api import index as index
    from .api import init as init
    from .api import load as load
    from .functions import *  # noqa: F403
    from .loaded_board import Board as Board

NAMES = {  # module -> its public names; those of extensions are entry points
    "api": ("add", "build", "index", "init", "load"), "loaded_board": ("Board",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, NAMES, "stsbench.board_functions")
