"""A store that tasks of Ray write is the store that one process writes, also where one of them is killed."""

import sys
from pathlib import Path

import pytest
import tiny_models
from ray_nodes import ray_address  # noqa: F401 - a fixture

import stsbench
from stsbench.errors import EncoderError

DYING = """
import os, signal
from pathlib import Path

def vectors(texts):
    if "RAY_JOB_ID" in os.environ and "text 39" in texts and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [[len(text), 1] for text in texts]

def bad(texts):
    raise RuntimeError("no such word")

vectors.fingerprint = bad.fingerprint = "1"
"""


@pytest.mark.parametrize(("model", "how"), [("tiny", {"pooler": "mean"}), ("python:dying:vectors", {})])
def test_the_store_of_one_process_byte_for_byte(ray_address, tmp_path, monkeypatch, model, how):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    Path("dying.py").write_text(DYING, "utf-8")
    tiny_models.build(Path("tiny"))
    Path("texts.txt").write_text("".join(f"text {i}\n" for i in range(95)), "utf-8")
    for store, more in (("one", {}), ("two", {"ray": ray_address, "processes": 2, "device": "cpu"})):
        stsbench.encode(model, "texts.txt", store, shard_size=10, **how, **more)
    one, two = ({path.relative_to(store): path.is_file() and path.read_bytes() for path in Path(store).rglob("*")}
                for store in ("one", "two"))
    assert one == two and Path("killed").exists() == (model != "tiny")
    with pytest.raises(EncoderError, match=r"python:dying:bad.*RuntimeError: no such word"):
        stsbench.encode("python:dying:bad", "texts.txt", "three", ray=ray_address, device="cpu")
    sys.modules.pop("dying", None)
