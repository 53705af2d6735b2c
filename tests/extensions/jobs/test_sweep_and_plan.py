"""`stsbench run` and `sweep`, `stsbench.run_plan` and `stsbench.sweep`: what commands and functions do by the same words,
the objects and pictures given; entries for a board, and the plan of the board's own trainings."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
from clirun import cli, fails, place  # noqa: F401
from plans import SHORT, here, jobs_of, scripted, training, write  # noqa: F401
from training_runs import one_thread  # noqa: F401

import stsbench
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.extensions.jobs import plan as plan_module
from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan import entry_runs, working_line
from stsbench.extensions.jobs.plan_file import read_plan
from stsbench.extensions.jobs.pool import LocalPool
from stsbench.extensions.jobs.trials import figure
from stsbench.leaderboard.command import leaderboard

SETTINGS = {"backbone.max_length": 16, "selection.every": 1, "training.batch_size": 10}


@pytest.fixture
def by(monkeypatch):
    """Let a plan's or a sweep's jobs begin by another start."""
    def begun(start):
        monkeypatch.setattr(plan_module, "LocalPool", lambda workers, where: LocalPool(workers, where, start))

    return begun


def swept(**more):
    pytest.importorskip("optuna")
    options = {"grid": {"training.learning_rate": [1e-5, 1e-2]}, "backbone": "tiny", "data": "text.txt", "max_steps": 2,
               "settings": SETTINGS, "device": "cpu", "dtype": "float32", "seed": 1, "seeds": 2}
    return stsbench.sweep("simcse", sample=True, offline=True, **options | more)


def test_a_sweep_is_the_command_s(here, by, cli, capsys):
    by(scripted(lambda job: job.leaves(60 + 100 * float(job.value("training.learning_rate")))))
    found = swept(output="function")
    assert capsys.readouterr() == ("", "")
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    code, _, err = cli(
        "sweep", "simcse", "--grid", "training.learning_rate=1e-5,1e-2", "--backbone", "tiny", "--data", "text.txt",
        "--max-steps", 2, *sets, "--device", "cpu", "--dtype", "float32", "--sample", "--offline", "--seed", 1,
        "--seeds", 2, "--output", "command")
    assert code == 0, err
    stored = [json.loads(Path(folder, "trials.json").read_text("utf-8")) for folder in ("function", "command")]
    assert stored[0]["trials"] == stored[1]["trials"] and stored[0]["study"] == stored[1]["study"]
    best = [Path(folder, "best.yaml").read_text("utf-8").partition("\n")[2] for folder in ("function", "command")]
    assert best[0] == best[1]
    assert [row["score"] for row in found.rows] == [trial["score"] for trial in stored[1]["trials"]]
    assert found.best.training.learning_rate == found.rows[0]["training.learning_rate"] and found.best.search.trials == 2
    assert [[*result.scores] for result in found.results] == [[1, 2]] * 2  # seeds are counted up from the first
    assert list(found.to_pandas().columns) == ["trial", "training.learning_rate", "score", "sd", "seeds", "state"]
    assert all(f"{row['score']:.2f}" in str(found) for row in found.rows)
    assert repr(found).startswith(f"<Trials of simcse: 2, the best {found.rows[0]['score']:.2f} (training.learning_rate")
    assert found.plot()


def test_a_sweep_on_rows_in_memory_goes_on_where_it_was(here, by):
    texts, read = tiny_models.sentences(40, longest=9), []

    def play(job):
        read.append(Path(job.words[job.words.index("--data") + 1]).read_text("utf-8").splitlines())
        return job.leaves(60.0)

    by(scripted(play))
    found = swept(data=texts, grid="training.learning_rate=1e-3")
    assert found.rows[0]["state"] == "complete" and not str(found.folder).startswith("runs")
    again = swept(data=texts, grid="training.learning_rate=1e-3", output=found.folder)
    assert read == [texts] * 2
    assert again.rows == found.rows and found.save("kept") == Path("kept")
    with pytest.raises(StsbenchError, match="holds another search: data was"):
        swept(data=texts[1:], grid="training.learning_rate=1e-3", output=again.folder)


def test_a_job_that_fails_is_a_warning(here, by):
    by(scripted(lambda job: job.fails("text.txt is too short")))
    with pytest.warns(StsbenchWarning, match="^failed: small-1: text.txt is too short$"):
        done = stsbench.run_plan({"output": "out", "defaults": SHORT, "train": {"small": training()}})
    assert done.failures == {"small-1": "text.txt is too short"}


def write_trials(folder, trials, by="sts-b dev"):
    rows = [{"number": i, "state": "complete" if score else "fail", "values": values, "score": score,
             "seeds": {"42": score} if score else {}, "runs": []} for i, (values, score) in enumerate(trials)]
    (folder / "trials.json").write_text(json.dumps({"study": "s", "command": [], "by": by, "trials": rows}), "utf-8")
    return [folder]


def test_a_grid_of_two_keys_is_a_map_with_the_best_framed(tmp_path):
    scores = {(64, 1e-5): 70.0, (64, 3e-5): 72.125, (128, 1e-5): 69.5, (256, 3e-5): None, (256, 1e-5): 71.0}
    trials = [({"batch": batch, "rate": rate}, score) for (batch, rate), score in scores.items()]
    drawing = figure(write_trials(tmp_path, [*trials, ({"batch": 64, "rate": 1e-5}, 71.0)]))
    panel, bar = drawing.axes
    # row by row; equal values are averaged
    assert [each.get_text() for each in panel.texts] == ["70.50", "72.12", "69.50", "–", "71.00", "–"]
    assert [each.get_text() for each in panel.get_xticklabels()] == ["1e-05", "3e-05"]
    assert [each.get_text() for each in panel.get_yticklabels()] == ["64", "128", "256"]
    (frame,) = panel.patches
    assert (round(frame.get_x() + 0.48), round(frame.get_y() + 0.48)) == (1, 0)  # 72.125
    assert (panel.get_xlabel(), panel.get_ylabel(), bar.get_ylabel()) == ("rate", "batch", "sts-b dev")
    assert drawing._supxlabel.get_text() == "5 of 6 trials with a score, 1 seed each"


def test_anything_else_is_points_over_each_key(tmp_path):
    trials = [({"rate": 1e-6, "pooler": "cls", "n": 1}, 60.0), ({"rate": 1e-4, "pooler": None, "n": 2}, 65.0)]
    panels = figure(write_trials(tmp_path, trials)).axes
    assert [panel.get_xlabel() for panel in panels] == ["rate", "pooler", "n"]
    assert [panel.get_xscale() for panel in panels] == ["log", "linear", "linear"]
    assert [list(panel.lines[0].get_xdata()) for panel in panels] == [[1e-6, 1e-4], [1, 0], [1, 2]]
    assert all(list(panel.lines[0].get_ydata()) == [60.0, 65.0] for panel in panels)
    assert [each.get_text() for each in panels[1].get_xticklabels()] == ["null", "cls"]


def test_a_missing_package_is_named(here, cli, monkeypatch):
    for name in ("ray", "optuna"):
        monkeypatch.setitem(sys.modules, name, None)
    fails(cli("run", write({"train": {"a": training()}}), "--ray", "local"), "--ray needs Ray: pip install 'stsbench[ray]'")
    words = ("sweep", "simcse", "--data", "text.txt", "--sample", "--grid", "training.learning_rate=1e-5,3e-5")
    fails(cli(*words, "--output", "s"), "a sweep needs optuna: pip install 'stsbench[jobs]'")


def test_an_entry_is_added_by_the_command_when_all_of_it_is_done(cli, place, monkeypatch):
    stated = {"method": "Mine", "backbone": "Tiny", "setting": "unsup", "note": "so"}
    path = write({
        "train": {"a": training(entry={"name": "mine", "flags": ["dev-selected"], **stated})},
        "eval": {"e": {"model": "job:a", "protocols": ["sts", "geometry"]}}})
    tiny_models.build(Path("tiny"), pooler=False)
    jobs = list(jobs_of(path).values())
    runs, log, called = entry_runs(read_plan(path), jobs), [], []
    assert [job.name for job in runs[0].jobs] == ["e.a-1.sts", "e.a-1.geometry"]
    assert plan_module.add_to_board(runs, Path("out"), Path("b"), log.append) == 1
    assert log == ["mine: not added, 2 of 2 evaluations not done: e.a-1.sts"]
    monkeypatch.setattr(plan_module, "is_done", lambda *_: True)
    monkeypatch.setattr(plan_module.subprocess, "run", lambda words, **_: called.append(words) or type("R", (), {
        "returncode": 0, "stdout": "x\ny\n", "stderr": ""})())
    assert plan_module.add_to_board(runs, Path("out"), Path("b"), log.append) == 0 and log[-1] == "mine: 2 records added"
    records = tuple(job.folder(Path("out")) for job in jobs[1:])
    for folder in records:
        folder.mkdir(parents=True, exist_ok=True)
    context = leaderboard.commands["add"].make_context("add", list(called[0][6:]))
    assert {key: value for key, value in context.params.items() if value not in (None, "", ())} == {
        "runs": records, "slug": "mine", "board": Path("b"), "flag": ("dev-selected",), **stated}


ROOT = Path(__file__).resolve().parents[3]
ZOO = ROOT / "benchmarks" / "zoo.yaml"


def test_every_entry_of_the_board_is_in_the_zoo():
    plan = read_plan(ZOO)
    runs = {each.entry.name: each for each in entry_runs(plan, expand(plan, str(ZOO)))}
    entries = {path.name for path in (ROOT / "leaderboard" / "measured").glob("minilm-mlm32-*")}
    again = {"minilm-mlm32-simcse-again"}  # the job simcse, from the checkpoint that was trained again
    assert len(entries) >= 40 and entries - again <= set(runs)
    assert all(len({job.needs for job in each.jobs}) in (1, 3) for each in runs.values())


def test_documents_begin_at_titles():
    documents = runpy.run_path(str(ROOT / "benchmarks" / "wiki_documents.py"))["documents"]
    lines = [
        "Red boats", "They float.", "History", "Nobody knows more than that.", "a small word", "It stands here.",
        "Ends so:", "Yes.", "One two three four five six Seven", "No.", "Last title", "without an end", "No title"]
    assert documents(lines) == [lines[:2], lines[2:]]


def test_in_a_notebook_a_line_says_what_is_worked_on_and_is_gone_at_the_end(monkeypatch, capsys):
    monkeypatch.setattr("tqdm.auto.tqdm", __import__("tqdm").std.tqdm)
    with working_line("sweep") as working:
        assert working is None
    shell = type("ZMQInteractiveShell", (), {})()  # a kernel's, by IPython's name for it
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with working_line("sweep") as working:
        working("trial 0, seed 42, step 20")
        working("trial 1")
    out, err = capsys.readouterr()
    shown = [line.strip() for line in err.split("\r") if line.strip()]
    assert out == "" and shown[1:] == ["sweep, 00:00, trial 0, seed 42, step 20", "sweep, 00:00, trial 1"]
    assert err.endswith("\r")
