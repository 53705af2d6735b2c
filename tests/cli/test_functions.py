"""What a command does and what its function does: the same rows, the same files, byte for byte."""

import dataclasses
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from clirun import cli, place  # noqa: F401 - fixtures

import stsbench
from stsbench.encoders.options import CacheOptions, EncoderOptions
from stsbench.errors import StsbenchError

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


@pytest.fixture
def measured(place):
    """A run on the sample, with intervals and an average."""
    return stsbench.evaluate("lexical:token-set", sample=True, resamples=20, output="run")


def contents(folder):
    """Name -> bytes of every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def as_json(rows):
    return json.loads(json.dumps(rows))


def test_score(cli, measured):
    code, out, _ = cli("score", "run", "--json", "-")
    again = stsbench.score("run")
    assert code == 0 and as_json([row.model_dump() for row in again.rows]) == json.loads(out)
    assert again.rows == measured.rows == stsbench.score(measured).rows and again.records == measured.records
    with pytest.raises(StsbenchError, match="a run is a folder, or what made it, not of type int"):
        stsbench.score(3)


def test_fit(cli, tiny, lines):
    words = ("fit", "whitening", "--set", "dimensions=2", "--model", tiny, "--pooler", "mean", "--data", lines)
    assert cli(*words, "--output", "by-command")[0] == 0
    encoder = stsbench.fit("whitening", tiny, lines, "by-function", settings={"dimensions": 2}, pooler="mean")
    assert contents("by-command") == contents("by-function")
    assert encoder.encode("a cat").shape == (2,)
    loaded = stsbench.load_encoder(tiny, pooler="mean")
    listed = stsbench.fit("whitening:dimensions=2", loaded, LINES, "by-list")
    assert np.array_equal(listed.encode(LINES), encoder.encode(LINES))


@pytest.mark.parametrize(("asked", "reason"), [
    ({"post": "standardise+whitening", "settings": {"dimensions": 2}}, "--set goes with one NAME"),
    ({"post": 3}, "fit: post=3: "), ({"settings": "dimensions=2"}, "fit: settings='dimensions=2': "),
    ({"data": [" "]}, "there is no text to fit on"), ({"data": 3}, "texts are a list of str"),
    ({"data": "none.txt"}, "none.txt"), ({"model": len, "pooler": None}, "is run by callable"),
    ({"no_cache": True, "cache_dir": "c"}, "exclude each other"),
])
def test_what_fit_refuses(tiny, asked, reason):
    with pytest.raises(StsbenchError, match=reason):
        stsbench.fit(**{"post": "standardise", "model": tiny, "pooler": "mean", "data": LINES, "output": "v", **asked})
    assert not Path("v").exists()


def test_load_gives_what_evaluate_returned(place, measured):
    loaded = stsbench.load("run")
    assert loaded.folder == measured.folder == Path("run") and loaded.rows == measured.rows
    assert loaded.records == measured.records and loaded.summaries == measured.summaries and len(loaded.summaries) > 2
    assert str(loaded) == str(measured) and repr(loaded) == repr(measured)
    assert stsbench.load("run/run.parquet").rows == measured.rows
    table = Path("run/scores.csv")
    whole = table.read_text("utf-8")
    edited = whole.replace(f"{measured.summaries[-1].value}", "99.9")
    assert edited != whole
    for text in (edited, whole.replace("STS12", "STS99", 1), "no,table\n", None):
        table.unlink() if text is None else table.write_text(text, "utf-8")
        assert stsbench.load("run").rows == measured.rows  # a table for people is nothing to read scores from
    for run, reason in (("nowhere", "nowhere is not a run folder"), (3, "not of type int")):
        with pytest.raises(StsbenchError, match=reason):
            stsbench.load(run)


def test_names_and_defaults_are_those_of_the_command():
    expected = {entry.name: entry.default for group in (EncoderOptions, CacheOptions) for entry in dataclasses.fields(group)}
    del expected["model"]
    parameters = inspect.signature(stsbench.fit).parameters
    assert {key: parameters[key].default for key in expected} == expected
    assert all(parameters[key].kind is inspect.Parameter.KEYWORD_ONLY for key in expected)
