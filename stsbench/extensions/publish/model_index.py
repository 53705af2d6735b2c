"""A run's scores as the Hugging Face Hub's `model-index` metadata: one EvalResult per score, none lost or merged."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stsbench.data.sets import FROM_MTEB
from stsbench.data.sets.catalog import BY_ID, entries, entry, hub_revision
from stsbench.encoders.traits import is_transductive, was_trained_on
from stsbench.evaluation.protocol import Protocol
from stsbench.evaluation.records import ProtocolIdentity, Record, ScoreRow, Scores, record_name
from stsbench.evaluation.rescore import protocol_of_record, rescored_averages
from stsbench.evaluation.run_file import read_observations
from stsbench.evaluation.tables import AVERAGES, SAMPLE, format_score
from stsbench.wording import visible, without_paths

TEXT = {"senteval": "SentEval's text", "raw": "raw text", "sample": SAMPLE, "own": "the user's own data"}
# mteb's task type -> the id in the Hub's own list of tasks (huggingface.js, packages/tasks/src/pipelines.ts).
MTEB_TASKS = {"STS": "sentence-similarity", "Classification": "text-classification", "Retrieval": "text-retrieval",
              "Reranking": "text-ranking"}
LIBRARIES = ("sentence-transformers", "transformers")  # kinds of encoder that are libraries of the Hub
DATASET_TYPE = re.compile(r"(?:[\w-]+/)?[\w.-]+", re.ASCII)  # what the Hub accepts (embeddings-benchmark/mteb#1111)
# Fields that distinguish two measurements in the Hub's format, besides the config (EvalResult.unique_identifier).
IDENTITY = ("task_type", "dataset_type", "dataset_split", "dataset_revision")
# A path that says something of the machine: absolute, or from the home or the working folder.


@dataclass
class Group:
    """The records of one table: one protocol with one choice of settings, on one text version, each set once."""

    protocol: Protocol
    identity: ProtocolIdentity
    text_version: str
    folder: Path
    records: list[Record] = field(default_factory=list)

    @cached_property
    def summaries(self) -> list[ScoreRow]:
        """Return the averages, where the protocol has any."""
        return rescored_averages(self.folder, self.protocol, self.records)

    @property
    def changed(self) -> dict[str, Any]:
        """Return settings that change a score and are not those of the protocol, or of its form that the label names."""
        kind, word = type(self.protocol), self.identity.label.partition(":")[2]
        usual = kind(kind.variants.get(word, {})).settings
        unsaid = {*kind.cosmetic, "tasks", "resamples", "bootstrap_seed"}
        chosen = self.identity.settings
        return {key: chosen[key] for key in chosen if key not in unsaid and (key not in usual or usual[key] != chosen[key])}


def group_records(result: Scores) -> list[Group]:
    """Return the records of a result by protocol, settings and text version, so that no table or average mixes two
    measurements."""
    groups: dict[tuple[str, str, int], Group] = {}
    for record in result.records:
        number = 0
        while True:  # a set that is there twice, with different content, gets another table
            key = (record.protocol.model_dump_json(), record.data.text_version, number)
            if key not in groups:
                protocol = protocol_of_record(result.folder, record)
                groups[key] = Group(protocol, record.protocol, record.data.text_version, result.folder)
            if record.data.id not in {earlier.data.id for earlier in groups[key].records}:
                break
            number += 1
        groups[key].records.append(record)
    return list(groups.values())


def card_data(result: Scores) -> Any:
    """Return huggingface_hub's ModelCardData of a result; its `eval_results` hold every score row, and every average."""
    from huggingface_hub import ModelCardData

    kind = result.records[0].encoder.spec["kind"]
    library = kind if kind in LIBRARIES else None
    return ModelCardData(
        model_name=encoder_name(result), library_name=library, eval_results=list(_eval_results(result)),
        pipeline_tag="sentence-similarity" if library == "sentence-transformers" else None,
        tags=["sentence-similarity", "feature-extraction", "sentence-embeddings", "stsbench"],
    )


def _eval_results(result: Scores) -> Iterable[Any]:
    """Yield one EvalResult a score. The Hub's format merges what shares task, dataset type, config, split and revision:
    where two measurements would agree in all of these, the later one's config gets a digest."""
    from huggingface_hub import EvalResult

    taken: set[tuple[Any, ...]] = set()
    for group in group_records(result):
        settings = {"settings": group.changed} if group.changed else {}
        common = {"protocol": group.identity.name, "protocol_version": group.identity.version, **settings}
        measured = [_measured(result, group, record) for record in group.records]
        if group.summaries:
            measured.append(_averaged(group))
        for rows, digest, where in measured:
            key = (visible(group.identity.label), *(where.get(name) for name in IDENTITY))
            where["dataset_config"] = f"{key[0]} {digest}" if key in taken else key[0]
            where["dataset_args"] = {**common, **where["dataset_args"]}
            taken.add(key)
            for row in rows:
                yield EvalResult(**where, **_metric(group, row), metric_value=float(format_score(row)))


