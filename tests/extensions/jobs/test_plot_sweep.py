"""The picture of a sweep: a map of a grid with the best framed, points of anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clirun import cli  # noqa: F401

import stsbench
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.trials import figure


def write(folder, trials, by="sts-b dev"):
    rows = [{"number": i, "state": "complete" if score else "fail", "values": values, "score": score,
             "seeds": {"42": score} if score else {}, "runs": []} for i, (values, score) in enumerate(trials)]
    (folder / "trials.json").write_text(json.dumps({"study": "s", "command": [], "by": by, "trials": rows}), "utf-8")
    return [folder]


def texts(drawing):
    return [each.get_text() for each in drawing.axes[0].texts]


def test_a_grid_of_two_keys_is_a_map_with_the_best_framed(tmp_path):
    scores = {(64, 1e-5): 70.0, (64, 3e-5): 72.125, (128, 1e-5): 69.5, (256, 3e-5): None, (256, 1e-5): 71.0}
    trials = [({"batch": batch, "rate": rate}, score) for (batch, rate), score in scores.items()]
    drawing = figure(write(tmp_path, [*trials, ({"batch": 64, "rate": 1e-5}, 71.0)]))
    panel, bar = drawing.axes
    assert texts(drawing) == ["70.50", "72.12", "69.50", "–", "71.00", "–"]  # row by row; equal values are averaged
    assert [each.get_text() for each in panel.get_xticklabels()] == ["1e-05", "3e-05"]
    assert [each.get_text() for each in panel.get_yticklabels()] == ["64", "128", "256"]
    (frame,) = panel.patches
    assert (round(frame.get_x() + 0.48), round(frame.get_y() + 0.48)) == (1, 0)  # 72.125
    assert (panel.get_xlabel(), panel.get_ylabel(), bar.get_ylabel()) == ("rate", "batch", "sts-b dev")
    assert drawing._supxlabel.get_text() == "5 of 6 trials with a score, 1 seed each"


def test_anything_else_is_points_over_each_key(tmp_path):
    trials = [({"rate": 1e-6, "pooler": "cls", "n": 1}, 60.0), ({"rate": 1e-4, "pooler": None, "n": 2}, 65.0)]
    panels = figure(write(tmp_path, trials)).axes
    assert [panel.get_xlabel() for panel in panels] == ["rate", "pooler", "n"]
    assert [panel.get_xscale() for panel in panels] == ["log", "linear", "linear"]
    assert [list(panel.lines[0].get_xdata()) for panel in panels] == [[1e-6, 1e-4], [1, 0], [1, 2]]
    assert all(list(panel.lines[0].get_ydata()) == [60.0, 65.0] for panel in panels)
    assert [each.get_text() for each in panels[1].get_xticklabels()] == ["null", "cls"]


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(StsbenchError, match="holds no finished sweep"):
        figure([tmp_path])
    with pytest.raises(StsbenchError, match="no trial has a score"):
        figure(write(tmp_path, [({"rate": 1}, None)]))
    with pytest.raises(StsbenchError, match="one sweep, not 2"):
        figure([tmp_path, tmp_path])
    (tmp_path / "trials.json").write_text("{", "utf-8")
    with pytest.raises(StsbenchError, match="is damaged"):
        figure([tmp_path])


def test_the_command_and_the_function_draw_it(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [({"rate": i}, 70.0 + i) for i in range(3)])
    assert cli("plot", "sweep", tmp_path)[0] == 0
    stsbench.plot("sweep", tmp_path, output="by-function")
    for kind in ("png", "svg"):
        assert Path(f"sweep.{kind}").read_bytes() == Path(f"by-function.{kind}").read_bytes()
