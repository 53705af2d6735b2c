"""Continued masked-LM pre-training (Devlin et al. 2019)."""

from stsbench.registry import lazy_names

__all__: list[str] = []
_WHY = "it guesses masked tokens, which is no function of sentence vectors: torch's cross_entropy of their logits"
__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "objective"), {"loss": _WHY})
