"""`stsbench canary`: the same model passes, another reading is named, and the file is one of vectors."""

from __future__ import annotations

import numpy as np
from clirun import cli, place  # noqa: F401 - fixtures
from numpy.testing import assert_allclose
from tiny_models import build

from stsbench import load_encoder
from stsbench.extensions.parity.canary import check_canary, make_canary


def test_a_changed_pooler_is_named_without_the_other_model(tmp_path):
    folder, path = str(build(tmp_path / "model")), tmp_path / "c.npz"
    make_canary(folder, path, options={"pooler": "mean"})
    assert check_canary(folder, path, options={"pooler": "mean"}).verdict == "equal"
    changed = check_canary(folder, path, options={"pooler": "cls"})
    assert changed.verdict == "different" and changed.causes == ("pooling is mean instead of cls",)
    texts = np.load(path)["texts"].tolist()
    stored, now = (load_encoder(name, pooler=pooler).encode(texts) for name, pooler in (
        (f"vectors:{path}", None), (folder, "mean")))
    assert_allclose(stored, now, atol=1e-6)


def test_the_commands(place, cli):
    assert cli("canary", "make", "lexical:char-ngrams", "c.npz")[0] == 0
    code, out, err = cli("canary", "check", "lexical:char-ngrams", "c.npz")
    assert code == 0 and "equal: on the 118 texts of the package" in out and "the canary c.npz is of " in err
    assert cli("canary", "check", "lexical:token-set", "c.npz", "--no-why")[0] == 3
