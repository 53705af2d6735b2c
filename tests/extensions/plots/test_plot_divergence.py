"""The picture of DiffAug's first stage: its lines are the log's numbers, the dropout reference dashed beside them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from training_logs import lines_of

from stsbench.display.style import COLOURS, style
from stsbench.errors import StsbenchError
from stsbench.extensions.plots import divergence
from stsbench.extensions.plots.command import plot

DELTA, RAW = "δ, vectors of length 1", "δ, vectors as they are"
KAPPA = "κ: keys and values, text minus prefix"


def write(folder, stages=(("prefix", 200), ("joint", 100)), seed=1, *, kappa=True, reference=True, dev=50):
    """A log whose dev lines of the first stage hold what diffaug measures; returns those lines."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, lines = np.random.default_rng(seed), lines_of(stages, seed=seed, dev=dev)
    first = [line for line in lines if line["kind"] == "dev" and line["stage"] == stages[0][0]]
    for line in first:
        line |= {"delta": float(rng.uniform(5, 9)), "delta_normalised": float(rng.uniform(0.5, 0.9))}
        if reference:
            line |= {"delta_dropout": float(rng.uniform(3, 4)), "delta_dropout_normalised": float(rng.uniform(0.2, 0.3))}
        if kappa:
            line["kappa"] = float(rng.normal())
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return first


def drawn(*folders):
    with style():
        figure = divergence.figure(folders)
        figure.draw_without_rendering()
    return {panel.get_title(loc="left").partition(": highest")[0]: panel for panel in figure.axes}, figure


def of(panel, label):
    return [line.get_xydata() for line in panel.get_lines() if line.get_label() == label]


def test_the_lines_are_the_logs_numbers(tmp_path):
    lines = write(tmp_path / "run")
    panels, figure = drawn(tmp_path / "run")
    assert list(panels) == [DELTA, KAPPA, RAW, "sts-b dev"]
    keys = {DELTA: ("delta_normalised", "delta_dropout_normalised"), KAPPA: ("kappa", None),
            RAW: ("delta", "delta_dropout"), "sts-b dev": ("score", None)}
    for title, (key, reference) in keys.items():
        [curve] = of(panels[title], "_curve")
        np.testing.assert_array_equal(curve, [(line["step"], line[key]) for line in lines])  # of stage prefix alone
        dashed = of(panels[title], "_reference")
        expected = [[(line["step"], line[reference]) for line in lines]] if reference else []
        np.testing.assert_array_equal(dashed, expected)
        assert panels[title].get_xlabel() == "step of stage prefix" and panels[title].get_xlim() == (-4, 204)
    assert panels[DELTA].get_ylim()[0] == 0 and panels["sts-b dev"].get_ylabel() == "Spearman × 100"
    top = max(lines, key=lambda line: line["delta"])
    assert panels[RAW].get_title(loc="left") == f"{RAW}: highest at {top['step']}"
    assert "dashed: between two dropout masks" in figure.get_supxlabel() and "band" not in figure.get_supxlabel()
    assert not of(panels["sts-b dev"], "_best")[0].size  # the weights kept are of stage joint


def test_seeds_are_a_mean_and_a_band(tmp_path):
    logs = [write(tmp_path / "runs" / f"seed-{seed}", seed=seed) for seed in (1, 2, 3)]
    panels, figure = drawn(tmp_path / "runs")
    rows = np.array([[line["delta_normalised"] for line in log] for log in logs])
    [curve] = of(panels[DELTA], "_curve")
    np.testing.assert_allclose(curve[:, 1], rows.mean(axis=0))
    reference, band = panels[DELTA].collections
    corners = band.get_paths()[0].vertices
    for step, mean, sd in zip(curve[:, 0], rows.mean(axis=0), rows.std(axis=0, ddof=1), strict=True):
        heights = corners[corners[:, 0] == step, 1]
        assert (heights.min(), heights.max()) == pytest.approx((mean - sd, mean + sd))
    assert reference.get_paths()[0].vertices[:, 1].max() < 0.5
    assert "band: ± one standard deviation over seeds" in figure.get_supxlabel()


def test_runs_without_prefix_or_of_another_length(tmp_path):
    write(tmp_path / "lora", kappa=False)
    assert KAPPA not in drawn(tmp_path / "lora")[0]
    alone = write(tmp_path / "alone", (("prefix", 100),), reference=False)
    panels, figure = drawn(tmp_path / "lora", tmp_path / "alone")
    assert len(of(panels[DELTA], "_curve")) == 2 and len(of(panels[DELTA], "_reference")) == 1
    assert panels[DELTA].get_xlim() == (-4, 204) and [len(each) for each in of(panels[DELTA], "_curve")] == [5, 3]
    assert [line.get_color() for line in panels[DELTA].get_lines() if line.get_label() == "_curve"] == list(COLOURS[:2])
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["lora", "alone"]
    kept = [line for line in alone if line["best"]][-1]  # one stage alone: its best is what the run gives
    assert [each.tolist() for each in of(panels["sts-b dev"], "_best")] == [[], [[kept["step"], kept["score"]]]]


def test_no_text_covers_another_or_leaves_the_picture(tmp_path):
    for number in range(2):
        write(tmp_path / f"a-run-with-a-rather-long-name-{number}", seed=number)
    for folders in ([tmp_path / "a-run-with-a-rather-long-name-0"], sorted(tmp_path.iterdir())):
        panels, figure = drawn(*folders)
        texts = [text for panel in panels.values() for text in (panel._left_title, panel.xaxis.label, panel.yaxis.label)]
        texts += [text for legend in figure.legends for text in legend.get_texts()] + [figure._supxlabel]
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
        for number, (name, box) in enumerate(boxes):
            page = figure.bbox
            assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= -1 and box.y1 <= page.y1 + 1, name
            for other, its in boxes[:number]:
                assert not box.overlaps(its), f"{name} covers {other}"


def test_a_run_without_these_numbers(tmp_path):
    (tmp_path / "plain").mkdir()
    lines = lines_of()
    (tmp_path / "plain" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(StsbenchError, match=r"plain has no divergence in its log: diffaug logs it"):
        drawn(tmp_path / "plain")


def test_the_command_writes_both_formats(tmp_path):
    write(tmp_path / "run")
    done = CliRunner().invoke(plot, ["divergence", str(tmp_path / "run"), "--output", str(tmp_path / "picture")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG" and (tmp_path / "picture.svg").is_file()
