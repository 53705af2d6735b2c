"""The rule on results of few items, and its sentence."""

from __future__ import annotations

import pytest

from stsbench.metrics.power import Measurement, few_items, likely_detectable, typical_ratio


@pytest.mark.parametrize(("n", "half", "points", "few"), [
    (49, 1.0, True, True), (50, 10.0, True, False), (50, 10.01, True, True), (50, None, True, False), (12, None, True, True),
    (60, 40.0, False, False),  # a mean squared error is in no points
])
def test_the_rule(n: int, half: float | None, points: bool, few: bool) -> None:
    assert Measurement("a", n, half, points=points).few is few
    assert bool(few_items([Measurement("a", n, half, points=points)])) is few


def test_the_sentence() -> None:
    assert likely_detectable(31.0) == pytest.approx(31 / 1.959964 * 2.801582 * typical_ratio(), rel=1e-6)
    assert few_items([Measurement("a", 12, 31.0)]) == (
        f"Few items (a 12): the 95 % interval is ±31 points; a difference from another encoder of less than "
        f"{likely_detectable(31.0):.0f} points would often be missed."
    )
    several = [Measurement("a", 12, 31.0, 44.0), Measurement("b", 1379, 2.0, 2.9), Measurement("c", 40, 20.0, 28.6)]
    assert few_items(several, differences=True) == (
        "Few items (a 12, c 40): the 95 % intervals are ±20 to 31 points; a difference of less than 29 to 44 points would "
        "often be missed."
    )


def test_without_an_interval() -> None:
    plain = "Few items (a 12): differences between encoders may well be chance."
    assert few_items([Measurement("a", 12, None)]) == plain
    assert few_items([Measurement("a", 12, 0.0)]) == plain  # every resample scores the same
    assert few_items([Measurement("a", 12, 0.5, points=False, digits=3)]).count("0.500;") == 1


def test_long_lists_end() -> None:
    assert "t7 10 and 2 others)" in few_items([Measurement(f"t{i}", 10, 30.0) for i in range(10)])
