"""Protocol sensitivity: how the ranking of the same measured rows changes with the setting of STS, and with the protocol."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType

from stsbench.evaluation.protocol import kinds
from stsbench.leaderboard.ranks.board import Row, Tab
from stsbench.leaderboard.ranks.plan import Tested
from stsbench.metrics.ranks import significant_in_all
from stsbench.registry import DEFAULT_PROTOCOL

AGGREGATIONS = ("all", "mean", "wmean")
METRICS = ("spearman", "pearson")
_NAMED_BY_THE_TAB = {"aggregation", "aggregations", "metric", "metrics"}
LEAST = 3  # the fewest rows whose order is compared between protocols


@dataclass(frozen=True)
class Sensitivity:
    """The ranking of the same measured rows under several settings of STS.

    settings: names such as "all Spearman"; rows: names, best first under the first setting; average: (setting, row) -> Avg;
    position: (setting, row) -> rank, from 1; tau: (setting, setting) -> Kendall's tau-b, for both orders of the pair, absent
    where all rows tie; scores: of each task, because the average hides most of the changes.
    """

    settings: tuple[str, ...]
    rows: tuple[str, ...]
    average: Mapping[tuple[str, str], float]
    position: Mapping[tuple[str, str], int]
    tau: Mapping[tuple[str, str], float]
    significant: Mapping[tuple[str, str, str], bool] = field(default_factory=dict)  # (setting, row, row)
    scores: Mapping[tuple[str, str, str], float] = field(default_factory=dict)  # (task, setting, row)


def sensitivity(tabs: Sequence[Tab], tests: Mapping[str, Tested] = MappingProxyType({})) -> Sensitivity | None:
    """Return the averages, ranks and Kendall's tau-b of the measured rows that every STS setting has.

    tests: tab's id -> its rows and their test; significance here is at 5 % for all settings jointly. None for fewer than two
    settings or two such rows. Rows that are never ranked (the best of several seeds) are left out.
    """
    chosen = tab_settings(tabs)
    shared = rows_in_all(list(chosen.values()))
    if len(chosen) < 2 or len(shared) < 2:
        return None
    settings, first = tuple(chosen), next(iter(chosen.values()))
    names = short_names(shared)
    cells_of = {setting: {row.id: row.cells for row in tab.measured} for setting, tab in chosen.items()}

    def column(task: str, setting: str) -> dict[str, float]:
        return {name: round(cells_of[setting][id][task].value, 6) for id, name in names.items()}

    averages = {setting: column(first.lead, setting) for setting in settings}
    rows = tuple(sorted(names.values(), key=lambda name: -averages[settings[0]][name]))
    everywhere = [cells for by_id in cells_of.values() for id, cells in by_id.items() if id in names]
    tasks = [task for task in _before(first) if all(task in cells for cells in everywhere)]
    single = {(task, setting): column(task, setting) for task in tasks for setting in settings}
    return Sensitivity(
        settings=settings,
        rows=rows,
        average={(setting, row): averages[setting][row] for setting in settings for row in rows},
        position={(setting, row): 1 + sum(value > values[row] for value in values.values())
               for setting, values in averages.items() for row in rows},
        tau=_taus(rows, averages),
        significant=_significant(names, {name: tests[tab.id] for name, tab in chosen.items() if tab.id in tests}),
        scores={(*key, row): values[row] for key, values in single.items() for row in rows},
    )


def tab_settings(tabs: Sequence[Tab]) -> dict[str, Tab]:
    """Return setting's name ("all Spearman") -> tab, for the STS tabs to compare, in the order in which papers name them.

    They differ in aggregation and metric only, and share protocol settings, text and data. Of several such families, those
    on the catalog's data are preferred, then the most settings, then the most rows that all of them have, then the first.
    """
    families: dict[str, dict[str, Tab]] = {}
    for tab in tabs:
        if tab.group != DEFAULT_PROTOCOL or tab.sample or tab.lead != "Avg" or not tab.measured:
            continue
        if tab.aggregation in AGGREGATIONS and tab.metric in METRICS:
            family = families.setdefault(_measurement(tab), {})
            family.setdefault(f"{tab.aggregation} {tab.metric.capitalize()}", tab)
    order = [f"{how} {metric.capitalize()}" for metric in METRICS for how in AGGREGATIONS]
    best = max(families.values(), key=_weight, default={})
    return {name: best[name] for name in order if name in best}


def _weight(family: Mapping[str, Tab]) -> tuple[bool, int, int]:
    tabs = list(family.values())
    return all(tab.known for tab in tabs), len(tabs), len(rows_in_all(tabs))


def _measurement(tab: Tab) -> str:
    kept = {key: value for key, value in tab.settings.items() if key not in _NAMED_BY_THE_TAB}
    digests = {task: tab.data.get(task) for task in _before(tab)}
    return json.dumps([kept, digests], sort_keys=True, default=str)


def rows_in_all(tabs: Sequence[Tab]) -> list[Row]:
    """Return the rows of the first tab that can be ranked and have the lead score in every tab."""
    rankable = [
        {row.id: row for row in tab.measured if tab.lead in row.cells and not row.unranked and row.best_of is None}
        for tab in tabs
    ]
    return [row for id, row in rankable[0].items() if all(id in rows for rows in rankable)] if rankable else []


def short_names(rows: Sequence[Row]) -> dict[str, str]:
    """Return row id -> the shortest of method, method (backbone) and method (backbone, id) that no other row has."""
    short = {row.id: row.method for row in rows}
    longer = {row.id: f"{row.method} ({row.backbone})" for row in rows}
    longest = {row.id: f"{row.method} ({row.backbone}, {row.id})" for row in rows}
    counts = Counter(short.values()), Counter(longer.values())
    names = {id: short[id] if counts[0][short[id]] == 1 else longer[id] if counts[1][longer[id]] == 1 else longest[id]
             for id in short}
    return names if len(set(names.values())) == len(names) else longest


def _before(tab: Tab) -> tuple[str, ...]:
    """Return the tasks of the average: the columns before it, since columns after it are not averaged."""
    columns = tuple(tab.columns)
    return columns[: columns.index(tab.lead)] if tab.lead in columns else columns


def _taus(rows: Sequence[str], averages: Mapping[str, Mapping[str, float]]) -> dict[tuple[str, str], float]:
    taus = {(a, b): kendall_tau([averages[a][row] for row in rows], [averages[b][row] for row in rows])
            for a in averages for b in averages}
    return {settings: tau for settings, tau in taus.items() if tau is not None}


def _significant(names: Mapping[str, str], tests: Mapping[str, Tested]) -> dict[tuple[str, str, str], bool]:
    """Return (setting, row, row) -> whether the two rows differ significantly, jointly over all pairs of rows and all
    settings."""
    significant = {}
    different = significant_in_all([significance for _, significance in tests.values()])
    for (setting, (ids, _)), differs in zip(tests.items(), different, strict=True):
        for (i, a), (j, b) in combinations(enumerate(ids), 2):
            if a in names and b in names:
                significant[setting, names[a], names[b]] = bool(differs[i, j])
    return significant


@dataclass(frozen=True)
class Agreement:
    """The agreement of protocols. tabs: one per protocol; names: row id -> name; scores: per tab, row id -> lead score.

    tau: (i, j) Kendall's tau-b of the rows' order in tabs i and j, None where all rows of a tab have the same score.
    """

    tabs: tuple[Tab, ...]
    names: dict[str, str]
    scores: tuple[dict[str, float], ...]
    tau: tuple[tuple[float | None, ...], ...]


def agreement(tabs: Sequence[Tab]) -> Agreement | None:
    """Return the agreement of the board's protocols on the rows that all of them rank, each by its first tab in which higher
    is better; None for fewer than two protocols or `LEAST` rows. Rows that are never ranked (the best of several seeds) are
    left out."""
    chosen = [tab for group in kinds() if (tab := _first(tabs, group))]
    rows = rows_in_all(chosen)
    if len(chosen) < 2 or len(rows) < LEAST:
        return None
    by_id: list[dict[str, Row]] = [{row.id: row for row in tab.measured} for tab in chosen]
    scores = tuple(
        {row.id: round(of_tab[row.id].cells[tab.lead].value, 6) for row in rows}
        for tab, of_tab in zip(chosen, by_id, strict=True)
    )
    tau = tuple(tuple(kendall_tau([*a.values()], [b[id] for id in a]) for b in scores) for a in scores)
    return Agreement(tuple(chosen), short_names(rows), scores, tau)


def _first(tabs: Sequence[Tab], group: str) -> Tab | None:
    usable = (tab for tab in tabs if tab.group == group and tab.known and not tab.sample)
    ranked = (tab for tab in usable if any(not row.unranked for row in tab.measured))
    return next((tab for tab in ranked if tab.direction(tab.lead) == "higher"), None)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two lists of scores, None where all scores of a list tie. It is rounded to six decimals, so
    that the board's files are equal on every machine."""
    from scipy.stats import kendalltau

    tau = float(kendalltau(first, second, variant="b")[0])
    return round(tau, 6) if math.isfinite(tau) else None
