"""Tables in every form: no cell is lost or broken, numbers keep their digits, and a narrow terminal gets several parts.
The front of score against cost against a naive definition; the picture's stair, names and intervals."""

import csv
import io
import itertools
import random
import re

import pytest
from clirun import refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.display.pareto import Point, figure, front, overlap
from stsbench.display.style import style
from stsbench.display.table import Column, Document, Estimate, Table
from stsbench.errors import StsbenchError
from stsbench.wording import display_width

NUMBERS = st.floats(-1000, 1000, allow_nan=False)
ESTIMATES = st.builds(Estimate, NUMBERS, NUMBERS, NUMBERS)
NAMES = st.text("abcXYZ09-_.", min_size=1, max_size=12)


@st.composite
def tables(draw):
    """A table of names and of columns of each kind of cell, at any level of detail."""
    rows = draw(st.integers(1, 5))
    columns = [Column("task", draw(st.lists(NAMES, min_size=rows, max_size=rows)))]
    for at in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from([NUMBERS, ESTIMATES, st.integers(0, 10**6), NAMES]))
        cells = draw(st.lists(st.none() | kind, min_size=rows, max_size=rows))
        columns.append(Column(f"score {at}", cells, digits=draw(st.integers(0, 4)), signed=draw(st.booleans()),
                              detail=draw(st.integers(0, 2))))
    return Table("a title", columns)


@settings(max_examples=20)
@given(tables(), st.integers(1, 200))
def test_parts_of_any_width_hold_every_column_once_and_break_no_number_and_no_interval(table, width):
    parts = table.parts(width)
    assert all(part[0] == 0 and len(part) > 1 for part in parts)
    assert sorted(at for part in parts for at in part[1:]) == list(range(1, len(table.columns)))
    levels = [table.columns[at].detail for part in parts for at in part[1:]]
    assert levels == sorted(levels) or len(parts) == 1
    for part in parts:  # one that is wider holds a single column besides the names
        text = Table("", [table.columns[at] for at in part]).text(width)
        assert len(part) == 2 or max(map(display_width, text.splitlines())) <= width
    whole, narrow = table.text(), table.text(max(width, 20))
    for column in table.columns:
        for cell in filter(None, column.texts):
            assert cell in whole and (cell in narrow or column.left)
            assert all(word in narrow for word in cell.split())


@settings(max_examples=20)
@given(tables())
def test_every_cell_is_in_every_form_and_csv_reads_back_as_the_rows(table):
    html, latex, markdown = table.html(), table.latex(), table.markdown()
    for cell in (cell for column in table.columns[1:] for cell in column.texts if re.search(r"\d", cell)):
        assert f">{cell}</td>" in html
        assert re.sub(r"(?<![\w.)\]-])-(?=\.?\d)", "$-$", cell).replace("_", r"\_") in latex
        assert cell in markdown or re.search("[a-zA-Z_]", cell)
    lines = list(csv.DictReader(io.StringIO(table.csv())))
    rows = table.rows()
    assert len(lines) == len(rows) and set(lines[0]) == set(rows[0])
    for line, row in zip(lines, rows, strict=True):
        for key, value in row.items():
            text = line[key].removeprefix("'")
            assert float(text) == value if isinstance(value, int | float) else text == (value or "")


@pytest.mark.parametrize(("cell", "text"), [
    (Estimate(82.0341, 81.17, 82.85), "82.03 [81.17, 82.85]"), (Estimate(-0.001, -0.2, 0.1), "0.00 [-0.20, 0.10]"),
    (Estimate(1.0), "1.00"), (Estimate(None, 1.0, 2.0), "[1.00, 2.00]"), (float("nan"), ""), (None, ""), (1234, "1234"),
    ("a\nb\x1b[31m", "a\\nb\\x1b[31m")])
def test_a_cell_is_read_as_one_line(cell, text):
    assert Column("a", [cell]).texts == [text]


