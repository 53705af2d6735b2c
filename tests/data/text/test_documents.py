"""Documents as rows: word pieces of whole texts, a part of the file at a time, and rows of several lines."""

import hashlib
import json
from itertools import pairwise

import pytest
from tiny_models import sentences, tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from stsbench.data.text import tokens as token_files
from stsbench.data.text.cache import file_digest
from stsbench.data.text.examples import TextRows
from stsbench.data.text.store import open_store
from stsbench.data.text.tokens import tokenised

LINES = ["a", " b ", "", "c", "d", "e", "f", "g", " \u3000", "", "h", "i\u2028j"]


def written(path, lines):
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("kind", ["bert", "roberta", "byt5"])
def test_the_pieces_of_a_whole_text_are_the_tokenizers_without_special_tokens(tmp_path, kind):
    """ByT5's has no fast backend."""
    texts = [" ".join(sentences(60, seed=4)), "  the \t cat\u3000runs ", "a", ""]
    path = tmp_path / "documents.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts), "utf-8")
    reads = ByT5Tokenizer() if kind == "byt5" else tokenizer(kind)
    before = None if kind == "byt5" else (reads.backend_tokenizer.truncation, reads.backend_tokenizer.padding)
    store = open_store(path, cache=tmp_path / "cache")
    token_ids = tokenised(store, reads, "digest", None, ["sentence"], cache=tmp_path / "cache")
    rows = TextRows(store, token_ids, range(4))
    spaced = [" " + " ".join(text.split()) for text in texts]
    if before:
        assert before == (reads.backend_tokenizer.truncation, reads.backend_tokenizer.padding)
    expected = [reads(text, add_special_tokens=False, truncation=False, padding=False)["input_ids"] for text in spaced]
    assert [each.tolist() for each in rows.ids("sentence")] == expected and len(expected[0]) > 200
    assert rows.lengths("sentence").tolist() == [len(each) for each in expected]
    assert rows.at([2, 0]).lengths("sentence").tolist() == [len(expected[2]), len(expected[0])]
    assert token_ids.truncated == {"sentence": 0}


def test_whole_texts_are_read_so_many_bytes_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "_CHUNK", 3)
    monkeypatch.setattr(token_files, "_CHUNK_BYTES", 10)
    path = written(tmp_path / "a.txt", ["a" * size for size in (4, 6, 1, 30, 1, 1, 1, 1, 9)])
    store = open_store(path, cache=tmp_path / "cache")
    chunks = [(part.start, part.stop) for part in token_files._chunks(store, "sentence", bounded=True)]
    assert chunks == [(0, 2), (2, 3), (3, 4), (4, 7), (7, 9)]
    rows = [(part.start, part.stop) for part in token_files._chunks(store, "sentence", bounded=False)]
    assert rows == [(0, 3), (3, 6), (6, 9)]


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


@pytest.mark.parametrize(("count", "start"), [(2, 0), (3, 2), (4, 3), (50, 0)])
def test_rows_of_several_lines(tmp_path, count, start):
    lines = LINES[start:]
    path, expected = written(tmp_path / "a.txt", lines), naive_joined(lines, count)
    for contiguous in (False, True):
        store = open_store(path, lines_per_row=count, contiguous=contiguous, cache=tmp_path / "cache")
        assert store.texts("sentence", range(len(store))) == [text for _, text, _ in expected]
        assert store.lines.tolist() == [number for number, _, _ in expected]
        assert store.meta.blank == 0
    after = [store.following([row])[0] for row in range(len(store))]
    same = [one[2] == two[2] for one, two in pairwise(expected)]
    assert after == [*(row + 1 if near else -1 for row, near in enumerate(same)), -1]


def test_what_was_read_before_the_setting_is_still_found(tmp_path):
    path, cache = written(tmp_path / "a.txt", LINES), tmp_path / "cache"
    digests = {open_store(path, lines_per_row=count, cache=cache).digest for count in (1, 2, 3)}
    before = {"format": "text", "columns": {}, "where": {}, "drop_blank": False, "drop_duplicates": False,
              "contiguous": False}
    key = hashlib.sha256(json.dumps([1, file_digest(path, cache), before], sort_keys=True).encode()).hexdigest()
    assert (cache / "text" / key).is_dir() and len(digests) == 3


def test_a_documents_first_word_is_spelled_as_elsewhere(tmp_path):
    """By a byte-level tokenizer, to which a word with a space in front is another one."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(["cat cat cat"] * 9, trainers.BpeTrainer(special_tokens=["<s>", "</s>"]))
    reads = PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="<s>", sep_token="</s>")
    store = open_store(written(tmp_path / "a.txt", ["cat  cat\tcat"]), cache=tmp_path / "cache")
    ids = tokenised(store, reads, "digest", None, ["sentence"], cache=tmp_path / "cache").ids("sentence", [0])[0]
    assert len(ids) == 3 and len(set(ids.tolist())) == 1
    assert len(set(reads("cat cat")["input_ids"])) == 2  # as it is without the space
