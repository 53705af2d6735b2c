"""When two scores may be compared: the same protocol, version, settings, text version, data, aggregation and metric. And
when two encoders' seeds may be compared one by one. Also what a comparison gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.encoders.probe import has_identity
from stsbench.encoders.prompt.prompt import described
from stsbench.evaluation.plan import changed_settings
from stsbench.evaluation.protocol import Observations, Protocol, load_protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.rescore import protocol_of_record, task_of
from stsbench.evaluation.run_file import observations_of
from stsbench.metrics.paired import Difference
from stsbench.notebook import Tabular, html_table, text_table
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

SAME = "A and B name the same encoder"


@dataclass(frozen=True, order=True)
class Setting:
    """How a score was measured, without on what: two scores with different settings never stand in one column.

    settings: canonical JSON of the protocol's settings without the cosmetic ones, which change no score. A paper's preset
    that names the same settings is the same setting.
    """

    protocol: str
    version: int
    settings: str
    text_version: str
    metric: str
    aggregation: str | None = None


def same_encoder(one: Record, other: Record) -> bool:
    """Whether two records are known to be of one encoder. Of what nobody can identify none ever are."""
    return one.encoder.fingerprint == other.encoder.fingerprint and has_identity(one.encoder.spec)


def encoder_in_words(record: Record) -> str:
    """Its name, and what of its settings moves its vectors: "minilm, pooler cls"."""
    spec = record.encoder.spec
    extra = [f"{key} {spec[key]}" for key in ("pooler", "template", "dtype") if spec.get(key) not in (None, "float32")]
    return ", ".join([str(spec["name"]), *extra, *described(spec.get("options") or {})])


@dataclass(frozen=True)
class Measured:
    """One record in the terms of comparisons. `set_id` names the data and the split, `digest` their very content."""

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
        """What the record observed, read once."""
        if not self._read:
            self._read.append(observations_of(self.path.parent, self.record))
        return self._read[0]

    @property
    def read(self) -> Observations | None:
        """The observations, if they were read."""
        return self._read[0] if self._read else None

    def setting(self, row: ScoreRow) -> Setting:
        """The setting of one of the record's rows."""
        how = self.record.protocol
        kept = {key: value for key, value in how.settings.items() if key not in self.protocol.cosmetic}
        return Setting(
            how.name, how.version, json.dumps(kept, sort_keys=True), self.record.data.text_version, row.metric,
            row.aggregation,
        )

    def whole(self) -> list[ScoreRow]:
        """The rows over the whole set, not over a subset of it."""
        return [row for row in self.record.scores if row.subset is None]


def measured(path: Path, record: Record, observations: Observations | None = None) -> Measured:
    """The record at `path`, with its observations where they were read before.

    Raises StsbenchError where its protocol is unknown or another version by now.
    """
    protocol = protocol_of_record(path, record)
    return Measured(path, record, protocol, task_of(protocol, record), [observations] if observations else [])


class SeedPairs:
    """Which encoders of several seeds have these in common, so that their runs can be compared seed by seed.

    Two runs are a pair where their records prove that they share more than a number: the very same weights (an encoder and
    its whitened form), or the same seed and the same weights of the stage before, or the same seed, backbone and training
    data. Encoders are paired where each run of one is a pair with a run of the other. Comparing them by seed never errs
    more often, whether or not what they share makes them alike: a paired t test does not need that.
    """

    def __init__(self, encoders: Sequence[Sequence[Sequence[Record]]]) -> None:
        """encoders: of each, the records of every run. One record's proof is enough."""
        weights = [[_weights(run[0]) for run in runs] for runs in encoders]
        every = [run for runs in encoders for run in runs]
        proofs = [next(filter(None, map(_training, run)), "") for run in every]
        trained = {_weights(run[0]): proof for run, proof in zip(every, proofs, strict=True) if proof}
        self._keys = [[trained.get(digest) or str(digest or "") for digest in runs] for runs in weights]
        distinct: dict[tuple[str, ...], int] = {}
        # The same number for encoders that are paired, -1 for one whose runs share too much to tell which is which.
        self.groups = [
            distinct.setdefault(tuple(sorted(keys)), len(distinct)) if _distinct(keys) else -1 for keys in self._keys
        ]

    def order(self, number: int) -> list[int]:
        """The places of an encoder's runs, so ordered that those of paired encoders stand at the same place."""
        return sorted(range(len(self._keys[number])), key=self._keys[number].__getitem__)


def _weights(record: Record) -> str:
    """Their digest; "" where it names none."""
    spec = record.encoder.spec
    return str(spec.get("weights") or "") if has_identity(spec) else ""


def _distinct(keys: Sequence[str]) -> bool:
    return len(set(keys)) == len(keys) > 1 and all(keys)


def _training(record: Record) -> str:
    """What a run of another method may have in common with this one's, as text; "" where the record does not prove any."""
    provenance = record.provenance
    start = (provenance.get("from") or {}).get("weights")
    shared = [start] if start else [provenance.get("backbone"), provenance.get("data")]
    if provenance.get("seed") is None or not all(shared):
        return ""
    return json.dumps([provenance["seed"], provenance.get("subset"), *shared], sort_keys=True)


