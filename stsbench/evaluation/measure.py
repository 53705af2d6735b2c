"""Measurement of one protocol on its data sets: encode, observe, score, record; averages over sets and their intervals."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from stsbench.config import shorten
from stsbench.data.sets.sets import DataSet, PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.post.encoder import Targets
from stsbench.encoders.similarity import GROUP
from stsbench.errors import ScoreError, one_line
from stsbench.evaluation.announce import TasksTime
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.plan import Planned
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
from stsbench.evaluation.result import Result
from stsbench.evaluation.schema import ITEM
from stsbench.metrics.bootstrap import distinct, interval
from stsbench.registry import calling, names, resolve, where

RESAMPLES, SEED = 1000, 0  # of the bootstrap, for records without these settings and for the board
RowKey = tuple[str | None, str | None, str]  # subset, aggregation, metric
_REMARKS = "stsbench.data_remarks"  # entry points: functions of protocol name, user's path, set id and scores
LONG = 10  # seconds after which a finished task's time, and an estimate of the rest, is logged


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
    """Score an encoder on `sets` (task -> data) and add a record for each set to `result`, which `Result.write` writes.

    A task that cannot be scored (constant predictions, vectors of NaN, ...) becomes a failure with a reason; the others go
    on. `strict` refuses texts longer than the model's limit. `log` gets warnings and notes, a line each. targets: the texts
    that an encoder is fitted on for each set; None: the set's distinct texts. `doing` gets each task's name before its turn.
    """
    before = len(result.records)
    rest = TasksTime(protocol, sets)
    observed: dict[str, tuple[Observations, str]] = {}
    for task, data in sets.items():
        began = time.monotonic()
        doing(f"{protocol.label} {task}")
        observations = _measure_task(result, embed, protocol, task, data, strict, log, extra_provenance or {}, targets)
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
            type(protocol), "summarise", lambda: summarize(protocol, records, observed), raising=ScoreError
        )
    except ScoreError as error:
        _failed(result, f"{protocol.label} over its tasks", error)


def summarize(
    protocol: Protocol, records: Sequence[Record], observed: Mapping[str, tuple[Observations, str]]
) -> list[ScoreRow]:
    """Return a protocol's rows over several records, averages with their bootstrap interval unless `resamples` is 0.
    observed: task -> observations, set id."""
    rows = protocol.summarise(records)
    if not rows or protocol.settings.get("resamples") == 0:
        return rows
    return averages_within(rows, protocol, observed)


def averages_within(
    rows: Sequence[ScoreRow], protocol: Protocol, observed: Mapping[str, tuple[Observations, str]]
) -> list[ScoreRow]:
    """Return the rows of averages with a 95 % bootstrap interval each. observed: task -> observations, set id."""
    drawn = protocol.average_draws(observed, *drawn_with(protocol))
    influences = protocol.average_influences(observed) if drawn else {}
    drawn |= {key: one.stretched(drawn[key]) for key, one in influences.items() if key in drawn}
    return [_within(row, drawn.get((None, row.aggregation, row.metric))) for row in rows]


def bounded(row: ScoreRow, protocol: Protocol, observations: Observations, data_id: str) -> ScoreRow:
    """Return a record's row with a 95 % interval: that of `score`, with RESAMPLES resamples where the record has 0; for a
    metric without one (an F1, a squared error), the percentiles of the bootstrap draws."""
    resamples, seed = drawn_with(protocol)
    if row.low is None and protocol.settings.get("resamples") == 0:
        drawing = type(protocol)({**protocol.settings, "resamples": resamples}, protocol.label)
        row = next(one for one in drawing.score(observations, data_id, row.task) if row_key(one) == row_key(row))
    if row.low is None:
        row = _within(row, protocol.drawn(observations, data_id, resamples, seed).get(row_key(row)))
    return row


def drawn_with(protocol: Protocol) -> tuple[int, int]:
    """Return the number of resamples and the seed of a record's intervals; RESAMPLES and SEED where its protocol lacks these
    settings, RESAMPLES where the record asks for no intervals."""
    settings = protocol.settings
    if "resamples" not in settings:
        return RESAMPLES, SEED
    return int(settings["resamples"] or RESAMPLES), int(settings.get("bootstrap_seed", settings.get("seed", SEED)))


def row_key(row: ScoreRow) -> RowKey:
    """Return the key (subset, aggregation, metric) that identifies a row among those of one task."""
    return row.subset, row.aggregation, row.metric


def _within(row: ScoreRow, draws: NDArray[np.float64] | None) -> ScoreRow:
    low, high = (None if draws is None else interval(draws)) or (None, None)
    return row.model_copy(update={"low": low, "high": high})


def _failed(result: Result, task: str, error: Exception) -> None:
    result.failures[task] = one_line(error)
    logging.getLogger("stsbench").debug("%s failed", task, exc_info=error)  # shown by --debug


def _measure_task(
    result: Result, embed: Embed, protocol: Protocol, task: str, data: DataSet, strict: bool,
    log: Callable[[str], None], extra_provenance: Mapping[str, Any], targets: Targets | None,
) -> Observations | None:
    began = time.monotonic()
    try:
        fitted = _fitted(embed.for_task(protocol.text_task(task, data)), protocol, data, targets)
        read = list(texts_by_reading(fitted, protocol, data))
        for reader, texts in read:
            if problem := reader.unusable(texts):
                raise ScoreError(problem)
        counts = _doubtful(read, task, data, strict, log) if read else {"zero_vectors": 0, "truncated": 0}
        observations = _observed(protocol, fitted, data)
        if fitted.cut:
            counts["truncated"] += fitted.cut
            limit = f"the model's limit of {fitted.spec.max_length} tokens"
            if strict:
                raise ScoreError(f"{fitted.cut} pairs exceed {limit}; leave --strict out to truncate them")
            log(f"warning: {task}: {fitted.cut} pairs were truncated to {limit}")
        scores = _scored(protocol, observations, data.id, task)
        identity = fitted.identity
        who = EncoderIdentity(spec=asdict(identity), fingerprint=identity.fingerprint(), dimension=fitted.dimension)
        text_version = cast(Literal["senteval", "raw", "sample", "own"], data.text_version)  # pydantic checks it
        what_on = DataIdentity(
            id=data.id, task=data.task, text_version=text_version, digest=data.digest, n=len(data), known=data.known,
            origin=data.origin, subsets=data.counts, warnings=list(data.warnings),
        )
    except Exception as error:  # a fault in one task must not stop the others
        _failed(result, f"{protocol.label} {task}", error)
        return None
    seconds = time.monotonic() - began
    if (items := distinct(data.items)) < len(data):
        counts["items"] = items
    for note in observations.names.get("notes", []):
        log(f"{protocol.label} {task}: {note}")
    how = ProtocolIdentity(
        name=protocol.name, label=protocol.label, version=protocol.version, settings=protocol.settings
    )
    result.observed.append(Observations(observations.arrays, observations.names))  # without the bootstrap draws in `memo`
    result.records.append(Record(
        created=now(), encoder=who, protocol=how, data=what_on,
        observations=Observed(sha256=observations_digest(observations)),
        counts=counts, scores=scores,
        provenance=provenance(seconds=round(seconds, 3), **extra_provenance, **recorded_prompts(fitted),
                              **({"server": spent} if (spent := embed.encoder.spent) else {}),
                              **({"remarks": lines} if (lines := data_remarks(protocol, data.id, scores)) else {})),
    ))
    return observations


def data_remarks(protocol: Protocol, data_id: str, scores: Sequence[ScoreRow]) -> list[str]:
    """Return the lines that extensions add to a record on its data, from a set's id or the path of a user's file."""
    known = (protocol.name, protocol.user_path, data_id, scores)
    return [line for name in names(_REMARKS) for line in resolve(_REMARKS, name)(*known)]


def _fitted(embed: Embed, protocol: Protocol, data: DataSet, targets: Targets | None) -> Embed:
    if targets is None:
        by_role = protocol.texts_by_role(data) if embed.encoder.fitted_per_set else {}
        return embed.for_set(data.texts, f"{data.id}@{data.digest}", by_role)
    texts = targets(data)
    return embed.for_set(texts, texts.name)


def texts_by_reading(
    embed: Embed, protocol: Protocol, data: DataSet
) -> Iterator[tuple[Embed, Sequence[str]]]:
    """Yield each `Embed` that encodes texts of a protocol, with its distinct texts; roles with equal prompts may share one.
    Yields nothing for a protocol that compares texts without vectors."""
    if protocol.settings.get("similarity") in names(GROUP):
        return
    by_role = protocol.texts_by_role(data)
    readers: dict[Embed, dict[str, None]] = {}
    for role, texts in by_role.items():
        readers.setdefault(embed if role is None else embed.for_role(role), {}).update(dict.fromkeys(texts))
    if further := protocol.further_texts(data):
        readers.setdefault(embed, {}).update(dict.fromkeys(further))
    for reader, read in readers.items():
        yield reader, data.texts if len(readers) == 1 and not further else list(read)


Wanted = dict[Embed, list[tuple[DataSet, Sequence[str]]]]


def collect_texts(embed: Embed, chosen: Iterable[tuple[Planned, Mapping[str, DataSet]]], by_role: bool = True) -> Wanted:
    """Return each `Embed` that encodes texts of a run, with its sets and their texts. by_role: False where the encoder is
    fitted on each set first: all texts of the set then count as texts without a role."""
    wanted: Wanted = {}
    for part, sets in chosen:
        for task, data in sets.items():
            reads = embed.for_task(part.protocol.text_task(task, data))
            for reader, texts in texts_by_reading(reads, part.protocol, data) if by_role else ((reads, data.texts),):
                wanted.setdefault(reader.whole, []).append((data, texts))
    return wanted or {embed: []}


def recorded_prompts(embed: Embed) -> dict[str, dict[str, str]]:
    """Return "prompts" (role -> prompt, "text" for no role) and "routes" (role -> route) for a record's provenance, each
    only for an encoder that has them."""
    about = {
        "prompts": {role: spec.prefix or "" for role, spec in embed.read.items()},
        "routes": {role: way for role, spec in embed.read.items()
                   if (way := spec.options.get("role") or embed.encoder.traits.default_route)},
    }
    if not embed.encoder.traits.prompts and not any(about["prompts"].values()):
        del about["prompts"]
    return {key: dict(sorted(value.items())) for key, value in about.items() if value}


def _observed(protocol: Protocol, embed: Embed, data: DataSet) -> Observations:
    """Return the protocol's observations on a set. Raises ScoreError where its code fails or returns anything else."""
    kind = type(protocol)
    observations = calling(kind, "observe", lambda: protocol.observe(embed, data), raising=ScoreError)
    if not isinstance(observations, Observations):
        raise ScoreError(f"{where(kind)}: observe must return Observations(arrays), not {type(observations).__name__}")
    if ITEM in protocol.arrays and ITEM not in observations.arrays and distinct(item := data.items) < len(item):
        observations.arrays[ITEM] = item
    try:
        protocol.check_layout(observations, len(data))
    except ScoreError as error:
        raise ScoreError(f"{where(kind)}: {error}") from error
    return observations


