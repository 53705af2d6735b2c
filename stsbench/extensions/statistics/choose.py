"""Choose among several encoders: their scores on the same data, tested jointly, and their costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.comparison.comparability import Measured, SeedPairs, Setting, recorded_cost, timing_settings
from stsbench.comparison.shared import (
    RESAMPLES,
    Floats,
    Key,
    Reasons,
    Sides,
    average_draws,
    check_seeds,
    chooser,
    common_rows,
    draws,
    loaded,
    narrowed,
    of_all,
    same_row,
    side_scores,
    undrawn_in_words,
    verified,
)
from stsbench.config import shorten
from stsbench.display.pareto import front
from stsbench.encoders.probe import has_identity
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import averages_within, bounded
from stsbench.evaluation.plan import changed_settings, split_names
from stsbench.evaluation.protocol import Protocol, load_protocol
from stsbench.evaluation.records import Cost, Record, ScoreRow
from stsbench.evaluation.run_file import run_folders
from stsbench.evaluation.tables import SAMPLE, encoders_in_words, repeated_in_record
from stsbench.extensions.statistics.choice import (
    AXES,
    Axis,
    Candidate,
    Choice,
    Spent,
    compared_within,
    machine_in_words,
    point,
)
from stsbench.metrics.bootstrap import interval
from stsbench.metrics.noise import Scores
from stsbench.metrics.paired import LEVEL
from stsbench.metrics.power import Measurement, few_items
from stsbench.metrics.ranks import letters, significantly_different
from stsbench.options import takes
from stsbench.registry import did_you_mean

AVERAGE = "Avg"
Row = tuple[Sides, ScoreRow]  # the runs of all encoders on one task, and the first one's score


@takes()
def choose(
    runs: Any, *more: Any, protocol: str | None = None, task: str | None = None, metric: str | None = None,
    by: str | None = None, resamples: int = RESAMPLES, seed: int = 0,
) -> Choice:
    """Compare several encoders by score and cost: return the Pareto front, which scores do not differ significantly by a
    joint test of all pairs, and the cheapest of the best.

    runs, more: one for each encoder, as for `compare`: a run folder, the folders of several seeds, or what `evaluate`
    returned; as arguments or as a list.
    protocol: as for `stsbench eval`; default: the first that all runs share. task: a task, or "Avg", the protocol's average;
    default: the average, or the only task. metric: another one than the protocol's first. by: a name of `AXES`; default:
    "sentences/s" where all runs have it from one machine (`evaluate(..., cost=True)`), else "bytes".

    Times and memory are compared only within one kind of machine, device and number of threads. Raises StsbenchError as
    `compare` does, for two runs of one encoder, and where the runs share no task, or several without `task`.

    >>> from stsbench import choose, evaluate
    >>> asked = {"sample": True, "tasks": "STS-B", "resamples": 0, "cost": True}
    >>> runs = [evaluate(model, **asked) for model in ("lexical:tfidf", "lexical:token-set")]
    >>> print(choose(runs, by="bytes", resamples=100).sentence)  # doctest: +ELLIPSIS
    These two do not differ significantly (joint test at 5 %): lexical:tfidf and lexical:token-set; the cheapest ...
    """
    if by is not None and by not in AXES:
        raise StsbenchError(f"by={shorten(by)}: no such cost{did_you_mean(str(by), AXES)}")
    axis = None if by is None else AXES[by]
    folders = [run_folders(run) for run in _several([runs, *more] if more else runs)]
    every = [[loaded(folder) for folder in side] for side in folders]
    encoders = [[stored[0][1] for stored in side] for side in every]
    for side, records in zip(folders, encoders, strict=True):
        check_seeds(side, records)
    _refuse_twice(folders, encoders)
    names, notes = _names([records[0] for records in encoders], folders), _Notes()
    pairs = SeedPairs([[[record for _, record in stored] for stored in side] for side in every])
    asked = split_names(protocol)
    chosen = chooser(asked)
    measured = [
        of_all([verified(name, side[k], chosen, notes) for k in pairs.order(i)], name, notes)
        for i, (name, side) in enumerate(zip(names, every, strict=True))
    ]
    rows = _of_task(_in_one_setting(_shared(measured, notes), chosen, metric, notes), task)
    costs = [next((cost for record in records if (cost := recorded_cost(record))), None) for records in encoders]
    return _choice(rows, names, folders, [records[0] for records in encoders], costs, pairs, axis, notes, resamples, seed)


@dataclass
class _Notes:
    left_out: Reasons = field(default_factory=list)
    failures: Reasons = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def _several(runs: Sequence[Any]) -> list[Any]:
    listed = [runs] if isinstance(runs, str | Path) else list(runs)
    if len(listed) < 2:
        raise StsbenchError(f"choose needs two runs or more, not {len(listed)}")
    return listed


def _refuse_twice(folders: Sequence[Sequence[Path]], encoders: Sequence[Sequence[Record]]) -> None:
    """Raise StsbenchError where two runs are known to be of one encoder."""
    holders: dict[str, Path] = {}
    for folder, record in zip(chain(*folders), chain(*encoders), strict=True):
        if not has_identity(record.encoder.spec):
            continue
        if (other := holders.setdefault(record.encoder.fingerprint, folder)) is not folder:
            raise StsbenchError(f"{other} and {folder} are of the same encoder: choose among different ones")


def _names(records: Sequence[Record], folders: Sequence[Sequence[Path]]) -> list[str]:
    """Return distinct names of the encoders: where names are equal, the dimensions or else the folder are added."""
    names = encoders_in_words(records)
    for more in ([f"{record.encoder.dimension} dimensions" for record in records], [str(side[0]) for side in folders]):
        counts = Counter(names)
        if len(counts) == len(names):
            return names
        names = [f"{name}, {word}" if counts[name] > 1 else name for name, word in zip(names, more, strict=True)]
    return names


def _shared(sides: Sequence[dict[Key, list[Measured]]], notes: _Notes) -> list[Sides]:
    """Return the runs of each task that every encoder has measured, in the first encoder's order; note the other tasks."""
    every = {key: items[0] for side in sides for key, items in side.items()}
    for key, item in every.items():
        if (many := sum(key in side for side in sides)) < len(sides):
            reason = f"only {many} of the {len(sides)} encoders have it on the same data, measured in the same way"
            notes.left_out.append((item.record.protocol.label, item.task, reason))
    return [[side[key] for side in sides] for key in every if all(key in side for side in sides)]


