"""Comparability of scores: the same protocol, version, settings, text version, data, aggregation and metric; and of two
encoders' seeds and costs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stsbench.encoders.probe import has_identity
from stsbench.evaluation.protocol import Observations, Protocol
from stsbench.evaluation.records import PROBE, Cost, Record, ScoreRow
from stsbench.evaluation.rescore import protocol_of_record, record_task
from stsbench.evaluation.run_file import read_observations
from stsbench.wording import counted

# Bytes of a number in each precision, by its name in quantised encoders and in folders of vectors.
_BYTES = {"float32": 4.0, "float16": 2.0, "int8": 1.0, "uint8": 1.0, "binary": 1 / 8, "ubinary": 1 / 8}


@dataclass(frozen=True, order=True)
class Setting:
    """How a score was measured, except for the data; scores with different settings are never in one column.

    settings: canonical JSON of the protocol's settings without the cosmetic ones, which change no score. A paper's preset
    with the same settings has the same Setting.
    """

    protocol: str
    version: int
    settings: str
    text_version: str
    metric: str
    aggregation: str | None = None


def same_encoder(first: Record, second: Record) -> bool:
    """Return whether two records are known to be of one encoder; False for encoders that nothing identifies."""
    return first.encoder.fingerprint == second.encoder.fingerprint and has_identity(first.encoder.spec)


@dataclass(frozen=True)
class Measured:
    """A record with its protocol and task. `set_id` names the data and the split, `digest` identifies their content."""

    path: Path
    record: Record
    protocol: Protocol
    task: str
    _read: list[Observations] = field(default_factory=list, repr=False, compare=False)

    @property
    def set_id(self) -> str:
        return self.record.data.id

    @property
    def digest(self) -> str:
        return self.record.data.digest

    def observed(self) -> Observations:
        """Return the record's observations, which are read from its run at the first call."""
        if not self._read:
            self._read.append(read_observations(self.path.parent, self.record))
        return self._read[0]

    @property
    def read(self) -> Observations | None:
        """Return the observations if they have been read, else None."""
        return self._read[0] if self._read else None

    def setting(self, row: ScoreRow) -> Setting:
        """Return the setting of one of the record's rows."""
        how = self.record.protocol
        kept = {key: value for key, value in how.settings.items() if key not in self.protocol.cosmetic}
        return Setting(
            how.name, how.version, json.dumps(kept, sort_keys=True), self.record.data.text_version, row.metric,
            row.aggregation,
        )

    def whole(self) -> list[ScoreRow]:
        """Return the record's rows over the whole set, without those of subsets."""
        return [row for row in self.record.scores if row.subset is None]


def measured(path: Path, record: Record, observations: Observations | None = None) -> Measured:
    """Return the `Measured` of the record at `path`. observations: those of the record, where they were read before.

    Raises StsbenchError where its protocol is unknown or now has another version.
    """
    protocol = protocol_of_record(path, record)
    return Measured(path, record, protocol, record_task(protocol, record), [observations] if observations else [])


class SeedPairs:
    """Pairing of encoders' runs by seed.

    Two runs are a pair where their records prove that they share more than a seed's number: the same weights (an encoder and
    its whitened form), or the same seed and the same weights of the stage before, or the same seed, backbone and training
    data. Encoders are paired where each run of one is a pair with a run of the other. A comparison by seed never errs more
    often, whether or not paired runs are correlated, as a paired t test does not need that.
    """

    def __init__(self, encoders: Sequence[Sequence[Sequence[Record]]]) -> None:
        """Find the pairs. encoders: each encoder's records of every run; one record that proves a pair is enough."""
        weights = [[_weights(run[0]) for run in runs] for runs in encoders]
        every = [run for runs in encoders for run in runs]
        proofs = [next(filter(None, map(_training, run)), "") for run in every]
        trained = {_weights(run[0]): proof for run, proof in zip(every, proofs, strict=True) if proof}
        self._keys = [[trained.get(digest) or str(digest or "") for digest in runs] for runs in weights]
        distinct: dict[tuple[str, ...], int] = {}
        # Equal numbers for paired encoders; -1 for an encoder of one run, or whose runs' keys are equal or missing.
        self.groups = [
            distinct.setdefault(tuple(sorted(keys)), len(distinct)) if len(set(keys)) == len(keys) > 1 and all(keys) else -1
            for keys in self._keys
        ]

    def order(self, number: int) -> list[int]:
        """Return the indices of an encoder's runs, in an order in which the runs of paired encoders correspond."""
        return sorted(range(len(self._keys[number])), key=self._keys[number].__getitem__)


def _weights(record: Record) -> str:
    """Return the digest of the encoder's weights; "" where its spec has none, or it has no identity."""
    spec = record.encoder.spec
    return str(spec.get("weights") or "") if has_identity(spec) else ""


def _training(record: Record) -> str:
    """Return what runs of different methods may share, as JSON: seed, and weights of the stage before, or backbone and data;
    "" where the record does not state them."""
    provenance = record.provenance
    start = (provenance.get("from") or {}).get("weights")
    shared = [start] if start else [provenance.get("backbone"), provenance.get("data")]
    if provenance.get("seed") is None or not all(shared):
        return ""
    return json.dumps([provenance["seed"], provenance.get("subset"), *shared], sort_keys=True)


def recorded_cost(record: Record) -> Cost | None:
    """Return the cost in a record's provenance, or None."""
    stated = record.provenance.get("cost")
    return None if stated is None else Cost.model_validate(stated)


def bytes_a_vector(record: Record) -> float | None:
    """Return the bytes of a vector, by the record's dimension and precision; None for encoders whose vectors may be sparse,
    or which have none."""
    spec, width = record.encoder.spec, record.encoder.dimension
    if not width or spec.get("kind") in ("lexical", "callable"):
        return None
    options = spec.get("options") or {}
    precision = options.get("precision") or (options.get("dtype") if spec.get("kind") == "vectors" else None) or "float32"
    return None if precision not in _BYTES else float(-(-width * _BYTES[precision] // 1))


def timing_settings(cost: Cost) -> tuple[Any, ...]:
    """Return the conditions of a timing: machine, processes, texts, device, threads; the last two None without torch."""
    alone = cost.threads is None and cost.device == "cpu"
    how = (None, None) if alone else (cost.device, cost.threads)
    return cost.machine.cpu, cost.machine.cores, (cost.where, cost.processes), cost.probe, *how


def machine_and_use(cost: Cost) -> tuple[str, str | None]:
    """Return the kind of machine and its use (device, threads) as texts; the use is None for encoders without torch."""
    machine, use = setting_in_words(timing_settings(cost))
    return machine, use or None


def setting_in_words(setting: Sequence[Any]) -> tuple[str, str]:
    """Return the `timing_settings` as two texts, machine and use, such as 'AMD EPYC 7763, 2 cores' and 'cpu'."""
    cpu, cores, (where, processes), probe, device, threads = setting
    way = {"processes": f"{processes} processes", "server": "a server"}.get(where, "")
    texts = "" if probe == PROBE else f"probe texts {probe}"
    machine = ", ".join(filter(None, [cpu, counted(cores, "core"), way, texts]))
    use = [device if device not in (None, "server") else "", counted(threads, "thread") if threads else ""]
    return machine, ", ".join(filter(None, use))
