"""AnglE (Li and Li 2024)."""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:
    from .objective import loss as loss
    from .objective import triplet_loss as triplet_loss

__all__ = ["loss", "triplet_loss"]
__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "objective"))