def _in_one_setting(
    shared: Sequence[Sides], chosen: Callable[[Measured], Protocol | None], metric: str | None, notes: _Notes
) -> list[Row]:
    """Return the rows of the first setting; a remark names the others. Raises StsbenchError where there is no row."""
    settings: dict[Setting, list[Row]] = {}
    for sides in shared:
        item = sides[0][0]
        form = chosen(item)
        for row in [] if form is None else common_rows(sides, form, metric):
            if any(same_row(run, row).n != row.n for side in sides for run in side):
                reason = f"{row.metric} is not of the same number of items in all"
                notes.left_out.append((item.record.protocol.label, item.task, reason))
                continue
            settings.setdefault(item.setting(row), []).append((sides, row))
    if not settings:
        known = sorted({row.metric for sides in shared for row in sides[0][0].record.scores})
        if metric is not None and known:
            raise StsbenchError(f"no score that all runs have is called '{metric}'{did_you_mean(metric, known)}")
        raise StsbenchError("the runs have no measurement in common: measure all under one protocol, on the same data")
    setting, *others = settings
    if load_protocol(setting.protocol).metric(setting.metric).better == "neither":
        raise StsbenchError(f"{setting.metric} of {setting.protocol} has no better end: choose by another --protocol or "
                            "--metric")
    if labels := dict.fromkeys(settings[other][0][0][0][0].record.protocol.label for other in others):
        notes.remarks.append(f"All were measured under {', '.join(labels)}, too: --protocol chooses by that.")
    return settings[setting]


