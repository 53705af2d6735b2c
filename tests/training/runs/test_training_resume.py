"""A run killed at any moment goes on to the very same weights and the very same log."""

import fcntl
import json
import shutil
import signal
from pathlib import Path

import pytest
import training_runs
from training_runs import log_of, train, train_ranks, weights_of

import stsbench
from stsbench.data.text import cache as text_cache
from stsbench.errors import StsbenchError
from stsbench.files import leftover, machine

KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT


@pytest.fixture(scope="module")
def whole(place):
    """A run nobody disturbed: (its folder, the values it was trained with, the cache)."""
    values = training_runs.settings(place / "tiny", place / "text.txt")
    assert train(place / "whole", values) == (0, None)
    return place / "whole", values, place / "cache"


@pytest.fixture(scope="module")
def stopped(whole, tmp_path_factory):
    """copy(place): that run as it was killed in its eighth step, in place/run."""
    folder, (_, values, cache) = tmp_path_factory.mktemp("stopped") / "run", whole
    assert train(folder, values, kill=("step", 8), cache=cache) == (-9, None)
    return lambda place: Path(shutil.copytree(folder, place / "run"))


def assert_same_run(run, folder):
    assert log_of(run) == log_of(folder) and weights_of(run) == weights_of(folder)
    mine, theirs = (json.loads((each / "train.json").read_text()) for each in (run, folder))
    assert all(mine[key] == theirs[key] for key in mine.keys() - {"seconds", "provenance"})
    assert not list(run.glob("checkpoints/.*"))


def newest(run):
    """(step, whether its score is still to come) of the newest checkpoint."""
    actual = sorted(run.glob("checkpoints/[0-9]*"))
    position = json.loads((actual[-1] / "position.json").read_text()) if actual else {"step": 0, "unscored": False}
    return position["step"], position["unscored"]


def test_broken_off_again_and_again_it_is_the_same_run(whole, tmp_path):
    """A signal that may be handled ends the run behind a whole step, with a checkpoint of it."""
    folder, values, cache = whole
    run = tmp_path / "run"
    for kill, position in (
            (("checkpoint", 3, KILL), (3, False)),  # half of step 6 is written
            (("update", 4, INT), (7, False)),  # the step comes to its end, between two lines of the log
            (("scoring", 1, INT), (8, True)),  # at once: the score is begun again
            (("tidy", 1, KILL), (9, False)),
            (("checkpoint", 1, TERM), (12, True)),  # what is being written is whole
            (("scoring", 1, KILL), (12, True))):  # the last score
        code, said = train(run, values, kill=kill, resume=run.exists(), cache=cache)
        assert code == (9 if kill[2] == INT else -kill[2])
        assert kill[2] != INT or said.endswith(f"KeyboardInterrupt\nstopped; go on with output='{run}', resume=True\n")
        assert newest(run) == position and not (run / "train.json").exists() and not (run / "best").exists()
        assert not any(path.name.startswith(".") for path in run.glob("checkpoints/[0-9]*/*"))
    assert train(run, values, resume=True, cache=cache) == (0, None)
    assert_same_run(run, folder)


def test_of_two_processes_both_stop_at_one_step(whole, tmp_path):
    """Also where the other one was sent the signal."""
    _, values, cache = whole
    run, values = tmp_path / "run", {**values, "training.max_steps": 6}
    assert train_ranks(tmp_path / "two", values, cache=cache) == [(0, None)] * 2
    first, second = train_ranks(run, values, kill={"1": ("update", 5, TERM)}, cache=cache)
    assert second == (-15, None)
    assert first[0] == 9 and "processes.Terminated\nstopped; go on with" in first[1]
    assert newest(run) == (6, True)
    assert train_ranks(run, values, resume=True, cache=cache) == [(0, None)] * 2
    assert_same_run(run, tmp_path / "two")


