"""What a killed process leaves in a run folder, at any moment: the same command goes on, and nothing of it stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import training_runs
from safetensors.torch import load_file

import stsbench
from stsbench.data.text import cache
from stsbench.errors import StsbenchError
from stsbench.files import clear_leftovers, leftover, machine

FILES = ".recipe.yaml.abc123.tmp", ".begun.json.a_1b2c3d.tmp", ".train.json.x.tmp"


@pytest.fixture(scope="module", autouse=True)
def whole(place):
    train(place, place / "whole")


def train(place, output, **more):
    values = training_runs.settings(place / "tiny", place / "text.txt", **{"training.max_steps": 4, "checkpoint_every": 2})
    return stsbench.train("simcse", output=output, settings=values, sample=True, device="cpu", **more)

# what of a whole run there is, and what a killed process was writing: from the first moment on
BEGUN = [".lock", "recipe.yaml", "begun.json", "log.jsonl"]
STATES = {
    "before the recipe": ([".lock"], [FILES[0], ".export.x.tmp/"]),
    "before the manifest": ([".lock", "recipe.yaml"], [FILES[1]]),
    "before the first checkpoint": (BEGUN, ["checkpoints/.0-main-00000002.tmp/", "checkpoints/.best-main-00000002.tmp/"]),
    "before the summary": ([*BEGUN, "checkpoints", "best"], [FILES[2], f".best.abcdefgh.{machine()}.part/"]),
}


def killed(place, output, state):
    kept, building = STATES[state]
    output.mkdir()
    for name in kept:
        (shutil.copytree if (place / "whole" / name).is_dir() else shutil.copyfile)(place / "whole" / name, output / name)
    for name in building:
        path = output / name
        path.parent.mkdir(exist_ok=True)
        path.mkdir() if name.endswith("/") else path.touch()
        if path.is_dir():
            (path / "model.safetensors").write_bytes(b"half")


@pytest.mark.parametrize("state", STATES)
def test_the_same_command_goes_on(place, tmp_path, state):
    """With --resume, and without where nothing but leftovers is there; it ends in the same weights."""
    output = tmp_path / "out"
    killed(place, output, state)
    summary = train(place, output, resume=state != "before the recipe")
    assert summary["best"] == json.loads((place / "whole" / "train.json").read_text())["best"]
    first, second = (load_file(run / "best" / "model.safetensors") for run in (place / "whole", output))
    assert all(first[name].equal(second[name]) for name in first)
    assert not [path for path in output.rglob("*") if leftover(path)]


def test_what_is_a_users_own_still_blocks(place, tmp_path):
    for name in ("notes.txt", ".env", "recipe.yaml"):
        folder = tmp_path / name.strip(".")
        folder.mkdir()
        (folder / name).touch()
        with pytest.raises(StsbenchError, match="is already there"):
            train(place, folder)
        assert (folder / name).exists()
    with pytest.raises(StsbenchError, match="holds no run"):
        train(place, tmp_path / "misspelt", resume=True)
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / ".seeds.json.abc.tmp").touch()  # of a killed process, and in nobody's way
    train(place, tmp_path / "seeds", seeds=1)


def test_leftovers_by_name(tmp_path):
    for name in (".a.tmp", f".a.b.{machine()}.part", "a.tmp", ".tmp", ".a", "a.part"):
        (tmp_path / name).touch()
    clear_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.tmp", ".tmp", ".a", "a.part"}


def test_a_cache_that_cannot_be_written_is_done_without(place, tmp_path, monkeypatch):
    """A file where the folder should be: to root no folder is read-only."""
    (tmp_path / "cache").touch()
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.warns(UserWarning, match="cannot be written .* not kept for later runs"):
        train(place, tmp_path / "out")
    assert (tmp_path / "out").is_dir() and (tmp_path / "cache").read_bytes() == b""
    standing = [Path(folder.name) for root, folder in cache._STAND_INS.items() if root.is_relative_to(tmp_path)]
    assert standing and all(folder.is_dir() for folder in standing)
