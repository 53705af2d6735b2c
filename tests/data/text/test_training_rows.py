"""Rows of training files, against Python's csv and json modules: documents as rows, rows of several lines, rows with a
score, and texts that look like tables."""

import csv
import io
import itertools
import json
from itertools import pairwise

import numpy as np
import pytest
from clirun import refuses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from stsbench.data.text import tokens as token_files
from stsbench.data.text.rows import file_format, read_rows
from stsbench.data.text.store import open_store
from stsbench.data.text.tokens import tokenised
from stsbench.encoders.post.source import read_texts
from stsbench.errors import DataError

# Characters at which some reader or other splits, joins or unquotes.
CHARACTERS = st.sampled_from([*"ab \"',\\é猫😀", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\ufeff"])
SHORT = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LINES = ["a", " b ", "", "c", "d", "e", "f", "g", " \u3000", "", "h", "i\u2028j"]
HEADER = ("sentence1", "sentence2", "score")
ROWS = [("a cat", "the cat", "5"), ("a dog", "no dog", "0.250"), ("one", "two", "-3e-1"), ("x", "y", ".5")]
NUMBERS = [5.0, 0.25, -0.3, 0.5]


def texts(*more):
    return st.text(st.one_of(CHARACTERS, st.sampled_from(more)) if more else CHARACTERS, max_size=8)


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(path, *args, **kwargs):
    return [(line, row) for line, row in read_rows(path, *args, **kwargs) if row]


@SHORT
@given(rows=st.lists(st.tuples(texts("\n", "\r", "\t"), texts("\n", "\r"), texts("\n", "\r")), min_size=1, max_size=6),
       end=st.sampled_from(["\n", "\r\n"]), bom=st.booleans(), few=st.booleans())
def test_csv_gives_what_the_csv_module_wrote_and_where_each_row_starts(tmp_path, rows, end, bom, few):
    """few: with as few quotes as possible, where no carriage return needs them."""
    out, starts = io.StringIO(newline=""), []
    quoting = csv.QUOTE_MINIMAL if few and not any("\r" in text for row in rows for text in row) else csv.QUOTE_ALL
    writer = csv.writer(out, lineterminator=end, quoting=quoting)
    writer.writerow(["sent0", "sent1", "hard_neg"])
    for row in rows:
        starts.append(out.getvalue().count("\n") + 1)
        writer.writerow(row)
    path = written(tmp_path, "a.csv", ("\ufeff" if bom else "") + out.getvalue())
    assert rows_of(path) == list(zip(starts, rows, strict=True))
    with path.open(encoding="utf-8-sig", newline="") as stream:  # the module's own reading, where it splits at \r too
        if not any("\r" in text for row in rows for text in row):
            assert [tuple(row.values()) for row in csv.DictReader(stream)] == rows


@SHORT
@given(rows=st.lists(st.tuples(texts("\r"), texts()), min_size=1, max_size=6), end=st.sampled_from(["\n", "\r\n"]))
def test_tsv_is_split_at_tabs_and_line_feeds_only(tmp_path, rows, end):
    path = written(tmp_path, "a.tsv", end.join(["premise\thypothesis", *map("\t".join, rows), ""]))
    assert rows_of(path) == list(enumerate(rows, start=2))


@SHORT
@given(lines=st.lists(texts("\t", "\r").filter(lambda text: not text.endswith("\r")), min_size=1),
       end=st.sampled_from(["\n", "\r\n"]))
def test_text_has_a_sentence_a_line(tmp_path, lines, end):
    path = written(tmp_path, "a.txt", "\ufeff" + end.join([*lines, ""]))
    assert rows_of(path) == [(number, (line,)) for number, line in enumerate(lines, start=1)]
    if lines[-1]:  # the file's last line end is optional
        rows = rows_of(written(tmp_path, "a.txt", end.join(["x", *lines])))
        assert rows[1:] == [(number, (line,)) for number, line in enumerate(lines, start=2)]


@SHORT
@given(rows=st.lists(st.tuples(texts("\0", "\x1f", "\t"), texts("\n", "\r")), min_size=1, max_size=6), ascii=st.booleans())
def test_jsonl_gives_what_the_json_module_wrote(tmp_path, rows, ascii):
    lines = [json.dumps({"x": 1, "sent1": b, "sent0": a}, ensure_ascii=ascii) for a, b in rows]
    assert rows_of(written(tmp_path, "a.jsonl", "\n".join(lines))) == list(enumerate(rows, start=1))


def test_known_headers_need_no_columns(tmp_path):
    own = {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg", "sentence": "text"}
    for header, roles in (
        ("hard_neg,sent1,sent0", ("anchor", "positive", "negative")), ("id,sentence", ("sentence",)),
        ("text", ("sentence",)), ("negative2,id,anchor,positive,negative", ("anchor", "positive", "negative", "negative2")),
        ("label,premise,hypothesis", ("premise", "hypothesis", "label")),
    ):
        names = header.split(",")
        reader = read_rows(written(tmp_path, "a.csv", f"{header}\n{','.join(f'<{name}>' for name in names)}\n"))
        assert reader.roles == roles
        assert list(reader) == [(2, tuple(f"<{role if role in names else own[role]}>" for role in roles))]


def test_columns_choose_and_where_filters(tmp_path):
    path = written(tmp_path, "a.tsv", 'premise\thypothesis\tlabel\n"a\tb"\tyes\nc\td\tno\ne\tf\tyes\n')
    reader = read_rows(path, columns={"positive": "hypothesis", "anchor": "premise"}, where={"label": "yes"})
    assert reader.roles == ("anchor", "positive")
    assert list(reader) == [(2, ('"a', 'b"')), (4, ("e", "f"))]
    assert reader.left_out == 1
    path = written(tmp_path, "a.jsonl", "\n".join([json.dumps({"a": "x", "kind": kind}) for kind in "pqp"]))
    assert [line for line, _ in read_rows(path, columns={"sentence": "a"}, where={"kind": "q"})] == [2]


def test_an_empty_line_is_a_text_only_where_it_can_be_one_and_the_format_stated_wins(tmp_path):
    assert list(read_rows(written(tmp_path, "a.txt", "a\n\nb"))) == [(1, ("a",)), (2, ("",)), (3, ("b",))]
    for name in ("a.csv", "a.tsv"):
        assert list(read_rows(written(tmp_path, name, "text\na\n\nb\n"))) == [(2, ("a",)), (3, ("",)), (4, ("b",))]
    assert list(read_rows(written(tmp_path, "a.csv", "sent0,sent1\na,b\n\n,\n")))[1:] == [(3, ()), (4, ("", ""))]
    assert list(read_rows(written(tmp_path, "a.tsv", "sent0\tsent1\na\tb\n\n\t\n")))[1:] == [(3, ()), (4, ("", ""))]
    assert list(read_rows(written(tmp_path, "a.json", '\n{"text": "a"}\n\n'))) == [(2, ("a",)), (3, ())]
    assert file_format(tmp_path / "A.TSV") == "tsv"
    assert file_format(tmp_path / "a.csv", "text") == "text"
    assert rows_of(written(tmp_path, "a.csv", 'a,"b\n'), "text") == [(1, ('a,"b',))]


def test_whole_texts_are_read_so_many_bytes_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "_CHUNK", 3)
    monkeypatch.setattr(token_files, "_CHUNK_BYTES", 10)
    path = written(tmp_path, "a.txt", "\n".join("a" * size for size in (4, 6, 1, 30, 1, 1, 1, 1, 9)))
    store = open_store(path, cache=tmp_path / "cache")
    for bounded, chunks in ((True, [(0, 2), (2, 3), (3, 4), (4, 7), (7, 9)]), (False, [(0, 3), (3, 6), (6, 9)])):
        assert [(part.start, part.stop) for part in token_files._chunks(store, "sentence", bounded=bounded)] == chunks


def naive_joined(lines, count):
    """(number of the first line, the row, the paragraph it is of)."""
    rows, part, paragraph = [], [], 0
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip():
            part.append((number, line.strip()))
        if part and (len(part) == count or not line.strip()):
            rows.append((part[0][0], " ".join(text for _, text in part), paragraph))
            part = []
        paragraph += not line.strip()
    return rows


@pytest.mark.parametrize("start", [0, 2])
def test_rows_of_several_lines(tmp_path, start):
    """Each number of lines is another store, of one file and in one cache."""
    lines = LINES[start:]
    path = written(tmp_path, "a.txt", "\n".join(lines) + "\n")
    for count, contiguous in itertools.product((2, 3, 50), (False, True)):
        expected = naive_joined(lines, count)
        store = open_store(path, lines_per_row=count, contiguous=contiguous, cache=tmp_path / "cache")
        assert store.texts("sentence", range(len(store))) == [text for _, text, _ in expected]
        assert store.lines.tolist() == [number for number, _, _ in expected]
        assert store.meta.blank == 0
        if contiguous:
            after = [store.following([row])[0] for row in range(len(store))]
            same = [one[2] == two[2] for one, two in pairwise(expected)]
            assert after == [*(row + 1 if near else -1 for row, near in enumerate(same)), -1]


def test_a_documents_first_word_is_spelled_as_elsewhere(tmp_path):
    """By a byte-level tokenizer, to which a word with a space in front is another one."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(["cat cat cat"] * 9, trainers.BpeTrainer(special_tokens=["<s>", "</s>"]))
    reads = PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="<s>", sep_token="</s>")
    store = open_store(written(tmp_path, "a.txt", "cat  cat\tcat\n"), cache=tmp_path / "cache")
    ids = tokenised(store, reads, "digest", None, ["sentence"], cache=tmp_path / "cache").ids("sentence", [0])[0]
    assert len(ids) == 3 and len(set(ids.tolist())) == 1
    assert len(set(reads("cat cat")["input_ids"])) == 2  # as it is without the space


@pytest.fixture
def opened(tmp_path):
    def store(rows, name="a.tsv", header=HEADER, **how):
        if name.endswith(".jsonl"):
            lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
        else:
            lines = [{"csv": ",", "tsv": "\t"}[name[2:]].join(row) for row in (header, *rows)]
        return open_store(written(tmp_path, name, "\n".join(lines)), cache=tmp_path / "cache", **how)

    return store


def test_the_known_header_in_every_format(opened):
    stores = [opened(ROWS, name) for name in ("a.csv", "a.tsv", "a.jsonl")]
    for store in stores:
        assert store.roles == HEADER and store.texts("sentence2", range(4)) == [row[1] for row in ROWS]
        assert store.scores(range(4)).tolist() == NUMBERS and store.scores([2, 0]).dtype == np.float64
        assert store.scores([2, 0]).tolist() == [-0.3, 5.0] and store.text("score", 1) == "0.25"
    assert len({store.digest for store in stores}) == 1
    assert opened([*ROWS[:3], ("x", "y", "0.6")], "b.tsv").digest != stores[0].digest  # it holds the scores
    assert opened([*ROWS, ("u", "v", " ")], "b.tsv", drop_blank=True).scores(range(4)).tolist() == NUMBERS


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9), min_size=1, max_size=9))
def test_numbers_of_json_are_kept_to_the_last_bit(opened, numbers):
    rows = [(f"a {i}", "b", number) for i, number in enumerate(numbers)]
    assert opened(rows, "a.jsonl").scores(range(len(rows))).tolist() == [float(number) for number in numbers]


def test_rows_without_scores(opened, tmp_path):
    store = opened([row[:2] for row in ROWS], header=HEADER[:2])
    assert store.roles == HEADER[:2]
    for ask in (lambda: store.scores([0]), lambda: store.labels([0]), lambda: store.text("anchor", 0)):
        refuses(DataError, r"has no role '(score|label|anchor)' \(its roles are sentence1, sentence2\)", ask)
    refuses(DataError, "names no text column", opened, ROWS, "b.tsv", columns={"score": "score"})


@pytest.mark.parametrize(("lines", "doubt"), [
    ([f"the cat {i},a cat" for i in range(9)], "a comma"), ([f"the cat {i};a cat" for i in range(9)], "a semicolon"),
    ([json.dumps({"text": f"cat {i}"}) for i in range(9)], "looks like JSON"),
    (["a cat, a dog", "a cat", "a dog, a bird, a fish", "x", "y"], ""), (["sentence", "a", "b"], ""),
    (["{a} set", "{b", "c}"], "")])
def test_what_looks_like_a_table(tmp_path, lines, doubt):
    (tmp_path / "a.txt").write_text("\n".join(lines))
    said = open_store(tmp_path / "a.txt", cache=tmp_path / "cache").doubt()
    assert doubt in said and bool(said) == bool(doubt)


def test_a_table_under_the_name_of_a_text_is_told(tmp_path):
    (tmp_path / "a.txt").write_text("\nfirst\tsecond\na\tb\n")
    store, said = open_store(tmp_path / "a.txt", drop_blank=True, cache=tmp_path / "cache"), []
    assert store.doubt().startswith("warning: a.txt:2 contains a tab, and whole lines are taken for sentences")
    read_texts(tmp_path / "a.txt", said.append)
    assert store.doubt() in said
    for name, text in {"b.txt": "a\nb\tc\n", "c.tsv": "sent0\tsent1\na\tb\n"}.items():
        (tmp_path / name).write_text(text)
        assert open_store(tmp_path / name, drop_blank=True, cache=tmp_path / "cache").doubt() == ""


@pytest.mark.parametrize(("labels", "classes"), [
    (["neutral", "entailment", "contradiction", "neutral"], {"contradiction": 12, "entailment": 12, "neutral": 24}),
    (["0", "1", "-2", "10"], {"-2": 12, "0": 12, "1": 12, "10": 12}), (["A", "A-", "A+"], {"A": 16, "A+": 16, "A-": 16}),
    (["1000001", "1000002"], {"1000001": 24, "1000002": 24})])
def test_classes_and_their_rows(opened, labels, classes):
    rows = [(f"cat {i}", f"dog {i}", labels[i % len(labels)]) for i in range(48)]
    assert opened(rows, "a.csv", ("premise", "hypothesis", "label")).classes() == classes
