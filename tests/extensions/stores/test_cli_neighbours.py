"""`stsbench neighbours` on a file of lines and on a data set."""

import json
from pathlib import Path

import click
import pytest
from consoles import ENCODINGS, ESCAPED, HOSTILE, console  # noqa: F401 - a fixture

from stsbench.data.fetch.sources import load
from stsbench.errors import StsbenchError
from stsbench.extensions.stores.command import neighbours

LINES = "x.jpg#0\tA cat sleeps .\nx.jpg#1\tTwo dogs run .\n\ny.jpg#0\tA  cat sleeps .\ny.jpg#1\tA [big] dog runs .\n"


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "lines.tsv").write_text(LINES)

    def run(*words, corpus="lines.tsv", column=("--column", "2"), model="lexical:token-set"):
        code = neighbours.main(["--model", model, "--corpus", corpus, *column, *words], standalone_mode=False)
        assert code == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("model", ["lexical:token-set", "lexical:tfidf"])
def test_neighbours_rank_distinct_texts_with_their_first_line(command, model):
    rows = json.loads(command("--query", "a cat sleeps .", "--query", "dogs", "--top", "9", "--json", "-", model=model))
    assert [row["rank"] for row in rows] == [1, 2, 3] * 2
    best = {key: value for key, value in rows[0].items() if key != "cosine"}
    assert best == {"query": "a cat sleeps .", "rank": 1, "line": 1, "copies": 2, "text": "A cat sleeps ."}
    assert rows[0]["cosine"] == pytest.approx(1) and rows[0]["cosine"] > rows[1]["cosine"]
    assert rows[3]["text"] == "Two dogs run ." and rows[3]["line"] == 2


def test_the_table_shows_rank_cosine_line_and_text(command, tmp_path):
    (tmp_path / "asked.txt").write_text("big [dog]\n")
    out = command("--query-file", "asked.txt", "--top", "1", "--json", "rows.json")
    assert "query: big [dog]" in out and "A [big] dog runs ." in out and "line" in out
    [row] = json.loads((tmp_path / "rows.json").read_text())
    assert row["line"] == 5 and f"{row['cosine']:.4f}" in out


@pytest.mark.parametrize(
    ("words", "more", "why"),
    [(("--query", "a"), {"column": ()}, "lines.tsv:1: no column text .* --column"),
     (("--query", "a"), {"column": ("--column", "3")}, "lines.tsv:1: no column '3' .there are '1', '2'."),
     (("--query", "a"), {"corpus": "none.txt"}, "cannot read none.txt"), (("--query", " "), {}, "give --query TEXT"),
     ((), {}, "give --query TEXT"), (("--query-file", "empty.txt"), {}, "empty.txt contains no text"),
     (("--query", "a", "--backend", "faiss"), {}, "dense|not installed"),
     (("--query", "a", "--cache", "c", "--no-cache"), {}, "exclude each other")],
)
def test_what_neighbours_refuses(command, tmp_path, words, more, why):
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises((StsbenchError, click.UsageError), match=why):
        command(*words, **more)


def test_neighbours_in_a_data_set(command):
    """As in a file that holds its sentences, but that the numbers are the pairs'."""
    data = load("stsb/test", sample=True)
    sentences = [*data.first, *data.second]
    Path("sentences.txt").write_text("\n".join(sentences) + "\n")
    words = ("--query", data.second[2], "--query", "a dog runs", "--top", "4", "--json", "-")
    rows = json.loads(command(*words, "--sample", corpus="stsb/test", column=()))
    plain = json.loads(command(*words, corpus="sentences.txt", column=()))
    assert len(rows) == 8 and rows[0]["text"] == data.second[2] and rows[0]["item"] == 3
    for row, other in zip(rows, plain, strict=True):
        assert row["item"] == (other["line"] - 1) % len(data) + 1
        assert row["text"] in (data.first[row["item"] - 1], data.second[row["item"] - 1])
        assert row["copies"] == sentences.count(row["text"])
        for key in ("query", "rank", "text", "copies", "cosine"):
            assert row[key] == pytest.approx(other[key]) if key == "cosine" else row[key] == other[key]
    table = command("--query", "a dog runs", "--sample", corpus="sst2", column=())
    assert "item" in table and "line" not in table


@pytest.mark.parametrize(
    ("corpus", "words", "why"),
    [("stsb/test", ("--column", "2", "--sample"), "--column needs a file"),
     ("stsb/test", ("--sample", "--data-dir", "."), "exclude each other"),
     ("stsb/test", ("--data-dir", "."), "sts-test.csv is missing"), ("stsb/tst", (), "cannot read stsb/tst"),
     ("lines.tsv", ("--sample",), "need a data set as --corpus; lines.tsv is not one")],
)
def test_what_a_data_set_as_corpus_refuses(command, corpus, words, why):
    with pytest.raises((StsbenchError, click.UsageError), match=why):
        command("--query", "a", *words, corpus=corpus, column=())


def test_a_file_comes_before_a_data_set_of_its_name(command):
    Path("stsb").mkdir()
    Path("stsb/test").write_text("a cat\na dog\n")
    [row] = json.loads(command("--query", "a dog", "--top", "1", "--json", "-", corpus="stsb/test", column=()))
    assert (row["text"], row["line"]) == ("a dog", 2)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts_of_a_corpus_suit_the_console(tmp_path, monkeypatch, console, encoding):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text(f"{HOSTILE}\nplain boat\nthird\n", "utf-8")
    of = ["--model", "lexical:token-set", "--no-cache", "--corpus", "corpus.txt"]
    words = ["neighbours", *of, "--query", "boat \U0001f31e"]
    code, out, err = console(encoding, *words)
    assert code == 0, err
    assert all(part in out for part in ESCAPED) and "plain boat" in out
    assert ("\U0001f31e" in out) == (encoding == "utf-8") and (r"\U0001f31e" in out) == (encoding != "utf-8")
    code, out, err = console(encoding, *words, "--json", "-")
    assert code == 0 and any(row["text"] == " ".join(HOSTILE.split()) for row in json.loads(out))
