"""Pictures of where vectors lie, as SimCSE's (Gao et al. 2021): densities of cosines, the plane of uniformity and alignment,
and singular values. Drawn from run folders, their records and their observations: no model, no data, no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.display.pareto import place_labels
from stsbench.display.style import COLOURS, COLUMN, DASHES, GREY, PAGE, new_figure
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Observations, kinds, load_protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.metrics.geometry import RATINGS, by_rating, relative
from stsbench.registry import DEFAULT_PROTOCOL

_FLOOR = 1e-3  # smaller values are left out: rounding noise of a matrix of lower rank would fill the picture
Floats = NDArray[np.float64]
_COSINES = ("cosine", "similarity")
_HEIGHT = 0.92  # height of a density, in distances between groups: below 1, so that none hides another
_TAIL = 0.01  # share of its peak below which a density's tail is left out


@dataclass(frozen=True)
class Drawn:
    """One run in a picture: its record of the drawn task, that record's observations, and its distinct label."""

    label: str
    folder: Path
    record: Record
    observations: Observations

    def value(self, metric: str) -> float:
        """Return the record's score of this name, over all pairs or sentences."""
        return next(row.value for row in self.record.scores if row.metric == metric and row.subset is None)


def load_folders(folders: Sequence[Path], arrays: Sequence[str]) -> list[Drawn]:
    """Return each folder's STS-B record by a protocol that observes the first of `arrays` that it has, with observations.

    Raises StsbenchError when a folder has none, when a file is missing or damaged, or when runs were measured on
    different data or with different settings: they cannot share one picture.
    """
    records = [(folder, _record(folder, arrays)) for folder in folders]
    _comparable(records)
    labels = _labels(records)
    return [
        Drawn(label, folder, record, read_observations(folder, record))
        for label, (folder, record) in zip(labels, records, strict=True)
    ]


def mark_sample(drawing: Any, runs: Sequence[Drawn]) -> None:
    """Put a small note into a picture of the packaged sample, so that it is not taken for a result."""
    if any(run.record.data.text_version == "sample" for run in runs):
        # A title above all panels: the layout keeps its place free.
        drawing.suptitle("sample data", x=0.99, ha="right", fontsize=6, color=GREY)


def sts_average(folder: Path) -> float | None:
    """Return the run's STS average (all, Spearman, x 100, as papers print it), or None where not all seven tasks were scored
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
    """Return the shortest labels that differ between the runs: the model's name, then its pooler too, then the run
    folder."""
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
    """Return a model's name without its folder or owner, at most 28 characters: models differ more at the beginning."""
    last = name.rstrip("/").rpartition("/")[2] or name
    return last if len(last) <= 28 else last[:27] + "…"


def plane_figure(folders: Sequence[Path]) -> Any:
    """Return a matplotlib figure. Raises StsbenchError where a run has no geometry record."""
    runs = load_folders(folders, ("uniformity",))
    points = [(run.value("uniformity"), run.value("alignment")) for run in runs]
    averages = [sts_average(run.folder) for run in runs]
    drawing = new_figure(COLUMN, 2.6)
    axes = drawing.subplots()
    axes.margins(0.2)
    if len({average for average in averages if average is not None}) < 2:
        averages = [None] * len(runs)  # one average makes no colour scale: all points look alike
    known = [(point, average) for point, average in zip(points, averages, strict=True) if average is not None]
    unknown = [point for point, average in zip(points, averages, strict=True) if average is None]
    if known:
        dots = axes.scatter(
            *zip(*(point for point, _ in known), strict=True), c=[average for _, average in known], cmap="viridis", s=26,
            edgecolors="black", linewidths=0.5, zorder=3,
        )
        bar = drawing.colorbar(dots, ax=axes, pad=0.02, aspect=25)
        bar.set_label("STS average (Spearman × 100)")
        bar.outline.set_linewidth(0.5)
    if unknown:
        # No average, no colour: hollow beside coloured ones; filled where none is coloured.
        face = "white" if known else COLOURS[0]
        axes.scatter(*zip(*unknown, strict=True), s=26, facecolors=face, edgecolors="black", linewidths=0.5, zorder=3)
    axes.set_xlabel("uniformity (lower: more uniform)")
    axes.set_ylabel("alignment (lower: closer pairs)")
    mark_sample(drawing, runs)
    place_labels(drawing, axes, points, [run.label for run in runs])
    return drawing


