"""Rows in memory are measured as the same rows of a file are: the same data, and the same scores."""

from __future__ import annotations

import datasets
import pandas
import pyarrow
import pytest

from stsbench import evaluate

FIRST = ["A man plays.", "A dog, brown, runs.", "Cats \"sleep\".", "It rains.", "We eat\nlunch."]
SECOND = ["A man is playing.", "The brown dog is running.", "A car.", "Rain falls.", "We have lunch."]
SCORES = [5.0, 4.5, 0.25, 3.0, 4.0]
FRAME = pandas.DataFrame({"q": FIRST, "d": SECOND, "score": SCORES})
COLUMNS = {"sentence1": "q", "sentence2": "d"}
ENCODER = "lexical:tfidf"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.csv"
    FRAME.to_csv(path, index=False)
    return path


def test_rows_are_the_data_of_a_file(file):
    """A table's own columns, those of a text, and tuples in the order of the protocol's."""
    of_file = evaluate(ENCODER, sts=file, columns=COLUMNS)
    for rows, columns in (
        (FRAME, COLUMNS), (pyarrow.Table.from_pandas(FRAME), "sentence1=q,sentence2=d"),
        (datasets.Dataset.from_pandas(FRAME), COLUMNS), ([*zip(FIRST, SECOND, SCORES, strict=True)], None),
    ):
        of_rows = evaluate(ENCODER, sts=rows, columns=columns)
        [record], [stored] = of_rows.records, of_file.records
        assert record.data.id == stored.data.id and record.data.n == 5
        assert [(row.metric, row.value, row.low, row.high) for row in of_rows.rows] == [
            (row.metric, row.value, row.low, row.high) for row in of_file.rows
        ]


def test_each_protocol_takes_rows():
    result = evaluate(
        "minilm", sts=[*zip(FIRST, SECOND, SCORES, strict=True)], pairs=[("a cat", "cats", 1), ("a dog", "rain", 0)],
        triplets=[("a cat", "cats", "rain"), ("a dog", "dogs", "rain")], resamples=0,
        retrieval={
            "queries": {"q": "a dog runs"}, "corpus": ["cats", "dogs", "rain"], "relevant_docs": {"q": {"1"}, "x": ["2"]},
        },
    )
    assert [record.protocol.name for record in result.records] == ["sts", "pairs", "triplets", "retrieval"]
    assert {row.metric: row.value for row in result.rows}["recall@1"] == 100


def test_texts_with_labels_and_a_split_are_transfer():
    texts = [(f"a {word} in the {split} set, number {number}", word, split)
             for split in ("train", "test") for word in ("cat", "theory") for number in range(12)]
    [record] = evaluate("minilm", transfer=texts).records
    assert record.data.subsets == {"train": 24, "test": 24} and record.data.origin == "rows in memory"
    assert record.scores[0].value > 75


def test_a_mapping_and_csv_files_are_one_retrieval_set(tmp_path):
    (tmp_path / "queries.csv").write_text('qid,query\nq1,a dog runs\nq2,"rain, again"\n')
    (tmp_path / "corpus.csv").write_text("doc_id;title;text\nd1;;cats\nd2;T;dogs run\nd3;;it rains\n")
    (tmp_path / "relevance.csv").write_text("query_id,doc_id,score\nq1,d2,1\nq2,d3,2\n")
    rows = {
        "queries": {"q1": "a dog runs", "q2": "rain, again"}, "corpus": {"d1": "cats", "d2": "T dogs run", "d3": "it rains"},
        "relevant_docs": {"q1": {"d2"}, "q2": {"d3": 2}},
    }
    of_files, of_rows = (evaluate("minilm", retrieval=data, resamples=0) for data in (tmp_path, rows))
    assert [record.data.id for record in of_files.records] == [record.data.id for record in of_rows.records]
    assert [row.value for row in of_files.rows] == [row.value for row in of_rows.rows]