def test_differences_have_their_sign_and_an_interval_has_none_twice():
    column = Column("A - B", [Estimate(17.526, 7.21, 27.9), Estimate(-1.0, -2.0, 0.5), 0.0], signed=True)
    assert column.texts == ["+17.53 [7.21, 27.90]", "-1.00 [-2.00, 0.50]", "0"]
    assert column.name == "A - B [95 % interval]" and not column.left


@pytest.mark.parametrize(("cells", "left"), [
    (["unsup", ""], True), (["3.70 to 37.51"], False), (["settled", "12"], False), (["7 of 7"], False),
    (["–", "1.0"], False), (["<0.0001"], False), (["+1.0 [0.1, 2.0]"], False), ([None], False), (["yes", "no"], True)])
def test_words_stand_to_the_left_and_numbers_to_the_right(cells, left):
    assert Column("a", cells).left == left


def test_a_narrow_terminal_gets_the_headline_first_and_no_column_alone():
    columns = [Column("task", ["STS12", "Avg"]), Column("n", [45, 312], detail=1),
               Column("spearman all", [Estimate(86.43, 73.24, 93.06), Estimate(83.41, 77.03, 86.67)]),
               *(Column(f"metric {at}", [12.34, 12.34], detail=1) for at in range(7))]
    table = Table("", columns)
    assert table.parts(200) == [list(range(10))] and table.parts(None) == [list(range(10))]
    assert table.parts(80)[0][:2] == [0, 2] and min(map(len, table.parts(60)[1:])) > 2
    assert table.text(40).splitlines()[:3] == ["               spearman all", "task        [95 % interval]",
                                               "-----  --------------------"]


def test_a_row_without_a_cell_in_a_part_is_not_in_it():
    scores = [Column("first_score", [1.0, 2.0]), Column("more_scores", [3.0, None])]
    table = Table("", [Column("task", ["a row", "other"]), *scores])
    assert table.parts(20) == [[0, 1], [0, 2]]
    assert table.text(20).count("a row") == 2 and table.text(20).count("other") == 1


def test_words_are_broken_between_words_and_commands_never():
    table = Table("found", [Column("rank", [1]), Column("text", ["a b " * 30], words=True)],
                  notes=["some words " * 12, "    stsbench eval" + " --model x" * 12])
    *lines, command = table.text(60).splitlines()
    assert max(map(len, lines)) <= 60 and command == "    stsbench eval" + " --model x" * 12
    assert " ".join(" ".join(lines).split()).count("a b") == 30 and table.text().count("\n") == 5
    assert "<pre>stsbench eval" in table.html() and "\n% stsbench eval" in table.latex()


def test_wide_characters_take_two_columns():
    header, rule, *rows = Table("", [Column("text", ["猫在睡觉", "cat"]), Column("n", [1, 2])]).text().splitlines()
    assert rule == "--------  -" and [display_width(line) for line in rows] == [11, 11] and header == "text      n"


def test_a_line_of_latex_does_not_begin_with_an_argument():
    """`\\\\` takes a bracket or a star behind it for its own."""
    made = Table("", [Column("[a]", ["[x]", "*"]), Column("spearman all", [Estimate(1.0, 0.5, 2.0), None])]).latex()
    assert not re.search(r"\\\\\s*[\[*]", made) and r"\shortstack[r]{spearman all \\ {}[95 \% \\ interval]}" in made


def test_a_document_is_lines_tables_and_lines():
    table = Table("t", [Column("a", [1])], notes=["note"])
    made = Document([table, table], above=["A: x"], below=["below", "    stsbench eval"])
    assert made.text().split("\n\n") == ["A: x", "t\na\n-\n1\nnote", "t\na\n-\n1\nnote", "below\n    stsbench eval"]
    assert made.latex("x").count(r"\caption{A: x. t. note}") == 2 and r"\label{tab:x-1}" in made.latex("x")
    assert made.latex("x").endswith("% below\n\n% stsbench eval\n") and made.html().endswith("<pre>stsbench eval</pre>")
    assert Document().text() == Document().html() == Document().markdown() == ""


