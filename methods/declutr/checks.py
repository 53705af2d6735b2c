"""Which of DeCLUTR's options, backbones and documents go together: what would have no effect, or cannot be, is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.forward.pooling import padded_length
from stsbench.errors import DataError, StsbenchError
from stsbench.training.api.options import refuse_idle
from stsbench.training.modules.backbone import Backbone

from .options import DeCLUTROptions
from .spans import least


def check_options(options: DeCLUTROptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    if options.l_min >= options.l_max:
        raise StsbenchError(f"options.l_min {options.l_min} is to be less than options.l_max {options.l_max}")
    if options.contrastive_weight == options.mlm_weight == 0:
        raise StsbenchError("options.contrastive_weight and options.mlm_weight are both 0: there is no loss")
    if options.contrastive_weight == 0:
        refuse_idle(options, ("positives", "sampling", "temperature"), "options.contrastive_weight 0 leaves no positives")
    if options.mlm_weight == 0:
        refuse_idle(options, ("mlm_probability",), "with options.mlm_weight 0 no token is masked")


def check_backbone(options: DeCLUTROptions, backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for spans that the model would read in part, and for a model that cannot be masked."""
    if options.l_max > backbone.max_length:
        raise StsbenchError(
            f"options.l_max {options.l_max} is more than backbone.max_length {backbone.max_length}, at which spans are cut: "
            f"set both, for short documents e.g. options.l_min 8, options.l_max 64 and backbone.max_length 66"
        )
    if backbone.pooler == "mask":
        raise StsbenchError("declutr has no template, which the pooler mask needs: set backbone.pooler to mean")
    if padded_length(backbone.pooler) is not None:
        raise StsbenchError(
            f"declutr's spans are not padded to a fixed length, as {backbone.pooler} has texts: set backbone.pooler to mean"
        )
    if options.mlm_weight and backbone.tokenizer.mask_token_id is None:
        raise StsbenchError(
            f"declutr masks tokens, and the tokenizer of {backbone.name} has no mask token: set options.mlm_weight to 0"
        )


def long_enough(options: DeCLUTROptions, rows: Any) -> NDArray[np.bool_]:
    """(n,) which of the documents (a TextRows) anchors can be drawn from.

    Raises DataError, one line: for the first that is too short where options.short refuses it, and where all are.
    """
    lengths, needed = rows.lengths("sentence"), least(options)
    enough: NDArray[np.bool_] = lengths >= needed
    store = rows.store
    wanted = f"{needed:,} are needed, 2 x options.anchors {options.anchors} x options.l_max {options.l_max}"
    if not enough.any():
        raise DataError(
            f"{store.path}: the longest of {len(lengths):,} documents has {lengths.max():,} word pieces, and {wanted}: take "
            "longer documents, join lines of one text (data.lines_per_row), or set options.l_max lower"
        )
    if options.short == "refuse" and not enough.all():
        row = int(np.argmin(enough))
        raise DataError(
            f"{store.path}:{store.line(row)}: a document of {lengths[row]:,} word pieces, and {wanted}: take it out, or set "
            "options.short drop"
        )
    return enough
