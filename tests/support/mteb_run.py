"""A run of mteb's STSBenchmark, on invented data that stand where the Hub's would."""

import gzip
import hashlib
import json
import zlib

import numpy as np
import pytest

from stsbench.evaluation.api import evaluate

RAW = "raw/stsbenchmark-sts/test.jsonl.gz"
SIZE = 1379  # what MTEB's STSBenchmark holds


def vectors(texts):
    return np.array([[(zlib.crc32(t.encode()) >> s) % 97 for s in (0, 5, 11, 17)] for t in texts], dtype=float) + 1


vectors.fingerprint = "export-1"


def hub_file(root, pairs=SIZE, lock=True):
    """A data folder with an invented file where the Hub's STS-B would be, and the lock that its fetch would leave."""
    lines = [{"sentence1": f"word {i}", "sentence2": f"other {i * 7 % 31}", "score": i % 11 / 2} for i in range(pairs)]
    path = root / RAW
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    if lock:
        (root / "lock.json").write_text(json.dumps({RAW: hashlib.sha256(path.read_bytes()).hexdigest()}))
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of mteb's STSBenchmark on data that are known to be the Hub's."""
    folder = tmp_path_factory.mktemp("export")
    data = hub_file(folder / "data")
    options = {"protocols": ["mteb:STSBenchmark"], "text_version": "raw", "data_dir": data, "no_cache": True}
    result = evaluate(vectors, output=folder / "run", **options)
    assert not result.failures and result.rows[0].n == SIZE
    return result.folder
