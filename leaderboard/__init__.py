"""The leaderboard: what was measured here and what papers print, checked, ranked and shown.

The functions load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an editor and mypy see; the same names as below
    from .reproduce.api import papers as papers

_PUBLIC = {
    "papers": "reproduce.api",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


__all__ = ["papers"]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
