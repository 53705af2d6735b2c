"""Jobs with a part of a GPU, on a node that Ray is told has one."""

import subprocess
import time
from pathlib import Path

from plans import here, jobs_of, place, training, write  # noqa: F401 - a fixture
from ray_nodes import ray_address  # noqa: F401 - a fixture

from stsbench.extensions.jobs.pool import RayPool


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
