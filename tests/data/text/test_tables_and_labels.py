"""Tables under the name of a text, and labels that are no classes: refused or told, with their line."""

import json
import re

import pytest

from stsbench.data.text.store import open_store
from stsbench.errors import DataError


@pytest.mark.parametrize(("lines", "kind"), [
    (["sent0,sent1,hard_neg", "a,b,c"], "csv"), (['"premise","hypothesis","label"', "a,b,c"], "csv"),
    (["sentence1\tsentence2\tscore", "a\tb\t1"], "tsv"), (["sentence1;sentence2;score", "a;b;1"], "csv"),
])
def test_the_header_of_a_table_is_no_sentence(tmp_path, lines, kind):
    (tmp_path / "a.txt").write_text("\n".join(lines))
    store = open_store(tmp_path / "a.txt", cache=tmp_path / "cache")
    with pytest.raises(DataError, match=rf"a.txt:1: .* is the header of a table, .*: call it a.{kind}, or --set"):
        store.doubt()


@pytest.mark.parametrize(("lines", "doubt"), [
    ([f"the cat {i},a cat" for i in range(9)], "a comma"), ([f"the cat {i};a cat" for i in range(9)], "a semicolon"),
    ([json.dumps({"text": f"cat {i}"}) for i in range(9)], "looks like JSON"),
    (["a cat, a dog", "a cat", "a dog, a bird, a fish", "x", "y"], ""), (["sentence", "a", "b"], ""),
    (["{a} set", "{b", "c}"], ""),
])
def test_what_looks_like_a_table(tmp_path, lines, doubt):
    (tmp_path / "a.txt").write_text("\n".join(lines))
    said = open_store(tmp_path / "a.txt", cache=tmp_path / "cache").doubt()
    assert doubt in said and bool(said) == bool(doubt)


def labelled(tmp_path, labels, at=48):
    rows = [f"cat {i},dog {i},{labels[i % len(labels)]}" for i in range(at)]
    (tmp_path / "a.csv").write_text("\n".join(["premise,hypothesis,label", *rows]), encoding="utf-8")
    return open_store(tmp_path / "a.csv", cache=tmp_path / "cache")


@pytest.mark.parametrize("mark", [
    "-", "-1", " -1", "-1.0", "NaN", "nan", "null", "hidden", "?", "None", "N/A", "<NA>", "#N/A",
    "\u22121", "\u2013", "\u2014", "NA", "\\N", "unlabeled", "no_label",
])
def test_a_mark_of_rows_without_a_label_is_no_class(tmp_path, mark):
    told = rf"a.csv:4: the label {re.escape(repr(mark))} marks rows without a label \(16 of 48\)"
    with pytest.raises(DataError, match=told):
        labelled(tmp_path, ["0", "1", mark]).classes()


@pytest.mark.parametrize("pair", [
    ("entailment", "entailment "), ("entailment", "Entailment"), ("a b", "a  b"), ("1", "1.0"), ("01", "1"),
    ("True", "1"), ("0", "false"), ("0", "-0"), ("not_entailment", "not entailment"), ("not_entailment", "Not-Entailment"),
    ("x", "x\u200b"), ("caf\u00e9", "cafe\u0301"), ("x", "\uff58"),
])
def test_one_class_written_twice(tmp_path, pair):
    with pytest.raises(DataError, match=r"a.csv:[23]: the labels .* would be two classes"):
        labelled(tmp_path, [*pair, "other"]).classes()


def test_classes_and_their_rows(tmp_path):
    labels = ["neutral", "entailment", "contradiction", "neutral"]
    assert labelled(tmp_path, labels).classes() == {"contradiction": 12, "entailment": 12, "neutral": 24}
    assert labelled(tmp_path, ["0", "1", "-2", "10"]).classes() == {"-2": 12, "0": 12, "1": 12, "10": 12}
    assert labelled(tmp_path, ["A", "A-", "A+"]).classes() == {"A": 16, "A+": 16, "A-": 16}
    assert labelled(tmp_path, ["1000001", "1000002"]).classes() == {"1000001": 24, "1000002": 24}
