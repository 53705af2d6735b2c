"""Runs on the sample for boards, made once a session: as if by a checkout without changes, so that boards take them."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from stsbench.api import evaluate
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec

REVISION = "0123456789abcdef0123456789abcdef01234567"


class Letters(Encoder):
    """Counts of letters with noise: the more noise, the worse. `seed` makes another encoder of the same kind."""

    cacheable = False

    def __init__(self, seed, noise):
        weights = hashlib.sha256(f"{seed} {noise}".encode()).hexdigest()
        self.seed, self.noise, self.spec = seed, noise, EncoderSpec(name="letters", kind="callable", weights=weights)

    def run(self, texts, progress=None):
        out = np.zeros((len(texts), 27), dtype=np.float32)
        for row, text in enumerate(texts):
            for letter in text.lower():
                out[row, ord(letter) % 27] += 1
            out[row] += self.noise * np.random.default_rng([self.seed, *text.encode()]).normal(size=27)
        return Encoded(out, np.zeros(len(texts), dtype=bool))


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Name -> run folder: token-set, and letters at two levels of noise, of which `noisy` has two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    patch = pytest.MonkeyPatch()
    patch.setattr("stsbench.provenance.git_revision", lambda: REVISION)
    made = {}
    try:
        for name, model in {"words": "lexical:token-set", "letters": Letters(0, 0.1), "noisy": Letters(1, 6.0),
                            "noisy-2": Letters(2, 6.0)}.items():  # fmt: skip
            chosen = evaluate(model, protocols=["sts", "retrieval", "geometry"], output=folder / name, sample=True)
            assert not chosen.failures
            made[name] = chosen.folder
    finally:
        patch.undo()
    return made


@pytest.fixture
def copied(runs, tmp_path):
    """`copied(name)`: a run of one's own to damage."""

    def copy(name):
        return Path(shutil.copytree(runs[name], tmp_path / f"copy-{name}"))

    return copy
