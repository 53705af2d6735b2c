"""Rows in memory become a file that the reader of training text gives back as they were."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.data.own.in_memory import rows_file
from stsbench.data.text.rows import read_rows
from stsbench.errors import DataError

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
SHORT = settings(max_examples=20, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def rows_of(data):
    reader = read_rows(rows_file(data, "data"))
    return reader.roles, [row for _, row in reader]


@SHORT
@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_sentences_come_back(texts):
    assert rows_of(texts) == (("sentence",), [(text,) for text in texts])


@SHORT
@given(st.lists(st.tuples(TEXTS, TEXTS, st.floats(0, 5) | st.integers(0, 5)), min_size=1, max_size=4))
def test_scores_come_back(rows):
    roles, read = rows_of(rows)
    assert roles == ("sentence1", "sentence2", "score")
    assert [(first, second, float(score)) for first, second, score in read] == [(*row[:2], float(row[2])) for row in rows]


TABLE = {"premise": ["a cat", "a\tdog\n", "ä"], "hypothesis": ["x", 'y "z"', "é"], "label": [0, 2, 1]}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "datasets", "records"])
def test_a_table_is_read_as_its_csv(library, tmp_path):
    made = {
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(TABLE, index=[5, 3, 9]),
        "polars": lambda: pytest.importorskip("polars").DataFrame(TABLE),
        "pyarrow": lambda: pytest.importorskip("pyarrow").table(TABLE),
        "datasets": lambda: pytest.importorskip("datasets").Dataset.from_dict(TABLE),
        "records": lambda: [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)],
    }[library]()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([TABLE, *zip(*TABLE.values(), strict=True)])
    (tmp_path / "table.csv").write_text(text.getvalue(), "utf-8")
    reader = read_rows(tmp_path / "table.csv")
    assert rows_of(made) == (reader.roles, [row for _, row in reader])


def test_the_classes_of_datasets_have_their_names_and_its_selection_counts():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"premise": datasets.Value("string"), "hypothesis": datasets.Value("string"),
                                  "label": datasets.ClassLabel(names=["entailment", "neutral"])})
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [1, 0, -1]}
    data = datasets.Dataset.from_dict(rows, features=features).select([2, 0])
    assert rows_of(data)[1] == [("c", "f", "-"), ("a", "d", "neutral")]
    with pytest.raises(DataError, match="data is a DatasetDict: name one of train"):
        rows_file(datasets.DatasetDict({"train": data}), "data")


def test_equal_rows_are_one_file_and_others_another(tmp_path):
    one = rows_file(["a", "b"], "data")
    assert rows_file(iter(["a", "b"]), "labelled") == one and rows_file([("a", "b")], "data") != one
    stamp = one.stat().st_mtime_ns
    assert rows_file(("a", "b"), "data").stat().st_mtime_ns == stamp
