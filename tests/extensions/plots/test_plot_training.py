"""Pictures of a training, of DiffAug's divergence and of losses by token: lines and bars are the logged numbers, stages
follow one another, no text covers another."""

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from training_logs import lines_of, write_run

from stsbench.display.style import COLOURS, style
from stsbench.errors import StsbenchError
from stsbench.extensions.plots import divergence, token_loss, training
from stsbench.extensions.plots.training import smoothed
from stsbench.training.runs import finish


def drawn(picture, *folders):
    """Panel title -> axes, and the figure."""
    with style():
        figure = picture.figure(folders)
    return {panel.get_title(loc="left").partition(": highest")[0]: panel for panel in figure.axes}, figure


def of(panel, label):
    return [line for line in panel.get_lines() if line.get_label() == label]


def points(panel, label):
    return [line.get_xydata() for line in of(panel, label)]


def values(lines, stage, key):
    """(steps, values) as they stand in the log."""
    actual = [(line["step"], line["terms"][key[6:]] if key.startswith("terms.") else line[key])
             for line in lines if line["kind"] == "train" and line["stage"] == stage]
    return np.array(actual).T


def dev_values(lines):
    return np.array([(line["step"], line["score"]) for line in lines if line["kind"] == "dev"]).T


def test_the_lines_are_the_logs_values(tmp_path):
    lines = write_run(tmp_path / "run", terms=("contrastive", "mlm"), masked_accuracy=True)
    panels, _ = drawn(training, tmp_path / "run")
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


def test_stages_follow_one_another(tmp_path):
    lines = write_run(tmp_path, (("generator", 100), ("contrastive", 200)), dev=50)
    panels, _ = drawn(training, tmp_path)
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
    panels, figure = drawn(training, tmp_path / "one", tmp_path / "two")
    [legend] = figure.legends
    bests = [[line for line in log if line["kind"] == "dev" and line["best"]][-1] for log in logs]
    assert [text.get_text() for text in legend.get_texts()] == [
        f"one: best sts-b dev {bests[0]['score']:.2f} at step {bests[0]['step']}",
        f"two: best sts-b dev {bests[1]['score']:.2f} at step {bests[1]['step']} of {bests[1]['stage']}"]
    one, *two = of(panels["loss: contrastive"], "_curve")
    assert one.get_color() == COLOURS[0] and [(line.get_color(), line.get_xdata()[0]) for line in two] == [
        (COLOURS[1], 5), (COLOURS[1], 35)]
    [divider] = of(panels["loss: contrastive"], "_divider")
    assert divider.get_color() == COLOURS[1] and "stages of two: a, then b\n" in figure.get_supxlabel()
    assert "stages of one" not in figure.get_supxlabel()


def test_seeds_are_a_mean_and_a_band(tmp_path):
    logs = [write_run(tmp_path / "runs" / f"seed-{seed}", seed=seed, until=until) for seed, until in
            ((1, None), (2, None), (10, 160))]
    panels, figure = drawn(training, tmp_path / "runs")
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
        f"runs, 3 seeds: best sts-b dev {np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}")
    assert "band: ± one standard deviation" in figure.get_supxlabel()


def assert_apart(figure, slack=0.0, ticks=False):
    """No text covers another one by more than some pixels of height, or leaves the picture. ticks: the labels of x, too."""
    with style():
        figure.draw_without_rendering()  # lays it out
    page, texts = figure.bbox, [text for legend in figure.legends for text in legend.get_texts()]
    for panel in figure.axes:
        texts += [panel._left_title, panel.xaxis.label, panel.yaxis.label, *panel.texts]
        texts += panel.get_xticklabels() if ticks else []
    texts += [figure._supxlabel] if figure._supxlabel else []
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    for number, (name, box) in enumerate(boxes):
        assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= -1 and box.y1 <= page.y1 + 1, name
        for other, its in boxes[:number]:
            apart = box.x1 <= its.x0 or its.x1 <= box.x0 or box.y1 <= its.y0 + slack or its.y1 <= box.y0 + slack
            assert apart, f"{name} covers {other}"


