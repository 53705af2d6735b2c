"""A sweep: every trial once, the best as a recipe that says so, and records that say so too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from job_server import HELD
from plans import Counting, here, place, start  # noqa: F401

from stsbench.errors import StsbenchError
from stsbench.extensions.jobs import schedule
from stsbench.extensions.jobs.plan_file import Defaults, TrainGroup
from stsbench.extensions.jobs.pool import LocalPool
from stsbench.extensions.jobs.space import Space, Study, Trial, read_space, space_of_grid
from stsbench.extensions.jobs.sweep import Sweep, _Feed, check_selection, sweep
from stsbench.extensions.jobs.trials import plan_search
from stsbench.training.recipes.recipes import find_recipe
from stsbench.training.runs.finish import stored_facts, trained_as

pytest.importorskip("optuna")


def search(space, seeds=(1,), trials=None, sampler="grid", prune=False, **sets):
    """A sweep of trainings of two steps into out/."""
    group = TrainGroup(
        method=("simcse",), backbone=("tiny",), data="text.txt", max_steps=2, seeds=seeds, device="cpu", dtype="float32",
        set={"selection.every": 1, "training.batch_size": 10, **sets},
    )
    return Sweep(group, Defaults(sample=True, offline=True), space, sampler, trials, prune, Path("out"))


def run(chosen, start, log=None, storage=None):
    """(what was started, the trials, the best first)."""
    counting = Counting(start)
    pool = LocalPool(2, place(), counting)
    results = sweep(chosen, pool, storage, ["stsbench", "sweep"], ([] if log is None else log).append)
    pool.stop()
    return counting.started, results


def test_a_grid_is_tried_once_and_its_best_becomes_a_recipe(here, start):
    chosen = search(space_of_grid(["training.learning_rate=1e-5,1e-2"]), seeds=(1, 2))
    log = []
    started, results = run(chosen, start, log)
    assert len(started) == len(set(started)) == 4
    assert [each.trial.state for each in results] == ["complete"] * 2 and len(log) == 10
    assert sum("started; what it prints is in out/.jobs/trial-" in line for line in log) == 4
    assert {each.trial.values["training.learning_rate"] for each in results} == {1e-5, 1e-2}
    for each in results:  # a trial's score is the mean of what its runs say
        runs = [json.loads((job.folder(Path("out")) / "train.json").read_text("utf-8")) for job in each.jobs]
        assert each.scores == {run["seed"]: run["best"]["score"] for run in runs} and set(each.scores) == {1, 2}
        assert each.trial.score == pytest.approx(sum(each.scores.values()) / 2) and each.by == runs[0]["best"]["name"]
    assert results[0].trial.score > results[1].trial.score
    recipe, _ = find_recipe("simcse", "out/best.yaml")
    assert recipe.training.learning_rate == results[0].trial.values["training.learning_rate"]
    assert (recipe.search.trials, recipe.search.seeds, recipe.search.score) == (2, 2, results[0].trial.score)
    assert recipe.search.space == {"training.learning_rate": [1e-5, 1e-2]} and not recipe.published
    facts = recipe.search.model_dump(mode="json")
    assert trained_as(recipe)["search"] == facts  # of what is trained by the recipe; and of the trial's own runs:
    assert stored_facts(results[1].jobs[0].folder(Path("out")))["search"] == facts
    assert trained_as(recipe)["settings"] == trained_as(recipe.model_copy(update={"search": None}))["settings"]
    again, same = run(chosen, start)
    assert again == [] and same == results
    best, trials = Path("out/best.yaml").read_bytes(), json.loads(Path("out/trials.json").read_text("utf-8"))
    wider = replace(chosen, space=space_of_grid(["training.learning_rate=1e-5,1e-2,1e-3"]))
    with pytest.raises(StsbenchError, match=r"out holds another search: space.training.learning_rate.2 was None there"):
        run(wider, start)
    assert Path("out/best.yaml").read_bytes() == best and json.loads(Path("out/trials.json").read_text("utf-8")) == trials


def test_it_says_at_which_step_each_training_is_when_that_changes(here):
    chosen, now = search(space_of_grid(["training.learning_rate=1e-5,1e-2"]), seeds=(1, 2)), []
    feed = _Feed(chosen, None, [].append, now.append)
    trials = [Trial(number, {"training.learning_rate": rate}, "running") for number, rate in enumerate((1e-5, 1e-2))]
    feed.jobs = {trial.number: (trial, chosen.jobs(trial)) for trial in trials}
    one, two = feed.jobs[0][1]
    feed.standing = {job.id: None for _, jobs in feed.jobs.values() for job in jobs}
    feed.given_up()
    seven = '{"kind": "end", "stage": "main", "step": 7}\n'
    for job, text in ((one, ""), (one, seven), (two, ""), (two, "{not a log}\n\n")):
        path = job.folder(Path("out")) / "log.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        feed.given_up()
        feed.given_up()
    done = "trial 0, seed 1, step 7"
    assert now == ["trial 0 starts; trial 1 starts", "trial 0, seed 1, step 0; trial 1 starts", f"{done}; trial 1 starts",
                   f"{done}; trial 0, seed 2, step 0; trial 1 starts", f"{done}; trial 1 starts"]


def test_random_search_goes_on_where_it_was_and_tries_no_training_twice(here, start):
    space = space_of_grid(["training.learning_rate=1e-5,1e-3"])
    first, results = run(search(space, trials=2, sampler="random"), start)
    assert len(results) == 2
    more, results = run(search(space, trials=6, sampler="random"), start)
    assert len(results) == 6 and len({*first, *more}) == len(first) + len(more) <= 2
    scores = {each.trial.values["training.learning_rate"]: set() for each in results}
    for each in results:
        scores[each.trial.values["training.learning_rate"]].add(each.trial.score)
    assert all(len(each) == 1 for each in scores.values())  # equal values, the same trainings


def test_a_bad_trial_is_given_up_for_good(here, start, monkeypatch):
    """Four trials set the median, and a rate that wrecks the weights is below it: also where the last of the four ends
    after that trial has said its score."""
    monkeypatch.setattr(schedule, "LOOK", 0.05)
    Path("space.yaml").write_text(yaml.safe_dump(
        {"space": {"training.learning_rate": [1e-6, 2e-6, 3e-6, 4e-6, 5.0]}}), "utf-8")
    chosen = search(read_space("simcse", "space.yaml"), prune=True)
    chosen = replace(chosen, group=chosen.group.model_copy(update={"max_steps": 12, "set": {
        **chosen.group.set, "training.epochs": 4, "selection.every": 3}}))
    log = []
    fourth = []

    def held(counting, process):
        if len(counting.started) == 4:
            fourth.append(process)
            os.kill(process.pid, signal.SIGSTOP)
        if len(counting.started) == 5:
            _ends_first(*fourth, process)

    monkeypatch.setenv(HELD, "training.learning_rate=5.0")
    started, results = run(chosen, Counting(start, held), log)
    assert [each.trial.state for each in results] == ["complete"] * 4 + ["pruned"]
    assert results[-1].trial.values == {"training.learning_rate": 5.0}
    assert [line for line in log if line.endswith(": given up")] == ["trial 4 (training.learning_rate 5.0): given up"]
    assert find_recipe("simcse", "out/best.yaml")[0].search.trials == 5  # it counts
    assert run(chosen, start)[0] == [] and len(started) == 5


def _ends_first(other, process):
    """The process, which stops itself once it has a score, stands still until its job is given up; the other goes on."""
    jobs = Path("out/.jobs").absolute()

    def watch():
        while "\nState:\tT" not in Path(f"/proc/{process.pid}/status").read_text("utf-8"):
            time.sleep(0.005)
        os.kill(other.pid, signal.SIGCONT)
        while not list(jobs.glob("*.pruned")):
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGCONT)

    threading.Thread(target=watch, daemon=True).start()


def test_a_trial_whose_training_fails_is_tried_again(here, start):
    chosen = search(space_of_grid(["backbone.model=tiny,nobody/nothing"]))
    chosen = replace(chosen, group=chosen.group.model_copy(update={"backbone": None}))
    _, results = run(chosen, start)
    assert [each.trial.state for each in results] == ["complete", "fail"]
    for _ in range(2):
        again, results = run(chosen, start)
        assert len(again) == 1 and [each.trial.state for each in results] == ["complete", "fail"]
        assert find_recipe("simcse", "out/best.yaml")[0].search.trials == 2  # points of the grid, and not tries
    assert "nobody/nothing" in results[1].reason


def test_a_trial_without_a_score_costs_no_other_one_and_is_not_tried_again(here, start):
    """Rows that are few batches end before the first score; other trials have theirs, and the same call changes nothing."""
    chosen = search(space_of_grid(["selection.every=1,9"]), **{"selection.at_end": False})
    for sampler in ("grid", "random"):
        shutil.rmtree("out", ignore_errors=True)
        more = {"trials": None if sampler == "grid" else 6, "sampler": sampler}
        started, results = run(replace(chosen, **more), start)
        states = [each.trial.state for each in results]
        assert set(states) == {"complete", "fail"} and len(states) == (more["trials"] or 2) and len(started) == 2
        rows = json.loads(Path("out/trials.json").read_text("utf-8"))["trials"]
        assert [row["score"] is None for row in rows] == [state == "fail" for state in states]
        assert all("has no development score" in row["reason"] for row in rows if row["state"] == "fail")
        written = {path: path.read_bytes() for path in (Path("out/best.yaml"), Path("out/trials.json"))}
        assert run(replace(chosen, **more), start) == ([], results)
        assert written == {path: path.read_bytes() for path in (Path("out/best.yaml"), Path("out/trials.json"))}
    shutil.rmtree("out")
    chosen = search(space_of_grid(["selection.every=8,9"]))
    with pytest.raises(StsbenchError, match=r"no trial is complete; the last failed: seed 1 .* has no development score"):
        run(chosen, start)
    assert len(json.loads(Path("out/trials.json").read_text("utf-8"))["trials"]) == 2


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("storage", [None, "sqlite:///study.db"])
def test_workers_that_open_a_study_together_draw_what_one_draws(tmp_path, monkeypatch, sampler, storage):
    monkeypatch.chdir(tmp_path)
    ranges = {"training.learning_rate": {"low": 1e-6, "high": 1e-4, "log": True},
              "training.batch_size": {"low": 2, "high": 99}}
    space = Space.model_validate({"space": ranges})

    def drawn(workers, folder):
        url = storage and storage.replace("study", folder)
        studies = [Study("s", space, sampler, 12, Path(folder), storage=url, seed=7, prune=False) for _ in range(workers)]
        trials = [trial for _ in range(12 // workers) for study in studies for trial in study.ask(1)]
        return {trial.number: trial.values for trial in trials}

    alone = drawn(1, "one")
    assert len({values["training.learning_rate"] for values in alone.values()}) == 12
    assert drawn(4, "four") == alone


def test_trials_without_a_score_are_refused_before_the_first(here):
    chosen = search(space_of_grid(["training.learning_rate=1e-5,3e-5"]), **{"selection.every": 9})
    with pytest.raises(StsbenchError, match=r"--max-steps 2 ends before the first development score, after .*every 9 steps"):
        check_selection(chosen)
    check_selection(search(chosen.space, **{"selection.every": 9, "selection.at_end": True}))
    check_selection(search(space_of_grid(["selection.every=1,2"]), **{"selection.every": 9}))
    with pytest.raises(StsbenchError, match="has no development score"):
        check_selection(search(chosen.space, **{"selection.by": "none"}))


def test_seeds_are_counted_up_from_the_first():
    names = ("recipe", "backbone", "data", "labelled", "max_steps", "device", "dtype", "data_dir")
    options = {**dict.fromkeys(names), "sets": (), "sample": True, "offline": False}
    for count, seeds in ((1, [42]), (3, [42, 43, 44])):
        made = plan_search("simcse", None, ["training.learning_rate=1e-5,1e-4"], None, None, count, 42, False, options)
        assert [*made.group.seeds] == seeds


def test_the_paper_s_grid_is_there_by_name():
    space = read_space("simcse", "table-a1")
    assert len(list(space.grid())) == 12 and space.finite
    assert space_of_grid(["a=1e-5,3e-5", "b=x,null"]).space == {"a": [1e-5, 3e-5], "b": ["x", None]}
