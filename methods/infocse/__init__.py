"""InfoCSE (Wu et al. 2022)."""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:
    from .objective import contrastive_loss as contrastive_loss

__all__ = ["contrastive_loss"]
_WHY = (
    "its second term, the masked tokens guessed with the sentence's vector, "
    "is no function of sentence vectors: contrastive_loss is the first"
)
__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "objective"), {"loss": _WHY})
