"""Observations that are damaged, or as somebody made them: one line that names the file, and no bomb is unpacked."""

import hashlib
import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest

from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.records import load_records
from stsbench.evaluation.rescore import MOST_UNPACKED, read_observations, score_again


@pytest.fixture
def run(tmp_path):
    return evaluate("lexical:token-set", output=tmp_path / "run", sample=True, tasks=["STS-B"], resamples=30)


def packed(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("_", "."), content)
    return buffer.getvalue()


def plain():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


DAMAGE = {
    "nothing": lambda good: b"",
    "garbage": lambda good: b"not a zip",
    "an array alone": lambda good: plain(),
    "cut": lambda good: packed(**good)[:-200],
    "bytes changed": lambda good: packed(**good)[:300] + b"\xff" * 200 + packed(**good)[500:],
    "objects": lambda good: packed(**{**good, "gold": good["gold"].astype(object)}),
    "no array": lambda good: zipped(gold_npy=b"\x93NUMPY"),
    "a text file": lambda good: zipped(gold_txt=b"1 2 3"),
    "too much": lambda good: zipped(gold_npy=b"\0" * (MOST_UNPACKED + 1)),
    "missing": lambda good: packed(**{key: value for key, value in good.items() if key != "similarity"}),
    "no names": lambda good: packed(**{key: value for key, value in good.items() if key != "names.subsets"}),
    "short gold": lambda good: packed(**{**good, "gold": good["gold"][:-1]}),
    "short pair": lambda good: packed(**{**good, "pair": good["pair"][:-1]}),
    "two columns": lambda good: packed(**{**good, "similarity": np.stack([good["similarity"]] * 2)}),
    "strings": lambda good: packed(**{**good, "similarity": np.full(len(good["gold"]), "x")}),
    "names of numbers": lambda good: packed(**{**good, "names.subsets": np.array([1, 2])}),
    "a name alone": lambda good: packed(**{**good, "names.subsets": np.array("STS")}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_observations_are_one_line_that_names_the_file(run, damage):
    """As the record would have it: its sha256 is that of the damaged file."""
    path, record = load_records(run.folder)[0]
    file = path.parent / record.observations.file
    with np.load(file) as stored:
        content = DAMAGE[damage](dict(stored))
    file.write_bytes(content)
    edited = json.loads(path.read_text())
    edited["observations"]["sha256"] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(edited))
    with pytest.raises(StsbenchError) as caught:
        score_again(run.folder)
    assert type(caught.value) is StsbenchError and str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    path.write_bytes(zipped(gold_npy=b"\0" * (MOST_UNPACKED + 1)))
    assert path.stat().st_size < 2_000_000
    tracemalloc.start()
    with pytest.raises(StsbenchError, match="would unpack to 256 MB, at most 256"):
        read_observations(path, hashlib.sha256(path.read_bytes()).hexdigest())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20_000_000
