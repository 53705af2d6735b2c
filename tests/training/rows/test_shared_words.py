"""What a training on triplets says of its columns."""

from __future__ import annotations

import csv

from stsbench.data.text.store import open_store
from stsbench.training.rows.stage_rows import shared_words


def line_of(folder, rows):
    path = folder / "triplets.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("sent0", "sent1", "hard_neg"), *rows])
    return shared_words(open_store(path))


def test_the_means_are_those_of_the_sets_of_words(tmp_path):
    rows = [("A cat sleeps", "a cat naps", "no dog barks"), ("it rains", "it rains", "it snows")]
    line = line_of(tmp_path, rows)  # 2 of 4 and 2 of 2; 0 of 6 and 1 of 3
    assert line == "words shared with anchor (Jaccard, 2 rows): positive 0.75, negative 0.17; 1 with two equal texts"


def test_columns_in_another_order_show(tmp_path):
    rows = [(f"number {i} is even", f"number {i} is not odd", "something else") for i in range(3000)]
    line = line_of(tmp_path, [(anchor, negative, positive) for anchor, positive, negative in rows])
    assert "1,000 rows" in line and "positive 0.00, negative 0.50" in line
