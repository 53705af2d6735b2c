"""Scores as tables for people and as JSON rows for programs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from stsbench.cli.output.grid import Column, console_of, print_columns, print_text
from stsbench.cli.output.messages import echo
from stsbench.evaluation.measure import Result
from stsbench.evaluation.plan import metric_of, presets
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import ScoreRow

SAMPLE = "sample data: not comparable with published numbers"
AVERAGES = {"Avg": "of two-decimal scores, as papers print it", "Avg-full": "full precision"}


def shown(row: ScoreRow) -> str:
    """A score with the decimals of its metric."""
    return f"{row.value:.{metric_of(row).digits}f}"


def interval(row: ScoreRow) -> str:
    """The 95 % interval, or nothing: also where every resample scores the same, as none can say how sure 4 of 4 is."""
    if row.low is None or row.high is None or row.low == row.high:
        return ""
    digits = metric_of(row).digits
    return f"{row.low:.{digits}f} to {row.high:.{digits}f}"


def main_rows(result: Result, protocol: str) -> list[ScoreRow]:
    """A protocol's rows without the subsets of what is also given as a whole (a year's subsets).

    An average stands behind the tasks it is of, and other tasks behind the average.
    """
    rows = [row for row in result.rows if row.protocol == protocol]
    whole = {(row.task, row.metric) for row in rows if row.subset is None}
    rows = [row for row in rows if row.subset is None or (row.task, row.metric) not in whole]
    if len(equal_aggregations(rows)) > 1:  # shown once
        rows = [row.model_copy(update={"aggregation": None}) for row in rows if row.aggregation == rows[0].aggregation]
    return _ordered(rows)


def equal_aggregations(rows: Sequence[ScoreRow]) -> list[str]:
    """The aggregations of these rows where each of them gives the same scores: no set has subsets. Else []."""
    scores: dict[str | None, list[tuple[str, str | None, str, float]]] = {}
    for row in rows:
        scores.setdefault(row.aggregation, []).append((row.task, row.subset, row.metric, row.value))
    same = all(values == next(iter(scores.values())) for values in scores.values())
    return [name for name in scores if name is not None] if same and None not in scores else []


def _ordered(rows: list[ScoreRow]) -> list[ScoreRow]:
    average = next((row for row in rows if row.task in AVERAGES), None)
    if average is None:
        return rows
    inside, items = set(), 0
    for row in rows:
        if row.task not in AVERAGES and (row.metric, row.aggregation) == (average.metric, average.aggregation):
            # The n of an average counts the items of its tasks, which come first in a protocol's order.
            if items == average.n:
                break
            inside.add(row.task)
            items += row.n
    if items != average.n:
        return rows
    return sorted(rows, key=lambda row: 0 if row.task in inside else 1 if row.task in AVERAGES else 2)


def firsts(rows: Sequence[ScoreRow]) -> dict[tuple[str, str | None], ScoreRow]:
    """(task, subset) -> its first score: the one that a protocol reports before the others."""
    first: dict[tuple[str, str | None], ScoreRow] = {}
    for row in rows:
        first.setdefault((row.task, row.subset), row)
    return first


def title_of(result: Result, protocol: str) -> str:
    """The line above a protocol's table, with whatever makes its scores incomparable."""
    rows = main_rows(result, protocol)
    title = result.named(protocol)
    plain = list(dict.fromkeys(row.metric for row in rows if metric_of(row).scale == 1))
    if all(row.metric in plain for row in rows):
        title += f": {', '.join(plain)}, not x 100" if plain else ""
    else:
        title += ": scores x 100" + (f", except {', '.join(plain)}" if plain else "")
    if is_sample(result):
        title += f" ({SAMPLE})"
    title += _text_version(result, protocol)
    for record in result.records:
        if record.protocol.label == protocol and (others := record.protocol.settings.get("without_overlap")):
            shared = f"share a sentence with {', '.join(others)}"
            return title + f" (without the pairs that {shared}: not the published task)"
    return title


def _text_version(result: Result, protocol: str) -> str:
    """The text version, where the scores could be taken for those of another one."""
    records = [record for record in result.records if record.protocol.label == protocol]
    notes = (load_protocol(record.protocol.name).text_notes.get(record.data.text_version) for record in records)
    return "".join(f" ({note})" for note in dict.fromkeys(filter(None, notes)))


