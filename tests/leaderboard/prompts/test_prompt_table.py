"""The study of prompt sensitivity read from one table instead of a clone."""

import csv

import numpy as np
import pytest
from clirun import cli, fails, place  # noqa: F401 - fixtures
from prompt_repository import MODELS, prompt_texts, repository

from stsbench.errors import StsbenchError
from stsbench.leaderboard import prompt_sensitivity
from stsbench.leaderboard.prompts.study_files import COLUMNS, read_table

TASKS = {"STS14": 6, "STS22.v2": 4, "FEVERHardNegatives": 3}
rng = np.random.default_rng(5)
SCORES = {task: rng.random((3, count)).round(6).tolist() for task, count in TASKS.items()}
DEFAULT = {task: rng.random(3).round(6).tolist() for task in TASKS}


def lines():
    for at, model in enumerate(MODELS):
        for task, scores in SCORES.items():
            yield [DEFAULT[task][at], task, model.replace("__", "/"), "default", "True"]
            for prompt, score in zip(prompt_texts(task), scores[at], strict=True):
                yield [score, task, model.replace("__", "/"), prompt, "False"]


def write(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])
    return path


def test_a_table_gives_what_a_clone_gives(tmp_path):
    table = prompt_sensitivity(write(tmp_path / "results.csv", lines()))
    clone = prompt_sensitivity(repository(tmp_path / "clone", SCORES, DEFAULT))
    assert not table.study.notes() and {row["set"] for row in table.rows()} == set(TASKS)
    by_key = {(row["set"], row["model"]): row for row in clone.rows()}
    for row in table.rows():
        other = by_key[row["set"], row["model"]]
        assert {key: value for key, value in row.items() if key != "error"} == pytest.approx(
            {key: value for key, value in other.items() if key != "error"})
        assert row["error"] > 0  # each prompt is drawn by itself: who wrote it is not known
    assert sorted(map(str, table.claims)) == sorted(map(str, clone.claims))


def test_models_and_tasks_without_a_default_are_left_out_and_named(tmp_path):
    rows = [row for row in lines() if row[2:5:2] != ["org/small", "True"] and row[1:3] != ["STS14", "org/large"]]
    rows += [[0.5, "STS14", "org/new", "a:", "False"]]
    study = read_table(write(tmp_path / "results.csv", rows))
    assert study.models == ("other", "large")
    assert sorted(study.tasks) == ["FEVERHardNegatives", "STS22.v2"]
    assert study.notes() == [
        "new is left out: it has no result by default", "small is left out: it has no result by default",
        "STS14 is left out: no result by default, or of any prompt, of large",
    ]


@pytest.mark.parametrize(("row", "why"), [
    (["x", "STS14", "org/a", "p:", "False"], "line 2: main_score must be a number between -1 and 1, not 'x'"),
    (["78.2", "STS14", "org/a", "p:", "False"], "line 2: main_score must be a number between -1 and 1, not '78.2'"),
    (["nan", "STS14", "org/a", "p:", "False"], "line 2: main_score must be a number between -1 and 1, not 'nan'"),
    ([".5", "STS14", "org/a", "p:", "maybe"], "line 2: is_baseline must be True or False, not 'maybe'"),
    ([".5", "", "org/a", "p:", "False"], "line 2: a column is empty"),
    ([".5", "STS14"], "line 2: a column is empty"),
    ([".5", "STS14", "org/a", "p:", "False"], "has no task with results by default and of prompts for its models"),
])
def test_what_is_no_such_table_is_one_line(tmp_path, row, why):
    path = write(tmp_path / "results.csv", [row])
    with pytest.raises(StsbenchError, match=r"^[^\n]*$") as caught:
        read_table(path)
    assert str(path) in str(caught.value) and why in str(caught.value)


def test_a_line_that_stands_there_twice_must_say_the_same(tmp_path):
    rows = list(lines())
    assert read_table(write(tmp_path / "same.csv", [*rows, rows[1]])).scores.keys() == set(TASKS)
    with pytest.raises(StsbenchError, match=f"line {len(rows) + 2}: a second score of the same model, task and prompt"):
        read_table(write(tmp_path / "other.csv", [*rows, [rows[1][0] + 0.1, *rows[1][1:]]]))
    with pytest.raises(StsbenchError, match="has no column is_baseline"):
        read_table(write(tmp_path / "narrow.csv", [row[:4] for row in rows], COLUMNS[:4]))


def test_the_command_takes_it(tmp_path, cli):
    code, out, err = cli("reproduce", "prompt-sensitivity", "--results", write(tmp_path / "results.csv", lines()))
    assert code == 0 and not err and "STS22.v2: ranks, 4 prompts that all models read" in out
