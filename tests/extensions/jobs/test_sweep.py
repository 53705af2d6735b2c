"""A sweep: every trial once, the best as a recipe that says so. What it found is kept, a folder belongs to one search, and
a search that fails ends."""

import json
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from clirun import cli  # noqa: F401
from plans import Counting, fill, here, place, scripted, start  # noqa: F401

from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import load_records
from stsbench.extensions.jobs import schedule
from stsbench.extensions.jobs.expand import MOST_JOBS
from stsbench.extensions.jobs.plan_file import Defaults, TrainGroup
from stsbench.extensions.jobs.pool import LocalPool
from stsbench.extensions.jobs.space import Space, Study, Trial, read_space, space_of_grid
from stsbench.extensions.jobs.sweep import FAILURES, Sweep, _claim, _Feed, check_selection, sweep
from stsbench.training.recipes.recipes import find_recipe
from stsbench.training.runs.finish import stored_facts, trained_as

pytest.importorskip("optuna")


def search(space, seeds=(1,), trials=None, sampler="grid", prune=False, **sets):
    group = TrainGroup(method=("simcse",), backbone=("tiny",), data="text.txt", max_steps=2, seeds=seeds, device="cpu",
                       dtype="float32",
                       set={"selection.every": 1, "training.batch_size": 10, "backbone.max_length": 16, **sets})
    return Sweep(group, Defaults(sample=True, offline=True), space, sampler, trials, prune, Path("out"))


def of_group(chosen, **changed):
    return replace(chosen, group=chosen.group.model_copy(update=changed))


def never(*_):
    raise AssertionError("a training was started")


def run(chosen, start, log=None, storage=None):
    """(what was started, the trials, the best first)."""
    counting = Counting(start)
    pool = LocalPool(2, place(), counting)
    results = sweep(chosen, pool, storage, ["stsbench", "sweep"], ([] if log is None else log).append)
    pool.stop()
    return counting.started, results


