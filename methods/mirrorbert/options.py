"""Mirror-BERT's choices (Liu et al. 2021), and what its released code does otherwise. Imports no torch."""

from __future__ import annotations

from pydantic import Field

from stsbench.training.api.options import Options


class MirrorBERTOptions(Options):
    """Defaults: sentences with BERT. Dropout is `backbone.dropout`; `drophead` is meant to take its place."""

    default_recipe = "bert-base"

    temperature: float = Field(default=0.04, gt=0)  # 0.2 for words and short phrases
    span_chars: int = Field(default=5, ge=0)  # characters of the second view that one mask token replaces; 0: none
    min_chars: int = Field(default=30, ge=0)  # shorter texts stay as they are
    first_occurrence: bool = False  # the mask goes where the drawn characters first occur in the text (released code)
    literal_mask: bool = False  # "[MASK]" for every model, ordinary text for RoBERTa (released code)
    drophead: float = Field(default=0.0, ge=0, lt=1)  # probability that a layer drops one of its heads, drawn for each view
    test_length: int | None = Field(default=None, ge=3)  # N of the tested pooler mean_padded:N; null: backbone.pooler's