def _measured(result: Scores, group: Group, record: Record) -> tuple[list[ScoreRow], str, dict[str, Any]]:
    """Return a record's rows, a digest of all that identifies it, and what its EvalResults say of task and data."""
    data, name = record.data, record_name(record)
    fitted = record.encoder.spec.get("fitted_on")
    items = record.counts.get("items", data.n)
    args = {"text_view": data.text_version, "items": items, "known": data.known, "digest": data.digest, "record": name,
            "encoder": record.encoder.fingerprint}
    where: dict[str, Any] = {
        "task_type": group.protocol.hub_task_name(record.scores), "dataset_type": _slug(f"{data.text_version}-{data.shown}"),
        "dataset_split": _split(group.protocol, record),
        "dataset_name": f"{visible(record.scores[0].task)} ({visible('; '.join(record_words(record)))})",
        "dataset_args": {**args, **({"encoder_fitted_on": fitted} if fitted else {})},
    }
    if data.id.startswith(FROM_MTEB):
        where |= _of_mteb(read_observations(result.folder, record).names)
    elif revision := hub_revision(data.id, data.text_version, data.known, data.n):
        hub = entry(data.id, "raw").hub
        assert hub is not None  # it has that revision
        where |= {"dataset_type": hub.repo, "dataset_revision": revision, "dataset_split": "test"}
    elif not data.known:
        where["dataset_type"] = f"unknown-{where['dataset_type']}"
    elif _is_part(record):
        where["dataset_type"] += "-part"
    return record.scores, name.rpartition(".")[2], where


def _averaged(group: Group) -> tuple[list[ScoreRow], str, dict[str, Any]]:
    """Return the same of a group's averages: they are on several sets, so no data set of the Hub."""
    digest = hashlib.sha256(group.identity.model_dump_json().encode()).hexdigest()
    names = ", ".join(group.protocol.averaged or group.protocol.tasks())
    on = "; ".join(dict.fromkeys(part for record in group.records for part in record_words(record)))
    where = {
        "task_type": group.protocol.hub_task, "dataset_type": _slug(f"{group.text_version}-{group.identity.name}-average"),
        "dataset_name": f"Average of {visible(names)} ({visible(on)})",
        "dataset_args": {"text_view": group.text_version},
    }
    return group.summaries, digest[:12], where


def _metric(group: Group, row: ScoreRow) -> dict[str, Any]:
    """Return type, name and config of a score's metric: the aggregation is in each, so that no two look alike."""
    (base, name), how = group.protocol.hub_metric(row.metric), row.aggregation
    parts = [f"subset {row.subset}"] if row.subset else []
    if row.task in AVERAGES:
        parts.append("mean of two-decimal scores" if row.task == "Avg" else "mean of unrounded scores")
    suffix = "" if (how or "all") == "all" else f" {how}"
    kind = f"{base}{suffix}{' subset' if row.subset else ''}{' unrounded' if row.task == 'Avg-full' else ''}"
    name = ", ".join([f"{name} ({how})" if how else name, *parts])
    return {"metric_type": _slug(kind.replace("@", " at "), "_"), "metric_name": visible(name), "metric_config": how}


def _of_mteb(names: dict[str, list[str]]) -> dict[str, Any]:
    """Return the Hub's data set that mteb loaded, if the installed mteb still describes that very revision."""
    from stsbench.data.fetch.mteb import undisturbed

    task_result = json.loads(names["task_result"][0])
    with undisturbed() as mteb:
        try:
            about = mteb.get_task(task_result["task_name"]).metadata
        except KeyError:  # another version of mteb
            return {}
    where = {"task_type": MTEB_TASKS.get(about.type, "feature-extraction"), "task_name": about.type}
    path, revision = about.dataset.get("path"), about.dataset.get("revision")
    if not DATASET_TYPE.fullmatch(str(path)) or revision != task_result["dataset_revision"]:
        return where
    splits = dict.fromkeys(names["split"])
    return {**where, "dataset_type": path, "dataset_revision": revision, "dataset_split": "+".join(splits)}


def _split(protocol: Protocol, record: Record) -> str | None:
    """Return the split that is scored; "all" where the splits are one set, or every item is tested in some fold."""
    if protocol.trained and "test" in record.data.subsets:
        return "test"
    return next((item.split for item in entries() if item.id == record.data.id), None)


def _is_part(record: Record) -> bool:
    """Return whether pairs of the set were left out."""
    totals = {(item.id, item.text_version): item.total for item in entries()}
    return totals.get((record.data.id, record.data.text_version), record.data.n) != record.data.n


def record_words(record: Record) -> list[str]:
    """Return what a record was measured on, with all that makes its scores incomparable."""
    data, fitted = record.data, record.encoder.spec.get("fitted_on")
    parts = ["as mteb defines it"] if data.id in BY_ID else [TEXT[data.text_version]]
    if data.id.startswith(FROM_MTEB):
        return ["loaded by mteb from the Hub"]
    if hub_revision(data.id, data.text_version, data.known, data.n):
        parts = ["raw text, the Hub's file"]
    if not data.known:
        parts.append("files differ from the catalog")
    if sets := record.protocol.settings.get("without_overlap"):
        parts.append(f"without the pairs that share a sentence with {', '.join(sets)}")
    if is_transductive(fitted, data.id):
        parts.append("the encoder was fitted on these very texts")
    if was_trained_on(record.provenance.get("trained_on", ()), data.id):
        parts.append("the encoder was trained on these sentences")
    return parts


def encoder_name(result: Scores) -> str:
    """Return the encoder's name on one line, a path reduced to its last part."""
    return visible(without_paths(str(result.records[0].encoder.spec["name"]))).strip() or "encoder"


def _slug(text: str, joint: str = "-") -> str:
    """Return `text` in the characters that the Hub takes in a dataset's or metric's type."""
    return re.sub(r"[^A-Za-z0-9._-]+", joint, text).strip(joint) or "unnamed"
