"""Provenance and flags of an entry: the encoder, code, device, time and cost behind its scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any

from stsbench.comparison.comparability import bytes_a_vector, machine_and_use, recorded_cost
from stsbench.evaluation.provenance import why_not_repeatable
from stsbench.evaluation.records import Record
from stsbench.evaluation.run_file import RUN
from stsbench.leaderboard.records.entries import LoadedEntry

from .board import FLAGS, Provenance
from .exposure import is_transductive


def read_provenance(loaded: LoadedEntry, board: str) -> Provenance:
    """Return an entry's provenance, with each run's encoder, costs and command. board: name of its folder, for paths."""
    runs = []
    for run in loaded.runs:
        first = run.records[0].record
        provenances = [item.record.provenance for item in run.records]
        times = [item.record.created for item in run.records]
        runs.append({
            "fingerprint": first.encoder.fingerprint, "encoder": dict(first.encoder.spec),
            "width": _common(item.record.encoder.dimension for item in run.records),
            "costs": _costs([item.record for item in run.records]),
            "seed": next((about["seed"] for about in provenances if "seed" in about), None),
            "versions": dict(provenances[0].get("versions", {})), "python": provenances[0].get("python"),
            "revision": _distinct(about.get("git") for about in provenances),
            "device": _distinct(about.get("device") for about in provenances),
            "command": _distinct(" ".join(about["command"]) if about.get("command") else None for about in provenances),
            "measured": [end.astimezone(UTC).isoformat() for end in (min(times), max(times))],
            "records": f"{len(run.records)} in {board}/measured/{loaded.id}/{run.folder.name}/{RUN}",
        })
    entry = loaded.entry
    prompts = tuple(dict.fromkeys(run.prompt for run in loaded.prompts))
    facts = {"licence": entry.licence, "released": entry.released, "languages": list(entry.languages), "hub": entry.hub,
             "max_tokens": _common(run.spec.get("max_length") for run in loaded.runs)}
    return Provenance(loaded.id, entry.method, entry.note, entry.recipe, tuple(runs), prompts, loaded.prompt_entries, facts)


def uncommitted(loaded: LoadedEntry) -> list[str]:
    """Return a warning if a record was measured by uncommitted code, else []. Only users' own boards take such records."""
    records = [item.record for run in loaded.runs for item in run.records]
    changed = any(why_not_repeatable(record.provenance.get("git")) for record in records)
    return ["measured by a checkout with uncommitted changes: nobody can repeat it"] if changed else []


def _costs(records: Sequence[Record]) -> dict[str, Any]:
    """Return the sizes and, with the machine, the speed and memory that a run's records state: the first recorded cost."""
    cost = next((cost for record in records if (cost := recorded_cost(record))), None)
    if cost is None:
        sizes = {bytes_a_vector(record) for record in records}
        return {"bytes_a_vector": sizes.pop() if len(sizes) == 1 else None}
    machine, run_on = machine_and_use(cost)
    half = {record.encoder.spec.get("dtype") for record in records} <= {"bfloat16", "float16"}  # else four bytes per weight
    return {
        **({"weights_mb": 2 * cost.parameters / 1e6} if half and cost.parameters else {}),
        "bytes_a_vector": cost.bytes_a_vector, "parameters": cost.parameters, "machine": machine, "run_on": run_on,
        "sentences_per_second": cost.sentences_per_second,
        "memory_mb": None if cost.memory_bytes is None else cost.memory_bytes / 1e6,
    }


def entry_flags(loaded: LoadedEntry) -> tuple[str, ...]:
    """Return the entry's keys of FLAGS, in their order: those that it states, and those that its records show."""
    flags: set[str] = {*loaded.entry.flags}
    if any(is_transductive(item.record, item.set_id) for run in loaded.runs for item in run.records):
        flags.add("transductive")
    if loaded.changed:
        flags.add("changed-recipe")
    if loaded.entry.best_of:
        flags.add("best-of-n")
    if loaded.twins:
        flags.add("near-copy")
    return tuple(flag for flag in FLAGS if flag in flags)


def _common(numbers: Iterable[int | None]) -> int | None:
    """Return the number if all are equal, else None: the width of tf-idf vectors differs between data sets."""
    several = set(numbers)
    return several.pop() if len(several) == 1 else None


def _distinct(values: Iterable[object]) -> list[str]:
    return [str(value) for value in dict.fromkeys(values) if value is not None]
