"""The function `import_mteb`, which puts mteb's results on a board, and its options, shared with the command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.errors import warning_log
from stsbench.options import GIVEN, OptionGroup, option

if TYPE_CHECKING:
    from .mteb import Import


@dataclass(frozen=True, kw_only=True)
class ImportOptions(OptionGroup):
    """Options of an import: which results, and whose they are."""

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


def import_mteb(
    source: str | Path, *, board: str | Path | None = None, name: str | None = None, revision: str | None = None,
    all_models: bool = False, commit: str | None = None, date: str | None = None,
) -> Import:
    """Import mteb's results of the STS tasks as rows beside the published ones. They are not checked, and never ranked.

    source: a result file or a folder of them, in the layout of mteb's cache, or a model such as
    sentence-transformers/all-MiniLM-L6-v2, which is looked up in mteb's public results repository. name: the model, if
    neither folder nor model_meta.json names it. revision: which of several revisions of the model.

    all_models: renew the table of the page "MTEB, as published" instead; source is then a clone of the results repository,
    or a table made of one, with the repository's commit and date. Returns the files written and present. A StsbenchWarning
    names each result that was left out. Raises StsbenchError, naming the file, for files that are not results of mteb.

    >>> from stsbench import leaderboard
    >>> leaderboard.import_mteb("results.json", board="board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: results.json is neither a file or folder nor the name of a model, such as org/model
    """
    from stsbench.leaderboard.records.paths import writable_board

    from .mteb import import_results, import_table

    log = warning_log()
    ImportOptions(name=name, revision=revision, all_models=all_models, commit=commit, date=date)
    folder = writable_board(board)
    if all_models:
        return import_table(folder, Path(source), commit, date)
    imported = import_results(folder, str(source), name, revision)
    for line in imported.notes:
        log(f"warning: {line}")
    return imported
