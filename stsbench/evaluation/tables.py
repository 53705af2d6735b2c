"""Tables of scores: for the terminal, as papers print them (LaTeX, Markdown), and as CSV rows for programs."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from stsbench.config import flatten
from stsbench.data.sets.sets import repeated_in_words
from stsbench.display.table import Column, Document, Estimate, Table
from stsbench.encoders.prompt.prompt import described
from stsbench.encoders.prompt.reading import described_reading
from stsbench.encoders.traits import reading_in_words
from stsbench.evaluation.plan import changed_settings, declared_metric, presets
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import Record, ScoreRow, Scores
from stsbench.metrics.aggregation import FEWEST_ITEMS, OF_PARTS, small_parts
from stsbench.metrics.bootstrap import FEWEST_DRAWS
from stsbench.metrics.power import Measurement, few_items
from stsbench.wording import counted, without_paths

ORIGIN = ("encoder", "pooler", "data", "view", "known", "settings")  # CSV columns after those of ScoreRow
SAMPLE = "sample data: not comparable with published numbers"
_WEIGHTS = {"name", "weights", "tokenizer", "fitted_on"}  # keys of a spec that are not settings: names and digests
_LISTED = 8  # the most names that a sentence lists
_HEADLINES = 3  # the most tasks without an average that a headline lists with their intervals
AVERAGES = {"Avg": "of two-decimal scores, as papers print it", "Avg-full": "full precision"}


def format_score(row: ScoreRow) -> str:
    """Return a score with the decimals of its metric."""
    return f"{row.value:.{declared_metric(row).digits}f}"


def interval(row: ScoreRow) -> str:
    """Return the 95 % interval as text with the decimals of its metric; "" for a row without one."""
    if row.low is None or row.high is None:
        return ""
    digits = declared_metric(row).digits
    return f"{row.low:.{digits}f} to {row.high:.{digits}f}"


def main_rows(result: Scores, protocol: str) -> list[ScoreRow]:
    """Return a protocol's rows without those of subsets whose task also has a score as a whole (a year's subsets).

    An average follows the tasks that it averages, and other tasks follow the average.
    """
    rows = [row for row in result.rows if row.protocol == protocol]
    whole = {(row.task, row.metric) for row in rows if row.subset is None}
    rows = [row for row in rows if row.subset is None or (row.task, row.metric) not in whole]
    if len(equal_aggregations(rows)) > 1:  # the aggregations give the same scores, of which one is enough
        rows = [row.model_copy(update={"aggregation": None}) for row in rows if row.aggregation == rows[0].aggregation]
    return _ordered(rows)


def equal_aggregations(rows: Sequence[ScoreRow]) -> list[str]:
    """Return the aggregations of these rows where all give the same scores, as they do without subsets; else []."""
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
            # The averaged tasks come first in a protocol's order, and the n of the average is the sum of theirs.
            if items == average.n:
                break
            inside.add(row.task)
            items += row.n
    if items != average.n:
        return rows
    return sorted(rows, key=lambda row: 0 if row.task in inside else 1 if row.task in AVERAGES else 2)


def main_scores(rows: Sequence[ScoreRow]) -> dict[tuple[str, str | None], ScoreRow]:
    """Return (task, subset) -> its first row, which holds the protocol's main score."""
    first: dict[tuple[str, str | None], ScoreRow] = {}
    for row in rows:
        first.setdefault((row.task, row.subset), row)
    return first


def protocol_label(result: Scores, protocol: str) -> str:
    """Return a protocol's label and, in brackets, its settings that are not the default."""
    its = [record.protocol for record in result.records if record.protocol.label == protocol]
    unlike = {identity.model_dump_json(): identity for identity in its}.values()
    changes = "; ".join(dict.fromkeys(filter(None, map(changed_settings, unlike))))
    return f"{protocol} ({changes})" if changes else protocol


