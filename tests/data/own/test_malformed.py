"""Files that are wrong in every way that a user's may be: each is one line that names the file, the row where there is one,
and says what to do."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from stsbench.data.own.relevance import read_relevance
from stsbench.data.own.sets import label_of, read_labelled_pairs, read_labelled_texts, read_scored_pairs, read_triplets
from stsbench.errors import DataError

READERS = {"sts": read_scored_pairs, "pairs": read_labelled_pairs, "triplets": read_triplets,
           "transfer": read_labelled_texts}
S, P, T = b"sentence1,sentence2,score\n", b"text1,text2,label\n", b"text,label\n"
J = b'{"sentence1": "a", "sentence2": "b", "score": 1}\n'


def parquet(**columns):
    import pyarrow as pa
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream)
    return stream.getvalue()


def scored(n=1, **changed):
    return parquet(**{"sentence1": ["a"] * n, "sentence2": ["b"] * n, "score": [1.0] * n, **changed})


def damaged():
    """A file whose second half of rows cannot be read."""
    import pyarrow as pa
    from pyarrow import parquet

    stream, n = io.BytesIO(), 140_000
    columns = {"sentence1": [f"{i} a" for i in range(n)], "sentence2": ["b"] * n, "score": [1.0] * n}
    parquet.write_table(pa.table(columns), stream, row_group_size=n // 2, compression="NONE", use_dictionary=False)
    body = bytearray(stream.getvalue())
    start = body.rindex(b"70000 a") - 30
    body[start : start + 20] = b"\xff" * 20
    return bytes(body)


FILES = {
    "not UTF-8": ("sts", "a.csv", S + b"a,b,1\n\xff\xfe,b,1\n", "a.csv:3: not valid UTF-8 (byte 0xff): convert the file"),
    "Latin-1": ("pairs", "a.csv", P + "é,b,1\n".encode("latin-1"), "a.csv:2: not valid UTF-8 (byte 0xe9): convert"),
    "UTF-16": ("sts", "a.csv", S.decode().encode("utf-16"), "a.csv is UTF-16, not plain text: convert it to UTF-8"),
    "NUL": ("transfer", "a.csv", T + b"a\0,x\n", "a.csv:2: a NUL byte: not a text file"),
    "NUL by its number": ("sts", "a.jsonl", J.replace(b'"b"', b'"b\\u0000"'), "a.jsonl:1: sentence2 holds a NUL character"),
    "half a surrogate": ("sts", "a.jsonl", J.replace(b'"b"', b'"\\ud83d"'), "a.jsonl:1: sentence2 holds half a surrogate"),
    "empty": ("sts", "a.csv", b"", "a.csv holds no pair"),
    "a byte order mark alone": ("transfer", "a.csv", b"\xef\xbb\xbf", "a.csv holds no text"),
    "a header alone": ("triplets", "a.tsv", b"anchor\tpositive\tnegative\n", "a.tsv holds no triplet"),
    "too few fields": ("sts", "a.csv", S + b"a,b,1\nc,d\n", "a.csv:3: 2 fields, but the header names 3"),
    "too many fields": ("pairs", "a.tsv", b"text1\ttext2\tlabel\na\tb\t1\t2\n", "a.tsv:2: 4 fields, but the header names 3"),
    "a comma in a text": ("sts", "a.csv", S + b"a, well,b,1\n", "a.csv:2: 4 fields, but the header names 3"),
    "no header": ("triplets", "a.csv", b"one,two,three\n", "a.csv:1: no column anchor or positive or negative (there are"),
    "a column lacks": ("pairs", "a.csv", b"text1,text2\na,b\n", "a.csv:1: no column label (there are 'text1', 'text2')"),
    "a column twice": ("sts", "a.csv", b"sentence1,sentence2,score,score\n", "a.csv:1: the header names a column twice"),
    "two columns of scores": ("sts", "a.csv", b"text1,text2,label,rating\n", "a.csv:1: which column holds the scores"),
    "a name for a score": ("sts", "a.csv", S + b"a,b,good\n", "a.csv:2: the score 'good' is not a number: pairs with"),
    "no score": ("sts", "a.csv", S + b"a,b,\n", "a.csv:2: the score '' is not a number"),
    "NaN": ("sts", "a.csv", S + b"a,b,NaN\n", "a.csv:2: the score 'NaN' is not a finite number: correct it or leave the"),
    "infinite": ("sts", "a.csv", S + b"a,b,inf\n", "a.csv:2: the score 'inf' is not a finite number: correct it"),
    "1e999": ("sts", "a.jsonl", J + J.replace(b"1}", b"1e999}"), "a.jsonl:2: the score inf is not a finite number"),
    "a decimal comma": ("sts", "a.csv", b'a;b;x\n'.join([b"sentence1;sentence2;score\n", b""]).replace(b"x", b"4,5"),
                        "a.csv:2: the score '4,5' is not a number; write it with a decimal point"),
    "hexadecimal": ("sts", "a.csv", S + b"a,b,0x10\n", "a.csv:2: the score '0x10' is not a number"),
    "400 digits": ("sts", "a.csv", S + b"a,b," + b"9" * 400 + b"\n", "a.csv:2: the score '9999"),
    "400 digits in JSON": ("sts", "a.jsonl", J.replace(b"1}", b"9" * 400 + b"}"), "a.jsonl:1: the score 9999"),
    "5,000 digits in JSON": ("sts", "a.jsonl", J.replace(b"1}", b"9" * 5000 + b"}"),
                             "a.jsonl:1: not valid JSON (a number of more than 4,300 digits)"),
    "true for a score": ("sts", "a.jsonl", J.replace(b"1}", b"true}"), "a.jsonl:1: the score True is not a number"),
    "a list for a score": ("sts", "a.jsonl", J.replace(b"1}", b"[1]}"), "a.jsonl:1: the score [1] is not a number"),
    "null": ("pairs", "a.jsonl", J.replace(b"1}", b"null}"), "a.jsonl:1: label is empty: write a name, a number"),
    "a list for a label": ("pairs", "a.jsonl", J.replace(b"1}", b"[0]}"), "a.jsonl:1: [0] is not a label: write a name"),
    "what pandas writes for none": ("pairs", "a.csv", P + b"a,b,nan\nc,d,1\n", "a.csv:2: 'nan' is not a label: write a"),
    "an infinite label": ("transfer", "a.jsonl", b'{"text": "a", "label": 1e999}\n', "a.jsonl:1: inf is not a label"),
    "one label": ("pairs", "a.csv", P + b"a,b,1\nc,d,1\n", "a.csv: every pair has the label '1': pairs of both kinds"),
    "three labels": ("pairs", "a.csv", P + b"a,b,1\nc,d,0\ne,f,2\n", "a.csv:4: a third label, '2', beside '1' and '0'"),
    "labels without a meaning": ("pairs", "a.csv", P + b"a,b,x\nc,d,y\n", "a.csv: the labels are 'x' and 'y': write 1 for"),
    "one class": ("transfer", "a.csv", T + b"a,x\nb,x\n", "a.csv: every text has the label 'x': two classes at least"),
    "a split of another name": ("transfer", "a.csv", b"text,label,split\na,x,held\n", "a.csv:2: the split 'held' is none"),
    "a label that is never trained": ("transfer", "a.csv", b"text,label,split\na,x,train\nb,y,test\n", "a.csv: the label"),
    "empty text": ("sts", "a.csv", S + b"a, ,1\n", "a.csv:2: sentence2 is empty"),
    "a text without width": ("sts", "a.csv", S + "a,\u200b\ufeff,1\n".encode(), "a.csv:2: sentence2 is empty"),
    "a number for a text": ("triplets", "a.jsonl", b'{"anchor": "a", "positive": 1, "negative": "c"}\n',
                            "a.jsonl:1: positive must be a text"),
    "a negative that is the positive": ("triplets", "a.csv", b"anchor,positive,negative\na,b,b\n",
                                        "a.csv:2: positive and negative are one text"),
    "a quote that is never closed": ("sts", "a.csv", S + b'a,b,1\n"c,d,2\n', "a.csv:3: a quote opened in this row is never"),
    "a quote within quotes": ("sts", "a.csv", S + b'"a"x,b,1\n', "a.csv:2: not valid CSV"),
    "old Macintosh line ends": ("sts", "a.csv", S.replace(b"\n", b"\r") + b"a,b,1\r", "a.csv:1: its lines end in carriage"),
    "line ends of three kinds": ("sts", "a.csv", S + b"a,b,1\r\nc,d,2\ne,f\r,3\n", "a.csv:4: not valid CSV: a carriage"),
    "a line of 17 MB": ("sts", "a.csv", S + b"x" * 17_000_000 + b",b,1\n", "a.csv:2: a line of more than 16,777,216 bytes"),
    "a field of 200 kB": ("sts", "a.csv", S + b"x" * 200_000 + b",b,1\n", "a.csv:2: a field of more than 131,072"),
    "half a line of JSON": ("sts", "a.jsonl", J + J[:28], "a.jsonl:2: not valid JSON (Unterminated string starting at"),
    "a list on a line": ("sts", "a.jsonl", b"[1, 2]\n", "a.jsonl:1: expected one JSON object per line"),
    "JSON over several lines": ("sts", "a.json", b"[\n" + J + b"]\n", "a.json:1: not valid JSON (Expecting value at"),
    "deep JSON": ("sts", "a.jsonl", b"[" * 200_000, "a.jsonl:1: not valid JSON (nested too deeply): each line must be"),
    "a key lacks in a row": ("sts", "a.jsonl", J + b'{"sentence1": "a", "sentence2": "b"}\n', "a.jsonl:2: no column score"),
    "half a Parquet file": ("sts", "a.parquet", scored(500)[:800], "cannot read a.parquet: Parquet magic bytes not"),
    "damaged rows": ("sts", "a.parquet", damaged(), "cannot read a.parquet after row 70000: "),
    "an empty Parquet file": ("sts", "a.parquet", b"", "cannot read a.parquet: Parquet file size is 0 bytes: it is damaged"),
    "Parquet without rows": ("transfer", "a.parquet", parquet(text=[], label=[]), "a.parquet holds no text"),
    "a number in Parquet": ("sts", "a.parquet", scored(2, sentence2=["b", None]), "a.parquet: row 2: sentence2 must be a"),
    "NaN in Parquet": ("sts", "a.parquet", scored(2, score=[1.0, float("nan")]), "a.parquet: row 2: the score nan is not a"),
    "bytes in Parquet": ("sts", "a.parquet", scored(sentence1=[b"\xff"]), "a.parquet: row 1: sentence1 must be a text"),
    "other columns in Parquet": ("sts", "a.parquet", parquet(x=["a"]), "a.parquet: row 1: no column sentence1 or sentence2"),
    "gzip": ("sts", "a.csv", b"\x1f\x8b123", "a.csv is gzip-compressed, not plain text: unpack it first"),
    "gzip by its name": ("sts", "a.csv.gz", b"\x1f\x8b123", "a.csv.gz is compressed (.gz): unpack it first"),
    "zip": ("sts", "a.tsv", b"PK\x03\x04", "a.tsv is a zip archive, not plain text: unpack it first"),
    "a spreadsheet": ("sts", "a.xlsx", b"PK\x03\x04", "a.xlsx: own pairs are a .csv, .tsv, .jsonl or .parquet file"),
    "a data base": ("sts", "a.csv", b"SQLite format 3\0", "a.csv:1: a NUL byte: not a text file"),
    "no extension": ("sts", "a", S, "a: own pairs are a .csv, .tsv, .jsonl or .parquet file"),
    "one column": ("sts", "a.csv", b"one:two:three\n", "a.csv:1: one column: no commas, semicolons, tabs, bars separate"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_is_refused_in_one_line(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    kind, name, body, message = FILES[case]
    Path(name).write_bytes(body)
    with pytest.raises(DataError) as error:
        READERS[kind](Path(name))
    text = str(error.value)
    assert text.startswith(message) and "\n" not in text and len(text) < 400


QUERIES, CORPUS = b'{"_id": "q1", "text": "a"}\n', b'{"_id": "d1", "text": "b"}\n{"_id": "d2", "text": "c"}\n'
QRELS = b"query-id\tcorpus-id\tscore\nq1\td1\t1\n"
FOLDERS = {
    "a query twice": ({"queries.jsonl": QUERIES * 2}, "beir/queries.jsonl:2: id 'q1' occurs twice"),
    "a text twice": ({"corpus.jsonl": CORPUS * 2}, "beir/corpus.jsonl:3: id 'd1' occurs twice"),
    "no corpus": ({"corpus.jsonl": None}, "cannot read beir/corpus.jsonl: No such file or directory"),
    "no judgements": ({"qrels/test.tsv": None}, "beir must hold one of qrels/test.tsv and qrels.tsv: it has neither"),
    "no queries": ({"queries.jsonl": None}, "beir must hold queries.tsv (your own files) or queries.jsonl"),
    "both layouts": ({"queries.tsv": b"q1\ta\n"}, "beir must hold queries.tsv (your own files) or queries.jsonl"),
    "an empty corpus": ({"corpus.jsonl": b""}, "beir/corpus.jsonl is empty"),
    "empty judgements": ({"qrels/test.tsv": b""}, "beir/qrels/test.tsv holds no judgement: write query id, tab, corpus id"),
    "half a line": ({"corpus.jsonl": CORPUS + b'{"_id": "d3"'}, "beir/corpus.jsonl:3: not valid JSON"),
    "no text": ({"corpus.jsonl": b'{"_id": "d1"}\n'}, "beir/corpus.jsonl:1: expected the fields _id and text"),
    "a list for an id": ({"queries.jsonl": b'{"_id": [1], "text": "a"}\n'}, "beir/queries.jsonl:1: expected the fields _id"),
    "an empty query": ({"queries.jsonl": b'{"_id": "q1", "text": " "}\n'}, "beir/queries.jsonl:1: the text is empty"),
    "an empty id": ({"queries.jsonl": b'{"_id": "", "text": "a"}\n'}, "beir/queries.jsonl:1: the id is empty"),
    "a NUL": ({"corpus.jsonl": b'{"_id": "d1", "text": "a\\u0000"}\n'}, "beir/corpus.jsonl:1: the text holds a NUL"),
    "a word for a grade": ({"qrels/test.tsv": QRELS + b"q1\td2\thigh\n"}, "beir/qrels/test.tsv:3: the score 'high' is not"),
    "NaN for a grade": ({"qrels/test.tsv": QRELS + b"q1\td2\tnan\n"}, "beir/qrels/test.tsv:3: the score 'nan' is not a"),
    "a huge grade": ({"qrels/test.tsv": QRELS + b"q1\td2\t" + b"9" * 999 + b"\n"}, "beir/qrels/test.tsv:3: the score '9999"),
    "negative grades alone": ({"qrels/test.tsv": b"q1\td1\t-1\n"}, "beir/qrels/test.tsv: no relevant text for query 'q1'"),
    "two grades of one text": ({"qrels/test.tsv": QRELS + b"q1\td1\t2\n"}, "beir/qrels/test.tsv:3: 'q1' and 'd1' are"),
    "unknown queries alone": ({"qrels/test.tsv": b"q9\td1\t1\n"}, "beir/qrels/test.tsv: no relevant text for query 'q1'"),
    "one field": ({"qrels/test.tsv": QRELS + b"q1\n"}, "beir/qrels/test.tsv:3: expected query id, tab, corpus id"),
    "packed": ({"corpus.jsonl": None, "corpus.jsonl.gz": b"\x1f\x8b"}, "beir/corpus.jsonl.gz is gzip-compressed"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_of_judgements_is_refused_in_one_line(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    changed, message = FOLDERS[case]
    files = {"queries.jsonl": QUERIES, "corpus.jsonl": CORPUS, "qrels/test.tsv": QRELS, **changed}
    for name, body in files.items():
        if body is not None:
            path = Path("beir", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
    with pytest.raises(DataError) as error:
        read_relevance(Path("beir"))
    assert str(error.value).startswith(message) and "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("kind", READERS)
def test_what_is_not_there_or_no_file(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^cannot read none\.csv: No such file or directory$"):
        READERS[kind](Path("none.csv"))
    with pytest.raises(DataError, match=r"^cannot read none\.parquet: No such file or directory$"):
        READERS[kind](Path("none.parquet"))
    Path("a.csv").mkdir()
    with pytest.raises(DataError, match=r"^a\.csv holds no \.csv, .* file, nor is it a folder that datasets saved"):
        READERS[kind](Path("a.csv"))
    os.mkfifo("pipe.csv")
    with pytest.raises(DataError, match=r"^pipe\.csv is not a regular file$"):
        READERS[kind](Path("pipe.csv"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_bytes(S)
    Path("a.csv").chmod(0)
    with pytest.raises(DataError, match=r"^cannot read a\.csv: Permission denied$"):
        read_scored_pairs(Path("a.csv"))


def test_what_the_system_refuses_is_one_line(tmp_path, monkeypatch):
    """The same where the system says so to root, too."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_bytes(S)

    def refused(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(DataError, match=r"^cannot read a\.csv: Permission denied$"):
        read_scored_pairs(Path("a.csv"))
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(DataError, match=r"^cannot read folder: Permission denied$"):
        read_scored_pairs(Path("folder"))


@pytest.mark.parametrize(("values", "label"), [
    ((1, 1.0, "1", " 1.0", "1e0", "01"), "1"), ((True, "true"), "true"), ((-0.0, 0, "0"), "0"), ((0.5, "0.50", ".5"), "0.5"),
    ((1000001, "1000001"), "1000001"), ((1000002, 1000002.0), "1000002"), ((2**63 + 1, str(2**63 + 1)), str(2**63 + 1)),
])
def test_equal_labels_are_one_and_no_others(values, label):
    assert {label_of(value, "a:1") for value in values} == {label}
