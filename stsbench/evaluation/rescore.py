"""Recomputation of scores from stored observations, which checks a run without encoding. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.display.tabular import InFolder
from stsbench.encoders.traits import STATE, is_transductive
from stsbench.errors import ScoreError, StsbenchError, one_line, warning_log
from stsbench.evaluation.measure import summarize
from stsbench.evaluation.protocol import Observations, Protocol, load_protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import load_records, read_observations, run_folder
from stsbench.registry import source_file

_MANY = 64  # records from which scoring is divided among processes
_NUMBERS = {"value", "low", "high"}


def score(run: str | Path | InFolder) -> Result:
    """Score a run again from its stored observations, as `stsbench score` does: nothing is encoded, no data are needed.

    run: the folder of a run, or what `evaluate` returned. Returns a Result with the rows of the run itself; a task whose
    observations give no score is among its `failures`, and a StsbenchWarning. Raises StsbenchError with a message of one
    line for a folder that is not a run, and for a run that is damaged or edited.

    >>> import stsbench
    >>> run = stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0, output="run")
    >>> stsbench.score("run").rows == run.rows
    True
    """
    log = warning_log()
    result = score_again(run_folder(run))
    for line in result.failed_lines():
        log(f"warning: {line}")
    return result


def score_again(folder: Path) -> Result:
    """Return every score of a run folder, recomputed from its stored observations. Imports no torch, needs no data.

    Raises StsbenchError when the run file is damaged, when a record or its observations were edited, and when the run holds
    records of several encoders or two unlike ones of the same thing.
    """
    result = Result(folder)
    records_of = load_records(folder)
    if several_encoders([record for _, record in records_of]):
        raise StsbenchError(f"{folder} holds records of several encoders: they have no table or average in common")
    scored: list[tuple[Path, Protocol, Record]] = []
    for (path, record), again in zip(records_of, _all_rescored(records_of), strict=True):
        if isinstance(again, ScoreError):
            result.failures[f"{record.protocol.label} {record.data.task}"] = str(again)
            continue
        protocol, record.scores = protocol_of_record(path, record), again
        scored.append((path, protocol, record))
    refuse_doubles(scored)
    groups: dict[str, tuple[Protocol, list[Record]]] = {}  # settings of a protocol -> the protocol and its records
    for _, protocol, record in scored:
        groups.setdefault(record.protocol.model_dump_json(), (protocol, []))[1].append(record)
    for protocol, records in groups.values():
        result.summaries += rescored_averages(records_of[0][0].parent, protocol, records)
        result.records += records
    return result


def rescored_averages(folder: Path, protocol: Protocol, records: Sequence[Record]) -> list[ScoreRow]:
    """Return the summary rows (averages) of a protocol's records in a run, with their intervals."""
    of_task = {record_task(protocol, record): record for record in records}
    averaged = protocol.averaged if set(protocol.averaged) <= of_task.keys() else ()
    observed = {task: (read_observations(folder, of_task[task]), of_task[task].data.id) for task in averaged}
    return summarize(protocol, records, observed)


def _all_rescored(records_of: Sequence[tuple[Path, Record]]) -> Iterable[list[ScoreRow] | ScoreError]:
    """Return the scores of each record, or the ScoreError that prevents them; many records are scored by several processes,
    since intervals take time."""
    if len(records_of) < _MANY:
        return [_rescored(path, record) for path, record in records_of]
    from joblib import Parallel, delayed

    again: list[list[ScoreRow] | ScoreError] = Parallel(n_jobs=-1)(
        delayed(_rescored)(path, record) for path, record in records_of
    )
    return again


def _rescored(path: Path, record: Record) -> list[ScoreRow] | ScoreError:
    try:
        return rescored(path, record)[1]
    except ScoreError as error:
        return error


def encoder_key(record: Record) -> str:
    """Return a key that is equal in all records of one encoder: its spec without the model's name (`_spec`), as JSON.

    `fitted_on` is left out where the encoder was fitted on the record's own set, as it then differs between records. So is
    the digest of the fitted state, which weights, settings and texts determine up to rounding (the number of threads).
    """
    spec = _spec(record)
    if is_transductive(spec.get("fitted_on"), record.data.id):
        del spec["fitted_on"]
    if STATE in (options := spec.get("options") or {}):
        spec["options"] = {key: value for key, value in options.items() if key != STATE}
    return json.dumps(spec, sort_keys=True)


def several_encoders(records: Sequence[Record]) -> bool:
    """Return whether the records are not all of one encoder."""
    # Fitted once, on one of the tested sets, an encoder has another key there, which leaves fitted_on out, and one spec.
    keys = {encoder_key(record) for record in records}
    return len(keys) > 1 and len({json.dumps(_spec(record), sort_keys=True) for record in records}) > 1


def _spec(record: Record) -> dict[str, Any]:
    """Return the spec without the name, as copies of a model may lie in several folders; a callable keeps its name, as its
    spec holds nothing else to tell it from others."""
    spec = record.encoder.spec
    return {key: value for key, value in spec.items() if key != "name" or spec.get("kind") == "callable"}


