"""Lines read many at a time are those read one by one, and so are the faults."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stsbench.data.sets import lines
from stsbench.data.sets.lines import line_blocks, numbered_lines, without_end
from stsbench.data.text import store_writer
from stsbench.errors import DataError

MANY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PARTS = [b"a", b" ", b"\n", b"\n", b"\r\n", b"\r", "é猫\u2028\x85".encode(), b"\xef\xbb\xbf", b"long " * 9]
FAULTS = [b"\0", b"\xff", b"\xc3", b"PK\x03\x04", b"much longer " * 9]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK", 7)
    monkeypatch.setattr(lines, "LONGEST", 60)
    monkeypatch.setattr(store_writer, "_ROWS", 3)


def one_by_one(path):
    seen = []
    try:
        read = [(number, without_end(line)) for number, line in numbered_lines(path, seen.append)]
        return read, b"".join(seen)
    except DataError as error:
        return str(error)


def by_blocks(path):
    seen, read = [], []
    try:
        for start, texts, fields in line_blocks(path, seen.append):
            assert [text.encode() for text in texts] == fields
            read += list(enumerate(texts, start))
        return read, b"".join(seen)
    except DataError as error:
        return str(error)


@MANY
@given(st.lists(st.sampled_from(PARTS), max_size=30), st.sampled_from([b"", b"", b"", *FAULTS]), st.integers(0, 30))
def test_blocks_hold_the_lines_and_tell_the_faults_of_reading_one_by_one(tmp_path, parts, fault, place):
    path = tmp_path / "a.txt"
    path.write_bytes(b"".join([*parts[:place], fault, *parts[place:]]))
    assert by_blocks(path) == one_by_one(path)


def test_the_longest_line(tmp_path):
    path = tmp_path / "a.txt"
    for length, end in itertools.product((59, 60, 61, 200), (b"", b"\n", b"\r\n", b"\nb")):
        path.write_bytes(b"first\n" + b"x" * length + end)
        assert by_blocks(path) == one_by_one(path)
        assert isinstance(by_blocks(path), str) == (length + end.count(b"\n") + end.count(b"\r") > 60)


def add_each(writer, start, texts, fields):
    for line, text in enumerate(texts, start):
        writer.add(line, (text,))


@settings(MANY, max_examples=25)
@given(
    st.lists(st.sampled_from(["", " ", "a", "b", "é\u2028", "\u3000", "a b"]), min_size=1, max_size=14),
    st.booleans(), st.booleans(), st.booleans(),
)
def test_a_store_of_plain_text_equals_that_of_the_same_rows_one_by_one(tmp_path, rows, blank, duplicates, contiguous):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(rows) + "\n")
    places = []
    for name in ("blocks", "rows"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        how = store_writer.ReadSettings("text", {}, {}, blank, duplicates, contiguous)
        with pytest.MonkeyPatch.context() as patch:
            if name == "rows":
                patch.setattr(store_writer._Writer, "add_lines", add_each)
            try:
                meta = store_writer.write_store(path, folder, how, lambda raw: None)
            except DataError as error:
                places.append(str(error))
                continue
        places.append((meta, {each.name: each.read_bytes() for each in folder.iterdir()}))
    assert places[0] == places[1]
