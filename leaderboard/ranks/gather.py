"""Building a board from its files: lines of one setting are gathered in a tab and ranked, beside the published rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.catalog import SEVERAL
from stsbench.evaluation.provenance import merge_overlap
from stsbench.evaluation.tables import small_parts_in_words, task_prompts
from stsbench.leaderboard.records.admission import compares_vectors
from stsbench.leaderboard.records.board_settings import read_settings
from stsbench.leaderboard.records.entries import LoadedEntry
from stsbench.leaderboard.records.publications import load_publications
from stsbench.metrics.aggregation import OF_PARTS
from stsbench.metrics.ranks import Significance, letters, rank_intervals, tiers

from .board import FLAGS, Board, PairTests, Rank, Row, Tab
from .exposure import Exposures
from .lines import AVERAGE, ScoreLine, column_metric, merged
from .plan import MOST_UNSCORED, Placed, Plan, RowExtra, Tested, rounded, sections, tested
from .provenance import entry_flags, read_provenance, uncommitted
from .published_tabs import published_rows, published_tabs
from .scored import scored_entries
from .wording import about, count_decimals, finer_columns, form, name_user_sets, slug, title

Values = NDArray[np.float64]
FEWEST_SEEDS = 3  # two seeds do not show how noisy a row is (docs/findings/statistics.md)
TWO_SEEDS = "not ranked: two seeds; a third would rank it"
MOST_LETTERS = 20  # letters are shown for at most so many ranked rows: among more, a row may have hundreds of letters


def gather(root: Path, records: str | Path | None = None) -> Board:
    """Return the board of the folder `root`: measured/, published/, and what extensions add. records: the folder of its
    runs, as in `records_folder`. Raises StsbenchError naming the file at fault."""
    entries, lines = scored_entries(root, records)
    name_user_sets(line for of_run in lines.values() for line in of_run)
    placed = [(entry, line, marks) for entry in entries
              for line, marks in merged(entry, [lines[run.folder] for run in entry.runs])]
    shipped, settings = root / "published", read_settings(root)
    shows = settings is None or settings.published
    publications = load_publications(shipped if shipped.is_dir() else None) if shows else []
    plans = _plans(_grouped(placed))
    tests = _tested([plan for plan in plans if plan.able])
    extras = [section.rows(plans, entries, lines) for section in sections().values()]
    tabs = _tabs(plans, tests, extras, Exposures(entries))
    tabs = published_tabs(published_rows(tabs, publications), publications)
    for section in sections().values():
        tabs = section.tabs(tabs, root)
    contents = {name: content for name, section in sections().items()
                if (content := section.content(root, placed, tabs, tests)) is not None}
    provenances = {entry.id: read_provenance(entry, root.resolve().name) for entry in entries}
    return Board(tuple(tabs), provenances, name=settings.title if settings else "", sections=contents)


def _grouped(placed: Sequence[Placed]) -> list[list[Placed]]:
    """Return the lines grouped by tab: a tab's lines have one setting, and the same data in every column that two share.

    Groups with a protocol's defaults on the catalog's data come first: they get the plain name of a tab, and the published
    rows. Encoders that compare texts without a vector of each (cross-encoders) follow the other encoders of their protocol,
    because pages name the best row of a protocol's first tab.
    """
    groups: list[tuple[dict[str, str], list[Placed]]] = []

    def order(item: Placed) -> tuple[object, ...]:
        line = item[1]
        # Users' files are sorted by name; languages follow: all together, single languages, pairs of languages.
        named = bool(line.language), line.language != SEVERAL, " and " in line.language, line.user_set.casefold(), line.part
        aside = not compares_vectors(line.protocol.settings)
        return line.protocol.position, not line.known, line.sample, bool(form(line)), aside, *named

    for item in sorted(placed, key=order):
        line = item[1]
        for digests, members in groups:
            of_form = members[0][1].key == line.key
            if of_form and all(digests.get(column, digest) == digest for column, digest in line.digests.items()):
                digests.update(line.digests)
                members.append(item)
                break
        else:
            groups.append((dict(line.digests), [item]))
    made = [members for _, members in groups]
    return [members for members in made if not _repeats(members, made)]


def _repeats(members: Sequence[Placed], groups: Sequence[Sequence[Placed]]) -> bool:
    """Return whether a tab of a user's data repeats the scores of the tab with aggregation "all": a file without subsets has
    one correlation, whatever the aggregation."""
    first = members[0][1]
    if not first.user_set or first.setting.aggregation in (None, "all") or any(line.subsets for _, line, _ in members):
        return False
    whole = replace(first.setting, aggregation="all"), *first.key[1:]
    return any(others[0][1].key == whole and others[0][1].digests == first.digests for others in groups)


def _tabs(
    plans: Sequence[Plan], tests: Mapping[str, Tested], extras: Sequence[Mapping[tuple[str, int], RowExtra]],
    exposures: Exposures,
) -> list[Tab]:
    """Return the tabs with their ranked rows. tests: tab's id -> its rows and their test; extras: each extension's additions
    to rows."""
    tabs: list[Tab] = []
    for plan in plans:
        members, columns, lead, able = plan.members, plan.columns, plan.lead, plan.able
        first = members[0][1]
        ranks: dict[int, Rank] = {}
        pairs = None
        if able:
            ids, test = tests[plan.name]
            pairs = PairTests(ids, test.jointly, test.halves) if len(able) > 1 and test.halves is not None else None
            values = rounded([members[i][1].cells[lead].value for i in able])
            ranks = dict(zip(able, _ranks(values, test, plan.ranked_by.lower), strict=True))
        number = f", data {plan.number}" if plan.number > 1 else ""
        tabs.append(Tab(
            id=plan.name, group=first.setting.protocol, title=title(first) + number, about=_about(members, lead, columns),
            metric=first.setting.metric, aggregation=first.setting.aggregation, columns=columns, lead=lead,
            digits=count_decimals(first), finer=finer_columns(first), lower_is_better=plan.ranked_by.lower,
            measured=_sorted(plan, ranks, extras, exposures), published=(),
            sample=first.sample, known=first.known, settings=json.loads(first.setting.settings),
            data={column: digest for _, line, _ in members for column, digest in line.digests.items()},
            pairs=pairs,
            better={column: column_metric(first, column).better for column in columns},
            averaged=tuple(first.protocol.averaged) if lead == AVERAGE else (),
            user_set=first.user_set, language=first.language, form=form(first) + number if first.part else None,
        ))
    return tabs


def _plans(groups: Sequence[Sequence[Placed]]) -> list[Plan]:
    plans: list[Plan] = []
    times: dict[str, int] = {}
    called: dict[tuple[str, str], int] = {}
    for members in groups:
        first = members[0][1]
        columns = _columns(members)
        lead = _lead(members, columns)
        name = slug(first)
        times[name] = times.get(name, 0) + 1
        heading = first.setting.protocol, title(first)
        called[heading] = number = called.get(heading, 0) + 1
        ranked_by = column_metric(first, lead)
        name = f"{name}-data{times[name]}" if times[name] > 1 else name
        never = first.protocol.unranked and f"not ranked: {first.protocol.unranked}"
        if ranked_by.better == "neither" and not never:
            never = f"not ranked: neither a higher nor a lower {first.setting.metric or lead} is better"
        reasons = [never or _why_unranked(entry, line, lead, first.averaged) for entry, line, _ in members]
        for i in _unscored([(i, members[i][1].draws[lead]) for i, reason in enumerate(reasons) if not reason]):
            reasons[i] = "not ranked: too many resamples have no score"
        able = [i for i, reason in enumerate(reasons) if not reason]
        plans.append(Plan(name, number, members, columns, lead, ranked_by, reasons, able))
    return plans


def _unscored(draws: Sequence[tuple[int, Values]]) -> list[int]:
    """Return the rows that lack a score in more than 5 % of the resamples in which another row has one: the test leaves a
    resample without a score out for all rows."""
    missing = {i: np.isnan(draw) for i, draw in draws}
    by_all = np.all(list(missing.values()), axis=0)
    return [i for i, draw in missing.items() if (draw & ~by_all).mean() > MOST_UNSCORED]


def _lead(members: Sequence[Placed], columns: Sequence[str]) -> str:
    """Return the column to rank by: the average, else the protocol's lead; for a language, the set that most rows have."""
    first = members[0][1]
    lead = next((name for name in (AVERAGE, first.protocol.lead) if name in columns), columns[0])
    if lead == AVERAGE or not first.language:
        return lead
    return max(columns, key=lambda column: sum(column in line.cells for _, line, _ in members))