def refuse_doubles(measured: Iterable[tuple[Path, Protocol, Record]]) -> None:
    """Raise StsbenchError, naming both files, where two records of one setting and set are not the same measurement.

    A protocol and a paper's preset may measure the same thing in one run: the same encoder, with the same scores.
    """
    first: dict[str, tuple[Path, Record, dict[tuple[str, str | None, str | None, str], tuple[float, int]]]] = {}
    for path, protocol, record in measured:
        how, data = record.protocol, record.data
        kept = {key: value for key, value in how.settings.items() if key not in protocol.cosmetic}
        digest = data.digest if data.text_version == "own" else ""  # two of a user's folders may have one name
        key = json.dumps([how.name, how.version, kept, data.text_version, data.id, digest], sort_keys=True)
        rows = {(row.task, row.subset, row.aggregation, row.metric): (row.value, row.n) for row in record.scores}
        other_path, other, other_rows = first.setdefault(key, (path, record, rows))
        reason = ""
        if other.encoder.fingerprint != record.encoder.fingerprint:
            reason = "of encoders with different fingerprints"
        elif other.data.digest != data.digest:
            reason = "on different data of that name"
        elif any(not np.allclose(rows[row], other_rows[row], rtol=0, atol=1e-6) for row in rows.keys() & other_rows.keys()):
            reason = "with different scores"
        if reason:
            raise StsbenchError(
                f"{other_path} and {path} are two measurements of {data.id} in one setting, {reason}: keep the one that "
                "counts in this folder, and move the other"
            )


def protocol_of_record(path: Path, record: Record) -> Protocol:
    """Return the protocol that measured a record. Raises StsbenchError where it is unknown or of another version or file."""
    try:
        kind = load_protocol(record.protocol.name)
    except StsbenchError as error:
        raise StsbenchError(f"{path}: {one_line(error)}") from error
    if kind.version != record.protocol.version:
        raise StsbenchError(
            f"{path} was scored by version {record.protocol.version} of protocol {record.protocol.name}; this is "
            f"version {kind.version}: its scores are not the same measurement"
        )
    by_file = record.provenance.get("protocol_file")
    if by_file != source_file(kind):
        raise StsbenchError(
            f"{path} was scored by {by_file['name'] if by_file else 'an installed protocol'}, and what is called "
            f"{record.protocol.name} now is not the same file: its scores are not the same measurement"
        )
    protocol: Protocol = kind(record.protocol.settings, record.protocol.label)
    return protocol


def rescored(path: Path, record: Record, intervals: bool = True) -> tuple[Protocol, list[ScoreRow]]:
    """Return a record's protocol and its scores, recomputed from its observations; raise the errors of `reread`."""
    protocol, scores, _ = reread(path, record, intervals=intervals)
    return protocol, scores


def reread(
    path: Path, record: Record, observations: Observations | None = None, intervals: bool = True
) -> tuple[Protocol, list[ScoreRow], Observations]:
    """Return a record's protocol, its scores recomputed from its observations, and these, read where they are not passed.

    intervals: False neither computes nor checks intervals, which take nearly all of the time.

    Raises StsbenchError, naming the record, when it was edited or its observations have another digest; ScoreError when
    a score cannot be computed.
    """
    protocol = protocol_of_record(path, record)
    if observations is None:
        observations = read_observations(path.parent, record)
    try:
        protocol.check_layout(observations, record.data.n)
    except ScoreError as error:
        raise StsbenchError(f"{path}: {one_line(error)}") from error
    if contradiction := protocol.contradiction(observations, record):
        raise StsbenchError(f"{path}: {contradiction}")
    try:
        scoring = protocol
        if not intervals and protocol.settings.get("resamples"):
            scoring = type(protocol)({**protocol.settings, "resamples": 0}, protocol.label)
        again = scoring.score(observations, record.data.id, record_task(protocol, record))
        protocol.check_rows(again, record.data.task)
    except StsbenchError:
        raise
    except Exception as error:  # arrays that are missing, too short or of a wrong type may raise anything in `score`
        raise StsbenchError(f"{path} did not observe what {protocol.name} does: {one_line(error)[:300]}") from error
    if not (_same(again, record.scores, ("value", "low", "high") if intervals else ("value",))
            or (_same(again, record.scores, ("value",)) and _as_before(scoring, observations, record))):
        raise StsbenchError(f"{path} was edited: its scores are not those that its observations give")
    return protocol, again, observations


def record_task(protocol: Protocol, record: Record) -> str:
    """Return the task of a record, by the id of its set: SICK-R and SICK-R-MTEB are two sets with one name in records."""
    return {id: name for name, id in protocol.tasks().items()}.get(record.data.id, record.data.task)


def _as_before(protocol: Protocol, observations: Observations, record: Record) -> bool:
    """Return whether a record's intervals are those of an older release."""
    before = protocol.earlier_scores(observations, record.data.id, record_task(protocol, record))
    return before is not None and _same(before, record.scores, ("value", "low", "high"))


def _same(again: Sequence[ScoreRow], stored: Sequence[ScoreRow], compared: Sequence[str]) -> bool:
    names = [[row.model_dump(exclude=_NUMBERS) for row in rows] for rows in (again, stored)]
    if names[0] != names[1]:
        return False
    numbers = [np.array([[getattr(row, key) for key in compared] for row in rows], dtype=float) for rows in (again, stored)]
    return np.allclose(numbers[0], numbers[1], rtol=0, atol=1e-6, equal_nan=True)  # NaN stands for a missing interval
