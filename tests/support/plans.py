"""Plans of tiny trainings, run by two workers whose jobs start in a moment, or by what stands in for their processes."""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import tiny_models
import yaml
from job_server import JobServer

from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan_file import read_plan
from stsbench.extensions.jobs.pool import LocalPool, Place
from stsbench.extensions.jobs.schedule import run_jobs
from stsbench.extensions.jobs.state import clock
from stsbench.training.recipes.recipe import resolved_yaml
from stsbench.training.recipes.recipes import load_recipe

SHORT = {"sample": True, "offline": True, "device": "cpu", "dtype": "float32", "seeds": [1]}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """What starts jobs, as forks of a server."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("server")
        patch.setenv("STSBENCH_CACHE", str(folder / "cache"))
        with JobServer(folder) as serving:
            yield serving


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with a tiny model and a text."""
    monkeypatch.chdir(tmp_path)
    return fill(tmp_path)


def fill(folder):
    tiny_models.build(folder / "tiny", pooler=False)
    (folder / "text.txt").write_text("\n".join(tiny_models.sentences(40, longest=9)) + "\n", "utf-8")
    return folder


def training(**more):
    return {"method": "simcse", "backbone": "tiny", "data": "text.txt", "max_steps": 2,
            "set": {"backbone.max_length": 16, "selection.every": 1, "training.batch_size": 10}, **more}


def write(plan, name="plan.yaml"):
    """A plan file of groups `train` and `eval`, with defaults unless it has some."""
    path = Path(name)
    path.write_text(yaml.safe_dump({"output": "out", "defaults": SHORT, **plan}), "utf-8")
    return path


def jobs_of(path):
    return {job.name: job for job in expand(read_plan(path), str(path))}


def place(output="out"):
    """Where tries are made: here, one thread."""
    cache = {name: os.environ[name] for name in ("STSBENCH_CACHE",) if name in os.environ}
    return Place(Path(output), Path.cwd(), 1, clock(Path(output)), cache)


def run(jobs, start, log=None, workers=2, output="out"):
    """Run jobs by name -> job; name -> (where it stands, what is said)."""
    pool = LocalPool(workers, place(output), start)
    ended = run_jobs(list(jobs.values()), pool, Path(output), ([] if log is None else log).append)
    return {job.name: (ended[job.id].where, ended[job.id].detail) for job in jobs.values()}


class Counting:
    """A start that keeps what it started: ids of jobs, in order; and calls `then` with each process."""

    def __init__(self, start, then=None):
        self.started, self._start, self._then = [], start, then

    def __call__(self, words, log, lock, place):
        process = self._start(words, log, lock, place)
        self.started.append(Path(words[words.index("--output") + 1]).name)
        if self._then:
            self._then(self, process)
        return process


@dataclass
class Scripted:
    """A training without a process: in the thread that waits for it `play(this)` leaves what it would, and gives its exit
    code."""

    play: Callable
    words: list
    folder: Path
    log: Path
    stopped: threading.Event = field(default_factory=threading.Event)

    def wait(self):
        return self.play(self)

    def terminate(self):
        self.stopped.set()

    def value(self, key):
        """What --set says of a key of the recipe."""
        return next(value for name, _, value in (word.partition("=") for word in self._sets) if name == key)

    @property
    def _sets(self):
        return [word for before, word in pairwise(self.words) if before == "--set"]

    def fails(self, line):
        with self.log.open("a", encoding="utf-8") as stream:
            stream.write(f"Something else.\nstsbench: error: {line}\n")
        return 1

    def leaves(self, *scores, ended=True):
        """A run folder with a development score after each step."""
        lines = [{"kind": "start", "stage": "main", "steps": len(scores), "seed": 1}]
        dev = {"kind": "dev", "stage": "main", "name": "sts-b dev (sample)"}
        lines += [{**dev, "step": step, "score": score, "best": score == max(scores)}
                  for step, score in enumerate(scores, 1)]
        self.folder.mkdir(parents=True)
        recipe = resolved_yaml(load_recipe(self.words[1], None, self._sets))
        (self.folder / "recipe.yaml").write_text(recipe, "utf-8")
        (self.folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        if ended:
            best = next((line for line in lines if line.get("best")), None)
            (self.folder / "train.json").write_text(json.dumps({"best": best}), "utf-8")
        return 0


def scripted(play):
    """A start of such trainings."""
    return lambda words, log, lock, place: Scripted(play, words, place.folder / words[words.index("--output") + 1], log)


def finished(output="out"):
    """Name of each training's run folder -> how often it ended, by its log."""
    return {path.parent.name: path.read_text("utf-8").count('"kind": "end"') for path in Path(output).glob("*/log.jsonl")}