def _about(members: Sequence[Placed], lead: str, columns: Sequence[str]) -> str:
    line, averaged = members[0][1], members[0][1].averaged
    if averaged and lead == AVERAGE:
        return f"{about(line)} {AVERAGE}: the mean of {', '.join(averaged)}."
    if line.language:
        limits = (f" {column}: {limit}." for column, limit in line.ceilings.items())
        return "".join((about(line), f" Ranked by {lead}." if len(columns) > 1 else "", *limits))
    by = f" Ranked by {lead}: no row has all {len(averaged)} tasks of the average." if averaged and len(columns) > 1 else ""
    return about(line) + by


def _columns(members: Sequence[Placed]) -> tuple[str, ...]:
    """Return the columns: tasks in the protocol's order, with the average after its last task; or metrics, as scored.

    The average has no column where no row has one: on the raw text SICK-R's 4,927 pairs are missing, and F1 is of one task.
    """
    there = list(dict.fromkeys(column for _, line, _ in members for column in line.cells))
    protocol = members[0][1].protocol
    if protocol.metrics_across:
        return tuple(there)
    order = list(protocol.tasks())
    averaged = members[0][1].averaged
    if averaged and averaged[-1] in order:  # not for a protocol whose only task is one file
        order.insert(order.index(averaged[-1]) + 1, AVERAGE)
    return tuple(sorted(there, key=lambda name: order.index(name) if name in order else len(order)))


