"""The picture of a training: its lines are the log's values, stages follow one another, no text covers another."""

import xml.etree.ElementTree as ET

import light_process
import numpy as np
import pytest
from click.testing import CliRunner
from training_logs import write_run

from stsbench.display.style import COLOURS, style
from stsbench.errors import DataError, StsbenchError
from stsbench.extensions.plots import training
from stsbench.extensions.plots.command import plot
from stsbench.extensions.plots.training import smoothed


def call(*words):
    result = CliRunner().invoke(plot, ["training", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def drawn(*folders):
    """Panel title -> axes, and the figure."""
    with style():
        figure = training.figure(folders)
        figure.draw_without_rendering()
    return {panel.get_title(loc="left"): panel for panel in figure.axes}, figure


def of(panel, label):
    return [line for line in panel.get_lines() if line.get_label() == label]


def values(lines, stage, key):
    """(steps, values) as they stand in the log."""
    found = [(line["step"], line["terms"][key[6:]] if key.startswith("terms.") else line[key])
             for line in lines if line["kind"] == "train" and line["stage"] == stage]
    return np.array(found).T


def dev_values(lines):
    return np.array([(line["step"], line["score"]) for line in lines if line["kind"] == "dev"]).T


def test_the_lines_are_the_logs_values(tmp_path):
    lines = write_run(tmp_path / "run", terms=("contrastive", "mlm"), masked_accuracy=True)
    panels, _ = drawn(tmp_path / "run")
    steps, scores = dev_values(lines)
    assert steps[0] == 0  # before training: shown, and never the best
    at = 1 + scores[1:].argmax()
    best = f"sts-b dev: best {scores[at]:.2f} at step {steps[at]:.0f}"
    titles = ["loss (weighted sum of its terms)", "loss: contrastive", "loss: mlm", "masked accuracy", best, "learning rate",
              "gradient norm"]
    assert list(panels) == titles
    keys = ["loss", "terms.contrastive", "terms.mlm", "masked_accuracy", None, "learning_rate", "gradient_norm"]
    for panel, key in zip(panels.values(), keys, strict=True):
        assert panel.get_xlabel() == "step" and panel.get_xlim() == (-4, 204)
        [curve] = of(panel, "_curve")
        if key is None:
            np.testing.assert_array_equal(curve.get_xydata().T, (steps, scores))
            [star] = of(panel, "_best")
            np.testing.assert_array_equal(star.get_xydata(), [(steps[at], scores[at])])
            assert panel.get_ylabel() == "Spearman × 100"
            continue
        logged = values(lines, "main", key)
        if key == "learning_rate":
            np.testing.assert_array_equal(curve.get_xydata().T, logged)
            continue
        [raw] = of(panel, "_raw")
        np.testing.assert_array_equal(raw.get_xydata().T, logged)
        np.testing.assert_array_equal(curve.get_xdata(), logged[0])
        expected = [logged[1][max(0, i - 1) : i + 2].mean() if 0 < i < 39 else logged[1][i] for i in range(40)]
        np.testing.assert_allclose(curve.get_ydata(), expected, rtol=1e-12)  # 5 % of 40 points: one to each side


def test_a_short_curve_is_drawn_as_it_is(tmp_path):
    lines = write_run(tmp_path, (("main", 40),), dev=None)
    panels, figure = drawn(tmp_path)
    [curve] = of(panels["loss: contrastive"], "_curve")
    np.testing.assert_array_equal(curve.get_xydata().T, values(lines, "main", "terms.contrastive"))
    assert not of(panels["loss: contrastive"], "_raw") and figure.get_supxlabel() == ""
    assert list(panels) == ["loss: contrastive", "learning rate", "gradient norm"]


def test_smoothing_has_no_lag_and_keeps_lines_straight():
    line = np.arange(101) * 0.5 - 3
    np.testing.assert_allclose(smoothed(line, 0.05), line, atol=1e-12)
    spike = np.zeros(101)
    spike[50] = 1
    after = smoothed(spike, 0.05)
    np.testing.assert_array_equal(after, after[::-1])
    assert after.sum() == pytest.approx(1) and (after > 0).sum() == 5
    with_gap = smoothed(np.where(np.arange(101) == 50, np.nan, 1.0), 0.05)
    assert np.isnan(with_gap[48:53]).all() and np.isnan(with_gap).sum() == 5  # a loss of NaN is a gap, and no more


def test_stages_follow_one_another(tmp_path):
    lines = write_run(tmp_path, (("generator", 100), ("contrastive", 200)), dev=50)
    panels, _ = drawn(tmp_path)
    for panel in panels.values():
        [divider] = of(panel, "_divider")
        assert list(divider.get_xdata()) == [100, 100] and panel.get_xlabel() == "step, counted over all stages"
        assert [text.get_text() for text in panel.texts] == ["generator", "contrastive"]
    first, second = of(panels["learning rate"], "_curve")
    np.testing.assert_array_equal(first.get_xydata().T, values(lines, "generator", "learning_rate"))
    steps, rates = values(lines, "contrastive", "learning_rate")
    np.testing.assert_array_equal(second.get_xydata().T, (steps + 100, rates))
    [title] = [title for title in panels if title.startswith("sts-b dev")]
    best = [line for line in lines if line["kind"] == "dev" and line["best"]][-1]
    assert title == f"sts-b dev: best {best['score']:.2f} at step {best['step']} of {best['stage']}"
    assert best["stage"] == "contrastive"
    np.testing.assert_array_equal(of(panels[title], "_best")[0].get_xydata(), [(100 + best["step"], best["score"])])


def test_several_runs_start_together_in_their_own_colours(tmp_path):
    logs = [write_run(tmp_path / "one", seed=1), write_run(tmp_path / "two", (("a", 30), ("b", 90)), seed=2, dev=30)]
    panels, figure = drawn(tmp_path / "one", tmp_path / "two")
    [legend] = figure.legends
    bests = [[line for line in log if line["kind"] == "dev" and line["best"]][-1] for log in logs]
    assert [text.get_text() for text in legend.get_texts()] == [
        f"one: best sts-b dev {bests[0]['score']:.2f} at step {bests[0]['step']}",
        f"two: best sts-b dev {bests[1]['score']:.2f} at step {bests[1]['step']} of {bests[1]['stage']}",
    ]
    one, *two = of(panels["loss: contrastive"], "_curve")
    assert one.get_color() == COLOURS[0] and [(line.get_color(), line.get_xdata()[0]) for line in two] == [
        (COLOURS[1], 5), (COLOURS[1], 35)]
    [divider] = of(panels["loss: contrastive"], "_divider")
    assert divider.get_color() == COLOURS[1] and "stages of two: a, then b\n" in figure.get_supxlabel()
    assert "stages of one" not in figure.get_supxlabel()


def test_seeds_are_a_mean_and_a_band(tmp_path):
    logs = [write_run(tmp_path / "runs" / f"seed-{seed}", seed=seed, until=until) for seed, until in
            ((1, None), (2, None), (10, 160))]
    panels, figure = drawn(tmp_path / "runs")
    rows = np.array([dev_values(log)[1][:4] for log in logs])
    panel = panels["sts-b dev"]
    [curve] = of(panel, "_curve")
    # The third was killed after step 160: beyond it a mean would be of other runs.
    np.testing.assert_allclose(curve.get_xydata().T, ([0, 50, 100, 150], rows.mean(axis=0)))
    [band] = panel.collections
    corners = band.get_paths()[0].vertices
    for at, mean, sd in zip((0, 50, 100, 150), rows.mean(axis=0), rows.std(axis=0, ddof=1), strict=True):
        heights = corners[corners[:, 0] == at, 1]
        assert (heights.min(), heights.max()) == pytest.approx((mean - sd, mean + sd))
    kept = [[line for line in log if line["kind"] == "dev" and line["best"]][-1] for log in logs]
    [stars] = of(panel, "_best")
    np.testing.assert_array_equal(stars.get_xydata(), [(line["step"], line["score"]) for line in kept])
    losses = [smoothed(values(log, "main", "terms.contrastive")[1][:32], training.SHARE) for log in logs]
    [curve] = of(panels["loss: contrastive"], "_curve")
    np.testing.assert_allclose(curve.get_ydata(), np.mean(losses, axis=0))
    scores = [line["score"] for line in kept]
    [legend] = figure.legends
    assert legend.get_texts()[0].get_text() == (
        f"runs, 3 seeds: best sts-b dev {np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}"
    )
    assert "band: ± one standard deviation" in figure.get_supxlabel()


def test_texts_cover_neither_one_another_nor_leave_the_picture(tmp_path):
    stages = (("generator", 40), ("contrastive", 200), ("distillation", 60))
    for number in range(3):
        write_run(tmp_path / f"a-run-with-a-long-name-{number}", stages, seed=number, terms=("contrastive", "mlm"))
    write_run(tmp_path / "plain")
    staged = sorted(tmp_path.glob("a-*"))
    for folders in ([*staged, tmp_path / "plain"], [tmp_path / "plain"], staged, staged[:1]):
        panels, figure = drawn(*folders)
        page = figure.bbox
        texts = [text for panel in panels.values() for text in
                 (panel._left_title, panel.xaxis.label, panel.yaxis.label, *panel.texts)]
        texts += [text for legend in figure.legends for text in legend.get_texts()]
        texts += [text for text in (figure._supxlabel,) if text is not None]
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
        for number, (name, box) in enumerate(boxes):
            assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= -1 and box.y1 <= page.y1 + 1, name
            for other, its in boxes[:number]:
                apart = box.x1 <= its.x0 or its.x1 <= box.x0 or box.y1 <= its.y0 + 0.5 or its.y1 <= box.y0 + 0.5
                assert apart, f"{name} covers {other}"


def test_files_are_valid_and_the_same_every_time(tmp_path):
    write_run(tmp_path / "run")
    for name in ("one", "two"):
        done = call(tmp_path / "run", "--output", tmp_path / name)
        assert done.output.split() == [str(tmp_path / f"{name}.png"), str(tmp_path / f"{name}.svg")]
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    assert ET.parse(tmp_path / "one.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_what_cannot_be_drawn_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(StsbenchError, match=r"empty is not a run folder of `stsbench train`: it has no log\.jsonl"):
        call(tmp_path / "empty")
    with pytest.raises(StsbenchError, match="does not exist: expected a run folder"):
        call(tmp_path / "nowhere")
    lines = write_run(tmp_path / "begun", until=4, dev=None)
    assert len(lines) == 1
    with pytest.raises(StsbenchError, match=r"log\.jsonl has no logged step yet"):
        call(tmp_path / "begun")
    write_run(tmp_path / "damaged")
    (tmp_path / "damaged" / "log.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"log\.jsonl:1: "):
        call(tmp_path / "damaged")
    write_run(tmp_path / "apart" / "seed-1", every=7, dev=None)
    write_run(tmp_path / "apart" / "seed-2", every=7, dev=50)
    with pytest.raises(StsbenchError, match="not every seed has logged dev:sts-b dev in stage main"):
        call(tmp_path / "apart")
    log = (tmp_path / "apart" / "seed-1" / "log.jsonl").read_text().partition("\n")[2]
    (tmp_path / "apart" / "seed-1" / "log.jsonl").write_text(log)
    with pytest.raises(StsbenchError, match="has lines of stage main but not its start"):
        call(tmp_path / "apart" / "seed-1")


def test_a_loss_that_became_nan_is_drawn_up_to_there(tmp_path):
    write_run(tmp_path, dev=None)
    path = tmp_path / "log.jsonl"
    text = path.read_text().splitlines()
    text[-2] = text[-2].replace('"loss": ', '"loss": NaN, "was": ').replace('"contrastive": ', '"contrastive": NaN, "was": ')
    path.write_text("\n".join(text) + "\n")
    panels, _ = drawn(tmp_path)
    raw = of(panels["loss: contrastive"], "_raw")[0].get_ydata()
    assert np.isnan(raw[-1]) and np.isfinite(raw[:-1]).all()


def test_drawing_imports_no_torch(tmp_path):
    write_run(tmp_path / "run")
    code = (
        "import sys; from stsbench.extensions.plots.command import plot\n"
        f"plot(['training', {str(tmp_path / 'run')!r}, '--output', {str(tmp_path / 'a.png')!r}], standalone_mode=False)\n"
        "assert not {'torch', 'sklearn', 'transformers', 'matplotlib.pyplot'} & set(sys.modules)\n"
    )
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").is_file()
