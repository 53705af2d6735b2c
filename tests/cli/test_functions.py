"""What a command does and what its function does: the same rows, the same files, byte for byte."""

import dataclasses
import inspect
import json
from pathlib import Path

import light_process
import pytest
from clirun import LINES, cli, contents, lines, measured, place, tiny  # noqa: F401

import stsbench
from stsbench.evaluation.options import EvalOptions

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
HASHED = "python:mine_cli:hashed"


def as_json(rows):
    return json.loads(json.dumps(rows))


def test_score(cli, measured):
    code, out, _ = cli("score", "run", "--json", "-")
    again = stsbench.score("run")
    assert code == 0 and as_json([row.model_dump() for row in again.rows]) == json.loads(out)
    assert again.rows == measured.rows == stsbench.score(measured).rows and again.records == measured.records


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


def defaults_of(*groups):
    """Name -> default of the options that these dataclasses declare."""
    entries = [entry for group in groups for entry in dataclasses.fields(group)]
    return {entry.name: entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()
            for entry in entries if entry.name not in ("model", "command", "extra_provenance")}


@pytest.mark.parametrize(("function", "groups", "other_words"), [
    (stsbench.evaluate, (EvalOptions,), {"protocol", "task", "text", "cache"}),
])
def test_a_function_takes_what_its_command_takes_with_the_same_defaults(function, groups, other_words):
    parameters, expected = dict(inspect.signature(function).parameters), defaults_of(*groups)
    assert set(parameters) - {"model"} - other_words == set(expected)
    assert {key: parameters[key].default for key in expected} == expected
    assert all(parameters[key].kind is inspect.Parameter.KEYWORD_ONLY for key in expected)


def test_what_reads_a_run_loads_no_heavy_library_and_needs_no_data(cli, measured):
    commands = [("score", "run", "--json", "-"), ("compare", "run", "run", "--resamples", "40")]
    code = ("import sys; from stsbench.cli.main import main\n"
            f"for words in {commands!r}:\n"
            "    sys.argv = ['stsbench', *words]\n"
            "    try: main()\n"
            "    except SystemExit as stop: assert not stop.code\n"
            "heavy = {'torch', 'transformers', 'sklearn', 'tokenizers', 'mteb', 'matplotlib'}\n"
            "assert not heavy & set(sys.modules), sorted(sys.modules)\n")
    done = light_process.run(code)
    assert (done.returncode, done.stdout) == (0, "".join(cli(*words)[1] for words in commands)), done.stderr