def _scored(protocol: Protocol, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
    """Return the protocol's scores. Raises ScoreError where its code fails or returns anything else, such as NaN."""
    kind = type(protocol)
    try:
        scores = calling(kind, "score", lambda: protocol.score(observations, data_id, task), raising=ScoreError)
    except ScoreError as error:
        if (value := _not_finite(error.__cause__)) is None:
            raise
        raise ScoreError(f"{where(kind)}: score of task {task} is {value}") from error
    if not isinstance(scores, list) or not all(isinstance(row, ScoreRow) for row in scores):
        raise ScoreError(f"{where(kind)}: score must return a list of ScoreRow, not {shorten(scores)}")
    protocol.check_rows(scores, task)
    return scores


def _not_finite(error: BaseException | None) -> str | None:
    """Return "NaN" or "infinite" where that number is why a ScoreRow was refused, else None."""
    if not isinstance(error, ValidationError) or error.title != ScoreRow.__name__:
        return None
    numbers = [problem["input"] for problem in error.errors() if problem["type"] == "finite_number"]
    return None if not numbers else "NaN" if math.isnan(numbers[0]) else "infinite"


def _doubtful(
    read: Sequence[tuple[Embed, Sequence[str]]], task: str, data: DataSet, strict: bool, log: Callable[[str], None]
) -> dict[str, int]:
    """Return how many distinct texts have a zero vector and how many were truncated; `strict`: ScoreError for the latter."""
    texts = [text for _, of in read for text in of]
    zero = np.concatenate([embed.zero(of) for embed, of in read])
    cut = np.concatenate([embed.truncated(of) for embed, of in read])
    limit = read[0][0].spec.max_length
    if strict and cut.any():
        raise ScoreError(
            f"{int(cut.sum())} texts of {data.shown} exceed the limit of {limit} tokens, the first "
            f"'{texts[int(np.argmax(cut))][:60]}...'; leave --strict out to truncate them"
        )
    counts = {"zero_vectors": int(zero.sum()), "truncated": int(cut.sum())}
    if counts["zero_vectors"]:
        meaning = " (cosine 0)" if isinstance(data, PairSet) else ""
        log(f"warning: {task}: {counts['zero_vectors']} of {len(texts)} distinct texts have a zero vector{meaning}")
    if counts["truncated"]:
        most = f"the model's limit of {limit} tokens"
        log(f"warning: {task}: {counts['truncated']} of {len(texts)} distinct texts were truncated to {most}")
    return counts