def naive(points, lower, speed):
    """Dominance as the field defines it, spelled out case by case."""
    def no_worse(a, b):
        cost = a.cost >= b.cost if speed else a.cost <= b.cost
        return cost and (a.score <= b.score if lower else a.score >= b.score)

    return [not any(no_worse(a, b) and not no_worse(b, a) for a in points) for b in points]


@pytest.mark.parametrize(("lower", "speed"), list(itertools.product([False, True], repeat=2)))
def test_the_front_is_what_no_other_beats(lower, speed):
    draw = random.Random(3)
    for count in (1, 2, 5, 12):
        for _ in range(25):  # few values: ties in one and in both are frequent
            points = [Point(str(i), draw.randint(1, 4), draw.randint(1, 4)) for i in range(count)]
            best = front(points, lower, more_is_cheaper=speed)
            assert best == naive(points, lower, speed) and any(best)
    assert front([]) == []


def test_costs_whose_rounds_overlap_count_as_the_same():
    good, poor = Point("good", 5.2, 79, least=4.2, most=5.6), Point("poor", 4.3, 74, least=4.0, most=5.1)
    assert front([good, poor]) == [True, False]
    assert front([good, Point("poor", 4.1, 74, least=4.0, most=4.15)]) == [True, True]
    assert front([Point("good", 50, 79, least=40, most=60), Point("poor", 55, 74, least=52, most=58)],
                 more_is_cheaper=True) == [True, False]
    assert front([poor, Point("as good", 4.5, 74, least=4.1, most=5)]) == [True, True]
    drawing = figure([good, poor], "t", "c", "s")
    assert (4.2, 5.6) in [tuple(line.get_xdata()) for line in drawing.axes[0].lines]


def stair_of(drawing):
    return list(zip(*drawing.axes[0].lines[-1].get_data(), strict=True))


def test_the_stair_is_what_a_cost_or_a_speed_buys():
    points = [Point("a", 1, 50), Point("b", 3, 70), Point("c", 2, 40)]
    assert stair_of(figure(points, "t", "cost", "score", lower_is_better=True)) == [(1, 50), (2, 50), (2, 40)]
    fast = figure([Point("a", 0, 70), Point("b", 30, 50), Point("c", 2, 40)], "t", "speed", "score", more_is_cheaper=True)
    assert stair_of(fast) == [(0, 70), (0, 50), (30, 50)] and fast.axes[0].get_xscale() == "linear"


def test_the_picture_shows_names_intervals_and_the_note():
    points = [Point("small", 48, 70.0, 68.5, 71.5), Point("large", 3072, 75.0, 74.0, 76.0), Point("poor", 3072, 60.0)]
    drawing = figure(points, "bytes a vector", "bytes", "Spearman x 100", note="one machine")
    axes = drawing.axes[0]
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "bytes\none machine"
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["small", "large", "poor"]
    drawn = [tuple(line.get_ydata()) for line in axes.lines]
    assert (68.5, 71.5) in drawn and (74.0, 76.0) in drawn
    refuses(StsbenchError, "no point to draw", figure, [], "t", "c", "s")
    refuses(StsbenchError, "a: cost nan", Point, "a", float("nan"), 1)


def test_names_of_a_crowd_do_not_overlap():
    kinds = ("float32", "int8", "uint8", "binary", "ubinary")
    scores = {(width, k): 80 - 200 / width - k for width in (64, 128, 256) for k in range(5)}
    points = [Point(f"{width} dimensions, {kinds[k]}", width * (4, 1, 1, 0.125, 0.125)[k], score, score - 2, score + 2)
              for (width, k), score in scores.items()]
    drawing = figure(points, "crowd", "bytes", "score")
    with style():
        boxes = [text.get_window_extent() for text in drawing.axes[0].texts if text.get_text()]
    assert len(boxes) == 15
    assert not [(i, j) for i, a in enumerate(boxes) for j, b in enumerate(boxes[:i]) if overlap(a, b) > 1e-6]
    edge = drawing.bbox
    assert all(edge.x0 <= box.x0 and box.x1 <= edge.x1 for box in boxes)
