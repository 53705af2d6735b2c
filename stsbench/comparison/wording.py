"""What a comparison says, in plain words: a table's title, its sentence, and what the tests do not cover."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.comparison.differences import Compared, ComparisonTable, practically
from stsbench.display.table import Table
from stsbench.evaluation.plan import changed_settings
from stsbench.evaluation.schema import Metric
from stsbench.evaluation.tables import SAMPLE, repeated_in_record
from stsbench.metrics.aggregation import overstated
from stsbench.metrics.paired import LEVEL
from stsbench.metrics.power import Measurement, few_items
from stsbench.wording import counted, joined

LIMITS = (
    "Intervals and tests are about other items of the same kind. They do not cover another training seed, or that a "
    "checkpoint was chosen."
)
_OVER_SEEDS = (
    "Intervals and tests are about other items of the same kind and, for a side of several seeds, other seeds. They do not "
    "cover that a checkpoint was chosen."
)


_FEW_SEEDS = (
    " Two seeds hardly show how noisy a side is: the test holds 5 % whatever its noise, so only large differences are "
    "significant."
)


def limits(seeds: tuple[int, int]) -> str:
    """Return the caveat on intervals and tests for these numbers of runs of A and B."""
    return LIMITS if seeds == (1, 1) else _OVER_SEEDS


def notes(table: ComparisonTable) -> list[str]:
    """Return what stands below a table: its sentence, and what must be known of its data."""
    names = ", ".join(table.unknown)
    data = f"Data differ from the catalog: {names}. The same in A and B, comparable with nothing else." if names else ""
    repeated = dict.fromkeys(map(repeated_in_record, table.measurements[0] if table.measurements else ()))
    lines = [sentence(table), table.no_margin, over_tasks(table), *repeated, few(table), table.small_parts, data]
    return list(filter(None, lines))


def shown_table(table: ComparisonTable, label: str = "") -> Table:
    """Return the table that people read: its average below a line, and what it says below it. label: for LaTeX."""
    return Table(title(table), table.columns(), notes(table), rules=[len(table.rows)] if table.average else (),
                 label=label)


def few(table: ComparisonTable) -> str:
    """Return that rows of the table are of few items, and how far their intervals reach; "" where none is."""
    metric = table.metric
    rows = [(name, row, row.difference.low, row.difference.high) for name, row in table.named]
    return few_items([
        Measurement(name, row.n, None if low is None or high is None else (high - low) / 2,
                    points=metric.scale == 100, digits=metric.digits)
        for name, row, low, high in rows
    ])


def over_tasks(table: ComparisonTable) -> str:
    """Return the average's interval over tasks, and how often its order would survive; "" without an average or a
    difference."""
    over, average, metric = table.over_tasks, table.average, table.metric
    if over is None or average is None or not (over.value or over.sd):
        return ""
    if over.low is None or over.high is None:
        return f"Over other tasks, too: no interval, for {over.why}."
    digits = metric.digits
    line = f"Over other tasks, too: A - B, 95 % interval {over.low:z.{digits}f} to {over.high:z.{digits}f}"
    if over.same_order is None:
        return f"{line}."
    first, tasks = _order(average, metric)[0], counted(over.tasks, "other task")
    how = "higher" if metric.better == "neither" else "ahead"
    caution = ""
    if metric.scale == 100 and overstated(over.value, over.same_order):
        caution = " Between encoders less than a point apart such shares were too high on MTEB's published scores."
    return f"{line}; on {tasks} of the same kind {first} would be {how} {_of_100(over.same_order)}.{caution}"


def _of_100(share: float) -> str:
    """Return "94 times of 100": what is not certain is not shown as such."""
    return "more than 99 times of 100" if 0.995 <= share < 1 else f"{100 * share:.0f} times of 100"


def pairing(seeds: tuple[int, int], by_seed: bool) -> str:
    """Return what was paired, where a side is of several seeds; "" elsewhere."""
    a, b = seeds
    if (a, b) == (1, 1):
        return ""
    if by_seed:
        return f"{a} seeds, compared seed by seed; resamples of the items are those of both."
    single = f" Nothing is known of other seeds of {'A' if a == 1 else 'B'}." if 1 in (a, b) else ""
    few = _FEW_SEEDS if 2 in (a, b) else ""
    return f"{counted(a, 'seed')} of A and {b} of B, not paired; resamples of the items are those of both.{single}{few}"


def title(table: ComparisonTable) -> str:
    """Return 'sts (similarity dot): spearman, all, x 100', with whatever makes the scores incomparable with others."""
    setting, labels = table.setting, [record.protocol.label for record in table.records]
    record = table.records[0]
    # The same settings under a paper's name and the protocol's own: the latter is the one that both have.
    label = labels[0] if labels[0] == labels[1] else setting.protocol
    changes = changed_settings(record.protocol)
    if overlap := record.protocol.settings.get("without_overlap"):
        changes = "; ".join(filter(None, [changes, f"without the pairs that share a sentence with {', '.join(overlap)}"]))
    what, metric = _score(table), table.metric
    unit = (", x 100" if metric.scale == 100 else ", not x 100") + (", lower is better" if metric.lower else "")
    text_version = {"sample": f" ({SAMPLE})", "raw": " (text version raw)"}.get(setting.text_version, "")
    aside = " (not part of the average)" if table.aside else ""
    return f"{label}{f' ({changes})' if changes else ''}: {what}{unit}{aside}{text_version}"


def short_title(table: ComparisonTable) -> str:
    """Return 'sts, spearman, all'."""
    return f"{table.setting.protocol}, {_score(table)}"


def _score(table: ComparisonTable) -> str:
    return ", ".join(filter(None, [table.setting.metric, table.setting.aggregation]))


def sentence(table: ComparisonTable) -> str:
    """Return what the table says, in plain words: of the difference and, with a margin, of practical equality."""
    return " ".join(filter(None, [_difference(table), practically(table)]))


def _difference(table: ComparisonTable) -> str:
    rows, average = table.rows, table.average
    if all(row.a == row.b and not row.difference.high and not row.difference.low for row in rows):
        where = f"on {rows[0].name}" if len(rows) == 1 else f"on each of the {len(rows)} {table.noun}s"
        why = f"; there is no test: {table.no_test}" if table.no_test else ": they do not differ significantly"
        return f"A and B have the same score {where}{why}."
    if table.no_test:
        return f"{_untested(table)}; there is no test: {table.no_test}."
    if len(rows) == 1:
        return _sentence(table, rows[0], f"on {rows[0].name}") + "."
    start = _sentence(table, average, "on average") + "; of" if average else "Of"
    return f"{start} {len(rows)} {table.noun}s {_task_sentence(table, rows)}."


def _sentence(table: ComparisonTable, row: Compared, where: str) -> str:
    """Return 'A is better than B on average by 5.31 points (95 % interval 4.60 to 6.02)'."""
    difference, metric = row.difference, table.metric
    if difference.p is None or difference.low is None or difference.high is None:
        return f"A - B {where} is {_number(difference.value, metric)}, without a test: too many resamples have no score"
    digits = metric.digits
    if difference.p >= 1 - LEVEL:
        bounds = f"{difference.low:z.{digits}f} to {difference.high:z.{digits}f}"
        value = _number(difference.value, metric)
        return f"A and B do not differ significantly {where} (A - B is {value}, 95 % interval {bounds})"
    low, high = sorted((abs(difference.low), abs(difference.high)))  # both on one side of 0
    first, second = _order(row, metric)
    size, bounds = _size(difference.value, metric), f"{low:z.{digits}f} to {high:z.{digits}f}"
    return f"{first} is {_word(metric)} than {second} {where} by {size} (95 % interval {bounds})"


def _task_sentence(table: ComparisonTable, rows: Sequence[Compared]) -> str:
    """Return 'A is better on 6, after correcting for 7 comparisons; on SICK-R they do not differ significantly'."""
    metric = table.metric
    tested = [row for row in rows if row.corrected is not None]
    significant = [row for row in tested if row.corrected is not None and row.corrected < 1 - LEVEL]
    undecided = [row for row in tested if row not in significant]
    untested = [row for row in rows if row.corrected is None]
    after = f"after correcting for {counted(len(tested), 'comparison')}"
    won = {side: [row for row in significant if _order(row, metric)[0] == side] for side in "AB"}
    words = []
    if significant:
        many = {side: "all" if len(won[side]) == len(rows) else len(won[side]) for side in "AB"}
        sides = [f"{side} is {_word(metric)} on {many[side]}" for side in "AB" if won[side]]
        words.append(f"{' and '.join(sides)}, {after}")
        if all(won.values()):
            words[-1] += f" (B on {joined(row.name for row in won['B'])})"
        if undecided:
            words.append(f"on {joined(row.name for row in undecided)} they do not differ significantly")
    else:
        words.append(f"there is none on which they differ significantly, {after}")
    if untested:
        words.append(f"on {joined(row.name for row in untested)} there is no test")
    return "; ".join(words)


def _untested(table: ComparisonTable) -> str:
    """Return the bare differences, in words that claim nothing."""
    metric, rows = table.metric, table.rows
    if len(rows) > 1 and not table.average:
        above = {side: sum(_higher(row) == side for row in rows) for side in "AB"}
        return f"A is higher than B on {above['A']} of {len(rows)} {table.noun}s, B higher than A on {above['B']}"
    row = table.average or rows[0]
    where = "on average" if table.average else f"on {row.name}"
    if not row.difference.value:
        return f"A and B have the same score {where}"
    side = _higher(row)
    return f"{side} is higher than {'BA'['AB'.index(side)]} {where} by {_size(row.difference.value, metric)}"


def _higher(row: Compared) -> str:
    return "A" if row.difference.value > 0 else "B" if row.difference.value < 0 else ""


def _order(row: Compared, metric: Metric) -> tuple[str, str]:
    """Return the better run (the higher one where no end is the better one), then the other."""
    first = (row.difference.value > 0) != metric.lower
    return ("A", "B") if first else ("B", "A")


def _word(metric: Metric) -> str:
    return "higher" if metric.better == "neither" else "better"


def _number(value: float, metric: Metric) -> str:
    return f"{value:z.{metric.digits}f}" + (" points" if metric.scale == 100 else "")


def _size(value: float, metric: Metric) -> str:
    least = 10.0**-metric.digits  # a difference may be certain and smaller than what is shown
    return f"less than {_number(least, metric)}" if abs(value) < least / 2 else _number(abs(value), metric)
