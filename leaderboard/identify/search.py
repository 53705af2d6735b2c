"""Search for the settings that reproduce published numbers: all candidates are compared with them and sorted by distance.

The candidates are all ways of computing a paper's row of scores from runs' observations. The search automates the comparison
of Gao et al. 2021 (SimCSE), appendix B, table B.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import presets
from stsbench.evaluation.protocol import load_protocol
from stsbench.metrics.aggregation import AGGREGATIONS, average_of_printed
from stsbench.metrics.similarity import METRICS

from .numbers import AVERAGE, Numbers, refuse_impossible
from .observed import Form, Observed, empty, score_settings

STSB, SICK, SICK_MTEB = "STS-B", "SICK-R", "SICK-R-MTEB"
HEAD = "trained regressor"
# What tables of the seven classification tasks may print for MRPC besides accuracy -> the metrics whose mean that is.
MRPC = {"F1 on MRPC": ("f1",), "the mean of accuracy and F1 on MRPC": ("accuracy", "f1")}
Slot = tuple[str, str]  # the name of a choice, and the choice, both in words
SAME = 0.01  # settings count as equal if their scores differ by at most this share of the last printed digit's unit
RANK = "effective rank"  # the one score that may exceed 100
EPSILON = 1e-9  # tolerance for the rounding of decimal differences in binary
Merged = tuple[tuple[str, tuple[str, ...]], ...]  # slots, each with all choices that give the same scores


@dataclass(frozen=True)
class CandidateScore:
    """A score of a candidate with its source. value: the mean of `metrics`, mostly a single one; how: the aggregation."""

    value: float
    form: Form
    set_id: str
    how: str | None
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A complete setting for all numbers. cells: task -> score; missing: tasks without an observation."""

    slots: tuple[Slot, ...]
    cells: Mapping[str, CandidateScore]
    missing: tuple[str, ...]
    averaged: tuple[str, ...]  # the tasks whose mean is compared as Avg

    def points(self, task: str, share: bool, near: float) -> float:
        """Return the score of `task` in points. Avg is the mean of unrounded or of two-decimal scores, whichever is nearer
        to `near`."""
        if task == AVERAGE:
            values = [self.cells[name].value for name in self.averaged]
            means = (average_of_printed(values), sum(values) / len(values))
            return min(means, key=lambda mean: abs(mean - near))
        cell = self.cells[task]
        return cell.value * (100 if share and cell.form.protocol.metric(cell.metrics[0]).scale == 1 else 1)

    def papers(self) -> list[str]:
        """Return the papers whose presets score all tasks in this way."""
        return [name for name, parts in _presets() if all(_agrees(task, cell, parts) for task, cell in self.cells.items())]


def candidates(observations: Sequence[Observed], tasks: Sequence[str]) -> list[Candidate]:
    """Return every candidate for `tasks`, including those that lack an observation. Raises StsbenchError where Avg may be
    that of STS or of transfer tasks."""
    groups: dict[str, list[str]] = {}
    for task in tasks:
        if task != AVERAGE:
            groups.setdefault(_group(_base(task), observations), []).append(task)
    if AVERAGE in tasks:
        means = [name for name in groups if name in ("sts", "transfer")]
        if len(means) > 1:
            raise StsbenchError("Avg of which tasks? Give STS and transfer tasks in two calls, or leave Avg out")
        groups.setdefault(means[0] if means else AVERAGE, []).append(AVERAGE)
    combined = []
    for observed in observations:
        about = (("encoder", observed.encoder), ("text version", observed.text_version))
        for parts in product(*([*_mixes(observed, group), *_plain(observed, group)] for group in groups.values())):
            combined.append(Candidate(
                (*about, *(slot for part in parts for slot in part.slots)),
                {task: cell for part in parts for task, cell in part.cells.items()},
                tuple(dict.fromkeys(task for part in parts for task in part.missing)),
                tuple(task for part in parts for task in part.averaged),
            ))
    return combined


def _base(label: str) -> str:
    return label.partition("/")[0]