def table_title(result: Scores, protocol: str) -> str:
    """Return the title of a protocol's table, with the reasons why its scores are not comparable with others."""
    rows = main_rows(result, protocol)
    title = protocol_label(result, protocol)
    plain = list(dict.fromkeys(row.metric for row in rows if declared_metric(row).scale == 1))
    if all(row.metric in plain for row in rows):
        title += f": {', '.join(plain)}, not x 100" if plain else ""
    else:
        title += ": scores x 100" + (f", except {', '.join(plain)}" if plain else "")
    return title + _incomparable(result, protocol)


def _incomparable(result: Scores, protocol: str) -> str:
    """Return, in brackets, why the data make a protocol's scores incomparable with published ones; "" where they do not."""
    its = [record for record in result.records if record.protocol.label == protocol]
    of_sample = any(record.data.text_version == "sample" for record in its)
    notes = (load_protocol(record.protocol.name).text_notes.get(record.data.text_version) for record in its)
    title = "".join([f" ({SAMPLE})" if of_sample else "", *(f" ({note})" for note in dict.fromkeys(filter(None, notes)))])
    for record in its:
        if others := record.protocol.settings.get("without_overlap"):
            shared = f"share a sentence with {', '.join(others)}"
            return title + f" (without the pairs that {shared}: not the published task)"
    return title


def remarks(result: Scores) -> list[str]:
    """Return the notes below the tables, on missing averages, unknown data, small parts, repeated items and prompts."""
    lines = []
    for label, protocol in sorted({record.protocol.label: record.protocol for record in result.records}.items()):
        kind = load_protocol(protocol.name)
        others = any(part["protocol"] != kind.name for part in presets().get(label, {}).get("parts", ()))
        averaged = kind(protocol.settings).averaged
        if others or not averaged:
            continue  # a preset with other protocols, such as one with a trained head, has other averages or none
        if not any(row.task == "Avg" for row in result.rows if row.protocol == label):
            lines.append(f"No average for {label}: the {kind.title} average is the mean of all {len(averaged)} tasks.")
    unknown = list(dict.fromkeys(record.data.id for record in result.records if not record.data.known))
    if unknown:
        lines.append(f"* Data differ from the catalog: {', '.join(unknown)}. Not comparable with other results.")
    lines += [line for label in dict.fromkeys(row.protocol for row in result.rows if not is_sample(result))
              if (line := small_parts_in_words(part_sizes([row for row in result.rows if row.protocol == label])))]
    lines += list(dict.fromkeys(filter(None, map(repeated_in_record, result.records))))
    lines += dict.fromkeys(str(line) for record in result.records for line in record.provenance.get("remarks", ()))
    lines += [f"{label}, texts read behind: {how}" for label, how in task_prompts(result.records).items()]
    return lines + _few(result)


def repeated_in_record(record: Record) -> str:
    """Return a line on a record whose data hold items more than once; "" for any other."""
    return repeated_in_words(record.data.task, record.data.n, record.counts.get("items", record.data.n))


def _few(result: Scores) -> list[str]:
    """Return a sentence for each protocol with tasks of few items, with the intervals of their main scores."""
    lines = []
    labels = list(dict.fromkeys(row.protocol for row in result.rows))
    for label in labels:
        by_scale: dict[float, list[Measurement]] = {}
        for row in main_scores(main_rows(result, label)).values():
            metric = declared_metric(row)
            if row.task in AVERAGES:
                continue
            half = None if row.low is None or row.high is None else (row.high - row.low) / 2
            name = f"{row.task} {row.subset}" if row.subset else row.task
            by_scale.setdefault(metric.scale, []).append(
                Measurement(name, row.n, half, points=metric.scale == 100, digits=metric.digits))
        start = f"{label}: " if len(labels) > 1 else ""
        lines += [start + line for some in by_scale.values() if (line := few_items(some))]
    return lines


