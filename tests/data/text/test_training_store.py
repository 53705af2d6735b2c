"""Training data on disk: against a naive reader in memory, read many lines at a time or one by one, and interrupted
builds."""

import errno
import itertools
import json
import multiprocessing
import os
import time
import tracemalloc
from contextlib import suppress
from unittest.mock import Mock

import numpy as np
import pytest
from clirun import refuses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import sentences, tokenizer

from stsbench.data.sets import lines
from stsbench.data.sets.lines import line_blocks, numbered_lines, without_end
from stsbench.data.text import cache as cache_files
from stsbench.data.text import store_writer
from stsbench.data.text.examples import TextRows
from stsbench.data.text.store import open_store
from stsbench.data.text.store_writer import EarlierRows
from stsbench.data.text.tokens import tokenised
from stsbench.errors import DataError

SHORT = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.sampled_from(["", " ", "a", "b", "a b", "é\u2028\x85", "\u3000"])
PARTS = [b"a", b" ", b"\n", b"\n", b"\r\n", b"\r", "é猫\u2028\x85".encode(), b"\xef\xbb\xbf", b"long " * 9]
FAULTS = [b"\0", b"\xff", b"\xc3", b"PK\x03\x04", b"much longer " * 9]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(store_writer, "_ROWS", 3)


def unfinished(cache):
    return [path for path in cache.rglob("*") if "unfinished" in path.name]


@SHORT
@given(rows=st.lists(st.tuples(TEXT, TEXT, st.sampled_from("zyx")), min_size=1, max_size=12), fewest=st.integers(0, 3),
       drop_blank=st.booleans(), drop_duplicates=st.booleans(), where=st.sampled_from([{}, {"c": "y"}]))
def test_rows_counts_and_labels_equal_a_naive_reader(tmp_path, rows, drop_blank, drop_duplicates, where, fewest):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(dict(zip("abc", row, strict=True))) for row in rows))
    left = [(i + 1, row) for i, row in enumerate(rows) if not where or row[2] == "y"]
    blank = [not row[0].strip() or not row[1].strip() for _, row in left]
    again = [row in [other for _, other in left[:i]] for i, (_, row) in enumerate(left)]
    short = [min(len(row[0].strip()), len(row[1].strip())) < fewest for _, row in left]
    kept = [item for item, empty, repeated, few in zip(left, blank, again, short, strict=True)
            if not (drop_blank and empty) and not (drop_duplicates and repeated) and not few]

    def opened():
        return open_store(
            path, columns={"label": "c", "hypothesis": "b", "premise": "a"}, where=where, drop_blank=drop_blank,
            drop_duplicates=drop_duplicates, min_characters=fewest, cache=tmp_path / "cache")

    if not kept:
        refuses(DataError, "rows is left", opened)
        assert not unfinished(tmp_path)
        return
    for store in (opened(), opened()):  # built, then found
        everything = range(len(store))
        assert store.roles == ("premise", "hypothesis", "label")
        assert list(zip(*(store.texts(role, everything) for role in store.roles), strict=True)) == [row for _, row in kept]
        assert [store.line(i) for i in everything] == [line for line, _ in kept]
        names = sorted({row[2] for _, row in kept})
        assert list(store.label_names) == names
        assert store.labels(everything).tolist() == [names.index(row[2]) for _, row in kept]
        meta = store.meta
        assert (meta.rows, meta.left_out) == (len(rows), len(rows) - len(left))
        assert (meta.blank, meta.duplicates, meta.short, meta.kept) == (sum(blank), sum(again), sum(short), len(kept))


@SHORT
@given(st.lists(TEXT, min_size=1, max_size=14), st.booleans())
def test_contiguous_lines_know_what_follows_in_their_document(tmp_path, lines, drop_duplicates):
    path = tmp_path / "a.txt"
    path.write_text("\n".join([*lines, "end", ""]))
    store = open_store(path, contiguous=True, drop_duplicates=drop_duplicates, cache=tmp_path / "cache")
    kept, part = [], 0
    for line in [*lines, "end"]:
        if not line.strip():
            part += 1
        elif not drop_duplicates or line not in [text for text, _ in kept]:
            kept.append((line, part))
    assert store.texts("sentence", range(len(store))) == [text for text, _ in kept]
    assert store.meta.blank == 0
    assert store.meta.empty_lines == sum(not line.strip() for line in lines)
    assert store.meta.documents == len({part for _, part in kept})
    for k in (1, 2, 3):
        expected = [i + k if i + k < len(kept) and kept[i + k][1] == kept[i][1] else -1 for i in range(len(kept))]
        assert store.following(range(len(store)), k).tolist() == expected