def _group(task: str, observations: Sequence[Observed]) -> str:
    """Return the protocol of a task; the settings of different protocols' tasks are combined freely."""
    if task in _sts_tasks():
        return "sts"
    for name in ("regression", "transfer", "geometry", "retrieval", "mteb"):
        forms = [form for observed in observations for form in observed.protocol_forms(name)] or [empty(name)]
        if any(task in form.tasks for form in forms):
            return name
    return next(str(name) for observed in observations for (name, _), form in observed.forms.items() if task in form.tasks)


@cache
def _sts_tasks() -> tuple[str, ...]:
    return tuple(empty("sts").tasks)


def _mixes(observed: Observed, wanted: Sequence[str]) -> Iterator[Candidate]:
    """Yield candidates of the STS protocol: aggregation x metric x sources of STS-B and SICK-R, all under one metric."""
    forms = observed.protocol_forms("sts") or [empty("sts")]
    averaged = forms[0].protocol.averaged if AVERAGE in wanted else ()
    tasks = tuple(dict.fromkeys([*(task for task in wanted if task != AVERAGE), *averaged]))
    if not {_base(task) for task in tasks} <= set(_sts_tasks()):
        return
    heads = observed.protocol_forms("regression") or [empty("regression")]
    for form, how, metric in product(forms, AGGREGATIONS, METRICS):
        stsb = [(form, STSB), *((head, STSB) for head in heads)] if STSB in tasks else [None]
        sick = [(form, SICK), (form, SICK_MTEB), *((head, SICK) for head in heads)] if SICK in tasks else [None]
        for one, two in product(stsb, sick):
            slots: list[Slot] = [("protocol", form.name), ("aggregation", how), ("metric", metric.capitalize())]
            sources = {task: (form, task) for task in tasks}
            for task, source in ((STSB, one), (SICK, two)):
                if source is not None:
                    sources[task] = source
                    slots.append((f"{task} by", _source(*source, metric)))
            yield _candidate(slots, sources, how, {task: (metric,) for task in tasks}, averaged)


def _source(form: Form, task: str, metric: str) -> str:
    """Return the source of STS-B's or SICK-R's score, in words."""
    if form.protocol.name == "regression":
        return f"{metric.capitalize()} of the {form.name.replace('regression', HEAD, 1)}"
    row = form.row(task, "all", metric)
    pairs = f"{row.n:,} pairs" if row else "pairs"
    whose = {SICK: f" on {pairs}", SICK_MTEB: f" on MTEB's {pairs}"}.get(task, "")
    return str(form.protocol.settings["similarity"]) + whose


def _plain(observed: Observed, wanted: Sequence[str]) -> Iterator[Candidate]:
    """Yield candidates of every other protocol with these tasks, with one aggregation and one metric for all tasks."""
    bases = {_base(task) for task in wanted if task != AVERAGE}
    forms = [form for (name, _), form in observed.forms.items() if name != "sts"]
    if not bases or bases <= set(empty("transfer").tasks):
        form_names = {form.name for form in forms}
        variants = load_protocol("transfer").variants
        forms += [form for word in ("", *variants) if (form := empty("transfer", word)).name not in form_names]
    for form in forms:
        averaged = form.protocol.averaged if AVERAGE in wanted else ()
        if not bases <= form.tasks or (AVERAGE in wanted and not averaged):
            continue
        tasks = tuple(dict.fromkeys([*(task for task in wanted if task != AVERAGE), *averaged]))
        kinds = dict.fromkeys((how, metric) for _, how, metric in form.rows) or {(None, "accuracy"): None}
        for how, metric in kinds:
            if form.protocol.name == "regression" and metric in METRICS and bases <= {STSB, SICK}:
                continue  # `_mixes` yields these
            yield from _if_defined(form, metric, how, {task: (metric,) for task in tasks}, averaged)
            if form.protocol.name == "transfer" and metric == "accuracy" and "MRPC" in tasks and len(tasks) > 1:
                for wording, those in MRPC.items():
                    chosen = {task: those if task == "MRPC" else (metric,) for task in tasks}
                    yield from _if_defined(form, f"accuracy with {wording}", how, chosen, averaged)
        if form.protocol.name == "transfer" and tasks == ("MRPC",):
            wording, those = list(MRPC.items())[1]
            yield from _if_defined(form, wording, None, {"MRPC": those}, averaged)


