"""A plan of tiny trainings: each job once, whatever is killed and however many work on it; nothing twice. Nodes
are shared out so that any of them can run any task; jobs with a part of a GPU, on a node that Ray is told has one."""

import fcntl
import random
import shlex
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clirun import cli, fails  # noqa: F401
from plans import SHORT, Counting, finished, here, jobs_of, place, run, scripted, start, training, write  # noqa: F401
from ray_nodes import ray_address  # noqa: F401
from run_edits import write_rows

import stsbench
from stsbench.evaluation.run_file import load_records
from stsbench.extensions.cluster import shares
from stsbench.extensions.jobs import plan as plan_module
from stsbench.extensions.jobs import schedule
from stsbench.extensions.jobs.pool import LocalPool, RayPool, attempt, devices
from stsbench.extensions.jobs.schedule import TRIES
from stsbench.extensions.jobs.state import checkpoints, is_done, job_lock, note_path, standings

DONE = ("done", "")


def test_every_job_once_though_one_is_killed_and_then_nothing(here, start):
    """Three trainings, one of which starts from another, and its evaluation."""
    jobs = jobs_of(write({
        "train": {"a": training(seeds=[1, 2]), "b": training(backbone="job:a", seeds=[1], max_steps=1)},
        "eval": {"e": {"model": "job:b", "tasks": "STS-B", "resamples": 0}}}))
    draw = random.Random(3)
    victim, log = draw.randrange(3), []

    def kill(counting, process):
        if len(counting.started) == victim + 1:
            threading.Timer(draw.uniform(0, 0.5), process.kill).start()

    counting = Counting(start, kill)
    assert run(jobs, counting, log) == dict.fromkeys(jobs, DONE)
    killed = [line for line in log if "killed by SIGKILL" in line]
    assert len(counting.started) == len(jobs) + len(killed)
    assert finished() == {job.id: 1 for job in jobs.values() if job.kind == "train"}
    again = Counting(start)
    assert run(jobs, again) == dict.fromkeys(jobs, DONE)
    assert again.started == []
    folder = jobs["e.b-1"].folder(Path("out"))
    assert len(load_records(folder)) == 1
    write_rows(folder, [])  # the evaluation is not whole any more: it alone is repeated
    assert run(jobs, again) == dict.fromkeys(jobs, DONE) and again.started == [jobs["e.b-1"].id]


def test_a_plan_is_run_once(here, start, cli, capsys, monkeypatch):
    """By `stsbench.run_plan` and the command alike."""
    monkeypatch.setattr(plan_module, "LocalPool", lambda workers, where: LocalPool(workers, where, start))
    plan = {"output": "out", "defaults": SHORT, "train": {"small": training()}, "eval": {"test": {
        "model": ["lexical:token-set", "job:small"], "protocols": "sts", "tasks": "STS-B", "resamples": 0}}}
    path = write({key: plan[key] for key in ("train", "eval")})
    planned = stsbench.run_plan(plan, dry_run=True, only="test")  # and what it needs
    _, lines, _ = cli("run", path, "--dry-run", "--only", "test")
    assert [row["command"] for row in planned.rows] == lines.splitlines() and len(planned.rows) == 3
    assert not Path("out").exists() and {row["state"] for row in planned.rows} == {"waiting"}
    done = stsbench.run_plan(path)
    assert capsys.readouterr() == ("", "")
    assert repr(done) == "<Jobs: 3 done; run folders in out>" and not done.failures
    for row in done.rows:
        assert shlex.split(row["command"])[-1] == row["folder"] and Path(row["folder"]).is_dir()
    _, shown, _ = cli("run", path, "--status")
    for row in done.rows:
        assert any(row["job"] in line and row["result"] in line for line in shown.splitlines())
    assert stsbench.run_plan(plan, only="small").to_pandas().job.tolist() == [done.rows[0]["job"]]
    assert str(done).count("\n") == 5
    assert stsbench.run_plan(plan, dry_run=True).rows == []
    assert cli("run", path) == (0, "", "3 jobs, all done: nothing to run\n")
    fails(cli("run", path, "--add-to-board", "board"), "plan.yaml: no group has an entry to add to board")