def spectrum_figure(folders: Sequence[Path]) -> Any:
    """Return a matplotlib figure. Raises StsbenchError where a run has no geometry record."""
    runs = load_folders(folders, ("spectrum",))
    drawing = new_figure(COLUMN, 2.4)
    axes = drawing.subplots()
    for number, run in enumerate(runs):
        values = relative(run.observations.arrays["spectrum"])
        values = values[values >= _FLOOR]
        axes.plot(
            np.arange(1, len(values) + 1), values, label=run.label, color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
        )
    axes.set_yscale("log")
    axes.set_xlabel("index of the singular value")
    axes.set_ylabel("singular value (largest = 1)")
    axes.set_xlim(left=0)
    axes.set_ylim(top=1.15)
    if len(runs) > 1:
        axes.legend(loc="best", handlelength=2.4)
    mark_sample(drawing, runs)
    return drawing


def similarity_figure(folders: Sequence[Path]) -> Any:
    """Return a matplotlib figure. Raises StsbenchError where a run has no cosines of STS-B."""
    runs = load_folders(folders, _COSINES)
    groups = [by_rating(_cosine(run), run.observations.arrays["gold"]) for run in runs]
    columns = {1: 1, 2: 2, 4: 2}.get(len(runs), 3)
    rows = -(-len(runs) // columns)
    drawing = new_figure(COLUMN if columns == 1 else PAGE, 2.3 * rows + 0.2)
    panels = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    grid = np.linspace(left_edge([cosine for group in groups for cosine in group.values()]), 1.0, 400)
    for panel, run, cosines in zip(panels, runs, groups, strict=False):
        _ridges(panel, cosines, grid)
        panel.tick_params(labelbottom=True)
        if len(runs) > 1:
            panel.set_title(run.label)
    for panel in panels[len(runs) :]:
        panel.remove()
    for panel in panels[max(0, len(runs) - columns) : len(runs)]:
        panel.set_xlabel("cosine similarity")
    for panel in panels[: len(runs) : columns]:
        panel.set_ylabel("human rating")
    mark_sample(drawing, runs)
    return drawing


def left_edge(groups: Sequence[Floats]) -> float:
    """Return where the axis begins, a multiple of 0.1: left of every cosine, and of every density from _TAIL of its peak
    on."""
    grid = np.linspace(-1.0, 1.0, 2001)
    lowest = min(float(cosine.min()) for cosine in groups)
    for cosine in groups:
        curve = density(cosine, grid)
        if curve.any():
            lowest = min(lowest, float(grid[np.argmax(curve >= _TAIL * curve.max())]))
    return max(-1.0, float(np.floor(10 * lowest)) / 10)


def density(values: Floats, grid: Floats) -> Floats:
    """Return Gaussian kernel density (Scott's bandwidth) of (n,) cosines at (g,) points; mass outside [-1, 1] is reflected.

    Zero throughout when fewer than two values differ: one value has no density.
    """
    from scipy.stats import gaussian_kde

    if len(values) < 2 or np.ptp(values) < 1e-9:
        return np.zeros_like(grid)
    kernel = gaussian_kde(values)
    return np.asarray(kernel(grid) + kernel(2 - grid) + kernel(-2 - grid))


def _ridges(panel: Any, groups: dict[str, Floats], grid: Floats) -> None:
    """One ridge per rating group, low ratings at the bottom, each as high as the others; a tick at each mean."""
    from matplotlib import colormaps

    shades = [colormaps["cividis"](0.1 + 0.75 * i / (len(RATINGS) - 1)) for i in range(len(RATINGS))]
    for level, name in enumerate(RATINGS):
        panel.axhline(level, color=GREY, linewidth=0.4, zorder=1)
        if name in groups:
            # By its own peak: on one scale, a narrow group at the top flattens all others.
            curve = density(groups[name], grid)
            ridge = level + _HEIGHT * curve / (curve.max() or 1.0)
            panel.fill_between(grid, level, ridge, color=shades[level], linewidth=0, zorder=2)
            mean = float(groups[name].mean())
            for colour, width in (("white", 2.2), ("black", 1.0)):  # to be seen on dark and on light
                panel.vlines(mean, level, level + 0.3, color=colour, linewidth=width, zorder=3)
    panel.set_yticks(range(len(RATINGS)), [name.replace("-", "–") for name in RATINGS])
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.set_xlim(grid[0], grid[-1])
    panel.set_ylim(-0.08, len(RATINGS) - 1 + _HEIGHT + 0.05)


def _cosine(run: Drawn) -> Floats:
    arrays = run.observations.arrays
    return np.asarray(arrays["cosine"] if "cosine" in arrays else arrays["similarity"], dtype=np.float64)