def _if_defined(
    form: Form, metric_name: str, how: str | None, metrics: Mapping[str, tuple[str, ...]], averaged: tuple[str, ...]
) -> Iterator[Candidate]:
    """Yield the candidate, unless a task was observed and lacks the metric, as SST2 lacks F1."""
    slots = [("protocol", form.name), *([("aggregation", how)] if how else []), ("metric", metric_name)]
    made = _candidate(slots, {task: (form, task) for task in metrics}, how, metrics, averaged)
    if all(task in made.cells or _base(task) not in form.sets for task in metrics):
        yield made


def _candidate(
    slots: Sequence[Slot], sources: Mapping[str, tuple[Form, str]], how: str | None, metrics: Mapping[str, tuple[str, ...]],
    averaged: tuple[str, ...],
) -> Candidate:
    cells: dict[str, CandidateScore] = {}
    for task, (form, label) in sources.items():
        aggregation = None if form.protocol.name == "regression" else how
        rows = [form.row(label, aggregation, metric) for metric in metrics[task]]
        values = [row.value for row in rows if row is not None]
        if len(values) == len(rows):
            mean, set_id = sum(values) / len(values), form.sets[_base(label)]
            cells[task] = CandidateScore(mean, form, set_id, aggregation, metrics[task])
    lacking = [source for task, source in sources.items() if task not in cells]
    missing = tuple(f"{label} of regression" if form.protocol.name == "regression" and label in (STSB, SICK) else label
                    for form, label in lacking)
    return Candidate(tuple(slots), cells, missing, averaged)


@cache
def _presets() -> list[tuple[str, list[tuple[Form, dict[str, str]]]]]:
    """Return (paper, parts of its preset) pairs; a part is a form and task -> set id."""
    papers = []
    for name, paper in presets().items():
        parts = []
        for part in paper["parts"]:
            protocol = load_protocol(part["protocol"])(part.get("settings", {}))
            default = protocol.tasks().keys() - protocol.on_request
            tasks = {task: id for task, id in protocol.tasks().items() if task in part.get("tasks", default)}
            parts.append((Form(name, protocol, ""), tasks))
        papers.append((name, parts))
    return papers


def _agrees(task: str, cell: CandidateScore, parts: Sequence[tuple[Form, dict[str, str]]]) -> bool:
    """Return whether a part of a paper's preset scores a task as `cell` does."""
    for form, tasks in parts:
        protocol = form.protocol
        if protocol.name != cell.form.protocol.name or tasks.get(_base(task)) != cell.set_id:
            continue
        if score_settings(protocol) != score_settings(cell.form.protocol) or len(cell.metrics) > 1:
            continue
        hows, metrics = protocol.settings.get("aggregations", [cell.how]), protocol.settings.get("metrics", cell.metrics)
        if cell.metrics[0] in metrics and ("/" in task or cell.how is None or cell.how in hows):
            return True
    return False


_Scored = tuple[int, Candidate, dict[str, float]]  # position, candidate, and its differences by task


@dataclass(frozen=True)
class Match:
    """Settings that give the same scores on the compared tasks, with their differences from the published numbers.

    differences: task -> score minus printed number, in points; rank: 1 for all matches that reproduce the numbers.
    """

    settings: tuple[Merged, ...]
    differences: Mapping[str, float]
    exact: int  # tasks that agree to the last printed digit
    papers: tuple[str, ...]
    rank: int = 0

    @property
    def mean(self) -> float:
        """Return the mean absolute difference, in points."""
        return sum(map(abs, self.differences.values())) / len(self.differences)

    @property
    def largest(self) -> tuple[str, float]:
        """Return the task with the largest absolute difference, and that difference."""
        return max(self.differences.items(), key=lambda item: abs(item[1]))

    @property
    def reproduced(self) -> bool:
        """Return whether the difference of every task is within rounding: half a unit of the last printed digit."""
        return self.exact == len(self.differences)


