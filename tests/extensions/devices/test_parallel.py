"""Several processes: the vectors of one, the errors of one line, and no process that stays. A store that
tasks of Ray write is the store that one process writes, also where one of them is killed."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from clirun import cli, evaluate, fails, place  # noqa: F401 - fixtures
from known_encoder import Known, check_known
from ray_nodes import ray_address  # noqa: F401 - a fixture
from toy_encoder import Toy
from workers import forks, in_this_process  # noqa: F401 - a fixture

from stsbench import encode, load_encoder
from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.encoders.traits import TextTask
from stsbench.errors import EncoderError
from stsbench.evaluation import api
from stsbench.evaluation.result import Result
from stsbench.extensions.devices.options import DeviceOptions, chosen_devices
from stsbench.extensions.devices.parallel import ParallelEncoder, Workers, equal_up_to_rounding

MODULE = """
import os
from pathlib import Path
import numpy as np

def vectors(texts):
    Path(f"pid-{os.getpid()}").touch()
    return np.array([[len(t), sum(map(ord, t)) % 97] for t in texts], dtype=float) / 3

def changing(texts): return vectors(texts) + os.getpid()
def bad(texts): raise RuntimeError("no such word")
def dead(texts): os._exit(7)
def unknown(texts): raise RuntimeError("no vectors to know it by")

def dying(texts):
    if "RAY_JOB_ID" in os.environ and "text 39" in texts and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), 9)
    return [[len(text), 1] for text in texts]

vectors.fingerprint = bad.fingerprint = dead.fingerprint = dying.fingerprint = "1"
"""
TEXTS = [f"text {'x' * (i % 13)} {i}" for i in range(90)]


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mine_parallel.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield "python:mine_parallel"
    sys.modules.pop("mine_parallel", None)
    assert not multiprocessing.active_children()


def both(model):
    """The encoder in this process, and what `load_encoder` made it of."""
    options = EncoderOptions(model=model)
    return load_encoder(model, options), options


def test_a_process_computes_the_vectors_of_this_one_and_ends_with_its_pipe(module, tmp_path):
    encoder, options = both(f"{module}:vectors")
    expected, steps, cache = encoder.encode(TEXTS), [], EmbeddingCache(tmp_path / "cache")
    Path(f"pid-{os.getpid()}").unlink()
    with DeviceOptions(devices="cpu").computed(encoder, options) as other:
        assert other.processes == 1 and other.spec == encoder.spec and other.for_role("query") is other
        encoded = encode_cached(other, TEXTS, cache, steps.append)
        assert sum(steps) == len(TEXTS) and np.array_equal(encoded.vectors, expected)
        assert other.encode([TEXTS[7]]).tolist() == [expected[7].tolist()]
        [worker] = other._workers._workers
        assert [path.name for path in tmp_path.glob("pid-*")] == [f"pid-{worker._process.pid}"]
        worker.connection.close()  # as the system does when this process is killed
        assert worker._process.join(30) or worker._process.exitcode == 0
    assert cache.get(cache_key(encoder), TEXTS).mask.all()
    with DeviceOptions().computed(encoder, options) as alone:
        assert alone is encoder


@pytest.mark.parametrize(("function", "said"), [
    ("bad", r"python:mine_parallel:bad.*RuntimeError: no such word"),
    ("dead", "ended with exit code 7: if it lacked memory, use fewer --processes"),
    ("changing", "another encoder in the process that was started: .* or its weights are drawn anew whenever")])
def test_what_fails_in_a_process_is_one_line(module, forks, function, said):
    encoder, options = both(f"{module}:{function}")
    with DeviceOptions(processes=2).computed(encoder, options) as two, pytest.raises(EncoderError, match=said) as failed:
        two.encode(TEXTS)
    assert "\n" not in str(failed.value)


def test_what_one_process_has_to_compute(module):
    encoder, options = both(f"{module}:unknown")
    with pytest.raises(EncoderError, match="has no identity, so"), DeviceOptions(processes=2).computed(encoder, options):
        pass

    class Sparse(Workers):
        def run(self, task, jobs, progress=None):
            return (task(words, job, lambda count: None) for job in jobs)

    words = load_encoder("lexical:token-set")
    sparse = ParallelEncoder(Toy(), Sparse("toy", EncoderOptions(), [None, None], words))
    with pytest.raises(EncoderError, match="sparse vectors, which one process computes"):
        sparse.encode(["a b", "c"])


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert chosen_devices(None, None, "cpu") == [] == chosen_devices(None, 1, None)
    assert chosen_devices("cuda:0, cuda:1", None, None) == ["cuda:0", "cuda:1"]
    assert chosen_devices(None, 2, None) == [None, None] and chosen_devices(None, 2, "cpu") == ["cpu", "cpu"]
    for devices, said in (("all", "'all': there is no CUDA device"), (" ,", "it names no device")):
        with pytest.raises(EncoderError, match=said):
            chosen_devices(devices, None, None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert chosen_devices("all", None, None) == ["cuda:0", "cuda:1"]
    assert chosen_devices(None, 3, None) == ["cuda:0", "cuda:1", "cuda:0"]


@pytest.mark.parametrize("read", [
    lambda made: made, lambda made: made.with_prompt("x: ").for_role("query"),
    lambda made: made.for_task(TextTask("T", "STS")),
], ids=["as it is", "behind a prompt and in a role", "of a task"])
def test_whatever_is_known_of_an_encoder_is_known_in_processes(read):
    base = Known()
    made = read(ParallelEncoder(base, in_this_process(base, 2)))
    assert isinstance(made, ParallelEncoder) and made.spec.prefix == read(base).spec.prefix
    check_known(made, base)


def test_eval_below_torchrun_is_one_run_in_as_many_processes(evaluate, monkeypatch):
    def torchrun(rank, machines=1):
        told = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2 // machines, "RANK": rank, "LOCAL_RANK": rank % (2 // machines)}
        for name, value in told.items():
            monkeypatch.setenv(name, str(value))

    asked = []
    monkeypatch.setattr(api, "run", lambda options, **_: asked.append(options.processes) or Result(options.output))
    for rank, more in ((1, ()), (0, ()), (0, ("--devices", "cpu,cpu")), (0, ("--processes", "3"))):
        torchrun(rank)
        evaluate("lexical:token-set", *more)
        assert ("WORLD_SIZE" in os.environ) == (rank == 1)  # no library waits for the processes that have ended
    assert asked == [2, None, 3]
    torchrun(1)
    assert evaluate("lexical:token-set")[0] == 0
    torchrun(0, machines=2)
    fails(evaluate("lexical:token-set"), "`stsbench eval` runs on one machine", "leave --nnodes out")


def test_two_processes_give_one_run_with_the_same_scores(cli, place, forks):
    """The function has no fingerprint: each process knows it by its vectors."""
    scores = []
    for count in (1, 2):
        code, out, err = cli("eval", "--model", "python:mine_cli:hashed", "--sample", "--tasks", "STS-B", "--resamples", "0",
                             "--output", "measured", "--json", "-", "--no-cache", "--processes", count)
        assert code == 0, err
        scores.append([(row["task"], row["metric"], row["value"]) for row in json.loads(out)])
    assert scores[0] == scores[1] and sorted(path.name for path in place.glob("m*d*")) == ["measured", "measured-2"]


SCRIPT = """
from pathlib import Path
from stsbench import load_encoder
from stsbench.encoders.base import EncoderOptions
from stsbench.extensions.devices.options import DeviceOptions
MODEL = "python:__main__:f"
def f(texts): return [[len(t), t.count("a"), len(t) % 7] for t in texts]
def work():
    with DeviceOptions(devices="cpu").computed(load_encoder(MODEL), EncoderOptions(model=MODEL)) as other:
        print("SHAPE", other.encode(["a", "bb", "ccc"]).shape, flush=True)
