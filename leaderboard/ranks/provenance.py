"""What a row of the board says of its entry besides scores: its flags, and how, when and at what cost it was measured."""

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
    """Of each run its encoder, costs, seed, versions, command and times. board: its folder's name, for where records are."""
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
    """Return a sentence where code in no commit measured a record: only a board of one's own takes it."""
    records = [item.record for run in loaded.runs for item in run.records]
    changed = any(why_not_repeatable(record.provenance.get("git")) for record in records)
    return ["measured by a checkout with uncommitted changes: nobody can repeat it"] if changed else []


def _costs(records: Sequence[Record]) -> dict[str, Any]:
    """Return what a run says of sizes and, with the machine that they are of, of times. One run has one cost."""
    cost = next((cost for record in records if (cost := recorded_cost(record))), None)
    if cost is None:
        sizes = {bytes_a_vector(record) for record in records}
        return {"bytes_a_vector": sizes.pop() if len(sizes) == 1 else None}
    machine, run_on = machine_and_use(cost)
    half = {record.encoder.spec.get("dtype") for record in records} <= {"bfloat16", "float16"}  # else four bytes a weight
    return {
        **({"weights_mb": 2 * cost.parameters / 1e6} if half and cost.parameters else {}),
        "bytes_a_vector": cost.bytes_a_vector, "parameters": cost.parameters, "machine": machine, "run_on": run_on,
        "sentences_per_second": cost.sentences_per_second,
        "memory_mb": None if cost.memory_bytes is None else cost.memory_bytes / 1e6,
    }


def entry_flags(loaded: LoadedEntry) -> tuple[str, ...]:
    """Return keys of FLAGS: what an entry states, and what its records show."""
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
    """Return the number, where all are equal: tf-idf is as wide as the words of each data set."""
    several = set(numbers)
    return several.pop() if len(several) == 1 else None


def _distinct(values: Iterable[object]) -> list[str]:
    return [str(value) for value in dict.fromkeys(values) if value is not None]