@dataclass(frozen=True)
class SearchResult:
    """The result of a search. matches: nearest first; unchecked: (setting, tasks without an observation) pairs."""

    numbers: Numbers
    matches: tuple[Match, ...]
    unchecked: tuple[tuple[Merged, tuple[str, ...]], ...]

    @property
    def verdict(self) -> str:
        """Return "reproduced", "nearest" or "nothing checked"."""
        return "nothing checked" if not self.matches else "reproduced" if self.matches[0].reproduced else "nearest"

    @property
    def rivals(self) -> tuple[Match, ...]:
        """Return the matches that cannot be distinguished from the first.

        These are all that reproduce the numbers. If none does, they are those whose mean absolute difference is at most
        twice the first one's: its lead is then no larger than its own unexplained difference.
        """
        if not self.matches:
            return ()
        first, *rest = self.matches
        if first.reproduced:
            return tuple(match for match in rest if match.reproduced)
        return tuple(match for match in rest if match.mean <= 2 * first.mean)


def search(numbers: Numbers, observations: Sequence[Observed]) -> SearchResult:
    """Compare every candidate setting with `numbers` and return the result. Candidates that lack a task are not ranked.

    A number above 100 is compared with effective ranks only. Raises StsbenchError where no candidate has one.
    """
    compared = candidates(observations, list(numbers.items))
    if numbers.beyond:
        compared = [item for item in compared
                    if all(task in item.cells and item.cells[task].metrics == (RANK,) for task in numbers.beyond)]
        if not compared:
            refuse_impossible(numbers)
    unchecked: dict[tuple[str, ...], list[tuple[Slot, ...]]] = {}
    scored: list[_Scored] = []
    for at, candidate in enumerate(compared):
        if candidate.missing:
            unchecked.setdefault(candidate.missing, []).append(candidate.slots)
        else:
            target = {task: numbers.points(task) for task in numbers.items}
            values = {task: candidate.points(task, numbers.share, near) for task, near in target.items()}
            scored.append((at, candidate, {task: value - target[task] for task, value in values.items()}))
    groups: list[list[_Scored]] = []
    for one in sorted(scored, key=lambda item: sum(map(abs, item[2].values()))):
        same = (group for group in groups if _same(group[0][2], one[2], numbers))
        if (group := next(same, None)) is not None:
            group.append(one)
        else:
            groups.append([one])
    matches = [_match(group, numbers) for group in groups]
    matches.sort(key=lambda match: (not match.reproduced, match.mean))
    first = sum(match.reproduced for match in matches)
    placed = (
        Match(match.settings, match.differences, match.exact, match.papers, 1 if match.reproduced else max(first, at) + 1)
        for at, match in enumerate(matches)
    )
    left = ((setting, missing) for missing, slots in unchecked.items() for setting in merged(slots))
    return SearchResult(numbers, tuple(placed), tuple(left))


def _same(first: Mapping[str, float], second: Mapping[str, float], numbers: Numbers) -> bool:
    return all(abs(first[task] - second[task]) <= SAME * numbers.unit(task) for task in first)


def _match(group: Sequence[_Scored], numbers: Numbers) -> Match:
    differences = group[0][2]  # those of the nearest candidate
    exact = sum(abs(value) <= numbers.unit(task) / 2 + EPSILON for task, value in differences.items())
    members = [candidate for _, candidate, _ in sorted(group, key=lambda item: item[0])]
    papers = dict.fromkeys(paper for member in members for paper in member.papers())
    return Match(tuple(merged(member.slots for member in members)), differences, exact, tuple(papers))


def merged(settings: Iterable[tuple[Slot, ...]]) -> list[Merged]:
    """Return the same settings in fewer items: two that differ in one slot only become one with both choices, repeatedly."""
    left: list[Merged] = [tuple((name, (choice,)) for name, choice in slots) for slots in settings]
    while True:
        before = len(left)
        for at in range(max(map(len, left), default=0)):
            groups: dict[object, Merged] = {}
            for setting in left:
                if at >= len(setting):
                    groups[setting] = setting
                    continue
                name, choices = setting[at]
                key = (setting[:at], name, setting[at + 1 :])
                known = groups[key][at][1] if key in groups else ()
                groups[key] = (*setting[:at], (name, tuple(dict.fromkeys((*known, *choices)))), *setting[at + 1 :])
            left = list(groups.values())
        if len(left) == before:
            return left
