"""Training over its steps: loss terms, dev score, learning rate, gradient norm; one run or several, seeds as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.display.style import COLOURS, DASHES, GREY, PAGE, new_figure
from stsbench.errors import StsbenchError
from stsbench.training.runs.report import LOG, best_dev, read_log

SHARE = 0.05  # a running mean is taken over this share of a curve's points
FEW = 20  # points of a curve that is drawn as it is
_WIDE = 50  # largest over smallest value from which a loss or a gradient norm gets a logarithmic axis
_LETTERS = 60  # stage names of so many letters fit above a panel
_TITLES = {"loss": "loss (weighted sum of its terms)", "learning_rate": "learning rate", "gradient_norm": "gradient norm"}
Floats = NDArray[np.float64]
Curve = tuple[NDArray[np.int64], Floats]  # steps of a stage, values
# What every train line has; other numbers in one are a method's own metrics.
_COMMON = ("kind", "stage", "step", "epoch", "loss", "terms", "learning_rate", "gradient_norm", "sentences_per_second")
# dev scores by how their names begin: "(sample)" may follow
UNITS = {
    "dev:sts-b dev": "Spearman × 100", "dev:avg_sts": "Spearman × 100", "dev:sts:": "Spearman × 100",
    "dev:pairs:": "average precision × 100", "dev:transfer dev": "mean accuracy × 100",
}


def figure(folders: Sequence[Path]) -> Any:
    """Return a matplotlib figure. Raises StsbenchError where a folder holds no training run, or one without a logged
    step."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    runs = [trained(folder) for folder in folders]
    names, keys = labels(runs), panel_keys(runs)
    several = len(runs) > 1 or len(runs[0].logs) > 1
    rows = -(-len(keys) // 2)
    drawing = new_figure(PAGE, 1.7 * rows + 0.3 + 0.17 * several * len(runs))
    drawing.get_layout_engine().set(w_pad=0.08)
    panels = drawing.subplots(rows, 2, squeeze=False).ravel()
    looks: list[dict[str, Any]] = [{"color": COLOURS[number % len(COLOURS)],
                                    "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}
                                   for number in range(len(runs))]
    for panel, key in zip(panels, keys, strict=False):
        for run, look in zip(runs, looks, strict=True):
            _draw(panel, run, key, look)
        dev, best = ("", "") if several else best_score(runs[0])
        _dress(panel, key, f": best {best}" if key == f"dev:{dev}" else "")
        whole = max(end for run in runs for _, end in run.stages().values())
        panel.set_xlim(-0.02 * whole, 1.02 * whole)
        panel.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # a step is whole
    for panel in panels[len(keys) :]:
        panel.remove()
    explained = _mark_stages(panels[: len(keys)], runs, names, looks)
    if several:
        handles = [Line2D([], [], label=label, **look) for label, look in zip(names, looks, strict=True)]
        drawing.legend(handles=handles, loc="outside upper left")
    note = "\n".join(filter(None, [*explained, _note(runs, keys)]))
    drawing.supxlabel(note, fontsize=6, color=GREY, x=0.99, ha="right")
    return drawing


def _smooth(key: str) -> bool:
    return not key.startswith("dev:") and key != "learning_rate"


def _draw(panel: Any, run: Trained, key: str, look: Mapping[str, Any]) -> None:
    """Draw a run's curve, one line per stage: nothing joins two stages."""
    for stage, (begin, _) in run.stages().items():
        curves = run.curves(stage, key)
        if not curves:
            continue
        steps = curves[0][0] + begin
        rows = np.array([values for _, values in curves])
        marker = {"marker": "o", "markersize": 2} if len(steps) < FEW else {}
        if _smooth(key) and len(steps) >= FEW:
            if len(rows) == 1:
                panel.plot(steps, rows[0], label="_raw", alpha=0.3, linewidth=0.5, **look)
            rows = np.array([smoothed(values, SHARE) for values in rows])
        mean = rows.mean(axis=0)
        if len(rows) > 1:
            sd = rows.std(axis=0, ddof=1)
            panel.fill_between(steps, mean - sd, mean + sd, label="_band", color=look["color"], alpha=0.2, linewidth=0)
        panel.plot(steps, mean, label="_curve", **marker, **look)
    if key.startswith("dev:") and (bests := run.bests(key[4:])):
        panel.plot(
            [run.stages()[best["stage"]][0] + best["step"] for best in bests], [best["score"] for best in bests],
            label="_best", color=look["color"], linestyle="none", marker="*", markersize=7, markeredgecolor="white",
            markeredgewidth=0.5, zorder=4,
        )


def _dress(panel: Any, key: str, best: str) -> None:
    """Set a panel's title, unit and scale."""
    title = _TITLES.get(key, key.removeprefix("terms.").removeprefix("dev:").replace("_", " ")) + best
    if key.startswith("terms."):
        title = f"loss: {title}"
    unit = next((unit for start, unit in UNITS.items() if key.startswith(start)), "")
    if key.startswith("dev:") and not unit:
        title += " (higher is better)"
    drawn = [line.get_ydata() for line in panel.get_lines() if line.get_label() == "_curve"]
    values = np.concatenate([*drawn, []])
    values = values[np.isfinite(values)]
    may = key in ("loss", "gradient_norm") or key.startswith("terms.")
    if may and len(values) and 0 < _WIDE * values.min() < values.max():
        panel.set_yscale("log")
        title += ", logarithmic"
    if key == "learning_rate":
        panel.set_ylim(bottom=0)
    if key == "learning_rate" or panel.get_yscale() == "log":
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        panel.ticklabel_format(axis="y", useOffset=False)
    panel.set_title(title, loc="left")
    panel.set_xlabel("step")
    panel.set_ylabel(unit)
    panel.grid(axis="y", linewidth=0.3, color="#dddddd")
    panel.set_axisbelow(True)


def _mark_stages(
    panels: Sequence[Any], runs: Sequence[Trained], names: Sequence[str], looks: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return dividers between stages, named above where all runs have the same stages and the names fit.

    Returns lines that say what the stages are where the panels do not: a divider then has its run's colour.
    """
    stages = runs[0].stages()
    shared = all(run.stages() == stages for run in runs)
    whole = max(end for _, end in stages.values())
    named = shared and all(len(name) + 2 <= _LETTERS * (end - begin) / whole for name, (begin, end) in stages.items())
    if all(len(run.stages()) == 1 for run in runs):
        return []
    for panel in panels:
        panel.set_xlabel("step, counted over all stages")
        for run, look in zip(runs[:1] if shared else runs, looks, strict=False):
            for _, end in list(run.stages().values())[:-1]:
                panel.axvline(end, color=GREY if shared else look["color"], linewidth=0.6, linestyle=":", label="_divider")
        if named:
            panel.set_title(panel.get_title(loc="left"), loc="left", pad=13)
            for name, (begin, end) in stages.items():
                panel.text((begin + end) / 2, 1.02, name, transform=panel.get_xaxis_transform(), ha="center", va="bottom",
                           fontsize=6, color=GREY)
    if named:
        return []
    told = [("stages", runs[0])] if shared else [
        (f"stages of {name.partition(':')[0]}", run) for name, run in zip(names, runs, strict=True) if len(run.stages()) > 1
    ]
    return [f"{name}: {', then '.join(run.stages())}" for name, run in told]


def _note(runs: Sequence[Trained], keys: Sequence[str]) -> str:
    """Return how the picture is to be read, in one line."""
    smooth = any(
        _smooth(key) and any(len(curves[0][0]) >= FEW for stage in run.stages() if (curves := run.curves(stage, key)))
        for run in runs for key in keys
    )
    parts = [
        f"line: running mean over {100 * SHARE:g} % of the logged points" if smooth else "",
        "faint: as logged" if smooth and any(len(run.logs) == 1 for run in runs) else "",
        "band: ± one standard deviation over seeds" if any(len(run.logs) > 1 for run in runs) else "",
        "star: the weights that were kept" if any(run.bests(key[4:]) for run in runs for key in keys) else "",
    ]
    return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class Trained:
    """One line of a picture: a run, or the runs of several seeds."""

    folder: Path
    logs: list[list[dict[str, Any]]]  # one per seed

    def stages(self) -> dict[str, tuple[int, int]]:
        """Return stage -> the steps before it and those until its end, in the order of training."""
        lengths: dict[str, int] = {}
        for line in (line for log in self.logs for line in log if line["kind"] == "start"):
            lengths[line["stage"]] = max(lengths.get(line["stage"], 0), line["steps"])
        ends = np.cumsum(list(lengths.values())).tolist()
        return {stage: (end - length, end) for (stage, length), end in zip(lengths.items(), ends, strict=True)}

    def curves(self, stage: str, key: str) -> list[Curve]:
        """Return a key's curve in a stage, one per seed, at the steps that all seeds have; empty where no seed has it.

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
        """Return each seed's dev line whose weights were kept, where it is of this name and of a stage that this run
        trained."""
        bests = [best for log in self.logs if (best := best_dev(log)) and best["name"] == name]
        return [best for best in bests if best["stage"] in self.stages()]


def trained(folder: Path) -> Trained:
    """Return the run in a folder, or the seeds below it. Raises StsbenchError where there is none, or one without a step."""
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
    """Return what there is to draw: the loss where it has several terms, its terms, metrics, dev scores, rate and norm."""
    lines = [line for run in runs for log in run.logs for line in log]
    train = [line for line in lines if line["kind"] == "train"]
    terms = list(dict.fromkeys(f"terms.{name}" for line in train for name in line["terms"]))
    pairs = [(key, value) for line in train for key, value in line.items() if key not in _COMMON]
    more = dict.fromkeys(key for key, value in pairs if isinstance(value, int | float) and not isinstance(value, bool))
    dev = dict.fromkeys(f"dev:{line['name']}" for line in lines if line["kind"] == "dev")
    rest = [key for key in ("learning_rate", "gradient_norm") if any(line.get(key) is not None for line in train)]
    return [*(["loss"] if train and len(terms) != 1 else []), *terms, *more, *dev, *rest]


def names(runs: Sequence[Trained]) -> list[str]:
    """Return the runs' folder names, or paths where those are alike; with the number of seeds."""
    shown = [run.folder.resolve().name for run in runs]
    if len(set(shown)) < len(shown):
        shown = [str(run.folder) for run in runs]
    if len(set(shown)) < len(shown):
        shown = [f"{name} ({number})" for number, name in enumerate(shown, start=1)]
    seeds = [f", {len(run.logs)} seeds" if len(run.logs) > 1 else "" for run in runs]
    return [name + of for name, of in zip(shown, seeds, strict=True)]


def labels(runs: Sequence[Trained]) -> list[str]:
    """Return `names`, with each run's best dev score."""
    bests = [best_score(run) for run in runs]
    return [f"{name}: best {dev} {text}" if dev else name for name, (dev, text) in zip(names(runs), bests, strict=True)]


def best_score(run: Trained) -> tuple[str, str]:
    """Return ('sts-b dev', '84.62 at step 750'), or the seeds' mean ± standard deviation; '' twice where one has no dev
    score."""
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
    """Return centred running mean of (n,) values over about this share of them; the window shrinks towards both ends."""
    half = max(1, int(share * len(values) / 2))
    reach = [min(half, i, len(values) - 1 - i) for i in range(len(values))]
    return np.array([values[i - r : i + r + 1].mean() for i, r in enumerate(reach)])


def curve(log: Sequence[dict[str, Any]], stage: str, key: str) -> tuple[list[int], list[float]]:
    """Return steps of a stage and the values of a key there: loss, terms.NAME, learning_rate, ..., or score (of dev lines).

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