def _of_task(rows: Sequence[Row], task: str | None) -> list[Row]:
    """Return the row of the chosen task, or the rows of the tasks that the protocol averages. Raises StsbenchError."""
    first = rows[0][0][0][0]
    named = {_task(row): row for row in rows}
    averaged = first.protocol.averaged
    able = bool(averaged) and set(averaged) <= named.keys()
    if task in (None, AVERAGE) and able:
        return [named[name] for name in averaged]
    if task is None and len(named) == 1:
        return list(rows)
    if task in named:
        return [named[str(task)]]
    listed = ", ".join([*named, *([AVERAGE] if able else [])])
    if task is None:
        raise StsbenchError(f"the runs share several tasks of {first.record.protocol.label}, and not all that it averages: "
                            f"--task chooses one of {listed}")
    raise StsbenchError(f"task '{task}' is not among what all runs share: {listed}")


def _task(row: Row) -> str:
    (side, *_), score = row
    return f"{side[0].task}, {score.subset}" if score.subset else side[0].task


def _choice(
    rows: Sequence[Row], names: Sequence[str], folders: Sequence[Sequence[Path]], records: Sequence[Record],
    costs: Sequence[Cost | None], pairs: SeedPairs, axis: Axis | None, notes: _Notes, resamples: int, seed: int,
) -> Choice:
    sides, row = rows[0]
    setting = sides[0][0].setting(row)
    metric = load_protocol(setting.protocol).metric(setting.metric)
    scores = [np.mean([side_scores(of_task[i], score) for of_task, score in rows], axis=0) for i in range(len(names))]
    drawn = average_draws(rows, resamples, seed) if len(rows) > 1 else draws(sides, row, resamples, seed)
    values = np.array([of_seeds.mean() for of_seeds in scores])
    no_test, different, ties = "", None, [""] * len(names)
    bounds = [_of_run(rows, i) if len(of_seeds) == 1 else None if drawn is None else _of_seeds(drawn[i], of_seeds, seed)
              for i, of_seeds in enumerate(scores)]
    if drawn is None:
        no_test = undrawn_in_words(setting, sides[0][0], row)
    elif any(np.isfinite(draw).mean() < LEVEL for draw in drawn):
        no_test = "too many resamples have no score"
    else:
        of_all_seeds = [of_seeds if len(of_seeds) > 1 else np.zeros(0) for of_seeds in scores]
        tested = significantly_different(Scores(values, np.stack(drawn), of_all_seeds, np.array(pairs.groups)), [seed])
        different, ties = tested.jointly, letters(values, tested.jointly, metric.lower)
    task = AVERAGE if len(rows) > 1 else _task(rows[0])
    halves = [(bound[1] - bound[0]) / 2 for bound in bounds if bound]
    items = Measurement(task, sum(score.n for _, score in rows), max(halves, default=None), points=metric.scale == 100,
                        digits=metric.digits)
    repeated = (repeated_in_record(sides[0][0].record) for sides, _ in rows)
    notes.remarks += dict.fromkeys(filter(None, [*repeated, few_items([items])]))
    able, common = compared_within(costs)
    read = [{name: kind.read(record, cost) if ok or not kind.timed else None for name, kind in AXES.items()}
            for record, cost, ok in zip(records, costs, able, strict=True)]
    by = axis or _default(read, notes)
    if axis is not None and not any(spent[by.name] for spent in read):
        raise StsbenchError(f"no run holds {by.name}: measure with `stsbench eval --cost`, or choose --by another cost")
    notes.remarks += _of_costs(names, costs, able)
    order = sorted(range(len(names)), key=lambda i: (metric.sign * values[i], names[i]))
    priced = [i for i in order if read[i][by.name] is not None]
    on = front([point(names[i], spent, float(values[i])) for i in priced if (spent := read[i][by.name])], metric.lower,
               more_is_cheaper=by.more_is_cheaper)
    best = {i for i, first in zip(priced, on, strict=True) if first}
    return Choice(
        title=_title(rows), setting=setting, task=task,
        candidates=[
            Candidate(names[i], tuple(folders[i]), records[i].encoder.fingerprint, float(values[i]), low, high, ties[i],
                      read[i])
            for i in order for low, high in [bounds[i] or (None, None)]
        ],
        different=None if different is None else different[np.ix_(order, order)].tolist(), no_test=no_test, by=by,
        front=[i in best for i in order], machine="" if common is None else machine_in_words(common), resamples=resamples,
        seed=seed, remarks=notes.remarks, left_out=notes.left_out, failures=notes.failures,
    )


