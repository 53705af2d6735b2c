"""A user's file of texts is read by one rule of its kind, whatever reads it: a table by a column, never by its raw lines."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stsbench.data.own import table
from stsbench.data.own.sets import read_scored_pairs
from stsbench.data.own.texts import Texts
from stsbench.data.text.rows import read_rows
from stsbench.errors import DataError

CAT, DOG = "A cat, asleep; or not.", "Dogs | wolves."


def parquet(**columns):
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


READ = {
    "lines.txt": f"{CAT}\n{DOG}\n", "commas.csv": f'id,text\n1,"{CAT}"\n2,{DOG}\n',
    "semicolons.csv": f'text;id\n"{CAT}";1\n{DOG};2\n',
    "bars.csv": f'id|text\n1|{CAT}\n2|"{DOG}"\n', "tabs.csv": f"id\ttext\n1\t{CAT}\n2\t{DOG}\n",
    "tabs.tsv": f"id\tText\n1\t{CAT}\n2\t{DOG}\n",
    "commas.tsv": f'id,sentence\n1,"{CAT}"\n2,{DOG}\n', "one.csv": f'text\n"{CAT}"\n{DOG}\n',
    "bom.csv": f'\ufefftext,id\r\n"{CAT}",1\r\n{DOG},2\r\n',
    "rows.jsonl": f'{{"id": 1, "text": "{CAT}"}}\n{{"id": 2, "text": "{DOG}"}}\n',
    "rows.parquet": parquet(text=[CAT, DOG], id=[1, 2]),
    "UPPER.CSV": f'id,text\n1,"{CAT}"\n2,{DOG}\n', "no-suffix": f"{CAT}\n{DOG}\n",
}


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_texts_are_the_same_in_every_format(tmp_path):
    for name, content in READ.items():
        path = written(tmp_path, name, content)
        assert [text for chunk in Texts(str(path)).chunks(9) for text in chunk] == [CAT, DOG], name
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


def test_quotes_that_are_not_those_of_cells_are_text(tmp_path):
    data = read_scored_pairs(written(tmp_path, "a.csv", 'sentence1\tsentence2\tscore\n"A" cat\t5" of rain\t1\nb\t"c\t2\n'))
    assert (data.first, data.second) == (('"A" cat', "b"), ('5" of rain', '"c'))


@pytest.mark.parametrize(("options", "rows"), [
    ({"use_dictionary": ["text"]}, 1), ({"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}, 1),
    ({"use_dictionary": False}, 0), ({"use_dictionary": False, "data_page_size": 10**8}, 0),
])
def test_a_batch_of_parquet_takes_no_more_than_its_share(tmp_path, monkeypatch, options, rows):
    """A text that stands in a file once may be any number of rows."""
    monkeypatch.setattr(table, "_MOST_BATCH", 10**6)
    table_of = pa.table({"text": ["x" * 20_000] * 100, "more": [[1.0] * 10_000] * 100})
    options = {"compression": "zstd", "data_page_size": 10**5, "write_batch_size": 10, **options}
    pq.write_table(table_of, tmp_path / "a.parquet", **options)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    if options["data_page_size"] > 10**5:
        with pytest.raises(DataError, match=r"text has a page of 2\.0 MB, at most 1\.0 MB are read"):
            table._rows_at_once(tmp_path / "a.parquet", file)
        return
    assert table._rows_at_once(tmp_path / "a.parquet", file) <= (12 if rows else 65_536)
    read = list(table.arrow_rows(tmp_path / "a.parquet", [tmp_path / "a.parquet"]))
    assert [row for _, row in read] == [{"text": "x" * 20_000, "more": None}] * 100 and read[-1][0].endswith(": row 100")


def test_a_dictionary_of_one_long_text_is_no_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_MOST_BATCH", 1_000_000)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["a" * 10_000]))
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", compression="zstd")
    with pytest.raises(DataError, match="unpack to over 1,000 times as much"):
        list(table.arrow_rows(tmp_path / "t.parquet", [tmp_path / "t.parquet"]))
