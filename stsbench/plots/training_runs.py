"""Training runs as curves over steps: one log per run or per seed; the stages of all runs on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.training.runs.report import LOG, best_dev, curve, read_log

Floats = NDArray[np.float64]
Curve = tuple[NDArray[np.int64], Floats]  # steps of a stage, values
# What every train line has; other numbers in one are a method's own metrics.
_COMMON = ("kind", "stage", "step", "epoch", "loss", "terms", "learning_rate", "gradient_norm", "sentences_per_second")
# dev scores by how their names begin: "(sample)" may follow
UNITS = {
    "dev:sts-b dev": "Spearman × 100", "dev:avg_sts": "Spearman × 100", "dev:sts:": "Spearman × 100",
    "dev:pairs:": "average precision × 100", "dev:transfer dev": "mean accuracy × 100",
}


@dataclass(frozen=True)
class Trained:
    """One line of a picture: a run, or the runs of several seeds."""

    folder: Path
    logs: list[list[dict[str, Any]]]  # one per seed

    def stages(self) -> dict[str, tuple[int, int]]:
        """Stage -> the steps before it and those until its end, in the order of training."""
        lengths: dict[str, int] = {}
        for line in (line for log in self.logs for line in log if line["kind"] == "start"):
            lengths[line["stage"]] = max(lengths.get(line["stage"], 0), line["steps"])
        ends = np.cumsum(list(lengths.values())).tolist()
        return {stage: (end - length, end) for (stage, length), end in zip(lengths.items(), ends, strict=True)}

    def curves(self, stage: str, key: str) -> list[Curve]:
        """A key's curve in a stage, one per seed, at the steps that all seeds have; empty where no seed has it.

        key: as in `curve`, or "dev:NAME" for a dev score. Raises StsbenchError where the seeds have no step in common.
        """
        logs = self.logs
        if key.startswith("dev:"):
            logs = [[line for line in log if line["kind"] == "dev" and line["name"] == key[4:]] for log in logs]
        curves = [curve(log, stage, "score" if key.startswith("dev:") else key) for log in logs]
        if not all(steps for steps, _ in curves):
            if any(steps for steps, _ in curves):
                raise StsbenchError(f"{self.folder}: not every seed has logged {key} in stage {stage}: draw each seed alone")
            return []
        common = set.intersection(*(set(steps) for steps, _ in curves))
        if not common:
            raise StsbenchError(f"{self.folder}: its seeds have no common step with {key}: draw each seed alone")
        at = np.array(sorted(common))
        return [(at, np.array([dict(zip(*points, strict=True))[step] for step in at.tolist()])) for points in curves]

    def bests(self, name: str) -> list[dict[str, Any]]:
        """Each seed's dev line whose weights were kept, where it is of this name and of a stage that this run trained."""
        bests = [best for log in self.logs if (best := best_dev(log)) and best["name"] == name]
        return [best for best in bests if best["stage"] in self.stages()]


def trained(folder: Path) -> Trained:
    """The run in a folder, or the seeds below it. Raises StsbenchError where there is none, or one without a step."""
    seeds = sorted(folder.glob(f"seed-*/{LOG}"), key=lambda path: (len(path.parent.name), path))
    if not folder.is_dir():
        raise StsbenchError(f"{folder} does not exist: expected a run folder")
    paths = [folder / LOG] if (folder / LOG).exists() or not seeds else seeds
    logs = [read_log(path) for path in paths]
    for path, log in zip(paths, logs, strict=True):
        if not any(line["kind"] in ("train", "dev") for line in log):
            raise StsbenchError(f"{path} has no logged step yet: nothing to draw")
        started = {line["stage"] for line in log if line["kind"] == "start"}
        if lost := next((line["stage"] for line in log if line.get("stage", "") not in started | {""}), None):
            raise StsbenchError(f"{path} has lines of stage {lost} but not its start: the file was edited")
    return Trained(folder, logs)


def panel_keys(runs: Sequence[Trained]) -> list[str]:
    """What there is to draw: the loss where it has several terms, its terms, metrics, dev scores, rate and norm."""
    lines = [line for run in runs for log in run.logs for line in log]
    train = [line for line in lines if line["kind"] == "train"]
    terms = list(dict.fromkeys(f"terms.{name}" for line in train for name in line["terms"]))
    pairs = [(key, value) for line in train for key, value in line.items() if key not in _COMMON]
    more = dict.fromkeys(key for key, value in pairs if isinstance(value, int | float) and not isinstance(value, bool))
    dev = dict.fromkeys(f"dev:{line['name']}" for line in lines if line["kind"] == "dev")
    rest = [key for key in ("learning_rate", "gradient_norm") if any(line.get(key) is not None for line in train)]
    return [*(["loss"] if train and len(terms) != 1 else []), *terms, *more, *dev, *rest]


def names(runs: Sequence[Trained]) -> list[str]:
    """The runs' folder names, or paths where those are alike; with the number of seeds."""
    shown = [run.folder.resolve().name for run in runs]
    if len(set(shown)) < len(shown):
        shown = [str(run.folder) for run in runs]
    if len(set(shown)) < len(shown):
        shown = [f"{name} ({number})" for number, name in enumerate(shown, start=1)]
    seeds = [f", {len(run.logs)} seeds" if len(run.logs) > 1 else "" for run in runs]
    return [name + of for name, of in zip(shown, seeds, strict=True)]


def labels(runs: Sequence[Trained]) -> list[str]:
    """`names`, with each run's best dev score."""
    bests = [best_score(run) for run in runs]
    return [f"{name}: best {dev} {text}" if dev else name for name, (dev, text) in zip(names(runs), bests, strict=True)]


def best_score(run: Trained) -> tuple[str, str]:
    """('sts-b dev', '84.62 at step 750'), or the seeds' mean ± standard deviation; '' twice where one has no dev score."""
    bests = [best for log in run.logs if (best := best_dev(log))]
    if len(bests) < len(run.logs) or len({best["name"] for best in bests}) != 1:
        return "", ""
    name, scores = bests[0]["name"], [best["score"] for best in bests]
    digits = 4 if name.startswith("held-out") else 2
    if len(scores) > 1:
        return name, f"{fmean(scores):.{digits}f} ± {stdev(scores):.{digits}f}"
    stage = f" of {bests[0]['stage']}" if len({*run.stages(), bests[0]["stage"]}) > 1 else ""
    return name, f"{scores[0]:.{digits}f} at step {bests[0]['step']}{stage}"


def smoothed(values: Floats, share: float) -> Floats:
    """Centred running mean of (n,) values over about this share of them; the window shrinks towards both ends."""
    half = max(1, int(share * len(values) / 2))
    reach = [min(half, i, len(values) - 1 - i) for i in range(len(values))]
    return np.array([values[i - r : i + r + 1].mean() for i, r in enumerate(reach)])
