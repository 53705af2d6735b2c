"""`encode` and `neighbours`, commands and functions: the same rows, the same files, byte for byte."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from clirun import cli, contents, fails, lines, place, tiny  # noqa: F401

import stsbench
from stsbench.data.fetch.sources import load_data
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.extensions.stores.build import Pace
from stsbench.extensions.stores.command import Clock, duration
from stsbench.extensions.stores.vectors import VectorStore

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
HASHED = "python:mine_cli:hashed"


def test_encode_by_a_transformer_warns_of_cut_texts(cli, tiny, lines):
    said = cli("encode", "--model", tiny, "--pooler", "mean", "--max-length", 4, "--input", lines, "--output", "a")[2]
    with pytest.warns(StsbenchWarning) as caught:
        stsbench.encode(tiny, lines, "b", pooler="mean", max_length=4)
    assert contents("a") == contents("b") and {Path(one.filename) for one in caught} == {Path(__file__)}
    warned = [str(one.message).removeprefix("b: ") for one in caught]
    assert warned == [line for line in said.splitlines() if "empty texts" in line or "truncated" in line]
    assert len(warned) == 2


def test_in_a_notebook_encode_counts_texts(monkeypatch, capsys, place):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    texts = ["A cat sleeps.", "Rain falls.", "Birds sing."]
    stsbench.encode(lambda texts: [[len(text), 1] for text in texts], texts, "listed")
    listed = capsys.readouterr().err
    stsbench.encode(lambda texts: [[len(text), 1] for text in texts], iter(texts), "streamed", shard_size=2)
    streamed = capsys.readouterr().err
    assert "encoding: 100%" in listed and "3/3" in listed
    assert "encoding: 3text" in streamed and streamed.count("\n") == 1


CORPUS = ["a cat sleeps", "the dog runs", "a cat sleeps", "rain falls", "the old man reads", "birds sing"]
QUERIES = ["cats sleep", "a dog runs"]


@pytest.fixture
def corpus(place):
    """A relevance folder of the user's own, and its texts as plain lines."""
    folder = place / "mine"
    folder.mkdir()
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(QUERIES)))
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t{text}\n" for i, text in enumerate(CORPUS)))
    (folder / "relevance.tsv").write_text("q0\td0\nq1\td1\n")
    (place / "all.txt").write_text("\n".join([*QUERIES, *CORPUS]))
    return place


def test_encode_then_retrieval_then_neighbours(cli, corpus):
    code, out, err = cli("encode", "--model", HASHED, "--input", "all.txt", "--output", "v")
    assert (code, out) == (0, "") and err.endswith("v: 8 texts x 3, float32, 781 bytes with texts\n")
    scores = []
    for model in (HASHED, "vectors:v"):
        how = ("--protocol", "retrieval:mine", "--resamples", "0", "--output", "measured")
        code, out, _ = cli("eval", "--model", model, *how, "--json", "-")
        assert code == 0
        scores.append([(row["metric"], row["value"]) for row in json.loads(out)])
    assert scores[0] == scores[1] and len(scores[0]) > 2
    rows = []
    for where in ("all.txt", "v"):
        how = ("--query", "a cat sleeps", "--query", "new text", "--top", "4")
        code, out, _ = cli("neighbours", "--model", HASHED, "--corpus", where, *how, "--json", "-")
        assert code == 0
        rows.append(json.loads(out))
    assert [{**row, "cosine": 0} for row in rows[0]] == [{**row, "cosine": 0} for row in rows[1]]
    assert [row["cosine"] for row in rows[0]] == pytest.approx([row["cosine"] for row in rows[1]], abs=1e-6)
    assert rows[1][0] == {"query": "a cat sleeps", "rank": 1, "cosine": pytest.approx(1), "line": 3, "copies": 2,
                          "text": "a cat sleeps"}
    fails(cli("neighbours", "--model", "python:mine_cli:constant", "--corpus", "v", "--query", "x"), "another encoder")
    for store in (VectorStore(Path("v")), "v"):
        assert stsbench.neighbours(HASHED, store, ["a cat sleeps", "new text"], top=4).rows == rows[1]
    with pytest.raises(StsbenchError, match="do not apply to v, a folder of vectors"):
        stsbench.neighbours(HASHED, "v", "a cat", sample=True)
    with pytest.warns(StsbenchWarning, match="the vector of the query 'x' is zero"):
        stsbench.neighbours(lambda texts: np.array([[text != "x", 0.0] for text in texts]), ["a", "b"], "x")


