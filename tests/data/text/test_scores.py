"""Rows with a real-valued score: from every format to the batch."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stsbench.data.text.store import open_store
from stsbench.errors import DataError

HEADER = ("sentence1", "sentence2", "score")
ROWS = [("a cat", "the cat", "5"), ("a dog", "no dog", "0.250"), ("one", "two", "-3e-1"), ("x", "y", ".5")]
NUMBERS = [5.0, 0.25, -0.3, 0.5]


def written(path, rows, header=HEADER):
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(header, row, strict=True))) for row in rows))
    else:
        path.write_text("\n".join({".csv": ",", ".tsv": "\t"}[path.suffix].join(row) for row in (header, *rows)))
    return path


@pytest.fixture
def opened(tmp_path):
    return lambda rows, name="a.tsv", header=HEADER, **how: open_store(
        written(tmp_path / name, rows, header), cache=tmp_path / "cache", **how
    )


def test_the_known_header_in_every_format(opened):
    stores = [opened(ROWS, name) for name in ("a.csv", "a.tsv", "a.jsonl")]
    for store in stores:
        assert store.roles == HEADER and store.texts("sentence2", range(4)) == [row[1] for row in ROWS]
        assert store.scores(range(4)).tolist() == NUMBERS and store.scores([2, 0]).dtype == np.float64
        assert store.scores([2, 0]).tolist() == [-0.3, 5.0] and store.text("score", 1) == "0.25"
    assert len({store.digest for store in stores}) == 1
    assert opened([*ROWS[:3], ("x", "y", "0.6")], "b.tsv").digest != stores[0].digest  # it holds the scores
    assert opened([*ROWS, ("u", "v", " ")], "b.tsv", drop_blank=True).scores(range(4)).tolist() == NUMBERS


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9), min_size=1, max_size=9))
def test_numbers_of_json_are_kept_to_the_last_bit(opened, numbers):
    rows = [(f"a {i}", "b", number) for i, number in enumerate(numbers)]
    assert opened(rows, "a.jsonl").scores(range(len(rows))).tolist() == [float(number) for number in numbers]


def test_rows_without_scores(opened, tmp_path):
    store = opened([row[:2] for row in ROWS], header=HEADER[:2])
    assert store.roles == HEADER[:2]
    for ask in (lambda: store.scores([0]), lambda: store.labels([0]), lambda: store.text("anchor", 0)):
        with pytest.raises(DataError, match=r"has no role '(score|label|anchor)' \(its roles are sentence1, sentence2\)"):
            ask()
    with pytest.raises(DataError, match="names no text column"):
        opened(ROWS, "b.tsv", columns={"score": "score"})
