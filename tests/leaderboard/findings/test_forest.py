"""The README's picture says what the table says, and stays valid XML whatever a row is called."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from stsbench.leaderboard.findings.forest import PAPER, ROWS, forest
from stsbench.leaderboard.ranks.board import Board, Cell, Exposure, Rank, Row, Tab

SVG = "{http://www.w3.org/2000/svg}"


def row(number, **changes):
    cell = Cell(80.0 - number, 79.0 - number, 81.0 - number)
    rank = Rank(number + 1, max(1, number), number + 2, "")
    made = Row(f"r{number}", "measured", f"method {number}", "net", "unsup", {"Avg": cell}, rank=rank)
    return replace(made, **changes)


def board(rows):
    tab = Tab("sts-spearman-all", "sts", "Spearman, all", "", "spearman", "all", ("Avg",), "Avg", 2, False, tuple(rows), ())
    return Board((tab,), {})


def drawn(rows):
    return ElementTree.fromstring(forest(board(rows)))


def words(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def test_each_row_has_its_score_interval_and_rank():
    root = drawn([row(0), row(1), row(2)])
    said = words(root)
    for number in range(3):
        assert f"method {number}" in said and f"{80 - number:.2f}" in said
    assert said.count("1-2") == 1 and said.count("1-3") == 1 and said.count("2-4") == 1
    dots = list(root.iter(f"{SVG}circle"))
    lines = [line for line in root.iter(f"{SVG}line") if line.get("stroke-width") == "2"]
    x = [float(dot.get("cx")) for dot in dots]
    assert x[0] - x[1] == pytest.approx(x[1] - x[2], abs=0.02)  # equal steps of the score
    for dot, line in zip(x, lines, strict=True):
        # An interval of one point to each side reaches as far as the next row's dot.
        assert dot - float(line.get("x1")) == pytest.approx(x[0] - x[1], abs=0.02)
        assert float(line.get("x2")) - dot == pytest.approx(x[0] - x[1], abs=0.02)
    assert [dot.get("fill") == dot.get("stroke") for dot in dots] == [True, True, False]  # could be first


def test_rows_are_drawn_by_what_they_were_trained_on_and_equal_names_tell_their_backbone():
    trained = [{"exposure": {"Avg": Exposure(word, "")}} for word in ("yes", "no")]
    rows = [row(0, flags=("sts",), **trained[0]), row(1, flags=("changed-recipe",)), row(2, **trained[0]),
            row(3, method="method 2", backbone="other"), row(4, **trained[1])]
    said = words(drawn(rows))
    assert "method 1" not in said
    order = ["Trained on STS labels", "method 0", "Trained on test sentences", "method 2 (net)",
             "Trained on unknown texts", "method 2 (other)", "Trained on no test sentences", "method 4"]
    assert [each for each in said if each in order] == order


def test_a_name_of_markup_is_text_and_a_long_one_takes_more_lines():
    said = words(drawn([row(0, method="<b>&\"</b>"), row(1, method="m" * 99)]))
    assert "<b>&\"</b>" in said and "".join(text for text in said if re.fullmatch("m+", text)) == "m" * 99


def test_the_best_rows_are_drawn_and_unranked_ones_are_not():
    (style,) = drawn([row(0), row(1)]).iter(f"{SVG}style")
    assert "prefers-color-scheme: dark" in style.text and PAPER in style.text
    assert len(list(drawn([row(0, cells={"Avg": Cell(50.0)})]).iter(f"{SVG}circle"))) == 1  # without an interval
    assert forest(board([])) == forest(Board((), {})) == forest(board([replace(row(0), rank=None)])) == ""
    rows = [replace(row(0), rank=None), *(row(number) for number in range(1, 40))]
    assert len(list(drawn(rows).iter(f"{SVG}circle"))) == ROWS and "method 0" not in words(drawn(rows))