@dataclass(frozen=True)
class Compared:
    """One task, or their average: the scores a and b, a less b, and p after Holm's correction over the table's tasks."""

    task: str
    subset: str | None
    n: int
    a: float
    b: float
    difference: Difference
    corrected: float | None = None

    @property
    def name(self) -> str:
        """The task, with the subset where it is of one."""
        return f"{self.task}, {self.subset}" if self.subset else self.task


@dataclass(frozen=True)
class ComparisonTable:
    """One setting. average: where both runs have all the tasks that the protocol averages, else None.

    records: the two runs' first ones, which name it; no_test: why differences stand here without interval and p, or "";
    aside: of tasks that the protocol's average leaves out, which are a table of their own; uneven: the rows in which one
    side's two seeds differ much more than the other's (`metrics.seeds.uneven`).
    """

    setting: Setting
    records: tuple[Record, Record]
    rows: tuple[Compared, ...]
    average: Compared | None
    no_test: str
    aside: bool
    unknown: tuple[str, ...]  # sets that differ from the catalog
    uneven: tuple[Compared, ...]

    @property
    def title(self) -> str:
        how = self.setting
        notes = list(filter(None, [changed_settings(self.records[0].protocol)]))
        notes += [how.text_version] * (how.text_version in ("sample", "raw")) + ["not part of the average"] * self.aside
        what = ", ".join(filter(None, [how.metric, how.aggregation]))
        return f"{how.protocol}: {what}" + (f" ({'; '.join(notes)})" if notes else "")

    def lines(self) -> list[list[str]]:
        """Its cells as text, the header first, the average last."""
        digits = load_protocol(self.setting.protocol).metric(self.setting.metric).digits

        cells = [["task", "n", "A", "B", "A - B", "95 % interval", "p", "p, corrected"]]
        for row in [*self.rows, *filter(None, [self.average])]:
            gap, bounds = row.difference, ""
            if gap.low is not None and gap.high is not None:
                bounds = f"{gap.low:z.{digits}f} to {gap.high:z.{digits}f}"
            numbers = [f"{row.a:.{digits}f}", f"{row.b:.{digits}f}", f"{gap.value:+z.{digits}f}" if gap.value else "0"]
            name = "Avg-full" if row is self.average else row.name
            cells.append([name, str(row.n), *numbers, bounds, _p(gap.p), _p(row.corrected)])
        return cells


def _p(p: float | None) -> str:
    return "" if p is None else f"{p:.4f}" if p >= 0.0001 else "<0.0001"


@dataclass
class Comparison(Tabular):
    """What two encoders share. left_out, failures: (protocol's label, task, reason) of what could not be compared.

    seeds: how many runs A and B are of. by_seed: whether they were compared seed by seed.
    """

    runs: tuple[Record, Record]  # one record of each: the encoders
    seeds: tuple[int, int] = (1, 1)
    by_seed: bool = False
    tables: list[ComparisonTable] = field(default_factory=list)
    left_out: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    def __repr__(self) -> str:
        a, b = map(encoder_in_words, self.runs)
        return f"<Comparison of A ({a}) and B ({b}): {counted(len(self.tables), 'table')}; print it for the differences>"

    def __str__(self) -> str:
        """The differences as a table for each setting, then what could not be compared."""
        return "\n\n".join([self._who(), *(f"{table.title}\n{text_table(table.lines())}" for table in self.tables),
                            *self._missing()])

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        lines = (f"<p>{escape(line)}</p>" for line in [self._who(), *self._missing()])
        return "".join([next(lines), *(html_table(table.title, table.lines()) for table in self.tables), *lines])

    def to_arrow(self) -> pa.Table:
        """A row for each task of each table: the scores a and b, a less b with its 95 % interval, p, and p after Holm's
        correction; before it how both were measured."""
        import pyarrow as pa

        rows = [
            {**asdict(table.setting), "task": row.task, "subset": row.subset, "n": row.n, "a": row.a, "b": row.b,
             "difference": row.difference.value, "low": row.difference.low, "high": row.difference.high,
             "p": row.difference.p, "p_holm": row.corrected}
            for table in self.tables for row in [*table.rows, *filter(None, [table.average])]
        ]
        return pa.Table.from_pylist(rows)

    def _who(self) -> str:
        sides = zip("AB", self.runs, self.seeds, strict=True)
        who = [f"{letter}: {encoder_in_words(run)}{f', {seeds} seeds' if seeds > 1 else ''}" for letter, run, seeds in sides]
        return "; ".join([*who, *([SAME] if self.same else [])])

    @property
    def same(self) -> bool:
        """Whether A and B are known to be one encoder, of one run each."""
        return self.seeds == (1, 1) and same_encoder(*self.runs)

    def _missing(self) -> list[str]:
        return [f"{kind}: {label} {task}: {reason}" for kind, which in
                (("not compared", self.left_out), ("failed", self.failures)) for label, task, reason in which]
