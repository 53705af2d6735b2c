"""A command that is stopped, or meets what nobody foresaw: one line, an exit code, and nothing measured is lost."""

import logging
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import training_runs
from clirun import cli, damaged, evaluate, fails, place, refuses  # noqa: F401 - fixtures

from stsbench.cli.main import main
from stsbench.errors import StsbenchError
from stsbench.evaluation import api, measure, rescore, result
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.run_file import load_records
from stsbench.leaderboard.records.admission import check_record
from stsbench.protocols.geometry import GeometryProtocol
from stsbench.training.runs import seed_runs

GOES_ON = "--resume --output run goes on from the last checkpoint"


@pytest.fixture
def own_handlers(monkeypatch):
    """Whatever a command does to signals and logging is undone. Unhandled, SIGTERM would end the tests.
    Python leaves SIGINT ignored where the process that starts it does, as a shell does for a job in the background."""

    def unhandled(*_):
        raise AssertionError("SIGTERM was not handled")

    monkeypatch.setattr(logging.getLogger("stsbench"), "handlers", [])
    level, before = logging.getLogger("stsbench").level, signal.signal(signal.SIGTERM, unhandled)
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)
    signal.signal(signal.SIGINT, interrupted)
    logging.getLogger("stsbench").setLevel(level)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_keeps_what_was_measured(evaluate, own_handlers, monkeypatch, number, code):
    """`timeout` sends one to the command and one to its group: the second does not end what the first makes it write."""
    claim = result.claim

    def again(*folders):
        if number == signal.SIGTERM:
            os.kill(os.getpid(), number)
        return claim(*folders)

    monkeypatch.setattr(result, "claim", again)
    monkeypatch.setattr(GeometryProtocol, "observe", lambda *_: os.kill(os.getpid(), number))
    got, out, err = evaluate("lexical:token-set", "--protocol", "sts,geometry")
    assert (got, out) == (code, "") and err.endswith("stsbench: interrupted\n")
    assert "the task measured so far is kept" in err
    assert [each.protocol.name for each in score_again(Path("run")).records] == ["sts"]


@pytest.mark.parametrize(("made", "says"), [
    ([], "stopped; nothing was trained yet: give the same command again"),
    (["recipe.yaml"], "--resume --output run begins again: there is no checkpoint yet"),
    (["recipe.yaml", "checkpoints/1-main-00000005/model.safetensors"], GOES_ON),
    (["seed-1/recipe.yaml", "seed-1/train.json", "seed-2/recipe.yaml"], GOES_ON)])
def test_a_stopped_training_says_what_becomes_of_it(cli, own_handlers, monkeypatch, made, says):
    def interrupted(options, *_):
        for name in made:
            (options.output / name).parent.mkdir(parents=True, exist_ok=True)
            (options.output / name).touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(seed_runs, "train", interrupted)
    code, _, err = cli("train", "simcse", "--sample", "--output", "run")
    assert code == 130 and err.splitlines()[-1].endswith(says)


def test_torchrun_runs_no_command_that_would_do_its_work_twice(cli, monkeypatch):
    for rank in range(2):
        for name, value in {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, str(value))
        line = fails(cli("score", "run"), "`stsbench score` runs in one process, and this is one of 2")
        assert "start it without torchrun" in line
        assert cli("train", "--help")[0] == 0


@pytest.mark.parametrize(("revision", "said"), [("a" * 40 + "+changes", True), ("a" * 40, False)])
def test_what_no_leaderboard_takes_is_said_at_the_start(evaluate, damaged, monkeypatch, revision, said):
    monkeypatch.setattr(api, "git_revision", lambda: revision)
    versions = {"stsbench": "1", "numpy": "2"}
    monkeypatch.setattr(measure, "provenance", lambda **more: {"versions": versions, "git": revision, **more})
    code, _, err = evaluate("lexical:token-set", data=("--data-dir", damaged))
    told = [line for line in err.splitlines() if "these records cannot enter the public leaderboard: measured by" in line]
    assert code == 0 and len(told) == said
    [measured] = load_records(Path("run"))
    if not said:
        check_record(*measured)
        return
    reason = told[0].partition("measured by ")[2].partition(";")[0]
    refuses(StsbenchError, re.escape(reason), check_record, *measured)  # what `leaderboard add` calls


@pytest.mark.parametrize(("error", "line"), [
    (RuntimeError("first\nsecond"), "RuntimeError: first second (--debug shows where)"),
    (KeyError("x" * 9_000), "KeyError: 'xxx")])
def test_what_nobody_foresaw_is_one_line_and_a_traceback_with_debug(cli, monkeypatch, own_handlers, error, line):
    def unforeseen(*_):
        raise error

    monkeypatch.setattr(rescore, "load_records", unforeseen)
    assert len(fails(cli("score", "anything"), line)) < 1_000
    with pytest.raises(type(error)):
        cli("score", "anything", "--debug")


def test_what_was_measured_before_an_unforeseen_error_is_kept(evaluate, monkeypatch):
    identity, calls = measure.DataIdentity, []

    def fails_at_the_second(**facts):
        calls.append(facts)
        if len(calls) == 2:
            raise MemoryError
        return identity(**facts)

    monkeypatch.setattr(measure, "DataIdentity", fails_at_the_second)
    code, out, err = evaluate("lexical:token-set", "--protocol", "sts,geometry")
    assert code == 3 and "geometry" not in out and "MemoryError" in err
    assert [each.protocol.name for each in score_again(Path("run")).records] == ["sts"]


def without_a_reader(folder):
    """In a fork: both streams are a pipe whose other end is closed."""
    os.chdir(folder)
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)
    os.dup2(write, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["stsbench", "eval", "--model", "lexical:token-set", "--sample", "--tasks", "STS-B", "--output", "run"]
    main()


def test_a_reader_that_leaves_loses_no_run(tmp_path):
    training_runs.serve()
    process = training_runs._context.Process(target=without_a_reader, args=(tmp_path,))
    process.start()
    process.join(60)
    [record] = load_records(tmp_path / "run")
    assert record[1].data.id == "stsb/test"