def test_texts_cover_neither_one_another_nor_leave_the_picture(tmp_path):
    stages = (("generator", 40), ("contrastive", 200), ("distillation", 60))
    for number in range(2):
        write_run(tmp_path / f"a-run-with-a-long-name-{number}", stages, seed=number, terms=("contrastive", "mlm"))
        write_divergence(tmp_path / "d" / f"a-run-with-a-rather-long-name-{number}", seed=number)
    write_run(tmp_path / "plain")
    assert_apart(drawn(training, *sorted(tmp_path.glob("a-*")), tmp_path / "plain")[1], slack=0.5)
    assert_apart(drawn(divergence, *sorted((tmp_path / "d").iterdir()))[1])
    with pytest.raises(StsbenchError, match=r"plain has no divergence in its log: diffaug logs it"):
        drawn(divergence, tmp_path / "plain")
    for texts in (PAIR, [" ".join(["responsibility"] * 30), "i"]):
        assert_apart(losses_drawn(texts, [losses_of(text) for text in texts]), slack=1, ticks=True)


def test_a_loss_that_became_nan_is_drawn_up_to_there(tmp_path):
    write_run(tmp_path, dev=None)
    path = tmp_path / "log.jsonl"
    text = path.read_text().splitlines()
    text[-2] = text[-2].replace('"loss": ', '"loss": NaN, "was": ').replace('"contrastive": ', '"contrastive": NaN, "was": ')
    text[5] = text[5].replace('"gradient_norm": ', '"gradient_norm": null, "was": ')  # and where there is no number
    path.write_text("\n".join(text) + "\n")
    panels, _ = drawn(training, tmp_path)
    raw = of(panels["loss: contrastive"], "_raw")[0].get_ydata()
    assert np.isnan(raw[-1]) and np.isfinite(raw[:-1]).all()
    assert len(of(panels["gradient norm"], "_raw")[0].get_ydata()) == len(raw) - 1
    lines = write_run(tmp_path / "short", (("main", 40),), dev=None)  # a short curve is drawn as it is
    panels, figure = drawn(training, tmp_path / "short")
    [curve] = of(panels["loss: contrastive"], "_curve")
    np.testing.assert_array_equal(curve.get_xydata().T, values(lines, "main", "terms.contrastive"))
    assert not of(panels["loss: contrastive"], "_raw") and figure.get_supxlabel() == ""
    assert list(panels) == ["loss: contrastive", "learning rate", "gradient norm"]


DELTA, RAW = "δ, vectors of length 1", "δ, vectors as they are"
KAPPA = "κ: keys and values, text minus prefix"