def test_the_digest_is_of_the_content(tmp_path):
    (tmp_path / "a.csv").write_text("sent0,sent1\na,b\nc,\n")
    (tmp_path / "b.tsv").write_text("x\tsent1\tsent0\n1\tb\ta\n2\t\tc\n")
    (tmp_path / "c.csv").write_text("sent0,sent1\na,b\n,c\n")
    (tmp_path / "d.csv").write_text("anchor,negative,positive\na,b,b\nc,c,\n")
    digests = [open_store(tmp_path / name, cache=tmp_path / "cache").digest for name in ("a.csv", "b.tsv", "c.csv", "d.csv")]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    (tmp_path / "e.txt").write_text("a\n\nb\nc\n")
    (tmp_path / "f.txt").write_text("a\nb\n\nc\n")
    documents = [open_store(tmp_path / name, contiguous=True, cache=tmp_path / "cache") for name in ("e.txt", "f.txt")]
    assert documents[0].digest != documents[1].digest


@SHORT
@given(st.lists(st.lists(st.integers(0, 40) | st.sampled_from([1 << 64, 1 << 100, (1 << 100) + 7]), max_size=12),
                max_size=12))
def test_seen_equals_a_set(chunks):
    seen, known = EarlierRows(), set()
    for chunk in chunks:
        expected = [value not in known and not known.add(value) for value in chunk]
        assert seen.fresh([value.to_bytes(16, "big") for value in chunk]).tolist() == expected