def _of_run(rows: Sequence[Row], number: int) -> tuple[float, float] | None:
    """Return the 95 % interval of one run's score or average, the same as its tables print; None without one."""
    items, row = [sides[number][0] for sides, _ in rows], rows[0][1]
    first = items[0]
    if len(items) > 1:
        observed = {item.task: (item.observed(), item.set_id) for item in items}
        [row] = averages_within([row], narrowed(first.protocol, row), observed)
    else:
        row = bounded(same_row(first, row), first.protocol, first.observed(), first.set_id)
    return None if row.low is None or row.high is None else (row.low, row.high)


def _of_seeds(draws: Floats, seeds: Floats, seed: int) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean over seeds, from the items' bootstrap and Student's t over the seeds."""
    from scipy import stats

    wider = stats.t.ppf(0.975, len(seeds) - 1) / stats.norm.ppf(0.975)
    deviate = np.random.default_rng(seed).standard_normal(len(draws)) * wider / np.sqrt(len(seeds))
    return interval(draws + float(np.std(seeds, ddof=1)) * deviate)


def _default(read: Sequence[dict[str, Spent | None]], notes: _Notes) -> Axis:
    """Return the default cost: sentences/s where all runs have it from one machine, else bytes."""
    speeds = [spent["sentences/s"] for spent in read]
    if all(speeds):
        return AXES["sentences/s"]
    if any(speeds):
        notes.remarks.append("Not all runs have a speed of one machine: chosen by bytes a vector; --by takes another cost.")
    return AXES["bytes"]


def _of_costs(names: Sequence[str], costs: Sequence[Cost | None], able: Sequence[bool]) -> list[str]:
    """Return a line on each problem with the costs: not measured, on another machine, on a busy machine."""
    without = [name for name, cost in zip(names, costs, strict=True) if cost is None]
    elsewhere = [f"{name} ({machine_in_words(timing_settings(cost))})"
                 for name, cost, ok in zip(names, costs, able, strict=True) if cost is not None and not ok]
    busy = [name for name, cost in zip(names, costs, strict=True) if cost is not None and cost.busy]
    lines = [
        (without, "No cost is recorded of {}: `stsbench eval --cost` measures it."),
        (elsewhere, "Times and memory of {} are of another machine or setting: not compared here."),
        (busy, "Other work had the processors while the speed of {} was measured; --by cpu is less moved by it."),
    ]
    return [line.format("; ".join(some) if len(some) < len(names) else "all") for some, line in lines if some]


def _title(rows: Sequence[Row]) -> str:
    """Return the table's title, such as 'sts (similarity dot): spearman, all, x 100'."""
    (side, *_), row = rows[0]
    record, metric = side[0].record, side[0].protocol.metric(row.metric)
    changes = changed_settings(record.protocol)
    what = ", ".join(filter(None, [row.metric, row.aggregation]))
    unit = (", x 100" if metric.scale == 100 else "") + (", lower is better" if metric.lower else "")
    sample = f" ({SAMPLE})" if record.data.text_version == "sample" else ""
    return f"{record.protocol.label}{f' ({changes})' if changes else ''}: {what}{unit}{sample}"
