"""Options of `stsbench leaderboard import mteb`."""

from __future__ import annotations

from dataclasses import dataclass

from stsbench.options import OptionGroup, option
from stsbench.rules import GIVEN


@dataclass(frozen=True, kw_only=True)
class ImportOptions(OptionGroup):
    """Which of the results are imported."""

    name: str | None = option(
        None, "Whose results they are, where neither folder nor model_meta.json says.", metavar="ORG/MODEL",
        excludes=("all_models",), why="it takes every model at every revision",
    )
    revision: str | None = option(
        None, "Which of several revisions of the model.", excludes=("all_models",),
        why="it takes every model at every revision",
    )
    all_models: bool = option(
        False, "Renew the table behind the page 'MTEB, as published': FILE is a clone of the results repository, or a table "
        "made of one.",
    )
    commit: str | None = option(
        None, "The repository's commit, where FILE is no clone.", metavar="SHA", goes_with={"all_models": GIVEN},
    )
    date: str | None = option(
        None, "The day of that commit.", metavar="YEAR-MONTH-DAY", goes_with={"all_models": GIVEN},
    )