def part_sizes(rows: Sequence[ScoreRow]) -> dict[str, int]:
    """Return part -> number of items, of the parts that `mean` and `wmean` average. rows: of one protocol."""
    averaged = {(row.task, row.metric) for row in rows if row.subset is None and row.aggregation in OF_PARTS}
    sizes: dict[str, int] = {}
    for row in rows:
        if row.subset is not None and (row.task, row.metric) in averaged:
            sizes.setdefault(f"{row.task} {row.subset}", row.n)
    return sizes


def small_parts_in_words(sizes: Mapping[str, int]) -> str:
    """Return a sentence on an average's parts with too few items to rank by; "" without any. sizes: part -> number of
    items."""
    small = small_parts(sizes)
    if not small:
        return ""
    first, *more = small.items()
    listed = ", ".join([f"{first[0]}: {counted(first[1], 'item')}", *(f"{part}: {n}" for part, n in more[: _LISTED - 1])])
    others = f" and {counted(len(small) - _LISTED, 'other')}" if len(small) > _LISTED else ""
    return f"{listed}{others}, too few to rank by (under {FEWEST_ITEMS}); the average of parts counts them as published."


def task_prompts(records: Iterable[Record]) -> dict[str, str]:
    """Return protocol -> a text with the prompts and routes of its tasks, from the provenance of records; protocols without
    any are left out."""
    tasks: dict[str, dict[str, list[str]]] = {}
    for record in records:
        prompts, routes = (record.provenance.get(key) or {} for key in ("prompts", "routes"))
        if any(prompts.values()) or routes:
            roles = sorted({*prompts, *routes})
            how = ", ".join(reading_in_words(role, prompts.get(role, ""), routes.get(role)) for role in roles)
            tasks.setdefault(record.protocol.label, {}).setdefault(how, []).append(record.data.task)
    return {label: "; ".join(f"{how} ({', '.join(dict.fromkeys(names))})" for how, names in by_how.items())
            for label, by_how in tasks.items()}


def is_sample(result: Scores) -> bool:
    """Return whether any score comes from the sample inside the package."""
    return any(record.data.text_version == "sample" for record in result.records)


def altered_tasks(result: Scores, protocol: str) -> set[str]:
    """Return the tasks whose data differ from the catalog, and the averages that they are part of."""
    its = [record for record in result.records if record.protocol.label == protocol]
    tasks = {row.task for record in its if not record.data.known for row in record.scores}
    return tasks | set(AVERAGES) if tasks else tasks


def headlines(result: Scores) -> list[str]:
    """Return a line for each protocol: its average, or the main score of each task, with intervals where there are at most
    three. A single protocol of more than three tasks without an average has no line."""
    lines, labels = [], dict.fromkeys(row.protocol for row in result.rows)
    for label in labels:
        rows = list(main_scores(main_rows(result, label)).values())
        lead = {row.task: (row.metric, row.aggregation) for row in reversed(rows)}
        rows = [row for row in rows if (row.metric, row.aggregation) == lead[row.task]]
        chosen = [row for row in rows if row.task == "Avg"] or [row for row in rows if row.task not in AVERAGES]
        if len(labels) == 1 and len(chosen) > _HEADLINES:
            continue
        altered, few = altered_tasks(result, label), len(chosen) <= _HEADLINES
        scores: dict[str, list[str]] = {}
        for row in chosen:
            name = f"{' '.join(filter(None, (row.task, row.subset)))}{'*' if row.task in altered else ''}"
            bounds = f" ({interval(row)})" if few and interval(row) else ""
            scores.setdefault(_score_words([row]), []).append(f"{name} {format_score(row)}{bounds}")
        about = _incomparable(result, label).replace(SAMPLE, "sample data")
        words = "; ".join(f"{what}: {', '.join(some)}" for what, some in scores.items())
        lines.append(f"{protocol_label(result, label)}, {words}{about}")
    return lines


