"""plan -> encode each distinct text once -> observe -> score -> record."""

from __future__ import annotations

import csv
import errno
import json
import logging
import math
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from pydantic import ValidationError

from stsbench.config import shown
from stsbench.data.sets.sets import DataSet, PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError, StsbenchError, one_line
from stsbench.evaluation.announce import TasksTime
from stsbench.evaluation.columns import digest_of
from stsbench.evaluation.fitting import Targets
from stsbench.evaluation.plan import changed_settings, metric_of
from stsbench.evaluation.protocol import Observations, Protocol
from stsbench.evaluation.provenance import provenance
from stsbench.evaluation.records import (
    DataIdentity,
    EncoderIdentity,
    Observed,
    ProtocolIdentity,
    Record,
    ScoreRow,
    now,
)
from stsbench.evaluation.run_file import RUN, write_run
from stsbench.files import atomic_write
from stsbench.metrics.bootstrap import interval
from stsbench.metrics.similarity import zero_rows
from stsbench.notebook import Tabular, html_table, text_table
from stsbench.plugins import calling, where
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}  # a run or a file of that name is there
SCORES = "scores.csv"  # beside the run file: every score, averages included
LONG = 10  # seconds after which a task's time is said, and how much is left: a sign of life


@dataclass(repr=False)
class Result(Tabular):
    """What one evaluation gave. `failures`: protocol and task -> reason; `left_out`: protocol -> reason."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    summaries: list[ScoreRow] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    observed: list[Observations] = field(default_factory=list)  # beside each record, until `save`

    @property
    def rows(self) -> list[ScoreRow]:
        """Every score: task by task, then the averages."""
        return [row for record in self.records for row in record.scores] + self.summaries

    def __repr__(self) -> str:
        encoders = dict.fromkeys(str(record.encoder.spec["name"]) for record in self.records)
        of = f" of {', '.join(encoders)}" if encoders else ""
        failed = f", {counted(len(self.failures), 'failure')}" if self.failures else ""
        return f"<Result{of}: {counted(len(self.records), 'record')}{failed} in {self.folder}; print it for its scores>"

    def __str__(self) -> str:
        """The scores as a table for each protocol: tasks down, metrics across."""
        parts = [f"{protocol}\n{text_table(lines)}" for protocol, lines in self._tables()]
        return "\n\n".join([*parts, *self._remarks()]) or repr(self)

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        parts = [html_table(protocol, lines) for protocol, lines in self._tables()]
        return "".join([*parts, *(f"<p>{escape(line)}</p>" for line in self._remarks())]) or escape(repr(self))

    def to_arrow(self) -> pa.Table:
        """A row for each score, subsets among them, averages last, with what makes two scores incomparable: encoder, pooler,
        data, text_version, known (whether the catalog knows the data) and settings, as far as those are not the default."""
        import pyarrow as pa

        rows = [{**row.model_dump(), **_origin(record)} for record in self.records for row in record.scores]
        rows += [row.model_dump() for row in self.summaries]
        text, number = pa.string(), pa.float64()
        kinds = {"value": number, "low": number, "high": number, "n": pa.int64(), "known": pa.bool_()}
        names = [*ScoreRow.model_fields, "encoder", "pooler", "data", "text_version", "known", "settings"]
        return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, text)) for name in names]))

    def to_json(self) -> str:
        """Its rows, as `stsbench eval --json` writes them."""
        return json.dumps([row.model_dump() for row in self.rows], indent=1)

    def _tables(self) -> list[tuple[str, list[list[str]]]]:
        """(protocol, lines of cells), the header first; without the subsets of what is given as a whole."""
        tables = []
        for protocol in dict.fromkeys(row.protocol for row in self.rows):
            rows = [row for row in self.rows if row.protocol == protocol]
            whole = {(row.task, row.metric) for row in rows if row.subset is None}
            rows = [row for row in rows if row.subset is None or (row.task, row.metric) not in whole]
            cells = {(row.task, row.subset, row.metric, row.aggregation): f"{row.value:.{metric_of(row).digits}f}"
                     for row in rows}
            columns = list(dict.fromkeys((row.metric, row.aggregation) for row in rows))
            counts = {key: str(row.n) for row in reversed(rows) for key in [(row.task, row.subset)]}
            lines = [["task", "n", *(" ".join(filter(None, column)) for column in columns)]]
            for task, subset in dict.fromkeys((row.task, row.subset) for row in rows):
                values = [cells.get((task, subset, *column), "") for column in columns]
                lines.append([f"{task}, {subset}" if subset else task, counts[task, subset], *values])
            tables.append((self.named(protocol), lines))
        return tables

    def named(self, protocol: str) -> str:
        """A protocol's label and, in brackets, its settings that are not the default."""
        its = [record.protocol for record in self.records if record.protocol.label == protocol]
        unlike = {identity.model_dump_json(): identity for identity in its}.values()
        changes = "; ".join(dict.fromkeys(filter(None, map(changed_settings, unlike))))
        return f"{protocol} ({changes})" if changes else protocol

    def _remarks(self) -> list[str]:
        unknown = ", ".join(record.data.id for record in self.records if not record.data.known)
        sample = any(record.data.text_version == "sample" for record in self.records)
        return [
            *([f"Data differ from the catalog: {unknown}. Not comparable with other results."] if unknown else []),
            *(["sample data: not comparable with published numbers"] if sample else []),
            *self.failed_lines(),
            *self.left_out_lines(),
        ]

    def failed_lines(self) -> list[str]:
        """A line for each failed task: its protocol, its name and why."""
        return [f"failed: {label} {reason}" if reason.startswith(task) else f"failed: {label} {task}: {reason}"
                for (label, _, task), reason in ((name.rpartition(" "), why) for name, why in self.failures.items())]

    def left_out_lines(self) -> list[str]:
        """A line for each reason why something was not measured: one where several protocols lack the same."""
        names: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            names.setdefault(reason, []).append(name)
        return [f"left out: {', '.join(its)}: {reason}" for reason, its in names.items()]

    def save(self) -> None:
        """Write the run file and, for people and spreadsheets, the scores: the folder appears whole, or not at all."""
        if not self.observed:
            return
        # A name that nobody else uses, so that runs which end at one moment do not write into each other.
        building = self.folder.with_name(f".{self.folder.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            write_run(building / RUN, list(zip(self.records, self.observed, strict=True)))
            with atomic_write(building / SCORES) as stream:
                table = csv.DictWriter(stream, list(ScoreRow.model_fields), lineterminator="\n")
                table.writeheader()
                table.writerows(row.model_dump() for row in self.rows)
            self.folder = claim(building, self.folder)
        except (OSError, StsbenchError) as error:
            reason = error if isinstance(error, OSError) else error.__cause__ or error
            raise StsbenchError(f"cannot write {self.folder}/: {getattr(reason, 'strerror', None) or reason}") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
        self.observed = []


def _origin(record: Record) -> dict[str, Any]:
    spec, data = record.encoder.spec, record.data
    return {"encoder": spec["name"], "pooler": spec.get("pooler"), "data": data.id, "text_version": data.text_version,
            "known": data.known, "settings": changed_settings(record.protocol)}


@contextmanager
def kept(result: Result, log: Callable[[str], None]) -> Iterator[None]:
    """Save what was measured, also where the block ends by Ctrl-C, for lack of memory or by a mistake in here."""
    try:
        yield
    except BaseException:
        result.save()
        if result.records:
            count = len(result.records)
            measured = f"the {count} tasks measured so far are kept" if count > 1 else "the task measured so far is kept"
            log(f"{measured}: stsbench score {result.folder}; --protocol and --tasks measure the others")
        raise
    result.save()


def claim(building: Path, folder: Path) -> Path:
    """Rename `building` to `folder`, or to the first of folder-2, folder-3, ... that is free; returns the name it got.

    A run never overwrites another: the system renames a folder onto nothing or onto an empty folder, and of several
    processes one succeeds. To look first, and rename then, loses the runs that do both at one moment.
    """
    candidate, number = folder, 2
    while True:
        try:
            return building.rename(candidate)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1


def measure(
    result: Result,
    embed: Embed,
    protocol: Protocol,
    sets: Mapping[str, DataSet],
    *,
    strict: bool = False,
    log: Callable[[str], None] = lambda line: None,
    extra_provenance: Mapping[str, Any] | None = None,
    targets: Targets | None = None,
    doing: Callable[[str], None] = lambda what: None,
) -> None:
    """Score an encoder on `sets` (task -> data) and add a record a set to `result`, which `Result.save` writes.

    A task that cannot be scored (constant predictions, vectors of NaN, ...) becomes a failure with a reason; the others go
    on. `strict` refuses texts longer than the model's limit. `log` gets one line for what a user must know. targets: what an
    encoder that is fitted on each set is fitted on; None: the set's distinct texts. `doing` gets each task's name before it.
    """
    before = len(result.records)
    rest = TasksTime(protocol, sets)
    observed: dict[str, tuple[Observations, str]] = {}
    for task, data in sets.items():
        began = time.monotonic()
        doing(f"{protocol.label} {task}")
        observations = _measure_one(result, embed, protocol, task, data, strict, log, extra_provenance or {}, targets)
        if observations is not None and task in protocol.averaged:
            observed[task] = observations, data.id
        seconds = time.monotonic() - began
        left = rest.after(task, seconds)
        if seconds > LONG:
            log(f"{protocol.label} {task}: {seconds:.0f} s{left}")
    records = result.records[before:]
    if len(sets) > 1:
        doing(f"{protocol.label}: average")
    try:
        result.summaries += calling(
            type(protocol), "summarise", lambda: summary_of(protocol, records, observed), raising=ScoreError
        )
    except ScoreError as error:
        _failed(result, f"{protocol.label} over its tasks", error)


def summary_of(
    protocol: Protocol, records: Sequence[Record], observed: Mapping[str, tuple[Observations, str]]
) -> list[ScoreRow]:
    """The scores over several records, an average with its bootstrap interval. observed: task -> observations, set id."""
    rows, resamples = protocol.summarise(records), protocol.settings.get("resamples")
    if not rows or not resamples:
        return rows
    drawn = protocol.average_draws(observed, resamples, protocol.settings.get("seed", 0))
    bounds = {key: interval(draws) for key, draws in drawn.items()}
    low_high = [bounds.get((row.subset, row.aggregation, row.metric)) or (None, None) for row in rows]
    return [row.model_copy(update={"low": low, "high": high}) for row, (low, high) in zip(rows, low_high, strict=True)]


def _failed(result: Result, what: str, error: Exception) -> None:
    result.failures[what] = one_line(error)
    logging.getLogger("stsbench").debug("%s failed", what, exc_info=error)  # shown by --debug


def _measure_one(
    result: Result, embed: Embed, protocol: Protocol, task: str, data: DataSet, strict: bool,
    log: Callable[[str], None], extra_provenance: Mapping[str, Any], targets: Targets | None,
) -> Observations | None:
    began = time.monotonic()
    try:
        fitted = _fitted(embed, data, targets)
        if problem := fitted.unusable(data.texts):
            raise ScoreError(problem)
        counts = _doubtful(fitted, task, data, strict, log)
        observations = _observed(protocol, fitted, data)
        scores = _scored(protocol, observations, data.id, task)
        who = EncoderIdentity(spec=asdict(fitted.spec), fingerprint=fitted.spec.fingerprint(), dimension=fitted.dimension)
        what_on = _identity(data)
    except Exception as error:  # one task's accident, whatever it is, must not cost the others
        _failed(result, f"{protocol.label} {task}", error)
        return None
    seconds = time.monotonic() - began
    for note in observations.names.get("notes", []):
        log(f"{protocol.label} {task}: {note}")
    how = ProtocolIdentity(
        name=protocol.name, label=protocol.label, version=protocol.version, settings=protocol.settings
    )
    result.observed.append(Observations(observations.arrays, observations.names))  # without what was drawn from them
    result.records.append(Record(
        created=now(), encoder=who, protocol=how, data=what_on,
        observations=Observed(sha256=digest_of(observations)),
        counts=counts, scores=scores, provenance=provenance(seconds=round(seconds, 3), **extra_provenance),
    ))
    return observations


def _fitted(embed: Embed, data: DataSet, targets: Targets | None) -> Embed:
    if targets is None:
        return embed.for_set(data.texts, f"{data.id}@{data.digest}")
    texts = targets(data)
    return embed.for_set(texts, texts.name)


def _observed(protocol: Protocol, embed: Embed, data: DataSet) -> Observations:
    """What the protocol observes. Raises ScoreError where its code fails or returns anything else."""
    kind = type(protocol)
    observations = calling(kind, "observe", lambda: protocol.observe(embed, data), raising=ScoreError)
    if not isinstance(observations, Observations):
        raise ScoreError(f"{where(kind)}: observe must return Observations(arrays), not {type(observations).__name__}")
    try:
        protocol.check_layout(observations, len(data))
    except ScoreError as error:
        raise ScoreError(f"{where(kind)}: {error}") from error
    return observations


def _scored(protocol: Protocol, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
    """The protocol's scores. Raises ScoreError where its code fails or returns anything else, NaN above all."""
    kind = type(protocol)
    try:
        scores = calling(kind, "score", lambda: protocol.score(observations, data_id, task), raising=ScoreError)
    except ScoreError as error:
        if (value := _not_finite(error.__cause__)) is None:
            raise
        raise ScoreError(f"{where(kind)}: score of task {task} is {value}") from error
    if not isinstance(scores, list) or not all(isinstance(row, ScoreRow) for row in scores):
        raise ScoreError(f"{where(kind)}: score must return a list of ScoreRow, not {shown(scores)}")
    protocol.check_rows(scores, task)
    return scores


def _not_finite(error: BaseException | None) -> str | None:
    """"NaN" or "infinite" where a ScoreRow was refused for such a number, else None."""
    if not isinstance(error, ValidationError) or error.title != ScoreRow.__name__:
        return None
    numbers = [problem["input"] for problem in error.errors() if problem["type"] == "finite_number"]
    return None if not numbers else "NaN" if math.isnan(numbers[0]) else "infinite"


def _doubtful(embed: Embed, task: str, data: DataSet, strict: bool, log: Callable[[str], None]) -> dict[str, int]:
    """How many distinct texts have a zero vector and how many were cut; said, and with `strict` refused."""
    texts = data.texts
    zero, cut = zero_rows(embed(texts)), embed.truncated(texts)
    if strict and cut.any():
        raise ScoreError(
            f"{int(cut.sum())} texts of {data.shown} exceed the limit of {embed.spec.max_length} tokens, the first "
            f"'{texts[int(np.argmax(cut))][:60]}...'; leave --strict out to truncate them"
        )
    counts = {"zero_vectors": int(zero.sum()), "truncated": int(cut.sum())}
    if counts["zero_vectors"]:
        meaning = " (cosine 0)" if isinstance(data, PairSet) else ""
        log(f"warning: {task}: {counts['zero_vectors']} of {len(texts)} distinct texts have a zero vector{meaning}")
    if counts["truncated"]:
        limit = f"the model's limit of {embed.spec.max_length} tokens"
        log(f"warning: {task}: {counts['truncated']} of {len(texts)} distinct texts were truncated to {limit}")
    return counts


def _identity(data: DataSet) -> DataIdentity:
    text_version = cast(Literal["senteval", "raw", "sample", "own"], data.text_version)  # pydantic checks it
    return DataIdentity(
        id=data.id, task=data.task, text_version=text_version, digest=data.digest, n=len(data), known=data.known,
        origin=data.origin, subsets=data.counts, warnings=list(data.warnings),
    )
