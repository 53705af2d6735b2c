"""DiffAug's first stage (Wang and Lu 2022, Fig. 3): distance of its views, size of its prefixes, dev score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.display.style import COLOURS, GREY, PAGE, new_figure
from stsbench.errors import StsbenchError
from stsbench.extensions.plots.training import UNITS, Curve, Trained, names, trained

_DELTA = "delta_normalised"
_DISTANCE = "mean ‖f(x) − f(x⁺)‖₂"
# key -> title, axis, the key of the reference drawn dashed
_PANELS = {
    _DELTA: ("δ, vectors of length 1", _DISTANCE, "delta_dropout_normalised"),
    "kappa": ("κ: keys and values, text minus prefix", "mean row norm", None),
    "delta": ("δ, vectors as they are", _DISTANCE, "delta_dropout"),
}


def figure(folders: Sequence[Path]) -> Any:
    """Return a matplotlib figure. Raises StsbenchError where a folder holds no training run, or one without these
    numbers."""
    from matplotlib.lines import Line2D

    runs = [trained(folder) for folder in folders]
    stages = [_stage(run) for run in runs]
    measured = list(zip(runs, stages, strict=True))
    devs = list(dict.fromkeys(line["name"] for run in runs for log in run.logs for line in log if line["kind"] == "dev"))
    # above, the two that a length is chosen by; below, what they are read with
    keys = [key for key in _PANELS if any(run.curves(stage, key) for run, stage in measured)]
    keys += [f"dev:{name}" for name in devs]
    several = len(runs) > 1
    drawing = new_figure(PAGE, 1.9 * -(-len(keys) // 2) + 0.35 + 0.17 * several * len(runs))
    drawing.get_layout_engine().set(w_pad=0.08)
    panels = drawing.subplots(-(-len(keys) // 2), 2, squeeze=False).ravel()
    longest = max(run.stages()[stage][1] - run.stages()[stage][0] for run, stage in measured)
    for panel, key in zip(panels, keys, strict=False):
        for (run, stage), colour in zip(measured, COLOURS * len(runs), strict=False):
            _draw(panel, run, stage, key, colour)
        _dress(panel, key, "" if several else _peak(runs[0], stages[0], key))
        panel.set_xlim(-0.02 * longest, 1.02 * longest)
        panel.set_xlabel(f"step of stage {stages[0]}")
    for panel in panels[len(keys) :]:
        panel.remove()
    if several:
        handles = [Line2D([], [], color=colour, label=name) for name, colour in
                   zip(names(runs), COLOURS * len(runs), strict=False)]
        drawing.legend(handles=handles, loc="outside upper left")
    drawing.supxlabel(_note(measured), fontsize=6, color=GREY, x=0.99, ha="right")
    return drawing


def _stage(run: Trained) -> str:
    """Return the first stage whose dev lines hold the divergence of the views."""
    stage_of_run = next((stage for stage in run.stages() if run.curves(stage, _DELTA)), None)
    if stage_of_run is None:
        raise StsbenchError(
            f"{run.folder} has no divergence in its log: diffaug logs it at each dev score of stage 1 (options.diagnose)"
        )
    return stage_of_run


def _draw(panel: Any, run: Trained, stage: str, key: str, colour: str) -> None:
    """Draw a run's curve and its reference, over seeds the mean and a band."""
    reference = _PANELS[key][2] if key in _PANELS else None
    for drawn_key, look in ((reference, {"linestyle": "--", "linewidth": 0.9}), (key, {"marker": "o", "markersize": 2})):
        curves: list[Curve] = run.curves(stage, drawn_key) if drawn_key else []
        if not curves:
            continue
        steps, rows = curves[0][0], np.array([values for _, values in curves])
        mean = rows.mean(axis=0)
        if len(rows) > 1:
            sd = rows.std(axis=0, ddof=1)
            panel.fill_between(steps, mean - sd, mean + sd, label="_band", color=colour, alpha=0.2, linewidth=0)
        panel.plot(steps, mean, label="_reference" if drawn_key == reference else "_curve", color=colour, **look)
    if key.startswith("dev:"):
        kept = [best for best in run.bests(key[4:]) if best["stage"] == stage]
        panel.plot(
            [best["step"] for best in kept], [best["score"] for best in kept], label="_best", color=colour, zorder=4,
            linestyle="none", marker="*", markersize=7, markeredgecolor="white", markeredgewidth=0.5,
        )


def _dress(panel: Any, key: str, peak: str) -> None:
    """Set a panel's title, unit and grid."""
    unit = next((unit for start, unit in UNITS.items() if key.startswith(start)), "")
    title, unit, _ = _PANELS.get(key, (key.removeprefix("dev:"), unit, None))
    panel.set_title(title + peak, loc="left")
    panel.set_ylabel(unit)
    panel.ticklabel_format(axis="y", useOffset=False)
    panel.grid(axis="y", linewidth=0.3, color="#dddddd")
    panel.set_axisbelow(True)
    if key not in _PANELS:
        return
    if key == "kappa":
        panel.axhline(0, color=GREY, linewidth=0.4, label="_zero")
    else:
        panel.set_ylim(bottom=0)


def _peak(run: Trained, stage: str, key: str) -> str:
    """Return where a run's divergence, or its dev score, is highest; over seeds that of the mean."""
    if key == "kappa" or not (curves := run.curves(stage, key)):
        return ""
    mean = np.mean([values for _, values in curves], axis=0)
    return f": highest at {curves[0][0][int(np.argmax(mean))]:,}"


def _note(measured: Sequence[tuple[Trained, str]]) -> str:
    """Return how the picture is to be read."""
    referenced = any(run.curves(stage, panel[2]) for run, stage in measured for panel in _PANELS.values() if panel[2])
    kept = any(best["stage"] == stage for run, stage in measured for log in run.logs for best in run.bests(_dev(log)))
    parts = [
        "δ: between the views; dashed: between two dropout masks, without prefix" if referenced else "",
        "band: ± one standard deviation over seeds" if any(len(run.logs) > 1 for run, _ in measured) else "",
        "star: the weights that were kept" if kept else "",
    ]
    return "; ".join(filter(None, parts))


def _dev(log: Sequence[dict[str, Any]]) -> str:
    return next((line["name"] for line in log if line["kind"] == "dev"), "")
