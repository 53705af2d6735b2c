"""`stsbench run` and `sweep` as commands: what they print and refuse. What jobs do is tested beside."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import tiny_models
from clirun import cli, place  # noqa: F401
from plans import jobs_of, training, write
from training_runs import one_thread  # noqa: F401

from stsbench.evaluation.run_file import load_records


@pytest.fixture
def plan(place):
    """A plan of a training and evaluations of it; the text that it reads is not there."""
    tiny_models.build(Path("tiny"), pooler=False)
    return write({
        "files": {"text.txt": "make text"},
        "train": {"a": training(), "b": training(backbone="job:a", seeds=2)},
        "eval": {"e": {"model": "job:b", "tasks": "STS-B", "resamples": 0}},
    })


def error_of(outcome):
    code, _, err = outcome
    assert code != 0 and "Traceback" not in err
    return err.splitlines()[-1]


def test_status_and_dry_run_start_nothing(cli, plan):
    code, out, _ = cli("run", plan, "--status")
    assert code == 0 and [line.split()[:2] for line in out.splitlines()[3:6]] == [
        ["a-1", "waiting"], ["b-2", "waiting"], ["e.b-2", "waiting"],
    ]
    code, out, _ = cli("run", plan, "--dry-run", "--only", "b")
    jobs = jobs_of(plan)
    assert out.splitlines() == [jobs["a-1"].line(Path("out")), jobs["b-2"].line(Path("out"))]  # and what it needs
    assert not Path("out").exists()


def test_a_missing_file_stops_all_before_anything_runs(cli, plan):
    assert error_of(cli("run", plan)).endswith("a-1 reads text.txt, and there is no such file; make it: make text")
    assert not Path("out").exists()


def test_what_is_wrong_is_one_line(cli, plan, monkeypatch):
    assert "error: --only c: the plan has no such group or job; known: a, b" in error_of(cli("run", plan, "--only", "c"))
    assert "exclude each other" in error_of(cli("run", plan, "--status", "--dry-run"))
    Path("text.txt").write_text("One sentence.\n", "utf-8")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert error_of(cli("run", plan, "--ray", "local")).endswith("--ray needs Ray: pip install 'stsbench[ray]'")
    words = ("sweep", "simcse", "--data", "text.txt", "--sample")
    grid = ("--grid", "training.learning_rate=1e-5,3e-5")
    assert "either --space FILE, or --grid" in error_of(cli(*words))
    assert "--trials goes with" in error_of(cli(*words, *grid, "--trials", "3"))
    assert "training.learning_rate is searched" in error_of(cli(*words, *grid, "--set", "training.learning_rate=1"))
    assert "has no development score" in error_of(cli(*words, *grid, "--set", "selection.by=none"))
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert error_of(cli(*words, *grid)).endswith("a sweep needs optuna: pip install 'stsbench[jobs]'")


def test_records_of_a_run_folder_name_its_training(cli, plan):
    Path("text.txt").write_text("\n".join(tiny_models.sentences(30, longest=9)) + "\n", "utf-8")
    job = jobs_of(plan)["a-1"]
    code, _, err = cli(*job.command(Path("out")), "--eval", "sts")
    run = job.folder(Path("out"))
    assert (code, run.is_dir()) == (0, True), err
    (run / "search.json").write_text('{"trials": 7}', "utf-8")
    measure = ("eval", "--model", run, "--sample", "--tasks", "STS-B", "--resamples", "0", "--output")

    def about(folder):
        return next(record.provenance for path, record in load_records(folder) if "stsb" in path.name)

    assert cli(*measure, "as-it-is")[0] == 0 and cli(*measure, "other", "--pooler", "mean")[0] == 0
    facts = ("seed", "recipe", "settings", "backbone", "data")
    assert {key: about("as-it-is")[key] for key in facts} == {key: about(run / "eval")[key] for key in facts}
    assert about("as-it-is")["search"] == about("other")["search"] == {"trials": 7} and about("as-it-is")["seed"] == 1
    assert about("other")["seed"] == 1 and not {*facts[1:]} & set(about("other"))  # another encoder than was exported
    shutil.rmtree(run / "checkpoints")
    code, _, err = cli("run", plan, "--only", "a")  # done, by what is in the folder
    assert code == 0 and err.splitlines()[-1] == "1 job, all done: nothing to run"
    assert "no group has an entry to add to board" in error_of(cli("run", plan, "--only", "a", "--add-to-board", "board"))


def test_an_entry_is_added_by_the_command_when_all_of_it_is_done(cli, place, monkeypatch):
    from stsbench.extensions.jobs import plan_run
    from stsbench.extensions.jobs.plan_file import read_plan

    stated = {"method": "Mine", "backbone": "Tiny", "setting": "unsup", "note": "so"}
    path = write({
        "train": {"a": training(entry={"name": "mine", "flags": ["dev-selected"], **stated})},
        "eval": {"e": {"model": "job:a", "protocols": ["sts", "geometry"]}},
    })
    tiny_models.build(Path("tiny"), pooler=False)
    jobs = list(jobs_of(path).values())
    runs, log, called = plan_run.entry_runs(read_plan(path), jobs), [], []
    assert [job.name for job in runs[0].jobs] == ["e.a-1.sts", "e.a-1.geometry"]
    assert plan_run.add_to_board(runs, Path("out"), Path("b"), log.append) == 1
    assert log == ["mine: not added, 2 of 2 evaluations not done: e.a-1.sts"]
    monkeypatch.setattr(plan_run, "is_done", lambda *_: True)
    monkeypatch.setattr(plan_run.subprocess, "run", lambda words, **_: called.append(words) or type("R", (), {
        "returncode": 0, "stdout": "x\ny\n", "stderr": ""})())
    assert plan_run.add_to_board(runs, Path("out"), Path("b"), log.append) == 0 and log[-1] == "mine: 2 records added"
    from stsbench.leaderboard.command import leaderboard

    context = leaderboard.commands["add"].make_context("add", list(_existing(called[0][6:], jobs)))
    records = tuple(job.folder(Path("out")) for job in jobs[1:])
    assert {key: value for key, value in context.params.items() if value not in (None, "", ())} == {
        "runs": records, "slug": "mine", "board": Path("b"), "flag": ("dev-selected",), **stated,
    }


def _existing(words, jobs):
    """The words, once the folders are there that they name."""
    for job in jobs:
        job.folder(Path("out")).mkdir(parents=True, exist_ok=True)
    return words
