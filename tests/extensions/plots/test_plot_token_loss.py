"""The picture of losses by token: its bars are the method's numbers, its labels the tokens, refusals are one line."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import click
import pytest
from click.testing import CliRunner

from stsbench.display.style import style
from stsbench.errors import StsbenchError
from stsbench.extensions.plots import token_loss
from stsbench.extensions.plots.command import plot
from stsbench.training.runs import finish

PAIR = ["a red dog eats", "the unbelievably small dog that eats $ 5 and $ 6 of food ."]


def losses_of(text):
    return [(word, 0.1 + 0.3 * len(word), 0.1 if word in ("a", "the", ".") else 1 / len(word)) for word in text.split()]


class Double:
    """A method of which only the losses matter."""

    def token_losses(self, texts):
        return [losses_of(text) for text in texts]


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setattr(finish, "load_trained", lambda run, method=None: Double())


def call(*words):
    result = CliRunner().invoke(plot, ["token-loss", *map(str, words)], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result


def drawn(texts, losses):
    with style():
        figure = token_loss.draw(texts, losses)
        figure.draw_without_rendering()
    return figure


def test_the_bars_are_the_losses(double, tmp_path):
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
        found = re.fullmatch(r"“(.+)”: mean (\S+), weighted (\S+)", panel.get_title(loc="left"))
        assert found and found[1] == text
        mean = math.fsum(loss for _, loss, _ in tokens) / len(tokens)
        weighted = math.fsum(loss * weight for _, loss, weight in tokens) / len(tokens)
        assert (float(found[2]), float(found[3])) == pytest.approx((mean, weighted), rel=1e-2)
    assert panels[0].get_ylim() == panels[1].get_ylim() and panels[0].get_xlim() == panels[1].get_xlim()
    [legend] = panels[0].get_figure().legends
    assert [text.get_text() for text in legend.get_texts()] == ["loss", "loss × weight"]


LONG = "word " * 40


@pytest.mark.parametrize("texts", [PAIR, PAIR[:1], [" ".join(["responsibility"] * 30)], ["i"], [*PAIR, "a b c", LONG]])
def test_texts_cover_neither_one_another_nor_leave_the_picture(texts):
    figure = drawn(texts, [losses_of(text) for text in texts])
    page, boxes = figure.bbox, []
    for panel in figure.axes:
        boxes += [panel._left_title, panel.yaxis.label, *panel.get_xticklabels()]
    boxes = [text.get_window_extent() for text in (*boxes, *figure.legends[0].get_texts())]
    for number, box in enumerate(boxes):
        assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= -1 and box.y1 <= page.y1 + 1
        assert not any(box.x0 < other.x1 and other.x0 < box.x1 and box.y0 + 1 < other.y1 and other.y0 + 1 < box.y1
                       for other in boxes[:number])


def test_dollars_are_no_formula():
    """Two dollars in one label or title would be mathematics to matplotlib, and its spelling lost."""
    text = "$a_b$ costs 5$"
    panel = drawn([text], [losses_of(text)]).axes[0]
    for label in (*panel.get_xticklabels(), panel._left_title):
        assert not label.get_parse_math()


def test_a_long_text_is_cut_above_its_panel_only():
    panel = drawn([LONG], [losses_of(LONG)]).axes[0]
    assert "word…”: mean" in panel.get_title(loc="left")
    assert len(panel.get_xticklabels()) == 40


def test_files_are_valid_and_the_same_every_time(double, tmp_path):
    for name in ("one", "two"):
        done = call(tmp_path, "--text", PAIR[0], "--text", PAIR[1], "--output", tmp_path / name)
        assert done.output.split() == [str(tmp_path / f"{name}.png"), str(tmp_path / f"{name}.svg")]
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    assert ET.parse(tmp_path / "one.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_what_cannot_be_drawn_is_one_line(double, tmp_path, monkeypatch):
    for words in ([], ["--text", " "]):
        with pytest.raises(click.UsageError, match="token-loss needs one text or several"):
            call(tmp_path, *words)
    with pytest.raises(click.UsageError, match="draws one run, not 2"):
        call(tmp_path, tmp_path, "--text", "a")
    with pytest.raises(StsbenchError, match=r"unknown suffix '\.pdf'"):
        call(tmp_path, "--text", "a", "--output", tmp_path / "a.pdf")
    with pytest.raises(StsbenchError, match="the text '' has no token with a loss"):
        token_loss.figure(tmp_path, ["a", ""])
    monkeypatch.undo()
    with pytest.raises(StsbenchError, match=r"it has no recipe\.yaml"):
        call(tmp_path, "--text", "a")


def test_other_pictures_take_no_text(tmp_path):
    for picture in ("similarity", "geometry", "spectrum", "training"):
        done = CliRunner().invoke(plot, [picture, str(tmp_path), "--text", "a"])
        assert done.exit_code == 2 and f"--text has no effect on {picture}: it is for token-loss" in done.output


def test_a_method_without_such_losses_says_so(tmp_path, monkeypatch):
    class Plain:
        name = "plain"

    monkeypatch.setattr(finish, "load_trained", lambda run, method=None: Plain())
    with pytest.raises(StsbenchError, match="the method plain has no loss token by token"):
        call(tmp_path, "--text", "a")
    assert not list(tmp_path.iterdir())