def test_a_training_that_is_killed_goes_on_as_often_as_it_gets_on(here, start, monkeypatch):
    """Two kills, each after another checkpoint, where two in a row would end it."""
    monkeypatch.setattr(schedule, "TRIES", 2)
    jobs = jobs_of(write({"train": {"a": training(max_steps=16, set={
        "selection.every": 1, "training.batch_size": 10, "training.epochs": 4, "backbone.max_length": 16})}}))
    (job,) = jobs.values()
    seen = set()

    def kill(counting, process):
        while len(counting.started) <= 2 and Path(f"/proc/{process.pid}").exists():
            if there := checkpoints(job, Path("out")) - seen:
                seen.update(there)
                process.kill()
                return
            time.sleep(0.01)

    counting = Counting(start, kill)
    assert run(jobs, counting) == {"a-1": DONE}
    words = note_path(Path("out"), job, "log").read_text("utf-8").split("\n")
    commands = [line for line in words if line.startswith("$ ")]
    assert len(counting.started) == len(commands) == 3
    assert standings([job], Path("out"))[job.id].detail.endswith("; try 3")
    assert commands[1:] == [f"{commands[0]} --resume"] * 2
    assert sum(line.startswith("resumed at step") for line in words) == 2
    assert finished() == {job.id: 1}


def test_losses_count_from_the_last_checkpoint_and_only_where_a_process_had_started():
    losses, none, one = schedule.Losses(), frozenset(), frozenset({"0-1"})
    counted = []
    for there, launched in ((none, 0), (none, 1), (none, 1), (none, 2), (one, 3), (one, 4), (one, 4)):
        losses.count(there, launched)
        counted.append((losses.tries, losses.starts))
    assert counted == [(0, 1), (1, 1), (1, 2), (2, 1), (1, 1), (2, 1), (2, 2)]


def test_what_is_killed_every_time_is_given_up(here):
    jobs = jobs_of(write({"train": {"a": training()}}))
    counting = Counting(scripted(lambda job: -signal.SIGKILL))
    assert run(jobs, counting) == {"a-1": ("failed", f"killed by SIGKILL at {TRIES} tries")}
    assert len(counting.started) == TRIES


def test_a_failing_job_stops_what_needs_it_and_nothing_else(here):
    def play(job):
        return job.leaves(60.0) if "bad" not in job.folder.name else job.fails("--backbone nobody/nothing: no such folder")

    jobs = jobs_of(write({"train": {
        "bad": training(backbone="nobody/nothing"), "needs": training(backbone="job:bad"), "good": training(),
        "after": training(backbone=["job:needs", "job:good"])}}))
    ended = run(jobs, scripted(play))
    assert {name: where for name, (where, _) in ended.items()} == {
        "bad-1": "failed", "needs-1": "stopped", "good-1": "done", "after.needs-1": "stopped", "after.good-1": "done"}
    assert ended["bad-1"][1] == "--backbone nobody/nothing: no such folder"
    assert ended["needs-1"][1] == "needs bad-1" and ended["after.needs-1"][1] == "needs needs-1"
    seen = {job.name: standings(list(jobs.values()), Path("out"))[job.id] for job in jobs.values()}
    assert {name: each.where for name, each in seen.items()} == {name: where for name, (where, _) in ended.items()}
    assert seen["bad-1"].detail == ended["bad-1"][1] and seen["good-1"].detail == "sts-b dev (sample) 60.00"
    counting = Counting(scripted(play))
    run(jobs, counting)  # another call tries again what has failed
    assert counting.started == [jobs["bad-1"].id]


def test_two_calls_at_once_share_a_plan(here):
    def play(job):
        time.sleep(0.2)
        return job.leaves(60.0)

    jobs = jobs_of(write({"train": {"a": training(seeds=list(range(6)))}}))
    counting, logs = Counting(scripted(play)), ([], [])
    with ThreadPoolExecutor(2) as threads:
        ended = list(threads.map(lambda log: run(jobs, counting, log), logs))
    assert ended == [dict.fromkeys(jobs, DONE)] * 2
    assert sorted(counting.started) == sorted(job.id for job in jobs.values())
    assert all(" in " in "".join(log) for log in logs)  # both did some


