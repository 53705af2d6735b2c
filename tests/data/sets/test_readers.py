"""Readers: what SentEval keeps and what it drops. Classification files: what the readers of SentEval keep, labels and
splits. Letters of any script: which texts are the same but for case, punctuation and spaces, and which are not. The
numbers of the catalog's sentences are those of the data, and tell which pairs share one."""

import gzip
import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from realdata import real_data

from stsbench.data.fetch.sources import load_data, verify
from stsbench.data.sets import readers, sentences
from stsbench.data.sets.catalog import catalog, entries, entry
from stsbench.data.sets.sentences import has_numbers, known_sentences, letters, normalise, pair_keys, text_keys, words
from stsbench.data.sets.sets import LabelledSet, PairSet, fed
from stsbench.encoders.light.lexical import CharNgrams
from stsbench.errors import DataError
from stsbench.metrics.shared_sentences import SharedSentences


def test_blank_gold_is_dropped_after_zipping_and_whitespace_and_line_ends_do_not_matter(tmp_path):
    for pairs, gold, expected in (
        (b"a\tb\nc\td\ne\tf\n", b"1\n\n2.5\n", [("a", "b", 1.0, "x"), ("e", "f", 2.5, "x")]),
        (b"  a   b\tc\xc2\xa0d \r\ne\tf", b"1\r\n2", [("a b", "c d", 1.0, "x"), ("e", "f", 2.0, "x")]),
        *((f"a{odd}b\tc\nd\te\n".encode(), b"1\n2\n", [("a b", "c", 1.0, "x"), ("d", "e", 2.0, "x")])
          for odd in "\u2028\u0085\x0b\x0c\x1c\r"),  # exotic line ends stay inside a sentence
    ):
        (tmp_path / "STS.input.x.txt").write_bytes(pairs)
        (tmp_path / "STS.gs.x.txt").write_bytes(gold)
        assert readers.read_sts_year(tmp_path, ["x"]) == expected


def test_raw_keeps_texts_letter_by_letter(tmp_path):
    line = json.dumps({"sentence1": "A  b\u2028c.", "sentence2": " D", "score": "2.5"}, ensure_ascii=False) + "\n"
    (tmp_path / "t.jsonl").write_text(line)
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    plain, packed = (readers.read_raw(tmp_path / name, "STS12") for name in ("t.jsonl", "t.jsonl.gz"))
    assert plain == packed == [("A  b\u2028c.", " D", 2.5, "STS12")]


def test_catalog_totals_are_the_published_ones():
    assert [entry(f"sts{year}/test").total for year in range(12, 17)] == [3108, 1500, 3750, 3000, 1186]
    assert [entry(f"stsb/{split}").total for split in ("train", "dev", "test")] == [5749, 1500, 1379]
    assert entry("sick-r/test").total == 4927 and entry("sick-r/mteb").total == 9927
    assert [entry(name).total for name in TRANSFER] == [10662, 3775, 10000, 10606, 70042, 5952, 5801]
    seen: dict[str, str] = {}
    for item in entries():
        assert sum(item.counts.values()) == item.total
        assert all(len(digest) == (0 if item.text_version == "raw" else 64) for digest in item.files.values())
    for item in entries("senteval"):  # entries that share files agree on their digests
        assert len(item.digest) == 64 and all(seen.setdefault(*file) == file[1] for file in item.files.items())
    assert catalog().files == seen | dict(catalog().documents)
    years = {f"sts{year}/test" for year in range(12, 17)}
    assert {item.id for item in entries("raw")} == years | {"stsb/test", "sick-r/mteb"}
    assert all(len(item.hub.revision) == 40 for item in entries("raw") if item.hub)
    assert len(catalog().archive.revision) == 40


TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
SAMPLE = Path(readers.__file__).parents[1] / "sample"
SICK_COLUMNS = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
MRPC = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\tHe said "no\tHe  said no\n0\t7\t8\tA\tB\n'
QUESTIONS = "".join(f"{name}:fine What : is  it ?\n" for name in ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"))
ENTAILED = SICK_COLUMNS + "".join(f"{i}\tA {i}\tB\t3.0\t{name}\r\n" for i, name in enumerate(readers.ENTAILMENT))


def written(folder, text, encoding="utf-8"):
    path = folder / "file.txt"
    path.write_bytes(text.encode(encoding))
    return path


def test_class_file_keeps_lines_without_words_and_is_latin_1(tmp_path):
    items = readers.read_class(written(tmp_path, "caf\xe9  noir \n\n \t\nlast", "latin-1"), 1)
    assert items == [(text, "", 1, "all") for text in ("caf\xe9 noir", "", "", "last")]
    assert fed([text for text, *_ in items])[1:3] == [".", "."]
    for odd in "\x85\x0b\x0c\x1c\r":  # exotic line ends stay inside a text
        path = written(tmp_path, f"one{odd}two\nthree\n", "latin-1")
        assert readers.read_class(path, 0) == [("one two", "", 0, "all"), ("three", "", 0, "all")]
        assert len(path.read_text("latin-1").splitlines()) == 3  # where SentEval's way would differ


@pytest.mark.parametrize(("read", "text", "split", "expected"), [
    (readers.read_sst, "a  fine\xa0film \t1\r\nno : good\t0", ["dev"],
     [("a fine film", "", 1, "dev"), ("no : good", "", 0, "dev")]),
    # the fine class is left out
    (readers.read_trec, QUESTIONS, ["test"], [("What : is it ?", "", label, "test") for label in range(6)]),
    *((readers.read_mrpc, mark + MRPC, ["train"], [('He said "no', "He said no", 1, "train"), ("A", "B", 0, "train")])
      for mark in ("", "\ufeff")),
    (readers.read_sick_entailment, ENTAILED, ["dev"], [(f"A {label}", "B", label, "dev") for label in range(3)]),
    (readers.read_sick, (SICK_COLUMNS + "1\tA b\tC\t4.5\tNEUTRAL\n").replace("\n", "\r\n"), [],
     [("A b", "C", 4.5, "SICK-R")]),
    # quotes stay, further columns are left out
    (readers.read_stsb, 'g\tf\ty\t1\t5.000\t"a man\the said "b"\nG\tF\tY\t2\t0\tc\td\textra\textra\n', [],
     [('"a man', 'he said "b"', 5.0, "STS-B"), ("c", "d", 0.0, "STS-B")])])
def test_rows_of_each_kind_of_file(tmp_path, read, text, split, expected):
    assert read(written(tmp_path, text), *split) == expected


def test_every_sample_reads():
    for item in entries("senteval"):
        actual = load_data(item.id, sample=True, strict=True)
        assert (actual.text_version, actual.origin, actual.known) == ("sample", "sample", True)
        assert actual.digest != item.digest
        if isinstance(actual, LabelledSet):
            assert set(actual.labels.tolist()) == set(range({"trec": 6, "sick-e/splits": 3}.get(item.id, 2)))
            assert bool(actual.second) == (item.id in ("mrpc", "sick-e/splits"))
        assert list(actual.counts) == (["all"] if item.id in TRANSFER[:4] else list(item.counts))


@pytest.mark.parametrize("item", entries("senteval"), ids=lambda item: item.id)
def test_real_data_have_the_catalog_s_counts_and_digest(item):
    actual = load_data(item.id, data_dir=real_data(), strict=True)
    assert actual.known and actual.warnings == () and actual.digest == item.digest and len(actual) == item.total
    if item.id in TRANSFER[:4]:
        assert list(item.counts.values()) == [int((actual.labels == 1).sum()), int((actual.labels == 0).sum())]
    else:
        assert list(actual.counts.items()) == list(item.counts.items())
    if not isinstance(actual, LabelledSet):
        assert actual.order == tuple(item.counts)


def test_splits_are_the_single_sets_joined():
    whole = load_data("sick-r/splits", sample=True)
    assert isinstance(whole, PairSet) and whole.order == ("train", "dev", "test")
    for split, single in (("train", "train"), ("dev", "trial"), ("test", "test")):
        part, alone = whole.keep(np.array(whole.subsets) == split), load_data(f"sick-r/{single}", sample=True)
        assert (part.first, part.second, part.gold.tolist()) == (alone.first, alone.second, alone.gold.tolist())
    entailment = load_data("sick-e/splits", sample=True)
    assert entailment.first == whole.first and entailment.splits == whole.subsets


def test_digest_moves_with_every_field():
    base = LabelledSet("x", "X", "own", first=("a", "b"), labels=np.array([0, 1]), splits=("all", "all"))
    fields = {"first": ("a", "c"), "labels": np.array([1, 1]), "splits": ("all", "test"), "second": ("", "")}
    assert len({base.digest, *(replace(base, **{name: value}).digest for name, value in fields.items())}) == 5


def test_changed_files_are_counted_by_class_and_split(tmp_path):
    for name in entry("mr").files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\ntwo\n" if name.endswith("pos") else "three\n")
    actual = load_data("mr", data_dir=tmp_path)
    assert not actual.known and actual.labels.tolist() == [1, 1, 0]
    assert actual.warnings[2:] == (
        "mr pos holds 2 items, the catalog says 5331", "mr neg holds 1 items, the catalog says 5331")
    with pytest.raises(DataError, match="refused: --strict-data"):
        load_data("mr", data_dir=tmp_path, strict=True)


def test_verify_reads_the_transfer_tasks(tmp_path):
    states = {state.id: state for state in verify(SAMPLE) if state.text_version == "senteval"}
    for name in (*TRANSFER, "sick-e/splits"):
        assert states[name].state == "changed" and states[name].pairs == len(load_data(name, sample=True))
        assert len(states[name].digest) == 64
    for name in entry("trec").files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("nothing\n")
    (state,) = verify(tmp_path, ["trec"])
    assert state.state == "unreadable" and "train_5500.label:1: expected" in state.notes[0]


SAME = {
    "full width": ("ＡＢＣ １２", "abc 12"), "half width katakana": ("ｶﾞﾗｽ", "ガラス"),
    "ideographic space": ("東京　駅", "東京 駅"),
    "punctuation without spaces": ("你好，世界。", "你好世界"), "thai clauses": ("ฉันกินข้าว แล้ว", "ฉันกินข้าวแล้ว"),
    "composed accents": ("cafe\u0301", "café"), "decomposed hangul": (unicodedata.normalize("NFD", "한국어"), "한국어"),
    "marks of direction": ("\u200fשלום עולם\u200e!", "שלום עולם"), "emoji's look": ("I \u2764\ufe0f it", "I \u2764 it"),
    "arabic punctuation": ("كيف حالك؟", "كيف حالك"), "danda": ("वह जाता है।", "वह जाता है"),
}
DIFFERENT = {  # one letter, other marks: without them these were equal
    "hindi": ("की", "का"), "hindi, within a word": ("दिन", "दीन"), "thai tones": ("ข้าว", "ข่าว"), "bengali": ("কি", "কে"),
    "tamil": ("கி", "கு"), "kana": ("かき", "かぎ"), "accents": ("ou\u0300", "ou"), "arabic": ("كتب", "كتاب"),
}


def test_equal_but_for_form_or_different_words():
    for one, other in SAME.values():
        assert normalise(one) == normalise(other) != "" and letters(one) == letters(other)
        assert pair_keys([one], ["x"]) == pair_keys(["X"], [other])
    for one, other in DIFFERENT.values():
        assert normalise(one) != normalise(other) and letters(one) != letters(other)
        assert pair_keys([one], ["x"]) != pair_keys([other], ["x"])


def test_words_of_other_scripts_keep_their_spaces():
    assert words("मैं घर, जाता हूँ") == "मैं घर जाता हूँ" and words("집에 간다!") == "집에 간다"
    assert words("the 猫 sat") == "the 猫 sat"
    assert [sentences.is_letter(mark) for mark in "\ufe0f\u0e49।"] == [False, True, False]
    assert sentences.unified("µ ½ ύ") == "µ ½ ύ"  # other compatibility forms stay: keys of such texts are in records


@settings(max_examples=20, deadline=None)
@given(st.text(st.sampled_from("aZ 0.,-_\u0e49\u0301\u200f\ufe0f\u3000éµΣßİ猫ｶﾞ한की؟।"), max_size=30))
def test_words_of_words_are_the_same(text):
    assert words(words(text)) == words(text) and normalise(normalise(text)) == normalise(text)


def test_keys_in_older_records_stay():
    """On English data a letter is what `str.isalnum` says."""
    data = load_data("sts16/test", data_dir=real_data())
    for text in data.texts:
        assert letters(text) == "".join(letter for letter in text.casefold() if letter.isalnum())


def naive(text):
    return {text[i:j] for i in range(len(text)) for j in range(i + 1, min(i + 3, len(text)) + 1)} - {" "}


def test_character_n_grams_are_those_of_a_naive_loop():
    encoder = CharNgrams()
    texts = ["a cat sat", "猫が寝る", "ねこ", "x", "", "  "]
    rows = [naive(" ".join(text.split())) for text in texts]
    vectors = encoder.encode(texts).toarray()
    for one, left in enumerate(rows):
        for other, right in enumerate(rows):
            assert vectors[one] @ vectors[other] == len(left & right)
    assert vectors.sum(axis=1).tolist() == [len(row) for row in rows]
    same = encoder.encode(["\u200fＡ　 Cat", "a cat"])
    assert (same[0] != same[1]).nnz == 0


@pytest.mark.parametrize("name", ["sts12/test", "sick-r/test"])
def test_pairs_of_the_catalog_share_the_sentences_that_their_texts_say(name):
    data = load_data(name, data_dir=real_data())
    pairs = pair_keys(data.first, data.second)
    assert has_numbers(pairs)
    values = np.random.default_rng(0).normal(size=len(data))
    by_number = SharedSentences(*known_sentences(pairs))
    by_text = SharedSentences(text_keys(data.first), text_keys(data.second))
    assert by_number.variance(values) == pytest.approx(by_text.variance(values), rel=1e-12)
    assert by_number.item_variance(values) == pytest.approx(by_text.item_variance(values), rel=1e-12)


def test_an_unknown_pair_shares_no_sentence_with_another_and_what_is_packed_is_known(tmp_path, monkeypatch):
    first, second = ["A cat.", "a cat", "a dog"], ["sits", "runs", "runs"]
    # own texts are equal to the letter, the catalog's by their letters
    assert [len(set(text_keys(first, exact=exact).tolist())) for exact in (True, False)] == [3, 2]
    pairs = pair_keys(first, second)
    assert not has_numbers(pairs) and len(np.unique(np.concatenate(known_sentences(pairs)))) == 6
    np.savez(tmp_path / "numbers.npz", **sentences.packed(pairs, first, second))
    monkeypatch.setattr(sentences, "FILE", tmp_path / "numbers.npz")
    monkeypatch.setattr(sentences, "_known", sentences._known.__wrapped__)
    assert has_numbers(pairs)
    for made, texts in zip(known_sentences(pairs), (first, second), strict=True):
        assert np.array_equal(made[:, None] == made, text_keys(texts)[:, None] == text_keys(texts))
