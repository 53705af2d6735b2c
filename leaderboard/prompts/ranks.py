"""Scores over prompts, and ranks over prompts and items, of rows whose encoder was measured with several prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.leaderboard.ranks.board import PromptSpread
from stsbench.leaderboard.ranks.lines import ScoreLine, merged
from stsbench.leaderboard.ranks.plan import MOST_UNSCORED, Placed, Plan, RowExtra, Section, rounded, tested
from stsbench.leaderboard.records.entries import EntryRun, LoadedEntry
from stsbench.metrics.aggregation import spread
from stsbench.metrics.ranks import Significance
from stsbench.wording import counted

from .rank_chances import chances_of_first, rank_intervals_over_prompts


@dataclass(frozen=True)
class Behind:
    """A row with its prompts. lines: the prompts' lines with the row's setting and data; left_out: a sentence on prompts
    that were left out, "" where there are none."""

    lines: tuple[Placed, ...]
    left_out: str = ""


class PromptRows(Section):
    """The board's extension for prompts: the spread of a row's scores over prompts and, for two rows or more, ranks."""

    def rows(
        self, plans: Sequence[Plan], entries: Sequence[LoadedEntry], lines: Mapping[Path, Sequence[ScoreLine]]
    ) -> Mapping[tuple[str, int], RowExtra]:
        """Return scores and ranks over prompts for the rows of all tabs; {} where no entry has prompts."""
        prompts = {entry.id: prompt_lines(entry, lines) for entry in entries if entry.prompts}
        if not prompts:
            return {}
        over = {plan.name: [alternatives(member, prompts.get(member[0].id, ()), plan.lead, i in plan.able)
                            for i, member in enumerate(plan.members)] for plan in plans}
        ranks = _ranks(plans, over)
        extras = {}
        for plan in plans:
            ranked = dict(zip(plan.able, ranks.get(plan.name, ()), strict=False))
            for i, row in enumerate(over[plan.name]):
                rank = {"prompts": ranked[i][0], "chance": ranked[i][1]} if i in ranked else {}
                extras[plan.name, i] = RowExtra({"prompts": spread_over(row, plan.lead)}, rank,
                                                (row.left_out,) if row.left_out else ())
        return extras


def _ranks(
    plans: Sequence[Plan], over: Mapping[str, Sequence[Behind]]
) -> dict[str, list[tuple[tuple[int, int], float]]]:
    """Return tab's id -> `ranks_over` of its rankable rows, in their order, for tabs where two or more of them have
    prompts."""
    drawn = {plan.name: choices([(plan.members[i], over[plan.name][i]) for i in plan.able]) for plan in plans}
    lines = {plan.name: [line for some in drawn[plan.name] for line in some] for plan in plans if drawn[plan.name]}
    if not lines:
        return {}
    by_name = {plan.name: plan for plan in plans}
    tests = tested({name: (some, by_name[name].lead, False) for name, some in lines.items()})
    made = {}
    for name, some in lines.items():
        plan = by_name[name]
        values = -plan.ranked_by.sign * rounded([line.cells[plan.lead].value for _, line, _ in some])
        made[name] = ranks_over(drawn[name], values, tests[name])
    return made


def prompt_lines(entry: LoadedEntry, lines: Mapping[Path, Sequence[ScoreLine]]) -> list[Placed]:
    """Return a line for each prompt of an entry and each setting: the mean over the seeds measured with the prompt, as
    `merged` computes it, or the line of the only seed."""
    by_prompt: dict[str, list[EntryRun]] = {}
    for run in entry.prompts:
        by_prompt.setdefault(run.prompt, []).append(run)
    made: list[Placed] = []
    for runs in by_prompt.values():
        variant = replace(entry, runs=tuple(runs), prompts=())
        made += [(variant, line, marks) for line, marks in merged(variant, [lines[run.folder] for run in runs])]
    return made


def alternatives(row: Placed, lines: Sequence[Placed], column: str, ranked: bool) -> Behind:
    """Return a row's prompts: the lines of `prompt_lines` with the row's setting and data and a score in `column` and, if
    the row is `ranked`, with scores in the resamples, too."""
    line = row[1]
    same = [other for other in lines if _measured_alike(line, other[1])]
    kept = [other for other in same if column in other[1].cells and not (ranked and _unscored(line, other[1], column))]
    lost = len(same) - len(kept)
    return Behind(tuple(kept), f"{counted(lost, 'prompt')} left out: no {column} behind them" if lost and kept else "")


def _measured_alike(first: ScoreLine, second: ScoreLine) -> bool:
    digests = ((digest, second.digests.get(column, digest)) for column, digest in first.digests.items())
    return first.key == second.key and all(a == b for a, b in digests)


def _unscored(row: ScoreLine, prompt_row: ScoreLine, column: str) -> bool:
    """Return whether a prompt lacks a score in many resamples in which the row has one, since tests leave these out."""
    if column not in prompt_row.draws:
        return True
    return bool((np.isnan(prompt_row.draws[column]) & ~np.isnan(row.draws[column])).mean() > MOST_UNSCORED)


def spread_over(row: Behind, column: str) -> PromptSpread | None:
    """Return the spread of a row's scores over its prompts; None without prompts."""
    if not row.lines:
        return None
    made = spread(np.array([line.cells[column].value for _, line, _ in row.lines]))
    return PromptSpread(made.n, made.mean, made.sd if made.n > 1 else None, made.min, made.max)


def choices(rows: Sequence[tuple[Placed, Behind]]) -> list[Sequence[Placed]]:
    """Return for each ranked row the lines to draw from: its prompts' or its own. [] if fewer than two have prompts."""
    if sum(bool(over.lines) for _, over in rows) < 2:
        return []
    return [over.lines or (row,) for row, over in rows]


def ranks_over(
    choices: Sequence[Sequence[Placed]], values: NDArray[np.float64], test: Significance
) -> list[tuple[tuple[int, int], float]]:
    """Return for each row the interval of its rank over prompts and items, and its probability of being first. values: (v,)
    scores of the lines of all rows, one row after another, larger is better; test: of these lines."""
    sizes = [len(lines) for lines in choices]
    models = np.repeat(np.arange(len(sizes)), sizes)
    first, last = rank_intervals_over_prompts(models, values, test.jointly)
    chances = chances_of_first(np.split(values, np.cumsum(sizes)[:-1]))
    return [((int(a), int(b)), float(chance)) for a, b, chance in zip(first, last, chances, strict=True)]
