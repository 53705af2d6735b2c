"""Where `masked_lm` was."""

from tiny_models import masked_lm

__all__ = ["masked_lm"]