def write_divergence(folder, seed=1):
    """A log whose dev lines of the first stage hold what diffaug measures; returns those lines."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, lines = np.random.default_rng(seed), lines_of((("prefix", 200), ("joint", 100)), seed=seed)
    first = [line for line in lines if line["kind"] == "dev" and line["stage"] == "prefix"]
    for line in first:
        line |= {"delta": float(rng.uniform(5, 9)), "delta_normalised": float(rng.uniform(0.5, 0.9)),
                 "delta_dropout": float(rng.uniform(3, 4)), "delta_dropout_normalised": float(rng.uniform(0.2, 0.3)),
                 "kappa": float(rng.normal())}
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return first


def test_the_lines_of_a_divergence_are_the_logs_numbers(tmp_path):
    lines = write_divergence(tmp_path / "run")
    panels, figure = drawn(divergence, tmp_path / "run")
    assert list(panels) == [DELTA, KAPPA, RAW, "sts-b dev"]
    keys = {DELTA: ("delta_normalised", "delta_dropout_normalised"), KAPPA: ("kappa", None),
            RAW: ("delta", "delta_dropout"), "sts-b dev": ("score", None)}
    for title, (key, reference) in keys.items():
        [curve] = points(panels[title], "_curve")
        np.testing.assert_array_equal(curve, [(line["step"], line[key]) for line in lines])  # of stage prefix alone
        dashed = points(panels[title], "_reference")
        expected = [[(line["step"], line[reference]) for line in lines]] if reference else []
        np.testing.assert_array_equal(dashed, expected)
        assert panels[title].get_xlabel() == "step of stage prefix" and panels[title].get_xlim() == (-4, 204)
    assert panels[DELTA].get_ylim()[0] == 0 and panels["sts-b dev"].get_ylabel() == "Spearman × 100"
    top = max(lines, key=lambda line: line["delta"])
    assert panels[RAW].get_title(loc="left") == f"{RAW}: highest at {top['step']}"
    assert "dashed: between two dropout masks" in figure.get_supxlabel() and "band" not in figure.get_supxlabel()
    assert not points(panels["sts-b dev"], "_best")[0].size  # the weights kept are of stage joint


def test_divergences_of_seeds_are_a_mean_and_a_band(tmp_path):
    logs = [write_divergence(tmp_path / "runs" / f"seed-{seed}", seed=seed) for seed in (1, 2, 3)]
    panels, figure = drawn(divergence, tmp_path / "runs")
    rows = np.array([[line["delta_normalised"] for line in log] for log in logs])
    [curve] = points(panels[DELTA], "_curve")
    np.testing.assert_allclose(curve[:, 1], rows.mean(axis=0))
    reference, band = panels[DELTA].collections
    corners = band.get_paths()[0].vertices
    for step, mean, sd in zip(curve[:, 0], rows.mean(axis=0), rows.std(axis=0, ddof=1), strict=True):
        heights = corners[corners[:, 0] == step, 1]
        assert (heights.min(), heights.max()) == pytest.approx((mean - sd, mean + sd))
    assert reference.get_paths()[0].vertices[:, 1].max() < 0.5
    assert "band: ± one standard deviation over seeds" in figure.get_supxlabel()


PAIR = ["a red dog eats", "the unbelievably small dog that eats $ 5 and $ 6 of food ."]


def losses_of(text):
    return [(word, 0.1 + 0.3 * len(word), 0.1 if word in ("a", "the", ".") else 1 / len(word)) for word in text.split()]


def test_the_bars_are_the_losses(monkeypatch, tmp_path):
    double = SimpleNamespace(token_losses=lambda texts: [losses_of(text) for text in texts])
    monkeypatch.setattr(finish, "load_trained", lambda run, method=None: double)
    with style():
        panels = token_loss.figure(tmp_path, PAIR).axes
    assert len(panels) == 2
    for panel, text in zip(panels, PAIR, strict=True):
        tokens = losses_of(text)
        whole, counted = panel.containers
        assert [bar.get_height() for bar in whole] == [loss for _, loss, _ in tokens]
        assert [bar.get_height() for bar in counted] == [loss * weight for _, loss, weight in tokens]
        for bars in (whole, counted):  # each over its token's label
            assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx(panel.get_xticks())
        assert [label.get_text() for label in panel.get_xticklabels()] == text.split()
        assert {bar.get_facecolor() for bar in whole} != {bar.get_facecolor() for bar in counted}
        actual = re.fullmatch(r"“(.+)”: mean (\S+), weighted (\S+)", panel.get_title(loc="left"))
        assert actual and actual[1] == text
        mean = math.fsum(loss for _, loss, _ in tokens) / len(tokens)
        weighted = math.fsum(loss * weight for _, loss, weight in tokens) / len(tokens)
        assert (float(actual[2]), float(actual[3])) == pytest.approx((mean, weighted), rel=1e-2)
    assert panels[0].get_ylim() == panels[1].get_ylim() and panels[0].get_xlim() == panels[1].get_xlim()
    [legend] = panels[0].get_figure().legends
    assert [text.get_text() for text in legend.get_texts()] == ["loss", "loss × weight"]
    with pytest.raises(StsbenchError, match="the text '' has no token with a loss"):
        token_loss.figure(tmp_path, ["a", ""])
    monkeypatch.setattr(finish, "load_trained", lambda run, method=None: SimpleNamespace(name="plain"))
    with pytest.raises(StsbenchError, match="the method plain has no loss token by token"):
        token_loss.figure(tmp_path, ["a"])
    assert not list(tmp_path.iterdir())


def test_a_text_above_its_panel():
    """A long one is cut there only; two dollars in one label or title would be mathematics to matplotlib."""
    panel = losses_drawn(["word " * 40], [losses_of("word " * 40)]).axes[0]
    assert "word…”: mean" in panel.get_title(loc="left") and len(panel.get_xticklabels()) == 40
    text = "$a_b$ costs 5$"
    panel = losses_drawn([text], [losses_of(text)]).axes[0]
    assert not any(label.get_parse_math() for label in (*panel.get_xticklabels(), panel._left_title))


def losses_drawn(texts, losses):
    with style():
        return token_loss.draw(texts, losses)
