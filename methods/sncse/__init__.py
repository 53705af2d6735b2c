"""SNCSE (Wang et al. 2022)."""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:
    from .objective import loss as loss

__all__ = ["loss"]
__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "objective"))
