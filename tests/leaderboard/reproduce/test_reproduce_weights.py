"""Rows whose trained model is tested by a command, and models that are known by their weights, whatever they are called."""

import shlex
import shutil
from pathlib import Path

import pytest
from board_runs import read_once  # noqa: F401  fixture
from clirun import place  # noqa: F401 - fixtures
from reproduced import asked, copied, trained
from run_edits import rows_of, write_rows
from shipped_recipes import recipe

from stsbench.encoders.forward.identity import folder_digest
from stsbench.leaderboard.reproduce.ways import load_ways

ROW = "bert-whitening:2:2"  # a recipe, then `stsbench eval` with options
WAY = load_ways()[ROW]


def evaluated(target, model, number, *further):
    """A run of `stsbench eval` by the row's options, on the weights of a committed run."""
    command = ["stsbench", "eval", "--model", str(model), *shlex.split(WAY.eval), *further, "--protocol", "sts:wmean"]
    return copied("minilm-mlm32-simcse", target, number, recipe=None, command=command)


@pytest.fixture
def trainings(place):
    """Two seeds by the row's recipe, each tested in the usual way."""
    made = recipe("nli-bert-base-whitening", "sbert")
    for number in range(2):
        trained(place / "runs" / "mine" / f"seed-{number}", made, number)
    return place / "runs"


def test_a_trained_model_that_is_tested_by_the_rows_options(trainings):
    """Seeds of one training are one measurement, each model once; without the test it is said what is not there."""
    untested = f"{Path('runs') / 'mine'}: sbert/nli-bert-base-whitening, not tested with {WAY.eval}"
    row = asked(ROW)[ROW]
    assert row["measured"] == [] and row["changed"] == [untested]
    for number in range(2):
        evaluated(trainings / f"white-{number}", trainings / "mine" / f"seed-{number}", number)
    evaluated(trainings / "again", "elsewhere", 0)
    evaluated(trainings / "other-options", "elsewhere", 1, "--dtype", "bf16")
    evaluated(trainings / "other-model", "elsewhere", 2)
    row = asked(ROW)[ROW]
    [measured] = row["measured"]
    assert measured["name"] == str(Path("runs") / "mine") and row["changed"] == []
    assert {score["n"] for score in measured["scores"].values()} == {2}


def test_the_model_of_a_training_without_a_test(trainings):
    """Its exported folder is what `stsbench eval` read."""
    run = trainings / "mine" / "seed-0"
    shutil.rmtree(run / "eval")
    (run / "best").mkdir()
    (run / "best" / "config.json").write_text("{}")
    rows = rows_of(evaluated(run / "white", run, 0))
    for row in rows:
        row.record["encoder"]["spec"] |= {"weights": folder_digest(run / "best"), "tokenizer": ""}
    write_rows(run / "white", rows)
    [measured] = asked(ROW)[ROW]["measured"]
    assert {score["n"] for score in measured["scores"].values()} == {1}


def test_a_test_on_the_board_of_a_training_here(trainings):
    board = trainings.parent / "board"
    evaluated(board / "measured" / "white" / "0", "elsewhere", 0)
    assert [each["name"] for each in asked(ROW, board=board)[ROW]["measured"]] == [str(Path("runs") / "mine")]
    (board / "measured" / "white" / "entry.yaml").write_text("prompt_of: other\n")
    assert asked(ROW, board=board)[ROW]["measured"] == []  # behind a prompt it is no test of the method


def test_a_model_is_known_by_its_weights(place):
    """Where a record of the name tells which they are."""
    options = ["--pooler", "first_last:embeddings", "--protocol", "sts"]
    command = ["stsbench", "eval", "--model", "./bert", *options]
    copied("minilm-first-last", place / "runs" / "folder", command=command)
    assert asked("simcse:5:2")["simcse:5:2"]["measured"] == []
    name = ["stsbench", "eval", "--model", "google-bert/bert-base-uncased", "--pooler", "cls"]
    copied("minilm-cls", place / "board" / "measured" / "other" / "0", command=name)
    [measured] = asked("simcse:5:2", board=place / "board")["simcse:5:2"]["measured"]
    assert measured["name"] == str(Path("runs") / "folder")