def _same_averages(rows: Sequence[ScoreRow]) -> bool:
    """Return whether Avg and Avg-full, with their intervals, are equal to the printed decimals."""
    printed: dict[str, list[tuple[str, ...]]] = {task: [] for task in AVERAGES}
    for row in rows:
        if row.task in AVERAGES:
            printed[row.task].append((row.metric, row.aggregation or "", format_score(row), interval(row)))
    return printed["Avg"] == printed["Avg-full"] != []


def score_tables(result: Scores) -> list[Table]:
    """Return a table for each protocol: a row a task, a column a metric and aggregation, 95 % intervals of main scores."""
    return [_score_table(result, protocol) for protocol in dict.fromkeys(row.protocol for row in result.rows)]


def _score_table(result: Scores, protocol: str) -> Table:
    rows, notes = main_rows(result, protocol), []
    users = {record.data.task for record in result.records if record.data.text_version == "own"}
    equal = equal_aggregations([row for row in result.rows if row.protocol == protocol])
    if len(equal) > 1 and not {row.task for row in rows} <= users:
        notes.append(f"{', '.join(equal[:-1])} and {equal[-1]} are equal: no set here has subsets")
    settings = [record.protocol.settings for record in result.records if record.protocol.label == protocol]
    asked = any(one.get("resamples", 0) >= FEWEST_DRAWS for one in settings)
    if asked and (without := [row for row in main_scores(rows).values() if row.low is None]):
        tasks = ", ".join(dict.fromkeys(" ".join(filter(None, (row.task, row.subset))) for row in without))
        notes.append(f"{tasks}: no interval, as every resample scores the same, too many have no score or too many pairs "
                     "share a sentence")
    if _same_averages(rows):
        rows = [row for row in rows if row.task != "Avg-full"]
    shown_parts = {(row.task, row.subset) for row in rows}
    parts = {(row.task, row.subset) for row in result.rows if row.protocol == protocol and row.task in users and row.subset}
    if hidden := dict.fromkeys(task for task, _ in sorted(parts - shown_parts)):
        notes.append(f"{', '.join(hidden)}: the scores of the subsets are in scores.csv (--format csv)")
    if averages := [f"{task}: {how}" for task, how in AVERAGES.items() if "Avg-full" in {row.task for row in rows}]:
        notes.append("; ".join(averages))
    averages_at = [at for at, (task, _) in enumerate(main_scores(rows)) if task in AVERAGES]
    return Table(table_title(result, protocol), _columns(rows, altered_tasks(result, protocol)), notes, strong=averages_at)


def _columns(rows: Sequence[ScoreRow], altered: Container[str]) -> list[Column]:
    lead = main_scores(rows)
    named = [task + ("*" if task in altered else "") + (f", {subset}" if subset else "") for task, subset in lead]
    # Metrics of a task may have different n (pairs, sentences, development items), of which the first is shown.
    several = len({(row.task, row.subset, row.n) for row in rows}) > len(lead)
    counts = f"n of {_score_words(lead.values())}" if several else "n"
    columns = [Column("task", named), Column(counts, [row.n for row in lead.values()])]
    for metric, aggregation in dict.fromkeys((row.metric, row.aggregation) for row in rows):
        scores = {(row.task, row.subset): row for row in rows if (row.metric, row.aggregation) == (metric, aggregation)}
        declared = declared_metric(next(iter(scores.values())))
        cells: list[Estimate | None] = []
        for key in lead:  # intervals are shown for a task's main score and for metrics that declare `shows_interval`
            row = scores.get(key)
            shown = row is not None and (row is lead[key] or declared_metric(row).shows_interval)
            cells.append(None if row is None else Estimate(row.value, row.low, row.high) if shown else Estimate(row.value))
        columns.append(Column(f"{metric} {aggregation or ''}".strip(), cells, declared.digits,
                              detail=0 if any(scores.get(key) is row for key, row in lead.items()) else 1))
    return columns


def _score_words(rows: Iterable[ScoreRow]) -> str:
    """Return the metric and aggregation of the rows where all have the same, "the first score" where they differ."""
    names = {f"{row.metric} {row.aggregation or ''}".strip() for row in rows}
    return names.pop() if len(names) == 1 else "the first score"


