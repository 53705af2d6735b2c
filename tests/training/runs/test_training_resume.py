"""A run killed at any moment goes on to the very same weights and the very same log."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
from pathlib import Path

import pytest
import tiny_models
import training_runs
from training_runs import log_of, train, train_ranks, weights_of

import stsbench


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run nobody disturbed: (its folder, the values it was trained with, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = training_runs.settings(tiny_models.build(place / "tiny", pooler=False), training_runs.make_text(place))
    code, said = train(place / "whole", values)
    assert (code, said) == (0, None)
    return place / "whole", values, place / "cache"


@pytest.fixture(scope="module")
def stopped(whole, tmp_path_factory):
    """copy(place): that run as it was killed in its eighth step, in place/run."""
    folder, (_, values, cache) = tmp_path_factory.mktemp("stopped") / "run", whole
    assert train(folder, values, kill=("step", 8), cache=cache) == (-9, None)
    return lambda place: Path(shutil.copytree(folder, place / "run"))


@pytest.mark.parametrize("kill", [("step", 2), ("checkpoint", 3), ("tidy", 2)])
def test_killed_and_resumed_is_the_same_run(whole, tmp_path, kill):
    folder, values, cache = whole
    run = tmp_path / "run"
    code, said = train(run, values, kill=kill, cache=cache)
    assert (code, said) == (-9, None) and not (run / "best").exists() and not (run / "train.json").exists()
    assert not any(path.name.startswith(".") for path in run.glob("checkpoints/[0-9]*/*"))
    assert train(run, values, resume=True, cache=cache) == (0, None)
    assert log_of(run) == log_of(folder)
    assert weights_of(run) == weights_of(folder)
    mine, theirs = (json.loads((each / "train.json").read_text()) for each in (run, folder))
    for key in ("best", "before", "after", "stages", "exported", "data", "dev_data"):
        assert mine[key] == theirs[key]
    assert not list(run.glob("checkpoints/.*"))


@pytest.mark.parametrize(
    ("kill", "position"),
    [
        (("update", 7, signal.SIGINT), (7, False)),  # the step comes to its end, between two lines of the log
        (("update", 8, signal.SIGTERM), (8, True)),
        (("update", 12, signal.SIGINT), (12, True)),
        (("scoring", 3, signal.SIGINT), (8, True)),  # at once: the score is begun again
        (("checkpoint", 3, signal.SIGTERM), (7, False)),  # what is being written, of step 6, is whole
        (("scoring", 4, signal.SIGKILL), (12, True)),  # the last score: there is a checkpoint before it
    ],
)
def test_stopped_and_resumed_is_the_same_run(whole, tmp_path, kill, position):
    """A signal that may be handled ends the run behind a whole step, with a checkpoint of it."""
    folder, values, cache = whole
    run = tmp_path / "run"
    code, said = train(run, values, kill=kill, cache=cache)
    assert code == (9 if kill[2] == signal.SIGINT else -kill[2])
    assert kill[2] != signal.SIGINT or said.endswith(f"KeyboardInterrupt\nstopped; go on with output='{run}', resume=True\n")
    newest = json.loads((sorted(run.glob("checkpoints/[0-9]*"))[-1] / "position.json").read_text())
    assert (newest["step"], newest["unscored"]) == position and not (run / "train.json").exists()
    assert train(run, values, resume=True, cache=cache) == (0, None)
    assert log_of(run) == log_of(folder) and weights_of(run) == weights_of(folder)
    mine, theirs = (json.loads((each / "train.json").read_text()) for each in (run, folder))
    assert all(mine[key] == theirs[key] for key in mine.keys() - {"seconds", "provenance"})


@pytest.fixture(scope="module")
def two(whole):
    """A shorter run by two processes: (its folder, its values, its cache)."""
    folder, values, cache = whole
    values = {**values, "training.max_steps": 8}
    assert train_ranks(folder.with_name("two"), values, cache=cache) == [(0, None)] * 2
    return folder.with_name("two"), values, cache


@pytest.mark.parametrize("kill", [{"1": ("update", 5, signal.SIGTERM)}, {"0": ("scoring", 2, signal.SIGTERM)}])
def test_of_two_processes_both_stop_at_one_step(two, tmp_path, kill):
    """Whichever was sent the signal."""
    folder, values, cache = two
    run = tmp_path / "run"
    ended = train_ranks(run, values, kill=kill, cache=cache)
    assert ended[int(*kill)] == (-15, None)
    assert {code: "processes.Terminated\nstopped; go on with" in said for code, said in ended if said} == {9: True}
    newest = json.loads((sorted(run.glob("checkpoints/[0-9]*"))[-1] / "position.json").read_text())
    assert (newest["step"], newest["unscored"]) in ((6, False), (4, True))
    assert train_ranks(run, values, resume=True, cache=cache) == [(0, None)] * 2
    assert log_of(run) == log_of(folder) and weights_of(run) == weights_of(folder)


def test_a_checkpoint_comes_every_so_many_minutes(whole, tmp_path):
    """They change nothing in the log and the weights."""
    folder, values, cache = whole
    run, values = tmp_path / "run", {**values, "checkpoint_every": 100, "checkpoint_minutes": 1e-9}
    seldom = {**values, "checkpoint_minutes": None}
    assert train(tmp_path / "seldom", seldom, cache=cache) == (0, None)
    assert [path.name for path in tmp_path.glob("seldom/checkpoints/[0-9]*")] == ["0-main-00000012"]
    assert train(run, values, kill=("step", 8), cache=cache) == (-9, None)
    assert [path.name for path in sorted(run.glob("checkpoints/[0-9]*"))] == ["0-main-00000006", "0-main-00000007"]
    assert train(run, values, resume=True, cache=cache) == (0, None)
    assert log_of(run) == log_of(tmp_path / "seldom") and weights_of(run) == weights_of(folder)


def test_the_log_of_a_whole_run(whole):
    lines = log_of(whole[0])
    assert [line["kind"] for line in lines if line["kind"] != "train"] == ["start", "dev", "dev", "dev", "dev", "end"]
    assert [line["step"] for line in lines if line["kind"] == "dev"] == [0, 4, 8, 12]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [3, 4, 6, 8, 9, 10, 12]
    assert not lines[1]["best"]  # the untrained encoder is shown, not selected
    scores = [line["score"] for line in lines if line["kind"] == "dev"][1:]
    summary = json.loads((whole[0] / "train.json").read_text())
    assert summary["best"]["score"] == max(scores)
    assert summary["best"]["step"] == [4, 8, 12][scores.index(max(scores))]
    assert len(list(whole[0].glob("checkpoints/[0-9]*"))) == 2
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert rates == pytest.approx([1e-3 * (12 - step + 1) / 12 for step in (3, 4, 6, 8, 9, 10, 12)])


def test_a_damaged_checkpoint_is_passed_over(whole, stopped, tmp_path):
    folder, values, cache = whole
    run = stopped(tmp_path)
    newest = sorted(run.glob("checkpoints/[0-9]*"))[-1]
    content = bytearray((newest / "optimiser.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "optimiser.pt").write_bytes(content)
    assert train(run, values, resume=True, cache=cache) == (0, None)
    assert weights_of(run) == weights_of(folder) and log_of(run) == log_of(folder)


def test_resume_refuses_another_recipe(whole, tmp_path):
    folder, values, cache = whole
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    (run / "train.json").unlink()
    code, said = train(run, {**values, "training.learning_rate": 2e-3}, resume=True, cache=cache)
    assert code == 1 and said.startswith("--resume: training.learning_rate was 0.001") and "\n" not in said
    code, said = train(run, values, cache=cache)
    assert code == 1 and "--resume continues it" in said
    code, said = train(tmp_path / "nothing", values, resume=True, cache=cache)
    assert code == 1 and "holds no run" in said


def test_resume_refuses_other_data(whole, tmp_path):
    _, values, cache = whole
    run, text = tmp_path / "run", tmp_path / "text.txt"
    shutil.copy(values["data.file"], text)
    values = {**values, "data.file": str(text)}
    assert train(run, values, kill=("step", 5), cache=cache) == (-9, None)
    with text.open("a") as stream:
        stream.write("the cat sleeps\n")
    code, said = train(run, values, resume=True, cache=cache)
    assert code == 1 and said.startswith("--resume: the data of stage main is not what ") and "\n" not in said


def test_one_training_at_a_time(whole, stopped, tmp_path):
    _, values, cache = whole
    run = stopped(tmp_path)
    with (run / ".lock").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        code, said = train(run, values, resume=True, cache=cache)
    assert code == 1 and said == f"{run}: another process is training into it"


def test_a_loss_that_is_no_number_stops(whole, tmp_path):
    _, values, cache = whole
    run = tmp_path / "run"
    code, said = train(run, values, kill=("poison", 8), cache=cache)
    assert code == 1 and "\n" not in said
    assert said.startswith("the loss is nan at step 8 of stage main: the last good checkpoint, step 6, is kept in ")
    assert not (run / "best").exists()
    assert [path.name for path in sorted(run.glob("checkpoints/[0-9]*"))] == ["0-main-00000003", "0-main-00000006"]
    assert train(run, values, resume=True, cache=cache) == (0, None)  # without the fault it goes on as if nothing was
    assert weights_of(run) == weights_of(whole[0]) and log_of(run) == log_of(whole[0])


def test_a_gradient_that_is_no_number_stops(whole, tmp_path):
    _, values, cache = whole
    wild = {**values, "training.learning_rate": 1e30, "training.clip": None, "selection.by": "none"}
    code, said = train(tmp_path / "run", wild, cache=cache)
    assert code == 1 and "\n" not in said and "at step 2 of stage main: there is no checkpoint before it" in said


def test_a_seed_that_fails_costs_no_other(whole, tmp_path):
    _, values, cache = whole
    run, summary = tmp_path / "run", tmp_path / "run" / "seeds.json"
    assert train(run, values, seeds=2, kill=("poison", 8), cache=cache) == (0, None)
    assert json.loads(summary.read_text("utf-8"))["seeds"] == [43] and not (run / "seed-42" / "train.json").exists()
    assert train(run, values, seeds=2, resume=True, cache=cache) == (0, None)
    found = json.loads(summary.read_text("utf-8"))
    scores = [json.loads((run / f"seed-{seed}" / "train.json").read_text())["best"]["score"] for seed in (42, 43)]
    assert found["seeds"] == [42, 43] and found["dev"]["mean"] == pytest.approx(sum(scores) / 2)
    assert found["dev"]["sd"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert weights_of(run / "seed-42") == weights_of(whole[0]) != weights_of(run / "seed-43")
    wild = {**values, "training.learning_rate": 1e30, "training.clip": None, "selection.by": "none"}
    code, said = train(tmp_path / "wild", wild, seeds=2, cache=cache)
    assert code == 1 and "step 2 of stage main" in said and not (tmp_path / "wild" / "seeds.json").exists()


def test_resume_compares_only_what_is_comparable(whole, stopped, tmp_path):
    """Other development data would be another scale of scores; where they were is remembered."""
    _, values, cache = whole
    run, data = stopped(tmp_path), tmp_path / "data"
    shutil.copytree(Path(stsbench.__file__).parent / "data" / "sample", data)
    path = data / "downstream/STS/STSBenchmark/sts-dev.csv"
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[1:]), "utf-8")
    code, said = train(run, values, resume=True, cache=cache, sample=False, data_dir=data)
    assert code == 1 and said.startswith("--resume: the dev data is not what ") and "\n" not in said
    assert train(run, values, resume=True, cache=cache, sample=False) == (0, None)
    assert log_of(run) == log_of(whole[0])


def test_damaged_best_weights_are_noticed(whole, stopped, tmp_path):
    _, values, cache = whole
    run = stopped(tmp_path)
    [best] = run.glob("checkpoints/best-*/model.safetensors")
    content = bytearray(best.read_bytes())
    content[-1] ^= 1
    best.write_bytes(content)
    assert train(run, values, resume=True, cache=cache) == (0, None)  # from the start: every checkpoint needs them
    assert weights_of(run) == weights_of(whole[0]) and log_of(run) == log_of(whole[0])
