"""A plan may be somebody else's: code that it names runs only where the command names it, its jobs import nothing from the
working folder, and how many there are is counted before the first is made."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clirun import cli, fails, place  # noqa: F401
from plans import jobs_of, write

from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.expand import DEEPEST, MOST_JOBS, expand, job_count
from stsbench.extensions.jobs.plan_file import read_plan
from stsbench.extensions.jobs.pool import PROGRAM

METHOD = 'open("RAN", "w").write("x")\nfrom stsbench.methods.simcse.method import SimCSE\nclass M(SimCSE):\n    pass\n'
GROUP = {"backbone": "minilm", "max_steps": 1, "recipe": "unsup-bert-base"}


@pytest.mark.parametrize(
    "plan, named",
    [
        ({"train": {"t": {"method": "m.py:M", **GROUP}}}, "m.py:M"),
        ({"train": {"t": {"method": ["simcse", "./m.py:M"], **GROUP}}}, "./m.py:M"),
        ({"train": {"t": {"method": "/proc/self/cwd/m.py:M", **GROUP}}}, "/proc/self/cwd/m.py:M"),
        ({"eval": {"e": {"model": ["minilm", "python:mine_cli:hashed"]}}}, "python:mine_cli:hashed"),
        ({"eval": {"e": {"model": "python:subprocess:call"}}}, "python:subprocess:call"),
        ({"eval": {"e": {"model": "{data_dir}"}}, "defaults": {"data_dir": "python:os:system"}}, "python:os:system"),
    ],
)
def test_code_is_run_only_where_the_command_names_it(cli, place, plan, named):
    (place / "m.py").write_text(METHOD, "utf-8")
    before = {*sys.modules}
    path = write(plan)
    for words in ((), ("--status",), ("--dry-run",), ("--allow", "m.py:N"), ("--allow", "python:mine_cli:flat")):
        fails(cli("run", path, *words), "names code", f"--allow {named}")
    assert not Path("RAN").exists() and not any("stsbench_method" in name for name in {*sys.modules} - before)


def test_what_the_command_names_is_run(cli, place):
    (place / "m.py").write_text(METHOD.replace('open("RAN", "w").write("x")', ""), "utf-8")
    (place / "unsup-bert-base.yaml").write_text(
        "backbone: {model: minilm}\nselection: {by: none}\ndata: {file: text.txt}\n", "utf-8")
    path = write({"train": {"t": {"method": "./m.py:M", **GROUP}}, "eval": {"e": {"model": "python:mine_cli:hashed"}}})
    code, out, _ = cli("run", path, "--dry-run", "--allow", "m.py:M", "--allow", "python:mine_cli:hashed")
    assert code == 0 and [line.split()[1:3] for line in out.splitlines()] == [["train", "./m.py:M"], ["eval", "--model"]]


# How many -------------------------------------------------------------------------------------------------------------


def test_jobs_are_counted_before_they_are_made(place):
    many = [f"m{number}" for number in range(1300)]
    path = write({
        "train": {"a": {"method": ["simcse", "ct"], "seeds": [*range(800)], "backbone": many},
                  "b": {"method": "simcse", "backbone": "job:a", "seeds": [*range(800)]}},
        "eval": {"e": {"model": "job:b"}},
    })
    began = time.monotonic()
    with pytest.raises(StsbenchError, match=rf"it has {3 * 2 * 1300 * 800:,} jobs, and a plan may have {MOST_JOBS:,}"):
        jobs_of(path)
    assert time.monotonic() - began < 2


def test_a_chain_of_groups_is_refused_beyond_a_length_and_circles_by_their_way(place):
    chain = {f"g{at}": {"method": "simcse", "backbone": f"job:g{at + 1}"} for at in range(3000)}
    with pytest.raises(StsbenchError, match=f"more than {DEEPEST} groups go on from one another"):
        jobs_of(write({"train": {**chain, "g3000": {"method": "simcse"}}}))
    wide = {f"g{at}": {"method": "simcse", "backbone": [f"job:g{at + 1}"] * 99} for at in range(60)}
    with pytest.raises(StsbenchError, match="a plan may have"):
        jobs_of(write({"train": {**wide, "g60": {"method": "simcse"}}}))
    with pytest.raises(StsbenchError, match="jobs run in a circle"):
        jobs_of(write({"train": {name: {"method": "simcse", "backbone": f"job:{other}"} for name, other in ("ab", "ba")}}))


def test_the_count_is_that_of_the_jobs(place):
    plan = read_plan(write({
        "train": {"a": {"method": ["simcse", "ct"], "seeds": [1, 2]}, "b": {"method": "simcse", "backbone": ["job:a", "x"]},
                  "c": {"method": "simcse", "backbone": "job:a.ct-1", "seeds": [1, 2, 3], "max_steps": 7}},
        "eval": {"e": {"model": ["job:a", "job:b", "job:c-2", "minilm"], "protocols": ["sts", "transfer"]}},
    }))
    assert job_count(plan, "") == len(expand(plan, "")) == 4 + 3 + 3 + 2 * (4 + 3 + 1 + 1)


# Modules of the working folder ----------------------------------------------------------------------------------------


def shadow(folder):
    """Files with the names of modules that any command imports."""
    for name in ("tokenize", "click", "numpy", "socket", "pickle", "yaml", "json", "multiprocessing", "joblib", "torch"):
        (folder / f"{name}.py").write_text("open('RAN', 'a').write(__name__)\nraise SystemExit(7)\n", "utf-8")


def test_processes_that_a_command_spawns_look_for_none_there_either(cli, place, monkeypatch):
    """As those of --processes, and joblib's."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert cli("list", "methods")[0] == 0
    shadow(place)
    spawned = multiprocessing.get_context("spawn").Process(target=os.getpid)
    spawned.start()
    spawned.join(60)
    assert spawned.exitcode == 0 and not Path("RAN").exists()


def test_every_process_that_is_started_looks_for_no_module_in_the_working_folder(place):
    """Jobs, entries for the board, what they start in turn, and `python -m stsbench` itself."""
    shadow(place)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    words = ["eval", "--model", "lexical:tfidf", "--sample", "--tasks", "STS-B", "--resamples", "0", "--output"]
    for program, command in (PROGRAM, [*words, "run"]), ((sys.executable, "-m", "stsbench"), ["score", "run"]):
        ended = subprocess.run([*program, *command], env=environment, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 0 and not Path("RAN").exists(), ended.stderr
