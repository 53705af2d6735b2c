"""What a picture is drawn from: run folders, their records and their observations. No model, no data, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.display.style import GREY
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Observations, kinds, load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.run_file import load_records, observations_of
from stsbench.registry import DEFAULT_PROTOCOL


@dataclass(frozen=True)
class Drawn:
    """One run in a picture: its record of the drawn task, that record's observations, and its distinct label."""

    label: str
    folder: Path
    record: Record
    observations: Observations

    def value(self, metric: str) -> float:
        """The record's score of this name, over all pairs or sentences."""
        return next(row.value for row in self.record.scores if row.metric == metric and row.subset is None)


def drawn(folders: Sequence[Path], arrays: Sequence[str]) -> list[Drawn]:
    """Each folder's STS-B record by a protocol that observes the first of `arrays` that it has, with observations.

    Raises StsbenchError when a folder has none, when a file is missing or damaged, or when runs were measured on
    different data or with different settings: they cannot share one picture.
    """
    records = [(folder, _record(folder, arrays)) for folder in folders]
    _comparable(records)
    labels = _labels(records)
    return [
        Drawn(label, folder, record, observations_of(folder, record))
        for label, (folder, record) in zip(labels, records, strict=True)
    ]


def mark_sample(drawing: Any, runs: Sequence[Drawn]) -> None:
    """A small note in a picture of the packaged sample, so that it is not taken for a result."""
    if any(run.record.data.text_version == "sample" for run in runs):
        # A title above all panels: the layout keeps its place free.
        drawing.suptitle("sample data", x=0.99, ha="right", fontsize=6, color=GREY)


def sts_average(folder: Path) -> float | None:
    """The run's STS average (all, Spearman, x 100, as papers print it), or None where not all seven tasks were scored
    by cosine on all of their pairs."""
    records = [record for _, record in load_records(folder) if record.protocol.name == DEFAULT_PROTOCOL]
    for record in records:
        settings = record.protocol.settings
        if settings.get("similarity", "cosine") != "cosine" or settings.get("without_overlap"):
            continue  # not the literature's average
        same = [other for other in records if other.protocol == record.protocol]
        protocol = load_protocol(DEFAULT_PROTOCOL)(record.protocol.settings, record.protocol.label)
        for row in protocol.summarise(same):
            if (row.task, row.aggregation, row.metric) == ("Avg", "all", "spearman"):
                return float(row.value)
    return None


def _record(folder: Path, arrays: Sequence[str]) -> Record:
    protocols = [name for array in arrays for name, kind in kinds().items() if array in kind.arrays]
    records = [record for _, record in load_records(folder)]
    for name in protocols:
        of_protocol = [record for record in records if record.protocol.name == name and record.data.id.startswith("stsb/")]
        # Cosines are drawn: a run scored by dot product has none.
        of_protocol = [record for record in of_protocol if record.protocol.settings.get("similarity", "cosine") == "cosine"]
        if of_protocol:
            return min(of_protocol, key=lambda record: record.data.id != "stsb/test")
    wanted = " or ".join(protocols[:2])
    raise StsbenchError(
        f"{folder} has no {wanted} record of STS-B: run `stsbench eval --protocol {protocols[0]}` with this model first"
    )


def _comparable(records: Sequence[tuple[Path, Record]]) -> None:
    (folder, first), *others = records
    for other, record in others:
        if record.data.digest != first.data.digest:
            raise StsbenchError(
                f"{folder} and {other} were measured on different data ({first.data.id}, {first.data.text_version} and "
                f"{record.data.id}, {record.data.text_version}): they cannot share one picture"
            )
        if record.protocol.name != first.protocol.name:
            continue  # the cosines of both protocols are the same
        cosmetic = load_protocol(first.protocol.name).cosmetic
        before, after = ({k: v for k, v in r.protocol.settings.items() if k not in cosmetic} for r in (first, record))
        if before != after:
            key = next(key for key in sorted({*before, *after}) if before.get(key) != after.get(key))
            raise StsbenchError(
                f"{folder} and {other} were measured with different settings ({key}: {before.get(key)} and "
                f"{after.get(key)}): they cannot share one picture"
            )


def _labels(records: Sequence[tuple[Path, Record]]) -> list[str]:
    """The shortest labels that differ between the runs: the model's name, then its pooler too, then the run folder."""
    specs = [record.encoder.spec for _, record in records]
    names = [_short(str(spec.get("name") or "?")) for spec in specs]
    poolers = [spec.get("pooler") for spec in specs]
    both = [f"{name}, {pooler}" if pooler else name for name, pooler in zip(names, poolers, strict=True)]
    folders = [folder.resolve().name for folder, _ in records]
    for labels in (names, both, folders):
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({number})" for number, label in enumerate(folders, start=1)]


def _short(name: str) -> str:
    """A model's name without its folder or owner, at most 28 characters: models differ more at the beginning."""
    last = name.rstrip("/").rpartition("/")[2] or name
    return last if len(last) <= 28 else last[:27] + "…"
