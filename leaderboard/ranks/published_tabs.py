"""Published rows on the board: beside measured rows of one protocol, metric and aggregation, or in tabs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stsbench.data.sets.catalog import AVERAGED
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.schema import Better
from stsbench.leaderboard.records.publications import PRINTED, Heading, Publication, PublishedRow, PublishedTable

from .board import Cell, Row, Tab
from .lines import AVERAGE
from .wording import AGGREGATIONS, group_about, metric_heading, plain

TASKS = {  # short, for a tab's title
    "mean of the unsupervised STS tasks": "STS mean", "mean of the 7 STS tasks": "mean of 7",
    "downstream tasks without SNLI": "downstream mean",
}
Left = list[list[PublishedTable]]  # for each publication, its tables without a measured tab


def published_rows(tabs: Sequence[Tab], publications: Sequence[Publication]) -> tuple[list[Tab], Left]:
    """Return `tabs` with the published rows that belong in them, and the tables that fit none."""
    rows: dict[str, list[Row]] = {}
    noted: dict[str, list[PublishedTable]] = {}
    left: Left = []
    by_id = {tab.id: tab for tab in tabs}
    for publication in publications:
        rest: list[PublishedTable] = []
        for table in publication.tables:
            home = by_id.get(_home(table)) if table.task in (None, "STS-B") else None
            if home is None or table.split != "test":
                rest.append(table)
            else:
                rows.setdefault(home.id, []).extend(_row(row) for row in table.rows)
                noted.setdefault(home.id, []).append(table)
        left.append(rest)
    return [_with(tab, _joined(rows.get(tab.id, [])), noted.get(tab.id, [])) for tab in tabs], left


def _with(tab: Tab, rows: Sequence[Row], tables: Sequence[PublishedTable]) -> Tab:
    more = tuple(dict.fromkeys(column for row in rows for column in row.cells if column not in tab.columns))
    better = {**_directions(tables, more), **tab.better}
    return replace(tab, published=by_lead(rows, tab), columns=(*tab.columns, *more), better=better, notes=_notes(tables))


def _directions(tables: Iterable[PublishedTable], columns: Sequence[str]) -> dict[str, Better]:
    """Return column -> which of two scores is better, as in the first table with that column."""
    of_tables = [(column, table.direction) for table in tables for column in (*_columns(table), AVERAGE)]
    return {column: better for column, better in reversed(of_tables) if column in columns}


def _joined(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, with those that hold different metrics of one line of a paper's table merged: such rows agree in all
    but the part in their ids."""
    joined: dict[tuple[object, ...], Row] = {}
    for row in rows:
        key = (row.source, row.method, row.backbone, row.setting, row.id.rpartition(":")[2])
        known = joined.get(key)
        if known is None or known.cells.keys() & row.cells.keys():
            joined[key if known is None else (*key, row.id)] = row
        else:
            marks = tuple(dict.fromkeys((*known.marks, *row.marks)))
            joined[key] = replace(known, cells={**known.cells, **row.cells}, marks=marks)
    return list(joined.values())


def published_tabs(placed: tuple[list[Tab], Left], publications: Sequence[Publication]) -> list[Tab]:
    """Return all tabs: those of published tables without a measured tab follow the others of their protocol."""
    tabs, left = placed
    same: dict[tuple[object, ...], list[PublishedTable]] = {}
    for remaining in left:
        for table in remaining:
            metric = "" if table.wide else table.metric
            columns = () if table.wide else table.columns
            key = (table.protocol, table.task, metric, table.aggregation, table.split, columns, table.unit)
            same.setdefault(key, []).append(table)
    names = [tab.id for tab in tabs]
    for tables in same.values():
        tab = _tab(tables, names)
        names.append(tab.id)
        tabs = [*tabs, tab]
    order = [*kinds(), *PRINTED]
    hows = [*AGGREGATIONS, None]

    def sort_key(tab: Tab) -> tuple[int, bool, int, int]:
        group = order.index(tab.group) if tab.group in order else len(order)
        # The first tab of costs is the one with most methods, rather than with variants of one method.
        methods = len({row.method.partition(",")[0] for row in tab.published}) if tab.group == "cost" else 0
        return group, not tab.measured, 0 if tab.measured else hows.index(tab.aggregation), -methods

    return sorted(tabs, key=sort_key)


def _home(table: PublishedTable) -> str:
    """Return the id that the measured tab for a table's rows would have, whether or not there is one."""
    metric = "" if table.wide else table.metric
    return str(plain("-".join(filter(None, (table.protocol, metric, table.aggregation, _language(table))))))


