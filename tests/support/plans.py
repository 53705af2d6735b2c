"""Plans of tiny trainings, run by two workers whose jobs start in a moment."""

import os
from pathlib import Path

import pytest
import tiny_models
import yaml
from job_server import HELD, JobServer

from stsbench.extensions.jobs.expand import expand
from stsbench.extensions.jobs.plan_file import read_plan
from stsbench.extensions.jobs.pool import LocalPool, Place
from stsbench.extensions.jobs.schedule import run_jobs
from stsbench.extensions.jobs.state import clock

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
    tiny_models.build(Path("tiny"), pooler=False)
    Path("text.txt").write_text("\n".join(tiny_models.sentences(40, longest=9)) + "\n", "utf-8")
    return tmp_path


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
    cache = {name: os.environ[name] for name in ("STSBENCH_CACHE", HELD) if name in os.environ}
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


def finished(output="out"):
    """Name of each training's run folder -> how often it ended, by its log."""
    return {path.parent.name: path.read_text("utf-8").count('"kind": "end"') for path in Path(output).glob("*/log.jsonl")}


def alive(process):
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
