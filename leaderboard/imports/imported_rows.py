"""Imported results as rows beside the published ones: shown, never checked, never ranked.

mteb computes one correlation over all pairs of a task, which is aggregation *all* of sts, by the cosine. So a model's
results stand in the sts tabs of that aggregation and in mteb's own tab. MTEB's SICK-R is the column SICK-R-MTEB: its 9,927
pairs are not the 4,927 that papers average, so that these rows have no Avg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stsbench.data.sets.catalog import entries
from stsbench.leaderboard.mteb.results import TASKS
from stsbench.leaderboard.ranks.board import Cell, Row, Tab
from stsbench.leaderboard.ranks.published_tabs import by_lead

from .model import Imported

METRICS = {  # a tab's id -> which of the scores it shows
    "sts-spearman-all": "cosine_spearman", "sts-pearson-all": "cosine_pearson", "mteb-cosine-spearman": "cosine_spearman",
}
RAW = "-raw-text"  # ends the id of a tab that was measured on MTEB's own text
MARK = "imported from mteb's result files, not checked: no similarity stands behind the scores, no digest names the data"
OTHER = "of another revision of the data than the one that MTEB pinned when this catalog was written"
TEXT = "measured on MTEB's raw text, where this tab's measured rows read SentEval's"


def with_imported(tabs: Sequence[Tab], imported: Sequence[Imported]) -> list[Tab]:
    """`tabs` with a row of each import in every tab that its scores belong to: on MTEB's text where the board has such a
    tab, else in the plain one, with a mark."""
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
    """The revision of the data that the catalog has of MTEB's task."""
    name = TASKS[task].removesuffix("-MTEB")
    return next(entry.hub.revision for entry in entries() if entry.hub and (entry.task, entry.text_version) == (name, "raw"))