def table_rows(result: Scores) -> list[dict[str, Any]]:
    """Return every row at full precision as a dictionary: the fields of ScoreRow, then ORIGIN.

    settings: those that are not the default. In ORIGIN, an average has the value of all its protocol's records, or "mixed".
    """
    origins = [_origin(record) for record in result.records]
    rows = [{**row.model_dump(), **origin} for record, origin in zip(result.records, origins, strict=True)
            for row in record.scores]
    for row in result.summaries:
        pairs = zip(result.records, origins, strict=True)
        measured = [origin for record, origin in pairs if record.protocol.label == row.protocol]
        values = {key: {origin[key] for origin in measured} for key in ORIGIN}
        rows.append({**row.model_dump(), **{key: item.pop() if len(item) == 1 else "mixed" for key, item in values.items()}})
    return rows


def _origin(record: Record) -> dict[str, Any]:
    spec, data = record.encoder.spec, record.data
    overlap = record.protocol.settings.get("without_overlap")
    settings = [changed_settings(record.protocol), f"without_overlap {' '.join(overlap)}" if overlap else ""]
    values = (spec["name"], spec.get("pooler"), data.id, data.text_version, data.known, ", ".join(filter(None, settings)))
    return dict(zip(ORIGIN, values, strict=True))


def paper_document(result: Scores) -> Document:
    """Return a table for each protocol as papers print it: a row for each metric, a column for each task, no `Avg-full`."""
    tables = []
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = [row for row in main_rows(result, protocol) if row.task != "Avg-full"]
        altered = altered_tasks(result, protocol)
        cell = {(row.metric, row.aggregation, row.task, row.subset): format_score(row) for row in rows}
        lines = list(dict.fromkeys((row.metric, row.aggregation) for row in rows))
        columns = [Column("", [f"{metric} ({how})" if how else metric for metric, how in lines])]
        for task, subset in dict.fromkeys((row.task, row.subset) for row in rows):
            name = " ".join(filter(None, [task + "*" if task in altered else task, subset]))
            columns.append(Column(name, [cell.get((*line, task, subset), "") for line in lines]))
        tables.append(Table(table_title(result, protocol), columns, label=protocol))
    return Document(tables, [encoder(result)], remarks(result))


def encoder(result: Scores) -> str:
    """Return the description of the encoder that was scored (`encoder_in_words`); "" without scores."""
    return encoder_in_words(result.records[0]) if result.records else ""


def encoder_name(record: Record) -> str:
    """Return the encoder's name without local folders; for a training's model in best/, the name of the run folder."""
    return without_paths(re.sub(r"[/\\]best[/\\]?$", "", str(record.encoder.spec["name"])))


def encoders_in_words(records: Sequence[Record]) -> list[str]:
    """Return `encoder_in_words` of each record, followed, for equal descriptions, by the settings in which they differ."""
    names = list(map(encoder_in_words, records))
    settings = [flatten({key: value for key, value in record.encoder.spec.items() if key not in _WEIGHTS})
                for record in records]
    described = []
    for name, setting in zip(names, settings, strict=True):
        others = [other for other, of_other in zip(settings, names, strict=True) if of_other == name]
        differing = [key for key in setting if any(other.get(key) != setting[key] for other in others)]
        words = {key: key.rpartition(".")[2].replace("_", " ") for key in differing if setting[key] is not None}
        described.append(", ".join([name, *(f"{word} {setting[key]}" for key, word in words.items())]))
    return described


def encoder_in_words(record: Record) -> str:
    """Return the encoder's name and the settings that change its vectors, such as "minilm, pooler cls"."""
    spec = record.encoder.spec
    extra = [f"{key} {spec[key]}" for key in ("pooler", "template", "dtype") if spec.get(key) not in (None, "float32")]
    options = spec.get("options") or {}
    return ", ".join([encoder_name(record), *extra, *described(options), *described_reading(options, brief=True)])
