"""What a record says of its encoder's cost, and of the machine that it was measured on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stsbench.encoders.cost import VERSION, Cost
from stsbench.evaluation.records import Record
from stsbench.wording import counted

# Bytes that a number takes; the names are those of quantised copies, and of stores.
_BYTES = {"float32": 4.0, "float16": 2.0, "int8": 1.0, "uint8": 1.0, "binary": 1 / 8, "ubinary": 1 / 8}


def cost_of(record: Record) -> Cost | None:
    """The cost in a record, if there is one."""
    stated = record.provenance.get("cost")
    return None if stated is None else Cost.model_validate(stated)


def bytes_a_vector(record: Record) -> float | None:
    """What a vector takes, by the record's width and precision; None of encoders that may give sparse vectors."""
    spec, width = record.encoder.spec, record.encoder.dimension
    if spec.get("kind") in ("lexical", "callable"):
        return None
    options = spec.get("options") or {}
    precision = options.get("precision") or (options.get("dtype") if spec.get("kind") == "vectors" else None) or "float32"
    return None if precision not in _BYTES else float(-(-width * _BYTES[precision] // 1))


def settings_of(cost: Cost) -> tuple[Any, ...]:
    """Where and how the time was taken; device and threads are None of what computes without torch, and fit any."""
    alone = cost.threads is None and cost.device == "cpu"
    how = (None, None) if alone else (cost.device, cost.threads)
    return cost.machine.cpu, cost.machine.cores, (cost.where, cost.processes), cost.probe, *how


def machine_and_use(cost: Cost) -> tuple[str, str | None]:
    """Return the kind of a machine, and how it was used: None of what computes without torch, which fits any use."""
    machine, use = setting_in_words(settings_of(cost))
    return machine, use or None


def setting_in_words(setting: Sequence[Any]) -> tuple[str, str]:
    """Return the kind of a machine, and how it was used, of `settings_of`: 'AMD EPYC 7763, 2 cores', 'cpu, 2 threads'."""
    cpu, cores, (where, processes), probe, device, threads = setting
    way = {"processes": f"{processes} processes", "server": "a server"}.get(where, "")
    texts = "" if probe == VERSION else f"probe texts {probe}"
    machine = ", ".join(filter(None, [cpu, counted(cores, "core"), way, texts]))
    use = [device if device not in (None, "server") else "", counted(threads, "thread") if threads else ""]
    return machine, ", ".join(filter(None, use))
