"""A sweep: the development score of every trial over the values that were searched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, model_validator

from stsbench.config import validate
from stsbench.display.style import COLOURS, COLUMN, GREY, PAGE, new_figure
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.sweeps.space import LARGEST
from stsbench.extensions.jobs.sweeps.sweep import TRIALS
from stsbench.parsing import read_json_object

_Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | float


class _Trial(BaseModel):
    """What is drawn of a trial."""

    values: dict[str, bool | _Number | str | None] = Field(min_length=1)
    score: float | None
    seeds: dict[str, float]


class _Trials(BaseModel):
    """What is drawn of trials.json."""

    by: str
    trials: list[_Trial]

    @model_validator(mode="after")
    def _have_the_same_keys(self) -> _Trials:
        if len({tuple(sorted(trial.values)) for trial in self.trials if trial.score is not None}) > 1:
            raise ValueError("trials have values of different keys")
        return self


_MOST = 12  # values of a key in a grid that is drawn as one
_DECADES = 30  # largest over least value from which an axis is logarithmic


def figure(folders: Sequence[Path]) -> Any:
    """A matplotlib figure of one sweep's folder: a heat map of a grid of two keys, the best framed; else each trial as a
    point over each key. Trials of equal values are averaged in the map.

    Raises StsbenchError where a folder holds no sweep, or none of its trials has a score.
    """
    if len(folders) > 1:
        raise StsbenchError(f"sweep draws one sweep, not {len(folders)}")
    stored = _stored(folders[0])
    scored = [trial for trial in stored["trials"] if trial["score"] is not None]
    if not scored:
        raise StsbenchError(f"{folders[0] / TRIALS}: no trial has a score yet")
    keys = list(scored[0]["values"])
    among = {key: _ordered({trial["values"][key] for trial in scored}) for key in keys}
    seeds = max(len(trial["seeds"]) for trial in scored)
    note = f"{len(scored)} of {len(stored['trials'])} trials with a score, {seeds} seed{'s' * (seeds > 1)} each"
    grid = len(keys) == 2 and all(1 < len(values) <= _MOST for values in among.values())
    drawing = _map(scored, among, stored["by"]) if grid else _points(scored, among, stored["by"])
    drawing.supxlabel(note, fontsize=6, color=GREY, x=0.99, ha="right")
    return drawing


def _stored(folder: Path) -> dict[str, Any]:
    path = folder / TRIALS
    if not path.is_file():
        raise StsbenchError(f"{folder} holds no finished sweep: there is no {TRIALS}")
    try:
        return validate(_Trials, read_json_object(path), str(path)).model_dump()
    except StsbenchError as error:
        raise StsbenchError(f"{path} is damaged: call the sweep's command again, it is written anew") from error


def _ordered(values: set[Any]) -> list[Any]:
    """Numbers by size, then words."""
    numbers = [value for value in values if not isinstance(value, str | None)]
    return sorted(numbers) + sorted(values - set(numbers), key=str)


def _map(scored: Sequence[Mapping[str, Any]], among: Mapping[str, list[Any]], by: str) -> Any:
    from matplotlib.patches import Rectangle

    (down, rows), (across, columns) = among.items()
    cells = defaultdict(list)
    for trial in scored:
        cells[rows.index(trial["values"][down]), columns.index(trial["values"][across])].append(trial["score"])
    scores = np.full((len(rows), len(columns)), np.nan)
    for cell, cell_scores in cells.items():
        scores[cell] = fmean(cell_scores)
    drawing = new_figure(COLUMN, max(1.8, 0.9 + 0.3 * len(rows)))
    panel = drawing.subplots()
    image = panel.imshow(scores, cmap="cividis", aspect="auto")
    least, most = np.nanmin(scores), np.nanmax(scores)
    for (row, column), score in np.ndenumerate(scores):
        bright = not np.isnan(score) and score > (least + most) / 2
        panel.text(column, row, "–" if np.isnan(score) else f"{score:.2f}", ha="center", va="center", fontsize=7,
                   color="black" if bright or np.isnan(score) else "white")
    row, column = np.unravel_index(np.nanargmax(scores), scores.shape)
    panel.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor=COLOURS[1], linewidth=1.5))
    panel.set_xticks(range(len(columns)), [_text(value) for value in columns])
    panel.set_yticks(range(len(rows)), [_text(value) for value in rows])
    panel.set_xlabel(across)
    panel.set_ylabel(down)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    drawing.colorbar(image, label=by)
    return drawing


def _points(scored: Sequence[Mapping[str, Any]], among: Mapping[str, list[Any]], by: str) -> Any:
    across = min(3, len(among))
    lines = -(-len(among) // across)
    drawing = new_figure(COLUMN if len(among) == 1 else PAGE, 0.3 + 1.9 * lines)
    panels = drawing.subplots(lines, across, squeeze=False, sharey=True).ravel()
    for panel, (key, values) in zip(panels, among.items(), strict=False):
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        positions = [trial["values"][key] if numbers else values.index(trial["values"][key]) for trial in scored]
        panel.plot(positions, [trial["score"] for trial in scored], "o", markersize=3, color=COLOURS[0])
        if not numbers:
            panel.set_xticks(range(len(values)), [_text(value) for value in values])
        elif values[0] > 0 and values[-1] / values[0] >= _DECADES:
            panel.set_xscale("log")
        panel.set_xlabel(key)
    for panel in panels[::across]:
        panel.set_ylabel(by)
    for panel in panels[len(among) :]:
        panel.remove()
    return drawing


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "null" if value is None else str(value)
