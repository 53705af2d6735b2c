"""`encode` and `neighbours`, commands and functions: the same rows, the same files, byte for byte."""

import dataclasses
import inspect
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
from clirun import cli, place  # noqa: F401 - fixtures

import stsbench
from stsbench.encoders.options import CacheOptions, EncoderOptions, ProcessOptions
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.extensions.stores.neighbours import distinct, read_lines
from stsbench.extensions.stores.options import NearestOptions, StoreOptions

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
HASHED = "python:mine_cli:hashed"
LINES = ["a cat sleeps", "the dog runs", "a cat sleeps", "", "rain falls", "the old man reads", "birds sing"]


@pytest.fixture
def lines(place):
    """A file of texts, one a line."""
    path = place / "lines.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture
def tiny(place):
    return tiny_models.build(place / "model")


def contents(folder):
    """Name -> bytes of every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_encode(cli, place, lines):
    files, int8 = [], ("--store-dtype", "int8", "--shard-size", "4")
    for options, how in ((int8, {"store_dtype": "int8", "shard_size": 4}), ((), {})):
        assert cli("encode", "--model", HASHED, "--input", lines, "--output", "by-command", *options)[0] == 0
        store = stsbench.encode(HASHED, "lines.txt", "by-function", **how)
        assert contents("by-command") == contents("by-function") and store.texts(range(7)) == LINES
        listed = stsbench.encode(HASHED, (f" {text} " for text in LINES), "by-list", **how)
        assert np.array_equal(listed.rows(range(7)), store.rows(range(7))) and listed.texts(range(7)) == LINES
        files.append(set(contents("by-function")))
        for name in ("by-command", "by-function", "by-list"):
            (place / name).rename(place / f"{name}-{len(files)}")
    assert len(files[0]) > len(files[1])


def test_encode_by_a_transformer_warns_of_cut_texts(cli, tiny, lines):
    said = cli("encode", "--model", tiny, "--pooler", "mean", "--max-length", 4, "--input", lines, "--output", "a")[2]
    with pytest.warns(StsbenchWarning) as caught:
        stsbench.encode(tiny, lines, "b", pooler="mean", max_length=4)
    assert contents("a") == contents("b") and {Path(one.filename) for one in caught} == {Path(__file__)}
    warned = [str(one.message).removeprefix("b: ") for one in caught]
    assert warned == [line for line in said.splitlines() if "empty texts" in line or "truncated" in line]
    assert len(warned) == 2


@pytest.mark.parametrize(("asked", "reason"), [
    ({"texts": ["a", 3]}, "text 2 is not a str but of type int"), ({"texts": ["a\ud800"]}, "half a surrogate pair"),
    ({"texts": 3}, "texts are a list of str"), ({"output": 3}, "encode: output=3: "), ({"column": -1}, "column=-1"),
    ({"texts": []}, "contains no text"), ({"texts": "a text"}, "cannot read a text"),
    ({"store_dtype": "int4"}, "--store-dtype int4 is unknown; did you mean int8?"),
    ({"shard_size": 0}, "--shard-size must be at least 1, not 0"), ({"max_length": "long"}, "encode: max_length='long': "),
    ({"model": len, "pooler": "cls"}, "pooler has no effect on an encoder that is already loaded"),
    ({"model": len, "processes": 2}, "need a model that each process can load by its name"),
])
def test_what_encode_refuses(place, asked, reason):
    with pytest.raises(StsbenchError, match=reason) as caught:
        stsbench.encode(**{"model": HASHED, "texts": ["a"], "output": "v", **asked})
    assert "\n" not in str(caught.value) and not Path("v").exists()


@pytest.mark.parametrize("model", [HASHED, "lexical:tfidf"])
def test_neighbours(cli, lines, model):
    words = ("--query", "a cat", "--query", "the  dog runs", "--top", 4, "--json", "-")
    rows = json.loads(cli("neighbours", "--model", model, "--corpus", lines, *words)[1])
    asked = {"queries": ["a cat", "the  dog runs"], "top": 4}
    assert stsbench.neighbours(model, "lines.txt", **asked).rows == rows
    assert len(rows) == 8 and stsbench.neighbours(model, LINES, **asked).rows == rows
    frame = stsbench.neighbours(model, LINES, **asked).to_frame()
    assert frame.to_dict("records") == rows
    said = json.loads(cli("neighbours", "--model", model, "--corpus", "stsb/test", "--sample", *words)[1])
    assert stsbench.neighbours(model, "stsb/test", sample=True, **asked).rows == said and "item" in said[0]


def test_neighbours_in_a_store(cli, lines):
    store = stsbench.encode(HASHED, lines, "v")
    rows = json.loads(cli("neighbours", "--model", HASHED, "--corpus", "v", "--query", "a cat", "--json", "-")[1])
    assert stsbench.neighbours(HASHED, store, "a cat").rows == stsbench.neighbours(HASHED, "v", "a cat").rows == rows
    with pytest.raises(StsbenchError, match="do not apply to v, a folder of vectors"):
        stsbench.neighbours(HASHED, store, "a cat", sample=True)
    with pytest.warns(StsbenchWarning, match="the vector of the query 'x' is zero"):
        stsbench.neighbours(lambda texts: np.array([[text != "x", 0.0] for text in texts]), ["a", "b"], "x")


@pytest.mark.parametrize(("asked", "reason"), [
    ({"queries": " "}, "the queries are empty"), ({"queries": ()}, "no query"), ({"top": 0}, "--top must be at least 1"),
    ({"corpus": [" "]}, "the corpus contains no text"), ({"corpus": [1]}, "text 1 is not a str"),
    ({"corpus": 3}, "texts are a list"), ({"queries": 3}, "texts are a list"),
    ({"queries": ["a", 1]}, "query 2 is not a str"),
    ({"column": "second"}, "column='second' has no effect"), ({"corpus": "all.txt", "sample": True}, "all.txt is not one"),
    ({"query_file": 3}, "neighbours: query_file=3: "), ({"model": "lexcal:token-set"}, "did you mean 'lexical:'"),
    ({"no_cache": True, "cache_dir": "c"}, "exclude each other"), ({"backend": "annoy"}, "annoy is unknown; known"),
])
def test_what_neighbours_refuses(place, asked, reason):
    with pytest.raises(StsbenchError, match=reason):
        stsbench.neighbours(**{"model": HASHED, "corpus": ["a"], "queries": "a", **asked})


def test_a_corpus_and_queries_are_read_as_any_file_of_texts(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('id;text\n1;"A cat; asleep"\n2;Dogs  | wolves\n')
    assert list(read_lines(path, None)) == distinct([], path) == ["A cat; asleep", "Dogs | wolves"]
    assert read_lines(path, "id") == {"1": [2], "2": [3]}
    with pytest.raises(StsbenchError, match="no column 'none'"):
        read_lines(path, "none")


@pytest.mark.parametrize(("name", "groups"), [
    ("encode", (EncoderOptions, StoreOptions, ProcessOptions)),
    ("neighbours", (EncoderOptions, CacheOptions, NearestOptions)),
])
def test_names_and_defaults_are_those_of_the_command(name, groups):
    expected = {entry.name: entry.default for group in groups for entry in dataclasses.fields(group)}
    del expected["model"]
    parameters = inspect.signature(getattr(stsbench, name)).parameters
    assert {key: parameters[key].default for key in expected} == expected
    assert all(parameters[key].kind is inspect.Parameter.KEYWORD_ONLY for key in expected)


@pytest.mark.parametrize("notebook", [False, True])
def test_in_a_notebook_encode_counts_texts(monkeypatch, capsys, place, notebook):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)
    shell = type("ZMQInteractiveShell", (), {})() if notebook else None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    texts = ["A cat sleeps.", "Rain falls.", "Birds sing."]
    stsbench.encode(lambda texts: [[len(text), 1] for text in texts], texts, "listed")
    listed = capsys.readouterr().err
    stsbench.encode(lambda texts: [[len(text), 1] for text in texts], iter(texts), "streamed", shard_size=2)
    streamed = capsys.readouterr().err
    if notebook:
        assert "encoding: 100%" in listed and "3/3" in listed
        assert "encoding: 3text" in streamed and streamed.count("\n") == 1
    else:
        assert listed == streamed == ""
