"""`stsbench encode` from the command line, and every command that reads what it writes."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from clirun import cli, fails, place  # noqa: F401 - fixtures

from stsbench.extensions.stores.build import Pace
from stsbench.extensions.stores.command import Clock, duration
from stsbench.extensions.stores.vectors import VectorStore

MODEL = "python:mine_cli:hashed"
CORPUS = ["a cat sleeps", "the dog runs", "a cat sleeps", "rain falls", "the old man reads", "birds sing"]
QUERIES = ["cats sleep", "a dog runs"]


def usage(outcome, part):
    """Exit 2 and an error that holds `part`."""
    assert outcome[0] == 2 and part in " ".join(outcome[2].split()), outcome


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
    code, out, err = cli("encode", "--model", MODEL, "--input", "all.txt", "--output", "v")
    assert (code, out) == (0, "") and err.endswith("v: 8 texts x 3, float32, 781 bytes with texts\n")
    scores = []
    for model in (MODEL, "vectors:v"):
        how = ("--protocol", "retrieval:mine", "--resamples", "0", "--output", "measured")
        code, out, _ = cli("eval", "--model", model, *how, "--json", "-")
        assert code == 0
        scores.append([(row["metric"], row["value"]) for row in json.loads(out)])
    assert scores[0] == scores[1] and len(scores[0]) > 2
    rows = []
    for where in ("all.txt", "v"):
        how = ("--query", "a cat sleeps", "--query", "new text", "--top", "4")
        code, out, _ = cli("neighbours", "--model", MODEL, "--corpus", where, *how, "--json", "-")
        assert code == 0
        rows.append(json.loads(out))
    assert [{**row, "cosine": 0} for row in rows[0]] == [{**row, "cosine": 0} for row in rows[1]]
    assert [row["cosine"] for row in rows[0]] == pytest.approx([row["cosine"] for row in rows[1]], abs=1e-6)
    assert rows[1][0] == {"query": "a cat sleeps", "rank": 1, "cosine": pytest.approx(1), "line": 3, "copies": 2,
                          "text": "a cat sleeps"}
    fails(cli("neighbours", "--model", "python:mine_cli:constant", "--corpus", "v", "--query", "x"), "another encoder")
    usage(cli("neighbours", "--model", MODEL, "--corpus", "v", "--column", "1", "--query", "x"), "do not apply to v")


def test_standard_input_and_columns(cli, corpus, monkeypatch):
    table = "".join(f"{i}\t{text}\n" for i, text in enumerate(CORPUS)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table)))
    assert cli("encode", "--model", MODEL, "--input", "-", "--column", "2", "--output", "v")[0] == 0
    store = VectorStore(Path("v"))
    assert store.texts(range(6)) == CORPUS and store.manifest.input.name == "-"


def test_what_was_begun_is_gone_on_with_and_what_differs_is_one_line(cli, corpus):
    encode = ("encode", "--model", MODEL, "--output", "v", "--shard-size", "2")
    (corpus / "short.txt").write_text("\n".join([*QUERIES, *CORPUS[:2]]))
    assert cli(*encode, "--input", "all.txt")[0] == 0
    assert "v was complete: its 8 texts and files were compared" in cli(*encode, "--input", "all.txt")[2]
    fails(cli(*encode, "--input", "short.txt"), "v was made of another input than short.txt: it ends after 4 lines")
    fails(cli("encode", "--model", "python:mine_cli:too_few", "--input", "all.txt", "--output", "v"), "by another encoder")
    fails(cli(*encode, "--input", "all.txt", "--store-dtype", "int8"), "--store-dtype float32, not int8")
    fails(cli(*encode, "--input", "all.txt", "--dtype", "bfloat16"), "--dtype does not apply to python:mine_cli:hashed")
    fails(cli(*encode, "--input", "none.txt"), "cannot read none.txt")
    usage(cli(*encode, "--input", "all.txt", "--store-dtype", "int4"), "'int4'")
    fails(cli("eval", "--model", "vectors:mine", "--sample", "--output", "run"), "mine is not a store of vectors")


def test_int8_says_what_was_cut(cli, corpus):
    encode = ("encode", "--model", MODEL, "--input", "all.txt", "--store-dtype", "int8", "--output")
    assert "cut to int8's scale" not in cli(*encode, "v")[2]
    err = cli(*encode, "w", "--shard-size", "2")[2]
    assert "were cut to int8's scale, which is of the largest absolute numbers of the first 2 texts" in err


def test_fit_reads_a_store(cli, place):
    model = tiny_models.build(place / "model")
    words = np.random.default_rng(0).choice(tiny_models.WORDS[:16], (120, 5))
    (place / "lines.txt").write_text("\n".join(" ".join(row) for row in words))
    how = ("--model", model, "--pooler", "mean", "--device", "cpu")
    assert cli("encode", *how, "--input", "lines.txt", "--output", "v")[0] == 0
    for data, folder in (("lines.txt", "from-texts"), ("v", "from-store")):
        code, _, err = cli("fit", "whitening", "--set", "dimensions=8", *how, "--data", data, "--output", folder)
        assert code == 0, err
    assert "fitting whitening:" in err and "120 texts, whose vectors are read" in err
    from stsbench.encoders.load import load_encoder

    first, second = (load_encoder(folder).encode(["a cat runs", "the man"]) for folder in ("from-texts", "from-store"))
    assert first.shape == (2, 8) and np.abs(first - second).max() < 1e-4 * np.abs(first).max()
    code, _, err = cli("eval", *how, "--post", "standardise", "--fit-on", "v", "--sample", "--tasks", "STS-B", "--resamples",
                       "0", "--output", "measured")
    assert code == 0 and "120 texts, whose vectors are read" in err


def test_the_time_left_is_that_of_what_this_call_encodes():
    times = iter([0.0, 10.0, 10.0, 10.0])
    clock = Clock(lambda: next(times))
    assert clock(Pace(6000, 5000, 17_000)) == "100 texts/s, 2 min left" and clock(Pace(5000, 5000, None)) == ""
    assert clock(Pace(6000, 5000, None)) == "100 texts/s"
    assert [duration(seconds) for seconds in (0.4, 99, 101, 5940, 7500, -3)] == [
        "0 s", "99 s", "2 min", "99 min", "2 h 5 min", "0 s"
    ]


def test_a_call_that_stores_nothing_leaves_no_folder(cli, place):
    Path("empty.txt").write_text("")
    for name in ("empty.txt", "nobody.txt"):
        code, _, said = cli("encode", "--model", "lexical:token-set", "--input", name, "--output", "store")
        assert code == 1 and name in said.splitlines()[-1] and not Path("store").exists()
