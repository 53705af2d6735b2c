"""What a training run's log says: its lines, its curves, its best dev score, and how much seeds differ. Imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from stsbench.errors import DataError, StsbenchError
from stsbench.parsing import read_json_object

LOG = "log.jsonl"
# What a line of each kind must have; lines of other kinds are kept as they are.
_NEEDED: dict[str, dict[str, Any]] = {
    "start": {"stage": str, "steps": int, "seed": int},
    "train": {"stage": str, "step": int, "loss": (int, float), "terms": dict},
    "dev": {"stage": str, "step": int, "name": str, "score": (int, float, type(None)), "best": bool},  # None: undefined
    "end": {"stage": str, "step": int},
}


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's log.jsonl, in order. A last line that was cut off (the run was killed) is left out.

    Raises DataError, naming file and line, for any other line that is not a log line; StsbenchError where there is no file.
    """
    if not path.is_file():
        raise StsbenchError(f"{path.parent} is not a run folder of `stsbench train`: it has no {path.name}")
    try:
        parts = path.read_bytes().split(b"\n")
    except OSError as error:
        raise StsbenchError(f"cannot read {path}: {error.strerror or error}") from error
    lines = []
    for number, part in enumerate(parts, start=1):
        last = number == len(parts)
        if last and not part:
            break  # what stands behind the last line break
        try:
            line = json.loads(part)
        except (ValueError, RecursionError):
            if last:
                break
            raise DataError(f"{path}:{number}: not JSON: the file is damaged") from None
        if wrong := _wrong(line):
            raise DataError(f"{path}:{number}: {wrong}: the file is damaged or not a log of `stsbench train`")
        lines.append(line)
    return lines


_SCORED = {"kind": "dev", "stage": "", "step": 0, "name": "", "score": 0.0, "best": True}  # what some older ones left out


def _wrong(line: Any) -> str:
    """What a line lacks, or nothing."""
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return "no object with a 'kind'"
    for key, kind in _NEEDED.get(line["kind"], {}).items():
        value = line.get(key)
        if key not in line or not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            return f"'{line['kind']}' line without a proper '{key}'"
    return ""


def curve(log: Sequence[dict[str, Any]], stage: str, key: str) -> tuple[list[int], list[float]]:
    """Steps of a stage and the values of a key there: loss, terms.NAME, learning_rate, ..., or score (of dev lines).

    Lines without a number under that key are passed over.
    """
    steps, values = [], []
    for line in log:
        if line.get("stage") != stage or line["kind"] not in ("train", "dev"):
            continue
        value = line["terms"].get(key[6:]) if key.startswith("terms.") and line["kind"] == "train" else line.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            steps.append(line["step"])
            values.append(float(value))
    return steps, values


def best_dev(log: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The dev line whose weights are kept: the last one marked as the best; None where there is none.

    Only the last stage counts: another stage's best is not what the run gives. But with selection.over "all" a stage's start
    names the best before it (name, score, stage, step), of an earlier run maybe, and that stays where none is better.
    """
    last: dict[str, Any] = next((line for line in reversed(log) if line["kind"] == "start"), {})
    marked = (line for line in reversed(log) if line["kind"] == "dev" and line["best"])
    return next((line for line in marked if last.get("stage") in (None, line["stage"])), last.get("best"))


def summary(run: Path) -> dict[str, Any]:
    """A run in a few numbers.

    seed; best: name, score, stage and step of the dev evaluation whose weights are kept, or None; steps: done, over all
    stages; final_loss: of the last logged line, None before the first; finished: train.json, written at the end, is there;
    seconds, from: what it says. Errors as `read_log`.
    """
    log = read_log(run / LOG)
    starts = {line["stage"]: line for line in log if line["kind"] == "start"}
    if not starts:
        raise StsbenchError(f"{run / LOG} is empty: the run was stopped before its first step")
    trained = [line for line in log if line["kind"] == "train"]
    done = {stage: max((line["step"] for line in log if line.get("stage") == stage and "step" in line), default=0)
            for stage in starts}
    best, stored = best_dev(log), read_summary(run)
    return {
        "seed": next(iter(starts.values()))["seed"],
        "best": {key: best[key] for key in ("name", "score", "stage", "step")} if best else None,
        "steps": sum(done.values()),
        "final_loss": trained[-1]["loss"] if trained else None,
        "finished": stored is not None,
        "seconds": (stored or {}).get("seconds"),
        "from": (stored or {}).get("from"),
    }


def read_summary(run: Path) -> dict[str, Any] | None:
    """What the run's train.json holds; None where there is none. Raises DataError, one line that names the file and key."""
    path = run / "train.json"
    if not path.is_file():
        return None
    stored = read_json_object(path, DataError)
    best, data = stored.get("best"), stored.get("data", {})
    checks = {
        "stages": isinstance(stored.get("stages", {}), dict),
        "data": isinstance(data, dict) and all(isinstance(entry, dict) for entry in data.values()),
        "best": best is None or (isinstance(best, dict) and not _wrong({**_SCORED, **best})),
    }
    if damaged := [key for key, fine in checks.items() if not fine]:
        raise DataError(f"{path} holds no summary of a run: its '{damaged[0]}' is damaged")
    return stored


def spread(values: Mapping[Any, float]) -> dict[str, Any]:
    """mean, sample standard deviation (n - 1; None for n = 1), n, and the values by seed, or another key."""
    scores = list(values.values())
    if not all(map(math.isfinite, scores)):
        raise StsbenchError(f"a score that is NaN or infinite has no mean: {values}")
    sd = stdev(scores) if len(scores) > 1 else None
    return {"mean": fmean(scores), "sd": sd, "n": len(scores), "values": dict(values)}