def _tested(plans: Sequence[Plan]) -> dict[str, Tested]:
    """Return tab's id -> (row ids, test): which of its rankable rows differ significantly in the lead column."""
    tests = tested({plan.name: ([plan.members[i] for i in plan.able], plan.lead, True) for plan in plans})
    return {plan.name: (tuple(plan.members[i][0].id for i in plan.able), tests[plan.name]) for plan in plans}


def _ranks(values: Values, significance: Significance, lower: bool) -> list[Rank]:
    position, first, last = (bound.tolist() for bound in rank_intervals(values, significance.jointly, lower))
    _, *alone = (bound.tolist() for bound in rank_intervals(values, significance.alone, lower))
    few = len(values) <= MOST_LETTERS
    ties = letters(values, significance.jointly, lower) if few else [""] * len(values)
    ranks = [Rank(*fields) for fields in zip(position, first, last, ties, zip(*alone, strict=True), strict=True)]
    if len(values) < 2:
        return ranks  # a single row has no tier
    of_rows = tiers(values, significance.jointly, lower).tolist()
    return [replace(rank, tier=tier) for rank, tier in zip(ranks, of_rows, strict=True)]


def _sorted(
    plan: Plan, ranks: Mapping[int, Rank], extras: Sequence[Mapping[tuple[str, int], RowExtra]], exposures: Exposures
) -> tuple[Row, ...]:
    """Return the rows, best first: ranked rows, then those without a rank."""
    members, lead, sign = plan.members, plan.lead, plan.ranked_by.sign

    def key(i: int) -> tuple[bool, bool, float, str]:
        cell = members[i][1].cells.get(lead)
        return i not in ranks, cell is None, sign * cell.value if cell else 0.0, members[i][0].id

    return tuple(_row(plan, i, ranks.get(i), [of[plan.name, i] for of in extras if (plan.name, i) in of], exposures)
                 for i in sorted(range(len(members)), key=key))


def _why_unranked(entry: LoadedEntry, line: ScoreLine, lead: str, averaged: Sequence[str]) -> str:
    if entry.entry.best_of:
        return f"not ranked: the best of {entry.entry.best_of} seeds is not a fair measure of a method"
    if lead not in line.cells:
        missing = [task for task in averaged if task not in line.cells] if lead == AVERAGE else [lead]
        return f"not ranked: {', '.join(missing)} not measured" if missing else f"not ranked: no {lead}"
    if 1 < len(entry.runs) < FEWEST_SEEDS:
        return TWO_SEEDS
    if lead not in line.draws:
        return "not ranked: nothing was observed item by item, so differences cannot be tested"
    return ""


def _row(plan: Plan, index: int, rank: Rank | None, extras: Sequence[RowExtra], exposures: Exposures) -> Row:
    loaded, line, marks = plan.members[index]
    entry = loaded.entry
    notes = [f"{count} texts of {column} were cut at the encoder's limit" for column, count in line.cut.items() if count]
    if line.protocol.metrics_across:
        notes = [f"{count} texts were cut at the encoder's limit" for count in {max(line.cut.values(), default=0)} if count]
    notes += uncommitted(loaded)
    scored = [item.record for run in loaded.runs for item in run.records
              if item.record.protocol.name == line.protocol.name and item.record.data.digest in line.digests.values()]
    notes += [f"texts are read behind {how}" for how in dict.fromkeys(task_prompts(scored).values())]
    notes += [note for extra in extras for note in extra.notes]
    overlap = merge_overlap(scored)
    ids = {record.data.digest: record.data.id for record in scored}
    sets = {column: ids[digest] for column, digest in line.digests.items() if digest in ids and column in plan.columns}
    flags = {*entry_flags(loaded), *(["shared-texts"] if overlap.shared else [])}
    notes += overlap.sentences()
    if line.setting.aggregation in OF_PARTS:
        sizes = {f"{task} {part}": cell.n for (task, part), cell in line.subsets.items() if cell.n is not None}
        notes += filter(None, [small_parts_in_words(sizes)])
    row = Row(
        id=loaded.id, kind="measured", method=entry.method, backbone=entry.backbone, setting=entry.setting,
        cells={column: line.cells[column] for column in plan.columns if column in line.cells},
        flags=tuple(flag for flag in FLAGS if flag in flags), seeds=len(loaded.runs), best_of=entry.best_of, rank=rank,
        unranked=plan.reasons[index], marks=(*marks, *loaded.twins, *notes), source=loaded.id, link=str(entry.paper or ""),
        card=entry.card, entry=loaded.id, subsets=dict(line.subsets),
        exposure=exposures.by_columns(loaded.id, sets, line.sample, plan.lead, line.averaged),
    )
    for extra in extras:
        row = replace(row, rank=row.rank and replace(row.rank, **extra.rank), **extra.row)
    return row
