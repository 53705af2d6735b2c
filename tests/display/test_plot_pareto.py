"""The front of score against cost against a naive definition; the picture's stair, names and intervals."""

import itertools
import random

import pytest

from stsbench.display.pareto import Point, figure, front, overlap
from stsbench.display.style import style
from stsbench.errors import StsbenchError


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


def test_ties():
    points = [Point("a", 1, 5), Point("b", 1, 5), Point("c", 1, 4), Point("d", 2, 5), Point("e", 2, 6)]
    assert front(points) == [True, True, False, False, True]
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
    with pytest.raises(StsbenchError, match="no point to draw"):
        figure([], "t", "c", "s")
    with pytest.raises(StsbenchError, match="a: cost nan"):
        Point("a", float("nan"), 1)


def test_names_of_a_crowd_do_not_overlap():
    kinds = ("float32", "int8", "uint8", "binary", "ubinary")
    scores = {(width, k): 80 - 200 / width - k for width in (64, 128, 256, 384) for k in range(5)}
    points = [Point(f"{width} dimensions, {kinds[k]}", width * (4, 1, 1, 0.125, 0.125)[k], score, score - 2, score + 2)
              for (width, k), score in scores.items()]
    drawing = figure(points, "crowd", "bytes", "score")
    with style():
        boxes = [text.get_window_extent() for text in drawing.axes[0].texts if text.get_text()]
    assert len(boxes) == 20
    assert not [(i, j) for i, a in enumerate(boxes) for j, b in enumerate(boxes[:i]) if overlap(a, b) > 1e-6]
    edge = drawing.bbox
    assert all(edge.x0 <= box.x0 and box.x1 <= edge.x1 for box in boxes)
