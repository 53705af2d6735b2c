"""Texts that look like tables are told, and the classes of labels are counted."""

import json

import pytest

from stsbench.data.text.store import open_store
from stsbench.encoders.post.source import read_texts


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


def test_a_table_under_the_name_of_a_text_is_told(tmp_path):
    (tmp_path / "a.txt").write_text("\nfirst\tsecond\na\tb\n")
    store, said = open_store(tmp_path / "a.txt", drop_blank=True, cache=tmp_path / "cache"), []
    assert store.doubt().startswith("warning: a.txt:2 contains a tab, and whole lines are taken for sentences")
    read_texts(tmp_path / "a.txt", said.append)
    assert store.doubt() in said
    for name, text in {"b.txt": "a\nb\tc\n", "c.tsv": "sent0\tsent1\na\tb\n"}.items():
        (tmp_path / name).write_text(text)
        assert open_store(tmp_path / name, drop_blank=True, cache=tmp_path / "cache").doubt() == ""


def labelled(tmp_path, labels, at=48):
    rows = [f"cat {i},dog {i},{labels[i % len(labels)]}" for i in range(at)]
    (tmp_path / "a.csv").write_text("\n".join(["premise,hypothesis,label", *rows]), encoding="utf-8")
    return open_store(tmp_path / "a.csv", cache=tmp_path / "cache")


def test_classes_and_their_rows(tmp_path):
    labels = ["neutral", "entailment", "contradiction", "neutral"]
    assert labelled(tmp_path, labels).classes() == {"contradiction": 12, "entailment": 12, "neutral": 24}
    assert labelled(tmp_path, ["0", "1", "-2", "10"]).classes() == {"-2": 12, "0": 12, "1": 12, "10": 12}
    assert labelled(tmp_path, ["A", "A-", "A+"]).classes() == {"A": 16, "A+": 16, "A-": 16}
    assert labelled(tmp_path, ["1000001", "1000002"]).classes() == {"1000001": 24, "1000002": 24}