@pytest.fixture(scope="module")
def found(start, tmp_path_factory):
    """A grid of two rates and two seeds, tried: its folder, what was started, the trials, the log."""
    folder, log = tmp_path_factory.mktemp("found"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(fill(folder))
        started, results = run(of_rates(), start, log, "sqlite:///db")
    return folder, started, results, log


def of_rates(*more):
    return search(space_of_grid([",".join(["training.learning_rate=1e-5,1e-2", *more])]), seeds=(1, 2))


@pytest.fixture
def copied(found, tmp_path, monkeypatch):
    """The trials, and a copy of their folder to work in."""
    monkeypatch.chdir(shutil.copytree(found[0], tmp_path / "copied"))
    return found[2]


def test_a_grid_is_tried_once_and_its_best_becomes_a_recipe(found, copied):
    _, started, results, log = found
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


def test_what_was_found_stays_whatever_folder_is_gone_or_elsewhere(copied):
    written = [Path("out", name).read_bytes() for name in ("best.yaml", "trials.json")]
    for gone in (results := copied)[0].jobs[0], results[1].jobs[0]:
        shutil.rmtree(gone.folder(Path("out")))
        assert run(of_rates(), never, storage="sqlite:///db") == ([], results)
    with pytest.raises(StsbenchError, match=r"out holds another search: space.training.learning_rate.2 was None there"):
        run(of_rates("1e-3"), never, storage="sqlite:///db")
    assert [Path("out", name).read_bytes() for name in ("best.yaml", "trials.json")] == written
    assert run(replace(of_rates(), output=Path("b")), never, storage="sqlite:///db") == ([], results)
    assert [Path("b", name).read_bytes() for name in ("best.yaml", "trials.json")] == written
    assert not [path for path in Path("b").iterdir() if path.is_dir() and path.name != ".jobs"]


def test_records_of_a_trial_s_run_name_its_training(copied, cli):
    run = copied[0].jobs[0].folder(Path("out"))
    measure = ("eval", "--model", run, "--sample", "--tasks", "STS-B", "--resamples", "0", "--output")
    assert cli(*measure, "as-it-is")[0] == 0 and cli(*measure, "other", "--pooler", "mean")[0] == 0
    [(_, own)], [(_, other)] = load_records(Path("as-it-is")), load_records(Path("other"))
    facts = stored_facts(run)
    assert own.provenance.items() >= facts.items() >= {"seed": 1, "search": facts["search"]}.items()
    for key in ("seed", "search", "recipe"):  # a changed recipe, whatever is measured
        assert other.provenance[key] == facts[key]
    assert not {"settings", "backbone", "data"} & other.provenance.keys()  # another encoder than was exported


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
    # A trial whose trainings have ended is told at once, though an earlier one still runs.
    told = []
    feed.study = SimpleNamespace(tell=lambda trial, *of, **more: told.append(trial.number))
    feed.standing |= {job.id: SimpleNamespace(where="failed", detail="why") for job in feed.jobs[1][1]}
    feed._tell()
    assert told == [1] and [*feed.jobs] == [0] and feed.reason == "why"


def test_a_bad_trial_is_given_up_for_good(here, monkeypatch):
    """Four trials set the median, and one is below it: also where the last of the four ends after that trial has said its
    score."""
    monkeypatch.setattr(schedule, "LOOK", 0.05)
    said = threading.Event()

    def play(job):
        rate = float(job.value("training.learning_rate"))
        if rate < 5:
            assert rate != 4e-6 or said.wait(60)
            return job.leaves(60.0, 70.0)
        job.leaves(10.0, ended=False)
        said.set()
        assert job.stopped.wait(60)
        return -signal.SIGTERM

    chosen, log = search(space_of_grid(["training.learning_rate=1e-6,2e-6,3e-6,4e-6,5.0"]), prune=True), []
    started, results = run(chosen, scripted(play), log)
    assert [each.trial.state for each in results] == ["complete"] * 4 + ["pruned"]
    assert results[-1].trial.values == {"training.learning_rate": 5.0}
    assert [line for line in log if line.endswith(": given up")] == ["trial 4 (training.learning_rate 5.0): given up"]
    assert find_recipe("simcse", "out/best.yaml")[0].search.trials == 5  # it counts
    assert run(chosen, never)[0] == [] and len(started) == 5


def test_a_trial_whose_training_fails_is_tried_again(here):
    def play(job):
        return job.fails("nobody/nothing: no such folder") if "nobody" in job.value("backbone.model") else job.leaves(60.0)

    chosen = of_group(search(space_of_grid(["backbone.model=tiny,nobody/nothing"])), backbone=None)
    _, results = run(chosen, scripted(play))
    assert [each.trial.state for each in results] == ["complete", "fail"]
    again, results = run(chosen, scripted(play))
    assert len(again) == 1 and [each.trial.state for each in results] == ["complete", "fail"]
    assert find_recipe("simcse", "out/best.yaml")[0].search.trials == 2  # points of the grid, and not tries
    assert "nobody/nothing" in results[1].reason


def test_random_search_goes_on_where_it_was_and_tries_no_training_twice_also_without_a_score(here):
    """Rows that are few batches end before the first score; other trials have theirs, and the same call changes nothing."""
    def play(job):
        return job.leaves(*([60.0] if job.value("selection.every") == "1" else []))

    chosen = search(space_of_grid(["selection.every=1,9"]), trials=3, sampler="random", **{"selection.at_end": False})
    first, results = run(chosen, scripted(play))
    assert len(results) == 3
    more, results = run(replace(chosen, trials=8), scripted(play))
    states = [each.trial.state for each in results]
    assert set(states) == {"complete", "fail"} and len(states) == 8
    assert len({*first, *more}) == len(first) + len(more) == 2  # equal values, the same trainings
    assert {each.trial.score for each in results} == {60.0, None}
    rows = json.loads(Path("out/trials.json").read_text("utf-8"))["trials"]
    assert [row["score"] is None for row in rows] == [state == "fail" for state in states]
    assert all("has no development score" in row["reason"] for row in rows if row["state"] == "fail")
    written = {path: path.read_bytes() for path in (Path("out/best.yaml"), Path("out/trials.json"))}
    assert run(replace(chosen, trials=8), never) == ([], results)
    assert written == {path: path.read_bytes() for path in (Path("out/best.yaml"), Path("out/trials.json"))}
    shutil.rmtree("out")
    chosen = search(space_of_grid(["selection.every=8,9"]))
    with pytest.raises(StsbenchError, match=r"no trial is complete; the last failed: seed 1 .* has no development score"):
        run(chosen, scripted(play))
    assert len(json.loads(Path("out/trials.json").read_text("utf-8"))["trials"]) == 2


def test_workers_that_open_a_study_together_draw_what_one_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ranges = {"training.learning_rate": {"low": 1e-6, "high": 1e-4, "log": True},
              "training.batch_size": {"low": 2, "high": 99}, "training.warmup": {"low": 0, "high": 0.5}}
    space = Space.model_validate({"space": ranges})

    def drawn(workers, folder):
        studies = [Study("s", space, "tpe", 6, Path(folder), storage=None, seed=7, prune=False) for _ in range(workers)]
        trials = [trial for _ in range(6 // workers) for study in studies for trial in study.ask(1)]
        return {trial.number: trial.values for trial in trials}

    alone = drawn(1, "one")
    assert len({values["training.learning_rate"] for values in alone.values()}) == 6
    assert all(0 < values["training.warmup"] < 0.5 for values in alone.values())  # an integer and a float bound floats
    assert drawn(3, "three") == alone


def test_trials_without_a_score_are_refused_before_the_first(here):
    chosen = search(space_of_grid(["training.learning_rate=1e-5,3e-5"]), **{"selection.every": 9})
    with pytest.raises(StsbenchError, match=r"--max-steps 2 ends before the first development score, after .*every 9 steps"):
        check_selection(chosen)
    check_selection(search(chosen.space, **{"selection.every": 9, "selection.at_end": True}))
    check_selection(search(space_of_grid(["selection.every=1,2"]), **{"selection.every": 9}))
    with pytest.raises(StsbenchError, match="has no development score"):
        check_selection(search(chosen.space, **{"selection.by": "none"}))


def test_the_paper_s_grid_is_there_by_name():
    space = read_space("simcse", "table-a1")
    assert len(list(space.grid())) == 12 and space.finite
    assert space_of_grid(["a=1e-5,3e-5", "b=x,null"]).space == {"a": [1e-5, 3e-5], "b": ["x", None]}


RATES = {"training.learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}}
GRID = space_of_grid(["training.learning_rate=1e-5,3e-5"])
OTHERS = {
    "space.training.learning_rate.1": lambda each: replace(each, space=space_of_grid(["training.learning_rate=1e-5,1e-9"])),
    "sampler": lambda each: replace(each, sampler="random", trials=2),
    "seeds.1": lambda each: of_group(each, seeds=(1, 2)),
    "data": lambda each: of_group(each, data="other.txt"),
    "max_steps": lambda each: of_group(each, max_steps=3),
    "set.training.batch_size": lambda each: of_group(each, set={**each.group.set, "training.batch_size": 12}),
    "sample": lambda each: replace(each, defaults=Defaults(offline=True)),
    "data_dir": lambda each: replace(each, defaults=Defaults(offline=True, sample=True, data_dir="data"))}


def test_another_search_is_refused_by_what_differs(here):
    chosen = search(GRID)
    _claim(chosen)
    for key, changed in OTHERS.items():
        other = changed(chosen)
        assert other.name != chosen.name
        with pytest.raises(StsbenchError, match=rf"out holds another search: .*{key}\b.* was .* there and is .* here: "):
            _claim(other)
    _claim(chosen)
    Path("text.txt").write_text("One sentence.\nAnother one.\n", "utf-8")
    with pytest.raises(StsbenchError, match=r"out holds another search: content.text.txt was "):
        _claim(search(GRID))


def test_trials_of_an_older_version_are_not_replaced(here):
    Path("out").mkdir()
    Path("out/trials.json").write_text('{"study": "simcse-0123456789", "trials": []}', "utf-8")
    with pytest.raises(StsbenchError, match="is of another search, or of an older version's"):
        _claim(search(GRID))


def test_ten_failures_in_a_row_end_a_sweep_by_the_last_reason(here):
    chosen, log = search(Space.model_validate({"space": RATES}), sampler="random", trials=50), []
    with pytest.raises(StsbenchError, match=r"no trial is complete; the last failed: absent.txt is not here; see the logs"):
        run(chosen, scripted(lambda job: job.fails("absent.txt is not here")), log)
    assert sum(line.endswith(": failed") for line in log) in (FAILURES, FAILURES + 1)  # two workers


def test_a_search_too_large_is_refused_with_its_number():
    trials = MOST_JOBS // 2 + 1
    with pytest.raises(StsbenchError, match=rf"has {2 * trials:,} trainings, and a sweep may have {MOST_JOBS:,}"):
        search(Space.model_validate({"space": RATES}), seeds=(1, 2), trials=trials, sampler="random")
    with pytest.raises(StsbenchError, match=r"has 1,000,000,000,000 trainings"):
        search(Space.model_validate({"space": {f"options.{name}": list(range(1000)) for name in "abcd"}}))


def study(folder, log):
    space = Space.model_validate({"space": RATES})
    return Study("s", space, "random", 4, folder, storage=None, seed=1, prune=False, log=log)


def test_a_journal_cut_anywhere_in_its_last_line_is_opened_without_it_and_damage_elsewhere_is_named(tmp_path):
    whole = study(tmp_path, print)
    for score in (1.0, 2.0):
        whole.tell(whole.ask(1)[0], score, facts={"by": "a score"})
    journal = tmp_path / ".jobs" / "study.journal"
    content = journal.read_bytes()
    last = content.rfind(b"\n", 0, -1) + 1
    for cut in (last + 1, (last + len(content)) // 2, len(content) - 7, len(content) - 1):
        journal.write_bytes(content[:cut])
        log = []
        opened = study(tmp_path, log.append)
        assert log == [f"{journal}: its last line was cut off and is left out"]
        assert [each.score for each in opened.trials()] == [1.0, None] and journal.read_bytes().startswith(content[:last])
        assert journal.read_bytes().endswith(b"\n")
        opened.ask(1)
        again = []
        study(tmp_path, again.append)
        assert not again
    lines = content.splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], lines[1][:-9], *lines[2:]]))
    with pytest.raises(StsbenchError, match=r"study.journal:2: not JSON: the file is damaged"):
        study(tmp_path, print)
