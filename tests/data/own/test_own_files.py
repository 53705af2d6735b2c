"""A user's file of texts is read by one rule of its kind, whatever reads it; a folder of files is one task whose subsets,
or splits, are its files."""

import os
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from clirun import refuses
from pyarrow import parquet

from stsbench.data.own import table
from stsbench.data.own.sets import label_text, read_labelled_pairs, read_labelled_texts, read_scored_pairs, read_triplets
from stsbench.data.own.texts import Texts
from stsbench.data.text.rows import read_rows
from stsbench.errors import DataError

CAT, DOG = "A cat, asleep; or not.", "Dogs | wolves."
PARTS = {
    "de.csv": [("rot blau", "rot blau grau", 4.0), ("ein hund", "zwei katzen", 0.5), ("ein haus", "ein altes haus", 3.0)],
    "en.csv": [("a red cat", "a red dog", 3.0), ("one bird", "the moon", 0.0), ("two fish", "two big fish", 4.5),
               ("rain", "rain now", 2.0)],
}


READ = {
    "lines.txt": f"{CAT}\n{DOG}\n", "semicolons.csv": f'text;id\n"{CAT}";1\n{DOG};2\n',
    "bars.csv": f'id|text\n1|{CAT}\n2|"{DOG}"\n', "tabs.tsv": f"id\tText\n1\t{CAT}\n2\t{DOG}\n",
    "commas.tsv": f'id,sentence\n1,"{CAT}"\n2,{DOG}\n', "one.csv": f'text\n"{CAT}"\n{DOG}\n',
    "bom.csv": f'\ufefftext,id\r\n"{CAT}",1\r\n{DOG},2\r\n',
    "rows.jsonl": f'{{"id": 1, "text": "{CAT}"}}\n{{"id": 2, "text": "{DOG}"}}\n',
    "UPPER.CSV": f'id,text\n1,"{CAT}"\n2,{DOG}\n', "no-suffix": f"{CAT}\n{DOG}\n",
}


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode())
    return path


def test_texts_are_the_same_in_every_format(tmp_path):
    paths = [written(tmp_path, name, content) for name, content in READ.items()]
    parquet.write_table(pa.table({"text": [CAT, DOG], "id": [1, 2]}), tmp_path / "rows.parquet")
    for path in (*paths, tmp_path / "rows.parquet"):
        assert [text for chunk in Texts(str(path)).chunks(9) for text in chunk] == [CAT, DOG], path
    for name, content, column in (  # a column is asked for by its name or position
        ("a.csv", f"id;frage\n1;{DOG}\n2;x\n", "frage"), ("a.csv", f"1;{DOG}\n2;x\n", 2), ("a.csv", f"1;{DOG}\n2;x\n", "2"),
        ("a.tsv", f"1\t{DOG}\n2\tx\n", 2), ("a.txt", f"1\t{DOG}\n2\tx\n", 2),
        ("a.jsonl", f'{{"frage": "{DOG}"}}\n{{"frage": "x"}}\n', "frage"),
    ):
        path = written(tmp_path, name, content)
        assert [text for _, text in Texts(str(path), column).numbered()] == [DOG, "x"]
    for mark in ",;\t|":  # and so are training rows
        path = written(tmp_path, "a.csv", f'anchor{mark}positive\n"{CAT}"{mark}"{DOG}"\n"x"{mark}"y"\n')
        assert [texts for _, texts in read_rows(path)] == [(CAT, DOG), ("x", "y")]


def test_quotes_that_are_not_those_of_cells_are_text_and_decimal_commas_are_numbers(tmp_path):
    data = read_scored_pairs(written(tmp_path, "a.csv", 'sentence1\tsentence2\tscore\n"A" cat\t5" of rain\t1\nb\t"c\t2\n'))
    assert (data.first, data.second) == (('"A" cat', "b"), ('5" of rain', '"c'))
    path = tmp_path / "a.csv"
    path.write_text("sentence1;sentence2;score\na;b;4,5\nc;d;-1,25\ne;f;3\n")
    pairs = read_scored_pairs(path)
    assert pairs.gold.tolist() == [4.5, -1.25, 3.0]
    assert pairs.warnings[-1] == "a.csv: its scores have decimal commas, 4,5 for 4.5"


