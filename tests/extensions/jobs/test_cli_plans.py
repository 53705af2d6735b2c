"""`stsbench run` and `sweep` as commands: what they print; the plan of the board's own trainings."""

import importlib.util
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import tiny_models
from clirun import cli, place  # noqa: F401
from plans import jobs_of, training, write
from training_runs import one_thread  # noqa: F401

from stsbench.evaluation.run_file import load_records
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan import entry_runs
from stsbench.extensions.jobs.plan_file import read_plan


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


def test_a_dry_run_shows_what_is_chosen_and_what_it_needs(cli, plan):
    _, out, _ = cli("run", plan, "--dry-run", "--only", "b")
    jobs = jobs_of(plan)
    assert out.splitlines() == [jobs["a-1"].line(Path("out")), jobs["b-2"].line(Path("out"))]
    assert not Path("out").exists()


def test_a_missing_package_is_named(cli, plan, monkeypatch):
    Path("text.txt").write_text("One sentence.\n", "utf-8")
    for name in ("ray", "optuna"):
        monkeypatch.setitem(sys.modules, name, None)
    assert error_of(cli("run", plan, "--ray", "local")).endswith("--ray needs Ray: pip install 'stsbench[ray]'")
    words = ("sweep", "simcse", "--data", "text.txt", "--sample", "--grid", "training.learning_rate=1e-5,3e-5")
    assert error_of(cli(*words)).endswith("a sweep needs optuna: pip install 'stsbench[jobs]'")


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
    assert about("other")["seed"] == 1 and not {*facts[2:]} & set(about("other"))  # another encoder than was exported
    assert about("other")["recipe"] == about("as-it-is")["recipe"]  # a changed one, whatever is measured
    shutil.rmtree(run / "checkpoints")
    code, _, err = cli("run", plan, "--only", "a")  # done, by what is in the folder
    assert code == 0 and err.splitlines()[-1] == "1 job, all done: nothing to run"
    assert "no group has an entry to add to board" in error_of(cli("run", plan, "--only", "a", "--add-to-board", "board"))


def test_an_entry_is_added_by_the_command_when_all_of_it_is_done(cli, place, monkeypatch):
    from stsbench.extensions.jobs import plan as plan_module

    stated = {"method": "Mine", "backbone": "Tiny", "setting": "unsup", "note": "so"}
    path = write({
        "train": {"a": training(entry={"name": "mine", "flags": ["dev-selected"], **stated})},
        "eval": {"e": {"model": "job:a", "protocols": ["sts", "geometry"]}},
    })
    tiny_models.build(Path("tiny"), pooler=False)
    jobs = list(jobs_of(path).values())
    runs, log, called = plan_module.entry_runs(read_plan(path), jobs), [], []
    assert [job.name for job in runs[0].jobs] == ["e.a-1.sts", "e.a-1.geometry"]
    assert plan_module.add_to_board(runs, Path("out"), Path("b"), log.append) == 1
    assert log == ["mine: not added, 2 of 2 evaluations not done: e.a-1.sts"]
    monkeypatch.setattr(plan_module, "is_done", lambda *_: True)
    monkeypatch.setattr(plan_module.subprocess, "run", lambda words, **_: called.append(words) or type("R", (), {
        "returncode": 0, "stdout": "x\ny\n", "stderr": ""})())
    assert plan_module.add_to_board(runs, Path("out"), Path("b"), log.append) == 0 and log[-1] == "mine: 2 records added"
    from stsbench.leaderboard.command import leaderboard

    context = leaderboard.commands["add"].make_context("add", list(_existing(called[0][6:], jobs)))
    records = tuple(job.folder(Path("out")) for job in jobs[1:])
    assert {key: value for key, value in context.params.items() if value not in (None, "", ())} == {
        "runs": records, "slug": "mine", "board": Path("b"), "flag": ("dev-selected",), **stated,
    }


def _existing(words, jobs):
    for job in jobs:
        job.folder(Path("out")).mkdir(parents=True, exist_ok=True)
    return words


ROOT = Path(__file__).resolve().parents[3]
ZOO = ROOT / "benchmarks" / "zoo.yaml"
PLACES = {"--output", "--data-dir", "--eval", "--protocol", "--model", "--backbone", "--device"}


def essence(words):
    """A command without folders, devices and the protocols of its test."""
    kind, *rest = (word for word in words if word != "--resume")
    method = rest.pop(0) if not rest[0].startswith("--") else None
    said = defaultdict(list)
    for option, value in zip(rest[::2], rest[1::2], strict=True):
        key, equals, number = value.partition("=")
        if equals and number[:1].isdigit():
            value = f"{key}={float(number)}"
        said[option].append(Path(value).name if option in ("--data", "--labelled") else value)
    return kind, method, tuple(sorted((key, *sorted(each)) for key, each in said.items() if key not in PLACES))


def test_every_command_of_the_records_is_in_the_zoo():
    plan = read_plan(ZOO)
    jobs = expand(plan, str(ZOO))
    zoo = {essence(job.words) for job in jobs}
    runs = (ROOT / "leaderboard" / "measured").glob("minilm-mlm32-*/*/run.parquet")
    commands = {tuple(record.provenance["command"]) for run in runs for _, record in load_records(run)}
    assert len(commands) >= 48
    assert [command for command in sorted(commands) if essence(command[1:]) not in zoo] == []
    runs = {each.entry.name: each for each in entry_runs(plan, jobs)}
    entries = {path.name for path in (ROOT / "leaderboard" / "measured").glob("minilm-mlm32-*")}
    again = {"minilm-mlm32-simcse-again"}  # the job simcse, from the checkpoint that was trained again
    assert entries - again <= set(runs)
    assert all(len({job.needs for job in each.jobs}) in (1, 3) for each in runs.values())


def test_documents_begin_at_titles():
    spec = importlib.util.spec_from_file_location("wiki_documents", ROOT / "benchmarks" / "wiki_documents.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = [
        "Red boats", "They float.", "History", "Nobody knows more than that.", "a small word", "It stands here.",
        "Ends so:", "Yes.", "One two three four five six Seven", "No.", "Last title", "without an end", "No title",
    ]
    assert module.documents(lines) == [lines[:2], lines[2:]]