def test_standard_input_and_columns_and_what_int8_cuts(cli, corpus, monkeypatch):
    table = "".join(f"{i}\t{text}\n" for i, text in enumerate(CORPUS)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table)))
    assert cli("encode", "--model", HASHED, "--input", "-", "--column", "2", "--output", "v")[0] == 0
    store = VectorStore(Path("v"))
    assert store.texts(range(6)) == CORPUS and store.manifest.input.name == "-"
    encode = ("encode", "--model", HASHED, "--input", "all.txt", "--store-dtype", "int8", "--output")
    assert "cut to int8's scale" not in cli(*encode, "w")[2]
    err = cli(*encode, "x", "--shard-size", "2")[2]
    assert "were cut to int8's scale, which is of the largest absolute numbers of the first 2 texts" in err


def test_the_time_left_is_that_of_what_this_call_encodes():
    times = iter([0.0, 10.0, 10.0, 10.0])
    clock = Clock(lambda: next(times))
    assert clock(Pace(6000, 5000, 17_000)) == "100 texts/s, 2 min left" and clock(Pace(5000, 5000, None)) == ""
    assert clock(Pace(6000, 5000, None)) == "100 texts/s"
    assert [duration(seconds) for seconds in (0.4, 99, 101, 5940, 7500, -3)] == [
        "0 s", "99 s", "2 min", "99 min", "2 h 5 min", "0 s"
    ]


CAPTIONS = "x.jpg#0\tA cat sleeps .\nx.jpg#1\tTwo dogs run .\n\ny.jpg#0\tA  cat sleeps .\ny.jpg#1\tA [big] dog runs .\n"


@pytest.fixture
def command(cli):
    """What `stsbench neighbours` prints."""
    def run(*words, corpus="lines.tsv", column=("--column", "2")):
        Path("lines.tsv").write_text(CAPTIONS)
        code, out, err = cli("neighbours", "--model", "lexical:token-set", "--corpus", corpus, *column, *words)
        assert code == 0, err
        return out

    return run


def test_neighbours_rank_distinct_texts_with_their_first_line(command):
    rows = json.loads(command("--query", "a cat sleeps .", "--query", "dogs", "--top", "9", "--json", "-"))
    assert [row["rank"] for row in rows] == [1, 2, 3] * 2
    best = {key: value for key, value in rows[0].items() if key != "cosine"}
    assert best == {"query": "a cat sleeps .", "rank": 1, "line": 1, "copies": 2, "text": "A cat sleeps ."}
    assert rows[0]["cosine"] == pytest.approx(1) and rows[0]["cosine"] > rows[1]["cosine"]
    assert rows[3]["text"] == "Two dogs run ." and rows[3]["line"] == 2
    Path("asked.txt").write_text("big [dog]\n")
    out = command("--query-file", "asked.txt", "--top", "1", "--json", "rows.json")
    assert "query: big [dog]" in out and "A [big] dog runs ." in out and "line" in out
    [row] = json.loads(Path("rows.json").read_text())
    assert row["line"] == 5 and f"{row['cosine']:.4f}" in out
    # A file comes before a data set of its name.
    Path("stsb").mkdir()
    Path("stsb/test").write_text("a cat\na dog\n")
    [row] = json.loads(command("--query", "a dog", "--top", "1", "--json", "-", corpus="stsb/test", column=()))
    assert (row["text"], row["line"]) == ("a dog", 2)


def test_neighbours_in_a_data_set(command):
    """As in a file that holds its sentences, but that the numbers are the pairs'."""
    data = load_data("stsb/test", sample=True)
    Path("sentences.txt").write_text("\n".join([*data.first, *data.second]) + "\n")
    words = ("--query", data.second[2], "--query", "a dog runs", "--top", "4", "--json", "-")
    rows = json.loads(command(*words, "--sample", corpus="stsb/test", column=()))
    plain = json.loads(command(*words, corpus="sentences.txt", column=()))
    assert len(rows) == 8 and rows[0]["text"] == data.second[2] and rows[0]["item"] == 3
    for row, other in zip(rows, plain, strict=True):
        assert row.pop("item") == (other.pop("line") - 1) % len(data) + 1
        assert row.pop("cosine") == pytest.approx(other.pop("cosine")) and row == other
    table = command("--query", "a dog runs", "--sample", corpus="sst2", column=())
    assert "item" in table and "line" not in table
