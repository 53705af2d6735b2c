"""TSDAE (Wang, Reimers and Gurevych 2021)."""

from stsbench.registry import lazy_names

__all__: list[str] = []
_WHY = "its decoder writes the sentence again, which is no function of sentence vectors: torch's cross_entropy of its logits"
__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "objective"), {"loss": _WHY})
