"""Files that a table of refusals cannot hold, and labels that are the same class."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from stsbench.data.own.sets import label_text, read_labelled_pairs, read_labelled_texts, read_scored_pairs, read_triplets
from stsbench.errors import DataError


def test_damaged_rows_of_parquet_are_named(tmp_path):
    n, path = 4000, tmp_path / "a.parquet"
    columns = {"sentence1": [f"{i} a" for i in range(n)], "sentence2": ["b"] * n, "score": [1.0] * n}
    parquet.write_table(pa.table(columns), path, row_group_size=n // 2, compression="NONE", use_dictionary=False)
    body = bytearray(path.read_bytes())
    start = body.index(b"2000 a") - 30
    body[start : start + 20] = b"\xff" * 20
    path.write_bytes(body)
    with pytest.raises(DataError, match="after row 2000: "):
        read_scored_pairs(path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for read in (read_scored_pairs, read_labelled_pairs, read_triplets, read_labelled_texts):
        with pytest.raises(DataError, match="is not a regular file"):
            read(tmp_path / "pipe.csv")


def test_what_the_system_does_not_let_us_read_is_a_data_error(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\n")

    def refused(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(DataError, match=r"a\.csv: Permission denied$"):
        read_scored_pairs(tmp_path / "a.csv")
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(DataError, match=r"^cannot read .*folder: Permission denied$"):
        read_scored_pairs(tmp_path / "folder")


def test_decimal_commas_are_read_and_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sentence1;sentence2;score\na;b;4,5\nc;d;-1,25\ne;f;3\n")
    pairs = read_scored_pairs(path)
    assert pairs.gold.tolist() == [4.5, -1.25, 3.0]
    assert pairs.warnings[-1] == "a.csv: its scores have decimal commas, 4,5 for 4.5"


def test_equal_labels_are_one_and_no_others():
    for values, label in (
        ((1, 1.0, "1", " 1.0", "1e0", "01"), "1"), ((True, "true"), "true"), ((-0.0, 0, "0"), "0"), ((0.5, "0.50"), "0.5"),
        ((1000001, "1000001"), "1000001"), ((1000002, 1000002.0), "1000002"), ((2**63 + 1, str(2**63 + 1)), str(2**63 + 1)),
    ):
        assert {label_text(value, "a:1") for value in values} == {label}
