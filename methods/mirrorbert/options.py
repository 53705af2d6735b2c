"""Options of Mirror-BERT (Liu et al. 2021), including where its released code differs. Imports no torch."""

from __future__ import annotations

from stsbench.options import POSITIVE
from stsbench.settings import setting
from stsbench.training.api.options import Options

_CODE = "cambridgeltl/mirror-bert@8b6b9de"
_MASKED = {"span_chars": POSITIVE}


class MirrorBERTOptions(Options):
    """Defaults: sentences with BERT. Dropout is `backbone.dropout`; `drophead` is an alternative to it."""

    default_recipe = "bert-base"

    temperature: float = setting(0.04, "0.2 for words and short phrases", f"{_CODE}: mirror_scripts", gt=0)
    span_chars: int = setting(
        5, "characters of the second view that one mask token replaces; 0: none", f"{_CODE}: --random_span_mask", ge=0,
    )
    min_chars: int = setting(30, "shorter texts stay as they are", f"{_CODE}: src/data_loader.py", ge=0, goes_with=_MASKED)
    first_occurrence: bool = setting(
        False, "the mask goes where the drawn characters first occur in the text (released code)", f"true: {_CODE}",
        goes_with=_MASKED,
    )
    literal_mask: bool = setting(
        False, '"[MASK]" for every model, ordinary text for RoBERTa (released code)', f"true: {_CODE}", goes_with=_MASKED,
    )
    drophead: float = setting(
        0.0, "probability that a layer drops one of its heads, drawn for each view", f"{_CODE}: --drophead_rate", ge=0, lt=1,
    )
    test_length: int | None = setting(
        None, "N of the tested pooler mean_padded:N; null: backbone.pooler's", f"{_CODE}: evaluation/eval.py, 64", ge=3,
    )
