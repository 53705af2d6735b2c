"""What a comparison, or a run, of few items says of what it could not detect."""

from __future__ import annotations

import pytest

import stsbench
from stsbench.comparison.compare import compare
from stsbench.comparison.wording import notes
from stsbench.metrics.power import detectable_difference

SAMPLE = {"sample": True, "resamples": 0, "tasks": "STS-B,SICK-R"}


@pytest.fixture(scope="module")
def runs():
    return [stsbench.evaluate(model, **SAMPLE) for model in ("lexical:tfidf", "lexical:token-set")]


def test_compare_says_what_it_could_not_detect(runs) -> None:
    table = compare(*runs, protocol="sts", resamples=300).tables[0]
    column, first = table.columns()[-1], table.rows[0]
    assert first.detectable == pytest.approx(detectable_difference(first.difference.error))
    assert column.name == "detectable at 80 % power" and float(column.texts[0]) == pytest.approx(first.detectable, abs=0.01)
    assert any(line.startswith("Few items (2 tasks of 42): the 95 % intervals are ±") for line in notes(table))
    same = compare(runs[0], runs[0], protocol="sts", resamples=300).tables[0]
    assert same.rows[0].detectable is None and same.columns()[-1].texts[0] == ""


def test_eval_says_that_its_items_are_few() -> None:
    result = stsbench.evaluate("lexical:tfidf", **{**SAMPLE, "resamples": 200})
    assert "Few items (2 tasks of 42): the 95 % intervals are ±" in str(result)
    assert "Few items" in result.latex()