def _language(table: PublishedTable) -> str:
    """Return the language of which all columns are sets; "" for the usual tasks."""
    return next((name for name, sets in AVERAGED.items() if set(table.columns) <= set(sets)), "")


def _tab(tables: Sequence[PublishedTable], taken: Sequence[str]) -> Tab:
    first = tables[0]
    rows = _joined([_row(row) for table in tables for row in table.rows])
    columns = tuple(dict.fromkeys(column for table in tables for column in _columns(table)))
    if any(AVERAGE in row.cells for row in rows) and AVERAGE not in columns:
        columns = (*columns, AVERAGE)
    filled = {column: sum(column in row.cells for row in rows) for column in columns}
    lead = AVERAGE if AVERAGE in columns else max(columns, key=lambda column: filled[column])
    wide = first.wide
    how = "pooling not stated" if first.aggregation == "unknown" else first.aggregation or ""
    split = "split not stated" if first.split is None and first.protocol != "cost" else ""
    task = TASKS.get(first.task or "", first.task or "")
    language = _language(first)
    what = [language or task, "" if wide else metric_heading(first.metric), "" if language else how, split]
    if len(columns) < 4 and not wide and columns != (AVERAGE,):
        what.append(" and ".join(columns))
    sentences = [group_about(first.protocol), "" if language else AGGREGATIONS.get(first.aggregation or "", "")]
    sentences.append("Scores on development data." if first.split == "dev" else "")
    sentences.append(f"Unit: {first.unit}." if first.unit else "")
    name = _home(first) if language else plain("-".join(filter(None, (first.protocol, *what[:4]))))
    tab = Tab(
        id=_free(name, taken), notes=_notes(tables), group=first.protocol,
        title=", ".join(filter(None, what)) or "STS-B", about=" ".join(filter(None, sentences)), metric=first.metric,
        aggregation=first.aggregation, columns=columns, lead=lead,
        lower_is_better=first.direction == "lower", better=_directions(tables, columns),
        digits=max(row.printed_decimals for table in tables for row in table.rows), measured=(), published=(),
        language=language, form=language or None,
    )
    return replace(tab, published=by_lead(rows, tab))


def _notes(tables: Iterable[PublishedTable]) -> tuple[str, ...]:
    """Return the notes on the tables, each as in "Gao et al. 2021, table 5: ..."."""
    return tuple(f"{' '.join(filter(None, (table.paper.authors, str(table.paper.year or ''))))}, "
                 f"{_where(table)}: {table.note}" for table in tables if table.note)


def _where(heading: Heading) -> str:
    return f"table {heading.table}" if any(letter.isdigit() for letter in heading.table) else heading.table


def _free(name: str, taken: Sequence[str]) -> str:
    """Return `name`, or the first of name-2, name-3, ... that no tab has."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _columns(table: Heading) -> tuple[str, ...]:
    """Return a table's columns as tabs have them: metrics where a protocol has one task, tasks elsewhere."""
    return (table.metric,) if table.wide and table.declared else table.columns


def _row(row: PublishedRow) -> Row:
    heading = row.heading
    sd = row.sd or (None,) * len(row.scores)
    cells = {column: Cell(score, sd=spread) for column, score, spread in zip(_columns(heading), row.scores, sd, strict=True)
             if score is not None}
    average = row.recomputed if row.disagrees or row.average is None else row.average
    if average is not None:
        cells[AVERAGE] = Cell(average, sd=row.average_sd)
    marks = []
    if row.disagrees and row.average_reason:
        marks.append(f"average: printed {row.average}, the columns give {row.recomputed}: {row.average_reason}")
    elif row.average is None and row.recomputed is not None and AVERAGE in cells:
        marks.append("the source prints no average: this one is computed from its columns")
    if row.copied_from:
        marks.append(f"figures taken from {row.copied_from}")
    marks += [text for text in (row.note,) if text]
    paper = heading.paper
    source = ", ".join((f"{paper.authors} {paper.year or ''}".strip(), paper.title.partition(":")[0], _where(heading)))
    return Row(
        id=row.id, kind="published", method=row.method, backbone=row.backbone or "", setting=row.setting, cells=cells,
        flags=row.flags, seeds=row.runs, best_of=row.best_of, average_printed=row.average if row.disagrees else None,
        marks=tuple(marks), source=source, link=paper.url, year=paper.year,
    )


def by_lead(rows: Sequence[Row], tab: Tab) -> tuple[Row, ...]:
    """Return the rows sorted by the lead column, best first, rows without it last; ties stay in the papers' order."""
    sign = tab.sign(tab.lead)

    def key(row: Row) -> tuple[bool, float]:
        cell = row.cells.get(tab.lead)
        return cell is None, sign * cell.value if cell else 0.0

    return tuple(sorted(rows, key=key))