def test_a_checkpoint_comes_every_so_many_minutes(whole, tmp_path):
    """They change nothing in the weights, and have no line of their own in the log."""
    folder, values, cache = whole
    values = {**values, "checkpoint_every": 100, "checkpoint_minutes": 1e-9}
    assert train(tmp_path / "often", values, cache=cache) == (0, None)
    names = [path.name for path in sorted(tmp_path.glob("often/checkpoints/[0-9]*"))]
    assert names == ["0-main-00000011", "0-main-00000012"]
    assert weights_of(tmp_path / "often") == weights_of(folder)
    assert [line["step"] for line in log_of(tmp_path / "often") if line["kind"] == "train"] == [4, 8, 10, 12]


def test_the_log_of_a_whole_run(whole):
    lines = log_of(whole[0])
    assert [line["kind"] for line in lines if line["kind"] != "train"] == ["start", "dev", "dev", "dev", "dev", "end"]
    assert [line["step"] for line in lines if line["kind"] == "dev"] == [0, 4, 8, 12]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [3, 4, 6, 8, 9, 10, 12]
    assert not lines[1]["best"]  # the untrained encoder is shown, not selected
    scores = [line["score"] for line in lines if line["kind"] == "dev"][1:]
    best = json.loads((whole[0] / "train.json").read_text())["best"]
    assert (best["score"], best["step"]) == (max(scores), [4, 8, 12][scores.index(max(scores))])
    assert len(list(whole[0].glob("checkpoints/[0-9]*"))) == 2
    rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    assert rates == pytest.approx([1e-3 * (12 - step + 1) / 12 for step in (3, 4, 6, 8, 9, 10, 12)])


@pytest.mark.parametrize("damaged", ["0-main-00000006/optimiser.pt", "best-*/model.safetensors"])
def test_a_damaged_checkpoint_is_passed_over(whole, stopped, tmp_path, damaged):
    """Where the best weights are damaged it goes on from the start: every checkpoint needs them."""
    folder, values, cache = whole
    run = stopped(tmp_path)
    [path] = run.glob(f"checkpoints/{damaged}")
    content = bytearray(path.read_bytes())
    content[-1 if "best" in damaged else len(content) // 2] ^= 1
    path.write_bytes(content)
    assert train(run, values, resume=True, cache=cache) == (0, None)
    assert_same_run(run, folder)


def test_what_a_resumption_refuses(whole, stopped, tmp_path):
    folder, values, cache = whole
    run, data, text = stopped(tmp_path), tmp_path / "data", Path(values["data.file"])

    def refused(why, output=run, resume=True, changed=(), **options):
        with pytest.raises(StsbenchError, match=why) as error:
            stsbench.train("simcse", output=output, settings={**values, **dict(changed)}, device="cpu", resume=resume,
                           **{"sample": True, **options})
        assert "\n" not in str(error.value)

    refused("^--resume: training.learning_rate was 0.001", changed={"training.learning_rate": 2e-3})
    refused("--resume continues it", resume=False)
    refused("holds no run", tmp_path / "nothing")
    with (run / ".lock").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        refused(f"^{run}: another process is training into it$")
    before = text.read_bytes()
    text.write_bytes(before + b"the cat sleeps\n")
    refused("^--resume: the data of stage main is not what ")
    text.write_bytes(before)
    # other development data would be another scale of scores; where they were is remembered
    shutil.copytree(Path(stsbench.__file__).parent / "data" / "sample", data)
    path = data / "downstream/STS/STSBenchmark/sts-dev.csv"
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[1:]), "utf-8")
    refused("^--resume: the dev data is not what ", sample=False, data_dir=data)
    assert train(run, values, resume=True, cache=cache, sample=False) == (0, None)
    assert log_of(run) == log_of(folder)