def test_a_job_s_process_keeps_the_lock_when_its_worker_is_gone(here, start):
    (job,) = jobs_of(write({"train": {"a": training(max_steps=50)}})).values()
    with job_lock(Path("out"), job) as lock:
        log = note_path(Path("out"), job, "log")
        log.touch()
        process = start(job.command(Path("out")), log, lock, place())
    assert attempt(job, place(), start).how == "busy"  # the worker has let go of it
    assert standings([job], Path("out"))[job.id].where == "running"
    process.kill()
    process.wait()
    assert standings([job], Path("out"))[job.id].where in ("interrupted", "waiting")
    with job_lock(Path("out"), job) as lock:
        assert lock is not None and not is_done(job, Path("out"))


def test_what_fails_elsewhere_is_not_tried_here(here):
    """A call takes over what failed since it began; an older failure is tried again."""
    (job,) = jobs_of(write({"train": {"a": training()}})).values()
    counting, older = Counting(scripted(lambda job: job.fails("no such folder"))), place()
    assert attempt(job, older, counting).how == "failed"
    assert attempt(job, older, counting).how == "failed" and len(counting.started) == 1
    with note_path(Path("out"), job, "lock").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert attempt(job, place(), counting).how == "busy"
    assert attempt(job, place(), counting).how == "failed" and len(counting.started) == 2


def test_a_worker_in_another_folder_leaves_the_result_where_the_plan_is(here, start, tmp_path_factory, monkeypatch):
    """Ray's workers run where Ray was started."""
    (job,) = jobs_of(write({"train": {"a": training()}})).values()
    where = place()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert attempt(job, where, start).how == "done"
    assert not list(Path.cwd().iterdir()) and is_done(job, here / "out")
    words = note_path(here / "out", job, "log").read_text("utf-8").splitlines()[0]
    assert f"--output out/{job.id}" in words  # as one would type it


def test_devices_are_shared_out():
    for listed, names in (("", []), ("3", []), ("0,1", ["0", "1"]), ("0, 2 ,", ["0", "2"])):
        assert devices(listed) == names


@pytest.mark.parametrize(("nodes", "threads", "gpus", "share"), [
    ([(8, 0)], 4, 0, (4, 2)),
    ([(4, 0), (2, 0)], 8, 0, (2, 3)),  # not 4: when the larger node is lost, no other one has as many
    ([(4, 0), (2, 0), (0, 0)], 2, 0, (2, 3)),
    ([(0, 0)], 2, 0, (2, 0)),
    ([(64, 0), (16, 8)], 64, 1, (2, 8)),
    ([(16, 8), (32, 4)], 4, 1, (2, 12)),
    ([(2, 4)], 4, 1, (1, 2)),
    ([(8, 0)], 4, 1, (4, 0)),
    ([(8, 1)], 8, 0.25, (2, 4)),
    ([(2, 1)], 8, 0.25, (1, 2)),
    ([(64, 5)], 1, 0.4, (1, 10)),  # none is spread over two
    ([(64, 2)], 1, 0.1, (1, 20))])
def test_what_a_task_has_and_how_many_there_is_room_for(nodes, threads, gpus, share):
    assert shares(nodes, threads, gpus) == share


def test_four_jobs_with_a_quarter_of_a_gpu_run_at_once_and_five_do_not(here, ray_address):
    def start(words, log, lock, workspace):  # a function in a function travels by its code
        wait = 'echo "$CUDA_VISIBLE_DEVICES" > "started-$$" && while [ ! -e go ]; do sleep .05; done'
        return subprocess.Popen(["sh", "-c", wait], cwd=workspace.folder)

    jobs = jobs_of(write({"train": {"a": training(seeds=[1, 2, 3, 4, 5])}}))
    pool, ended = RayPool(ray_address, None, place(), .25, start), []
    try:
        assert pool.workers == 4
        for job in jobs.values():
            pool.submit(job)
        while len(there := list(here.glob("started-*"))) < 4:
            time.sleep(.05)
        time.sleep(.3)
        assert len(list(here.glob("started-*"))) == 4
        Path("go").touch()
        while len(ended) < 5:
            ended += pool.wait(30)
    finally:
        pool.stop()
    assert {path.read_text("utf-8") for path in there} == {"0\n"}
    assert {outcome.line for _, outcome in ended} == {"the command ended without its result"}
