"""Imported results on a board: one file per model in imported/, each a row beside the published ones, unchecked, unranked.

mteb computes one correlation of cosines over all pairs of a task, which is the aggregation *all* of sts. So a model's
results are shown in the sts tabs of that aggregation and in mteb's own tab. MTEB's SICK-R is the column SICK-R-MTEB: its
9,927 pairs are not the 4,927 that papers average, so these rows have no Avg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stsbench.config import parse_yaml
from stsbench.data.sets.catalog import entries
from stsbench.errors import StsbenchError
from stsbench.leaderboard.mteb.results import TASKS
from stsbench.leaderboard.ranks.board import Cell, Row, Tab
from stsbench.leaderboard.ranks.plan import Section
from stsbench.leaderboard.ranks.published_tabs import by_lead
from stsbench.leaderboard.records.admission import first_problem
from stsbench.parsing import MOST_YAML, read_text

FOLDER = "imported"  # below the board's folder
Correlation = Annotated[float, Field(strict=True, ge=-1, le=1, allow_inf_nan=False)]
Text = Annotated[str, Field(pattern=r"^[!-~]([ -~]*[!-~])?$", max_length=300)]
METRICS = {  # tab's id -> the score that it shows
    "sts-spearman-all": "cosine_spearman", "sts-pearson-all": "cosine_pearson", "mteb-cosine-spearman": "cosine_spearman",
}
RAW = "-raw-text"  # end of the ids of tabs measured on the raw text, which MTEB uses
MARK = "imported from mteb's result files, not checked: no similarity stands behind the scores, no digest names the data"
OTHER = "of another revision of the data than the one that MTEB pinned when this catalog was written"
TEXT = "measured on MTEB's raw text, where this tab's measured rows read SentEval's"


class ImportModel(BaseModel):
    """Base of the imported results' models: frozen, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ImportedTask(ImportModel):
    """The scores of one task on its test split, as correlations in [-1, 1], and their source.

    dataset_revision: the Hub's revision of the data, as mteb states it; sha256: of the result file.
    """

    task: Literal["STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R"]
    cosine_spearman: Correlation
    cosine_pearson: Correlation
    dataset_revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    mteb_version: Text | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Imported(ImportModel):
    """The imported results of one model. source: the address of the result files, "" for local files."""

    tool: Literal["mteb"]
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$", max_length=200)]
    revision: Text
    source: Annotated[str, Field(pattern=r"^(https://\S+)?$")] = ""
    tasks: tuple[ImportedTask, ...] = Field(min_length=1)

    @property
    def file(self) -> str:
        """Return the file's name, as mteb names a model's folder."""
        return f"{self.model.replace('/', '__')}.yaml"


def load_imported(folder: Path) -> list[Imported]:
    """Return the results in `folder` (a board's imported/), by file name; [] without that folder. Raises StsbenchError,
    naming the first file that is not as an import writes it."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [_read(path) for path in paths if not path.name.startswith(".")]


def as_yaml(imported: Imported) -> str:
    """Return the text of the file in imported/."""
    head = "# Written by `stsbench leaderboard import mteb`: another tool's results, which nobody here has checked.\n"
    return head + yaml.safe_dump(imported.model_dump(mode="json"), sort_keys=False, width=120)


def _read(path: Path) -> Imported:
    try:
        imported = Imported.model_validate(parse_yaml(read_text(path, MOST_YAML), str(path)) or {})
    except ValidationError as error:
        raise StsbenchError(f"{path}: {first_problem(error)}") from error
    if path.name != imported.file:
        raise StsbenchError(f"{path} holds results of {imported.model}: its name should be {imported.file}")
    if len({task.task for task in imported.tasks}) < len(imported.tasks):
        raise StsbenchError(f"{path}: a task stands in it twice")
    return imported


def with_imported(tabs: Sequence[Tab], imported: Sequence[Imported]) -> list[Tab]:
    """Return `tabs` with a row for each import in every tab of its scores: in the tab on the raw text, which MTEB uses, if
    the board has it, else in that on SentEval's text, with a mark."""
    if not imported:
        return list(tabs)
    ids = {tab.id for tab in tabs}
    homes = {f"{name}{RAW}" if f"{name}{RAW}" in ids else name: metric for name, metric in METRICS.items()}
    return [_with_rows(tab, homes[tab.id], imported) if tab.id in homes else tab for tab in tabs]


def _with_rows(tab: Tab, metric: str, imported: Sequence[Imported]) -> Tab:
    rows = [_row(result, metric, () if tab.id.endswith(RAW) else (TEXT,)) for result in imported]
    more = dict.fromkeys(column for row in rows for column in row.cells if column not in tab.columns)
    return replace(tab, columns=(*tab.columns, *more), published=by_lead((*tab.published, *rows), tab))


def _row(imported: Imported, metric: str, marks: tuple[str, ...]) -> Row:
    scores = {TASKS[task.task]: 100 * getattr(task, metric) for task in imported.tasks}
    cells: Mapping[str, Cell] = {column: Cell(scores[column]) for column in TASKS.values() if column in scores}
    versions = sorted({task.mteb_version for task in imported.tasks if task.mteb_version})
    if strange := [TASKS[task.task] for task in imported.tasks if task.dataset_revision != _pinned(task.task)]:
        marks = (*marks, f"{', '.join(strange)}: {OTHER}")
    source = " ".join(filter(None, ("results of mteb", " and ".join(versions))))
    return Row(
        id=f"{imported.tool}:{imported.model}", kind="published", method=imported.model, backbone="", setting=None,
        cells=cells, flags=("imported",), marks=(MARK, *marks), source=f"{source}, revision {imported.revision[:12]}",
        link=imported.source,
    )


def _pinned(task: str) -> str:
    """Return the revision of an MTEB task's data in the catalog."""
    name = TASKS[task].removesuffix("-MTEB")
    return next(entry.hub.revision for entry in entries() if entry.hub and (entry.task, entry.text_version) == (name, "raw"))


class ImportedResults(Section):
    """The board's extension for imported results, in imported/."""

    def tabs(self, tabs: list[Tab], root: Path) -> list[Tab]:
        """Return the tabs with a row for each import."""
        return with_imported(tabs, load_imported(root / FOLDER))
