"""Runs' observations scored under every aggregation and metric that they allow: the scores that `identify` searches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stsbench.comparison.comparability import Measured, measured
from stsbench.encoders.prompt.reading import described_reading
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.protocol import Protocol, kinds, load_protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.rescore import encoder_key, rescored
from stsbench.evaluation.run_file import load_records, read_observations, runs_below


@dataclass
class Form:
    """A protocol with its score-changing settings, as JSON. rows: (task or task/subset, aggregation, metric) -> score."""

    name: str  # "sts", "sts (similarity dot)", "transfer:exact"
    protocol: Protocol
    settings: str
    rows: dict[tuple[str, str | None, str], ScoreRow] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)  # task -> id of the set it was measured on
    measured_on: dict[str, tuple[str, Path]] = field(default_factory=dict)  # task -> digest of the data, record

    @property
    def tasks(self) -> set[str]:
        """Return the tasks that were measured, and all others of the protocol."""
        return {*self.sets, *self.protocol.tasks()}

    def row(self, label: str, how: str | None, metric: str) -> ScoreRow | None:
        """Return the score of a task, or of a subset, for which `how` (the aggregation) is ignored; None for none."""
        return self.rows.get((label, None if "/" in label else how, metric))


@dataclass
class Observed:
    """An encoder's observations in one text version. forms: (protocol, settings) -> form."""

    encoder: str
    text_version: str
    forms: dict[tuple[str, str], Form] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)  # sets that differ from the catalog

    def protocol_forms(self, protocol: str) -> list[Form]:
        """Return the observed forms of a protocol."""
        return [form for (name, _), form in self.forms.items() if name == protocol]


def run_folders(folder: Path) -> list[Path]:
    """Return the run folders among `folder` and the folders at most two levels below it; [] for a model's folder."""
    if not folder.is_dir():
        return []
    return runs_below(folder, "", "*", "*/*")


def observed(folders: Iterable[Path], log: Callable[[str], None]) -> list[Observed]:
    """Return the observations in run folders by encoder and text version. log: called for each record without a score.

    Raises StsbenchError, naming the file, for a record that was edited or is of another version of its protocol, and
    where two runs of one encoder measured different data under one name.
    """
    encoders: dict[tuple[str, str], Observed] = {}
    for folder in folders:
        for path, record in load_records(folder):
            try:
                rescored(path, record)  # refuses an edited record
                one = measured(path, record)
                rows = _widened(one)
            except ScoreError as error:
                log(f"left out: {path.name}: {error}")
                continue
            key = (encoder_key(record), record.data.text_version)
            of_encoder = encoders.setdefault(key, Observed(_encoder_name(record), record.data.text_version))
            _add(of_encoder, one, rows)
    return _numbered(list(encoders.values()))


def empty(protocol: str, word: str = "") -> Form:
    """Return a form of a protocol, or of its variant `word`, without scores."""
    kind = load_protocol(protocol)
    return Form(f"{protocol}:{word}" if word else protocol, kind(kind.variants[word] if word else {}), "")


def known_tasks(observed: Sequence[Observed]) -> list[str]:
    """Return the tasks of all protocols, then the further tasks and subsets in the runs."""
    names = [task for kind in kinds().values() for task in kind({}).tasks()]
    observed_labels = [label for encoder in observed for form in encoder.forms.values() for label, _, _ in form.rows]
    return list(dict.fromkeys([*names, *observed_labels]))


def score_settings(protocol: Protocol) -> dict[str, Any]:
    """Return the settings of a protocol that change a score."""
    return {key: value for key, value in protocol.settings.items() if key not in protocol.cosmetic}


def _add(encoder: Observed, measured: Measured, rows: list[ScoreRow]) -> None:
    settings = json.dumps(score_settings(measured.protocol), sort_keys=True)
    key = (measured.protocol.name, settings if measured.protocol.name != "mteb" else measured.record.protocol.label)
    form = encoder.forms.setdefault(key, Form(_name(measured), measured.protocol, settings))
    digest, path = form.measured_on.setdefault(measured.task, (measured.digest, measured.path))
    if digest != measured.digest:
        both = f"{measured.path} and {path} measured {encoder.encoder} on different data"
        raise StsbenchError(f"{both}, both named {measured.set_id}: give one of the runs")
    if not measured.record.data.known and measured.set_id not in encoder.unknown:
        encoder.unknown.append(measured.set_id)
    form.sets[measured.task] = measured.set_id
    for row in rows:
        label = measured.task if row.subset is None else f"{measured.task}/{row.subset}"
        form.rows.setdefault((label, row.aggregation, row.metric), row)


def _widened(measured: Measured) -> list[ScoreRow]:
    """Return a record's scores under every aggregation and metric, also those that its preset leaves out."""
    kind = type(measured.protocol)
    defaults = kind({}).settings if measured.protocol.name != "mteb" else {}
    wide: dict[str, Any] = {key: defaults[key] for key in ("aggregations", "metrics") if key in defaults}
    if all(measured.protocol.settings[key] == value for key, value in wide.items()):
        return measured.record.scores
    none = {"resamples": 0} if "resamples" in defaults else {}
    observations = read_observations(measured.path.parent, measured.record)
    return kind({**measured.protocol.settings, **wide, **none}).score(observations, measured.set_id, measured.task)


def _name(measured: Measured) -> str:
    """Return the name of the nearest variant of the record's protocol and, in brackets, the settings that differ from it."""
    protocol = measured.protocol
    if protocol.name == "mteb" or protocol.user_path:
        return measured.record.protocol.label
    kind, settings = type(protocol), score_settings(protocol)
    nearest: tuple[str, list[str]] | None = None
    for word in ("", *kind.variants):
        defaults = score_settings(kind(kind.variants[word] if word else {}))
        changes = [f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()
                   if defaults.get(key) != value]
        if nearest is None or len(changes) < len(nearest[1]):
            nearest = (f"{protocol.name}:{word}" if word else protocol.name, changes)
    assert nearest is not None
    return nearest[0] + (f" ({', '.join(nearest[1])})" if nearest[1] else "")


def _encoder_name(record: Record) -> str:
    spec = record.encoder.spec
    name = str(spec["name"])
    parts = [Path(name).name or name if name.startswith((".", "/", "~")) else name]
    parts += [f"{key} {spec[key]}" for key in ("pooler", "template", "prefix", "post") if spec.get(key) is not None]
    return ", ".join([*parts, *described_reading(spec.get("options") or {}, brief=True)])


def _numbered(encoders: list[Observed]) -> list[Observed]:
    """Return the encoders, with a number added to equal names."""
    for encoder in encoders:
        same = [other for other in encoders
                if (other.encoder, other.text_version) == (encoder.encoder, encoder.text_version)]
        if len(same) > 1:
            for number, other in enumerate(same, 1):
                other.encoder += f" (number {number})"
    return encoders