def test_a_changed_file_is_noticed_and_an_untouched_one_is_not_read_again(tmp_path, monkeypatch):
    path, cache = tmp_path / "a.txt", tmp_path / "cache"
    path.write_text("old\n")
    assert open_store(path, cache=cache).text("sentence", 0) == "old"
    path.write_text("new\n")  # within the clock's grain: nothing was remembered of the first
    assert open_store(path, cache=cache).text("sentence", 0) == "new"
    monkeypatch.setattr(cache_files, "_SETTLED", -1.0)
    open_store(path, cache=cache)
    stat = path.stat()
    time.sleep(0.02)
    path.write_text("now\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as `cp -p` and `touch -r` do
    assert open_store(path, cache=cache).text("sentence", 0) == "now"
    monkeypatch.setattr(cache_files, "sha256_file", lambda path: pytest.fail("read again"))
    assert open_store(path, cache=cache).text("sentence", 0) == "now"
    for record in (cache / "digests").iterdir():
        record.write_text("{")  # a damaged note is no note
    with pytest.raises(BaseException, match="read again"):
        open_store(path, cache=cache)


def test_a_file_that_grows_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    path, cache = tmp_path / "a.txt", tmp_path / "cache"
    path.write_text("a\n" * 100)
    monkeypatch.setattr(cache_files, "_SETTLED", -1.0)

    def grow(message):
        with path.open("a") as stream:
            stream.write("b\n")

    refuses(DataError, r"a\.txt changed while it was being read", open_store, path, cache=cache, log=grow)
    assert not [path for path in (cache / "text").iterdir() if path.is_dir()]
    assert len(open_store(path, cache=cache)) == 101


def test_a_damaged_cache_is_rebuilt(tmp_path):
    path, cache, tok = tmp_path / "a.csv", tmp_path / "cache", tokenizer("bert")
    path.write_text("premise,hypothesis,label\na man,the cat,x\na dog,the park,y\n")

    def look():
        store = open_store(path, cache=cache)
        tokens = tokenised(store, tok, "t", 8, store.roles, cache=cache)
        rows = TextRows(store, tokens, [1, 0])
        return rows.texts("hypothesis"), rows.labels(), [ids.tolist() for ids in rows.ids("premise")], tokens.digest

    expected = look()
    files = [file for part in ("text", "tokens") for file in (cache / part).glob("*/*") if file.stat().st_size]
    assert len(files) > 10
    for file in files:
        file.write_bytes(file.read_bytes()[:-1])
        assert look() == expected, file.name
        file.unlink()
        assert look() == expected, file.name
    assert not unfinished(cache)


def build(path, cache, pause, told):
    """In a fork: build a store by a hundred rows at a time, tell of each and wait."""
    flush = store_writer._Writer.flush

    def slow_flush(self):
        flush(self)
        told.send("flushed")
        time.sleep(pause)

    store_writer._ROWS, store_writer._Writer.flush = 100, slow_flush
    store = open_store(path, cache=cache, log=lambda message: told.send("building"))
    told.send(f"done {len(store)} {store.digest}")


def child(*arguments):
    """A process that builds, and what it tells."""
    context = multiprocessing.get_context("fork")
    heard, told = context.Pipe(duplex=False)
    process = context.Process(target=build, args=(*arguments, told))
    process.start()
    told.close()
    return process, heard


def all_told(heard):
    lines = []
    with suppress(EOFError):
        while heard.poll(60):
            lines.append(heard.recv())
    return lines


def test_a_build_that_was_killed_is_swept_away_and_a_live_one_is_built_once(tmp_path):
    path, other, cache = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "cache"
    texts = sentences(400, 6)
    path.write_text("\n".join(texts))
    killed, heard = child(path, cache, 30)
    assert [heard.recv(), heard.recv()] == ["building", "flushed"]
    killed.kill()
    killed.join(10)
    assert len(unfinished(cache)) == 1
    other.write_text("other\n")
    open_store(other, cache=cache)
    assert not unfinished(cache)  # the next build of anything clears up
    _, first = child(path, cache, 0.2)
    assert first.recv() == "building"
    _, second = child(path, cache, 0)
    other.write_text("another\n")
    open_store(other, cache=cache)  # sweeps
    assert len(unfinished(cache)) == 1
    slow, waiting = all_told(first), all_told(second)
    assert slow[-1].startswith("done 400 ") and waiting == slow[-1:] and not unfinished(cache)
    store = open_store(path, cache=cache)
    assert store.texts("sentence", range(len(store))) == texts


def test_the_report_says_what_became_of_the_rows(tmp_path):
    lines = ["", " nine char", "ten chars.", "\tä ä ä ä ä. ", "", "ten chars."]  # nine without the space; the 4th has ten
    said = []
    (tmp_path / "b.txt").write_text("\n".join(lines) + "\n", "utf-8")

    def opened(**how):
        return open_store(tmp_path / "b.txt", cache=tmp_path / "cache", log=said.append, **how)

    assert opened().report() == "6 rows read, 2 blank (kept), 2 duplicate (kept): 6 rows"
    store = opened(drop_blank=True, drop_duplicates=True)
    assert store.report() == "6 rows read, 2 blank (dropped), 2 duplicate (dropped): 3 rows"
    opened()
    assert len(said) == 2  # read once for each choice of settings
    store = opened(min_characters=10)
    short = "3 of fewer than 10 characters (left out)"
    assert store.report() == f"6 rows read, 2 blank (kept), 2 duplicate (kept), {short}: 3 rows"
    assert [store.line(row) for row in range(3)] == [3, 4, 6]
    refuses(DataError, r"none of 6 rows is left: .* 6 shorter than data\.min_characters 11", opened, min_characters=11)


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(store_writer, "_ROWS", 500)
    monkeypatch.setattr(lines, "_BLOCK", 100_000)

    def peak(rows):
        path = tmp_path / f"{rows}.txt"
        with path.open("w") as stream:
            stream.writelines(f"{i} {'word ' * 100}\n" for i in range(rows))
        tracemalloc.start()
        assert len(open_store(path, cache=tmp_path / "cache")) == rows
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, path.stat().st_size

    (small, small_size), (large, large_size) = peak(1_000), peak(8_000)
    assert large - small < 0.12 * (large_size - small_size)  # 48 of 506 bytes: the hashes, three times over


def test_rows_of_a_batch(tmp_path):
    path = tmp_path / "a.txt"
    lines = sentences(6, 5)
    path.write_text("\n".join([*lines[:3], "", *lines[3:]]))
    store = open_store(path, contiguous=True, cache=tmp_path / "cache")
    tokens = tokenised(store, tokenizer("bert"), "t", 8, ["sentence"], cache=tmp_path / "cache")
    rows = TextRows(store, tokens, np.array([4, 2, 0]))
    assert (list(rows.rows), len(rows)) == ([4, 2, 0], 3)
    assert rows.texts("sentence") == [lines[4], lines[2], lines[0]]
    assert rows.following(1).tolist() == [5, -1, 1]
    other = rows.at([5, 1])
    assert other.texts("sentence") == [lines[5], lines[1]]
    assert other.lengths("sentence").tolist() == [len(ids) for ids in other.ids("sentence")]
    with pytest.raises(IndexError):
        rows.at(rows.following(1))  # -1 is the end of a document, not the last row
    with pytest.raises(ValueError, match="read-only"):
        rows.ids("sentence")[0][0] = 1  # the file behind it is shared


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.setattr(cache_files, "_build", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    message = r"cannot build the cache of training data in .*STSBENCH_CACHE"
    refuses(DataError, message, open_store, tmp_path / "a.txt", cache=tmp_path / "cache")


@pytest.fixture
def short_lines(monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK", 7)
    monkeypatch.setattr(lines, "LONGEST", 60)


def one_by_one(path, seen):
    return [(number, without_end(line)) for number, line in numbered_lines(path, seen)]


def by_blocks(path, seen):
    for start, texts, fields in line_blocks(path, seen):
        assert [text.encode() for text in texts] == fields
        yield from enumerate(texts, start)


def told(read, path):
    seen = []
    try:
        return list(read(path, seen.append)), b"".join(seen)
    except DataError as error:
        return str(error)


@settings(SHORT, max_examples=40)
@given(st.lists(st.sampled_from(PARTS), max_size=30), st.sampled_from([b"", b"", b"", *FAULTS]), st.integers(0, 30))
def test_blocks_hold_the_lines_and_tell_the_faults_of_reading_one_by_one(short_lines, tmp_path, parts, fault, place):
    path = tmp_path / "a.txt"
    path.write_bytes(b"".join([*parts[:place], fault, *parts[place:]]))
    assert told(by_blocks, path) == told(one_by_one, path)


def test_the_longest_line(short_lines, tmp_path):
    path = tmp_path / "a.txt"
    for length, end in itertools.product((59, 60, 61, 200), (b"", b"\n", b"\r\n", b"\nb")):
        path.write_bytes(b"first\n" + b"x" * length + end)
        assert told(by_blocks, path) == told(one_by_one, path)
        assert isinstance(told(by_blocks, path), str) == (length + end.count(b"\n") + end.count(b"\r") > 60)
