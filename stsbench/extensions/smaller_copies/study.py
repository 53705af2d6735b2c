"""The study of `stsbench eval` with options for truncated or quantised copies of the vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stsbench.evaluation.options import Study
from stsbench.extensions.smaller_copies.options import VariantOptions

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder
    from stsbench.extensions.smaller_copies.variant_scores import VariantScores


def _measure(load: Callable[[], Encoder], *, post: str | None, fit_on: str | None, **how: Any) -> VariantScores:
    from stsbench.extensions.smaller_copies.variants import measure_variants

    for flag, value in (("--post", post), ("--fit-on", fit_on)):
        if value is not None:
            raise click.UsageError(f"{flag}: smaller copies are of a model's own vectors: `stsbench fit` writes a model "
                                   "with a post-processing, which is then measured")
    for name in ("quantise", "truncate_dims"):
        how[name] = how[name] or ()
    return measure_variants(load(), **how)


STUDY = Study(options=VariantOptions, asked_by=("quantise", "truncate_dims"), subject="smaller copies", suffix="variants",
              files="variants.csv and pictures", measure=_measure)