@pytest.mark.parametrize(("options", "rows"), [
    ({"use_dictionary": ["text"]}, 1), ({"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}, 1),
    ({"use_dictionary": False}, 0), ({"use_dictionary": False, "data_page_size": 10**8}, 0)])
def test_a_batch_of_parquet_takes_no_more_than_its_share(tmp_path, monkeypatch, options, rows):
    """A text that stands in a file once may be any number of rows."""
    monkeypatch.setattr(table, "_MOST_BATCH", 10**6)
    table_of = pa.table({"text": ["x" * 20_000] * 100, "more": [[1.0] * 10_000] * 100})
    options = {"compression": "zstd", "data_page_size": 10**5, "write_batch_size": 10, **options}
    parquet.write_table(table_of, tmp_path / "a.parquet", **options)
    file = parquet.ParquetFile(tmp_path / "a.parquet")
    if options["data_page_size"] > 10**5:
        message = r"text has a page of 2\.0 MB, at most 1\.0 MB are read"
        refuses(DataError, message, table._rows_at_once, tmp_path / "a.parquet", file)
        return
    assert table._rows_at_once(tmp_path / "a.parquet", file) <= (12 if rows else 65_536)
    read = list(table.arrow_rows(tmp_path / "a.parquet", [tmp_path / "a.parquet"]))
    assert [row for _, row in read] == [{"text": "x" * 20_000, "more": None}] * 100 and read[-1][0].endswith(": row 100")


def test_a_dictionary_of_one_long_text_is_no_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_MOST_BATCH", 1_000_000)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["a" * 10_000]))
    parquet.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", compression="zstd")
    with pytest.raises(DataError, match="unpack to over 1,000 times as much"):
        list(table.arrow_rows(tmp_path / "t.parquet", [tmp_path / "t.parquet"]))


def write(folder, parts=PARTS, columns=("sentence1", "sentence2", "score")):
    folder.mkdir()
    for name, rows in parts.items():
        (folder / name).write_text("".join(",".join(map(str, row)) + "\n" for row in [columns, *rows]), "utf-8")
    return folder


def test_the_identity_is_that_of_one_file_with_a_column_of_subsets(tmp_path):
    folder = read_scored_pairs(write(tmp_path / "langs"))
    assert (folder.task, folder.counts) == ("langs", {"de": 3, "en": 4})
    (tmp_path / "langs" / "README.md").write_text("words")
    (tmp_path / "langs" / ".hidden.csv").write_text("x")
    assert read_scored_pairs(tmp_path / "langs").warnings == ("langs: not read: README.md",)
    rows = [(*row, name.removesuffix(".csv")) for name, part in PARTS.items() for row in part]
    write(tmp_path / "one", {"all.csv": rows}, ("sentence1", "sentence2", "score", "subset"))
    assert read_scored_pairs(tmp_path / "one" / "all.csv").digest == folder.digest
    assert read_scored_pairs(tmp_path / "one").digest == folder.digest  # a single file is no part
    (tmp_path / "langs" / "en.csv").write_text("sentence1,sentence2,score\na,b,1\n")
    assert read_scored_pairs(tmp_path / "langs").digest != folder.digest


def test_pairs_and_splits(tmp_path):
    labelled = {name: [(a, b, int(score > 2)) for a, b, score in rows] for name, rows in PARTS.items()}
    assert read_labelled_pairs(write(tmp_path / "pairs", labelled, ("text1", "text2", "label"))).counts == {"de": 3, "en": 4}
    texts = {"train.csv": [("a", "x"), ("b", "y")], "validation.csv": [("c", "x")], "test.csv": [("d", "y")]}
    labelled = read_labelled_texts(write(tmp_path / "texts", texts, ("text", "label")))
    assert labelled.counts == {"test": 1, "train": 2, "dev": 1}


def test_damaged_rows_of_parquet_are_named(tmp_path):
    n, path = 4000, tmp_path / "a.parquet"
    columns = {"sentence1": [f"{i} a" for i in range(n)], "sentence2": ["b"] * n, "score": [1.0] * n}
    parquet.write_table(pa.table(columns), path, row_group_size=n // 2, compression="NONE", use_dictionary=False)
    body = bytearray(path.read_bytes())
    start = body.index(b"2000 a") - 30
    body[start : start + 20] = b"\xff" * 20
    path.write_bytes(body)
    refuses(DataError, "after row 2000: ", read_scored_pairs, path)


def test_pipes_and_what_the_system_does_not_let_us_read_are_data_errors(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.csv")
    for read in (read_scored_pairs, read_labelled_pairs, read_triplets, read_labelled_texts):
        refuses(DataError, "is not a regular file", read, tmp_path / "pipe.csv")
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\n")
    refused = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr(Path, "open", refused)
    refuses(DataError, r"a\.csv: Permission denied$", read_scored_pairs, tmp_path / "a.csv")
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    monkeypatch.setattr(Path, "iterdir", refused)
    refuses(DataError, r"^cannot read .*folder: Permission denied$", read_scored_pairs, tmp_path / "folder")


def test_equal_labels_are_one_and_no_others():
    for values, label in (
        ((1, 1.0, "1", " 1.0", "1e0", "01"), "1"), ((True, "true"), "true"), ((-0.0, 0, "0"), "0"), ((0.5, "0.50"), "0.5"),
        ((1000001, "1000001"), "1000001"), ((1000002, 1000002.0), "1000002"), ((2**63 + 1, str(2**63 + 1)), str(2**63 + 1)),
    ):
        assert {label_text(value, "a:1") for value in values} == {label}