def test_a_loss_that_is_no_number_stops_and_costs_no_other_seed(whole, tmp_path):
    _, values, cache = whole
    code, said = train(tmp_path / "one", values, kill=("poison", 8), cache=cache)
    assert code == 1 and "\n" not in said and not (tmp_path / "one" / "best").exists()
    assert said.startswith("the loss is nan at step 8 of stage main: the last good checkpoint, step 6, is kept in ")
    assert [path.name for path in sorted(tmp_path.glob("one/checkpoints/[0-9]*"))] == ["0-main-00000003", "0-main-00000006"]
    run, summary = tmp_path / "run", tmp_path / "run" / "seeds.json"
    assert train(run, values, seeds=2, kill=("poison", 8), cache=cache) == (0, None)
    assert json.loads(summary.read_text("utf-8"))["seeds"] == [43] and not (run / "seed-42" / "train.json").exists()
    assert train(run, values, seeds=2, resume=True, cache=cache) == (0, None)  # without the fault
    scores = {str(seed): json.loads((run / f"seed-{seed}" / "train.json").read_text())["best"]["score"] for seed in (42, 43)}
    actual = json.loads(summary.read_text("utf-8"))
    assert actual["seeds"] == [42, 43] and actual["dev"]["values"] == scores
    assert_same_run(run / "seed-42", whole[0])
    assert weights_of(run / "seed-42") != weights_of(run / "seed-43")
    with pytest.raises(StsbenchError, match="at step 2 of stage main: there is no checkpoint before it"):
        wild = {**values, "training.learning_rate": 1e30, "training.clip": None, "selection.by": "none"}
        stsbench.train("simcse", output=tmp_path / "wild", settings=wild, device="cpu", seeds=2)
    assert not (tmp_path / "wild" / "seeds.json").exists()


# --- what a killed process leaves at other moments, and what is a user's own ---

@pytest.fixture
def train_here(whole):
    return lambda output, more=(), **options: stsbench.train(
        "simcse", output=output, settings={**whole[1], **dict(more)}, sample=True, device="cpu", **options)


SHORT = {"training.max_steps": 1, "selection.by": "none"}


@pytest.fixture(scope="module")
def short(whole, place):
    return training_runs.undisturbed(place, {**whole[1], **SHORT}, "simcse", "short")[0]


@pytest.mark.parametrize(("kept", "building"), [  # what of a whole run there is, and what was being written
    ([".lock"], [".recipe.yaml.abc123.tmp", ".export.x.tmp/"]),
    ([".lock", "recipe.yaml"], [".begun.json.a_1b2c3d.tmp", "checkpoints/.0-main-00000001.tmp/"]),
    ([".lock", "recipe.yaml", "begun.json", "log.jsonl", "checkpoints", "best"],
     [".train.json.x.tmp", f".best.abcdefgh.{machine()}.part/"]),
], ids=["before the recipe", "before the manifest", "before the summary"])
def test_the_same_command_goes_on(short, train_here, tmp_path, kept, building):
    """With --resume, and without where nothing but leftovers is there; nothing of them stays."""
    output = tmp_path / "out"
    output.mkdir()
    for name in kept:
        (shutil.copytree if (short / name).is_dir() else shutil.copyfile)(short / name, output / name)
    for name in building:
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).mkdir() if name.endswith("/") else (output / name).touch()
    train_here(output, SHORT, resume="recipe.yaml" in kept)
    assert_same_run(output, short)
    assert not [path for path in output.rglob("*") if leftover(path)]


def test_what_is_a_users_own_still_blocks(train_here, tmp_path):
    for name in ("notes.txt", ".env", "recipe.yaml"):
        folder = tmp_path / name.strip(".")
        folder.mkdir()
        (folder / name).touch()
        with pytest.raises(StsbenchError, match="is already there"):
            train_here(folder)
        assert (folder / name).exists()
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / ".seeds.json.abc.tmp").touch()  # of a killed process, and in nobody's way
    train_here(tmp_path / "seeds", SHORT, seeds=1)


def test_a_cache_that_cannot_be_written_is_done_without(train_here, tmp_path, monkeypatch):
    """A file where the folder should be: to root no folder is read-only."""
    (tmp_path / "cache").touch()
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.warns(UserWarning, match="cannot be written .* not kept for later runs"):
        train_here(tmp_path / "out", SHORT)
    assert (tmp_path / "out").is_dir() and (tmp_path / "cache").read_bytes() == b""
    standing = [Path(folder.name) for root, folder in text_cache._STAND_INS.items() if root.is_relative_to(tmp_path)]
    assert standing and all(folder.is_dir() for folder in standing)
