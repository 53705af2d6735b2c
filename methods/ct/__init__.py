"""Contrastive Tension (Carlsson et al. 2021): two encoders that start alike and agree on a sentence, not on two."""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:
    from .objective import in_batch_loss as in_batch_loss
    from .objective import loss as loss

__all__ = ["in_batch_loss", "loss"]
__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "objective"))
