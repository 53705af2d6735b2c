"""Which of Sentence-BERT's options and data go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle

from .options import SBERTOptions

PAIRS = ("sentence1", "sentence2", "score")
TRIPLET = ("anchor", "positive", "negative")
STAGES = {"nli": ("nli",), "sts": ("sts",), "nli-sts": ("nli", "sts"), "triplet": ("triplet",)}  # objective -> stages
# stage -> the options that only it has a use for
_OF_STAGE = {"nli": ("features", "bias", "classifier_init"), "sts": ("scale", "similarity"), "triplet": ("margin",)}


def check_options(options: SBERTOptions) -> None:
    """Raises StsbenchError, one line, for options that the objective has no use for, and for a scale of no width."""
    for stage, names in _OF_STAGE.items():
        if stage not in STAGES[options.objective]:
            refuse_idle(options, names, f"options.objective is {options.objective}")
    low, high = options.scale
    if low >= high:
        raise StsbenchError(f"options.scale [{low:g}, {high:g}]: the least score comes first, then the greatest")


def data_roles(options: SBERTOptions, available: tuple[str, ...]) -> tuple[str, ...]:
    """PAIRS or TRIPLET, whichever the objective trains on. Raises StsbenchError for roles that `available` lacks."""
    wanted = TRIPLET if options.objective == "triplet" else PAIRS
    if not set(wanted) <= set(available):
        first, second, third = wanted
        raise StsbenchError(
            f"sbert with options.objective {options.objective} needs the columns {first}, {second} and {third} (the data "
            f"give {', '.join(available) or 'no column'}): name them in data.columns"
        )
    return wanted