def remarks(result: Result) -> list[str]:
    """What must be said below the tables."""
    lines = []
    for label, protocol in sorted({record.protocol.label: record.protocol for record in result.records}.items()):
        kind = load_protocol(protocol.name)
        others = any(part["protocol"] != kind.name for part in presets().get(label, {}).get("parts", ()))
        if others or not kind.averaged or kind.path_setting in protocol.settings:
            continue  # a paper with a trained head, too, reports other averages, or none
        if not any(row.task == "Avg" for row in result.rows if row.protocol == label):
            lines.append(f"No average for {label}: the {kind.title} average is the mean of all {len(kind.averaged)} tasks.")
    unknown = list(dict.fromkeys(record.data.id for record in result.records if not record.data.known))
    if unknown:
        lines.append(f"* Data differ from the catalog: {', '.join(unknown)}. Not comparable with other results.")
    if is_sample(result):
        lines.append(SAMPLE)
    return lines


def is_sample(result: Result) -> bool:
    """Whether any score comes from the sample inside the package."""
    return any(record.data.text_version == "sample" for record in result.records)


def print_scores(result: Result) -> None:
    """One table a protocol: tasks down, (metric, aggregation) across; the headline with its 95 % interval."""
    console = console_of()
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = main_rows(result, protocol)
        print_text(console, title_of(result, protocol))
        print_columns(console, _columns(rows, altered_tasks(result, protocol)))
        if len(equal := equal_aggregations([row for row in result.rows if row.protocol == protocol])) > 1:
            print_text(console, f"{', '.join(equal[:-1])} and {equal[-1]} are equal: no set here has subsets")
        if certain := [row for row in firsts(rows).values() if row.low is not None and row.low == row.high]:
            tasks = ", ".join(dict.fromkeys(row.task for row in certain))
            print_text(console, f"{tasks}: no interval, as every resample scores the same")
        averages = [f"{task}: {how}" for task, how in AVERAGES.items() if any(row.task == task for row in rows)]
        if averages:
            print_text(console, "; ".join(averages))
    if len(summary := headlines(result)) > 1:
        names, texts = zip(*summary, strict=True)
        print_text(console, "summary")
        print_columns(console, [Column("protocol", names, True, 30), Column("headline", texts, True, console.width - 36)])
    for line in remarks(result):
        print_text(console, line)


def altered_tasks(result: Result, protocol: str) -> set[str]:
    """The tasks whose data differ from the catalog, and the averages that they are part of."""
    its = [record for record in result.records if record.protocol.label == protocol]
    tasks = {row.task for record in its if not record.data.known for row in record.scores}
    return tasks | set(AVERAGES) if tasks else tasks


def _columns(rows: Sequence[ScoreRow], altered: Container[str] = ()) -> list[Column]:
    lead = firsts(rows)
    named = [task + ("*" if task in altered else "") + (f", {subset}" if subset else "") for task, subset in lead]
    columns = [Column("task", named, left=True)]
    # Metrics of one task may count different things (pairs, sentences, development items): n is the first one's.
    several = len({(row.task, row.subset, row.n) for row in rows}) > len(lead)
    counts = [str(row.n) for row in lead.values()]
    columns.append(Column(f"n of\n{_whose(lead.values())}" if several else "n", counts))
    for metric, aggregation in dict.fromkeys((row.metric, row.aggregation) for row in rows):
        its = [row for row in rows if (row.metric, row.aggregation) == (metric, aggregation)]
        cells = {(row.task, row.subset): shown(row) for row in its}
        columns.append(Column(f"{metric}\n{aggregation or ''}", [cells.get(key, "") for key in lead]))
    if bounded := [row for row in lead.values() if row.low is not None]:
        columns.append(Column(f"95 % interval of\n{_whose(bounded)}", [interval(row) for row in lead.values()]))
    return columns


def _whose(rows: Iterable[ScoreRow]) -> str:
    """The score that a column about each row's first one speaks of."""
    names = {f"{row.metric} {row.aggregation or ''}".strip() for row in rows}
    return names.pop() if len(names) == 1 else "the first score"


def headlines(result: Result) -> list[tuple[str, str]]:
    """(protocol, first scores): the average where there is one, else task by task, each task's first metric."""
    lines = []
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = main_rows(result, protocol)
        lead: dict[str, tuple[str, str | None]] = {}
        for row in rows:
            lead.setdefault(row.task, (row.metric, row.aggregation))
        first = [row for row in rows if (row.metric, row.aggregation) == lead[row.task]]
        chosen = [row for row in first if row.task == "Avg"] or [row for row in first if row.task not in AVERAGES]
        parts: dict[str, list[str]] = {}
        for row in chosen:
            name = " ".join(filter(None, (row.metric, row.aggregation)))
            parts.setdefault(name, []).append(" ".join(filter(None, (row.task, row.subset, shown(row)))))
        text = "; ".join(f"{name}: {', '.join(scores)}" for name, scores in parts.items())
        lines.append((result.named(protocol), text))
    return lines


def print_failures(result: Result) -> None:
    """One line on stderr for each failed task and each protocol left out."""
    for line in (*result.failed_lines(), *result.left_out_lines()):
        echo(line, err=True)