if __name__ == "__main__":
    work()
    Path("bare").touch()
if Path("bare").exists():
    work()
"""


def test_a_script_without_a_main_guard_is_told_of_it(tmp_path):
    """It computes by a function of its own below the guard, and then without one."""
    (tmp_path / "started_x.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "started_x.py"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout == "SHAPE (3, 3)\n" and '__name__ == "__main__"' in done.stderr.strip().splitlines()[-1], done.stderr


def test_rounding_is_not_another_encoder_and_weights_are():
    one = np.random.default_rng(1).normal(size=(2, 4, 8)).astype(np.float32)
    assert equal_up_to_rounding(tuple(one), tuple(one * np.float32(1 + 1e-6)))
    assert not equal_up_to_rounding(tuple(one), tuple(one * 1.1)) and not equal_up_to_rounding((), ())


def test_the_store_of_one_process_byte_for_byte(ray_address, module, monkeypatch):
    """Also where one of them is killed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("texts.txt").write_text("".join(f"text {i}\n" for i in range(95)), "utf-8")
    for store, more in (("one", {}), ("two", {"ray": ray_address, "processes": 2, "device": "cpu"})):
        encode(f"{module}:dying", "texts.txt", store, shard_size=10, **more)
    one, two = ({path.relative_to(store): path.is_file() and path.read_bytes() for path in Path(store).rglob("*")}
                for store in ("one", "two"))
    assert one == two and Path("killed").exists()
    with pytest.raises(EncoderError, match=r"python:mine_parallel:bad.*RuntimeError: no such word"):
        encode(f"{module}:bad", "texts.txt", "three", ray=ray_address, device="cpu")
