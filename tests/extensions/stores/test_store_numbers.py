"""float32, float16, int8 and binary: what is stored and what reading gives back, against numpy by hand."""

import numpy as np
import pytest
from toy_encoder import Toy

from stsbench.data.own.texts import Texts
from stsbench.encoders.similarity import packed
from stsbench.errors import EncoderError
from stsbench.extensions.stores.build import build_store
from stsbench.extensions.stores.shard import VECTORS
from stsbench.extensions.stores.shard import stored as as_stored

VECTORS_IN = np.array(
    [[1, -2, 0, .5, 0, 3e-5, -4, 8, 1], [-.5, 1, 0, .25, -1, 0, 2, -8, .1], [2, 3, 0, -1, .5, 0, 4, 1, -1]], np.float32
)


class Fixed(Toy):
    """The vector of "0", "1", "2" is that row."""

    def run(self, texts, progress=None):
        encoded = super().run(texts, progress)
        encoded.vectors.resize((len(texts), 9), refcheck=False)
        encoded.vectors[:] = VECTORS_IN[[int(text) for text in texts]]
        return encoded


def stored(tmp_path, dtype, vectors=VECTORS_IN, shard_rows=2):
    (tmp_path / "in.txt").write_text("0\n1\n2\n")
    store = build_store(Fixed(), Texts(str(tmp_path / "in.txt")), tmp_path / dtype, dtype=dtype, shard_rows=shard_rows)
    raw = [np.load(tmp_path / dtype / "shards" / f"{i:08d}" / VECTORS) for i in range(2)]
    return store, np.concatenate(raw), store.rows([0, 1, 2])


def test_float32_and_float16(tmp_path):
    _, raw, rows = stored(tmp_path, "float32")
    assert raw.dtype == np.float32 and np.array_equal(rows, VECTORS_IN)
    _, raw, rows = stored(tmp_path, "float16")
    assert raw.dtype == np.float16 and np.array_equal(rows, VECTORS_IN.astype(np.float16).astype(np.float32))


def test_int8_has_a_scale_for_each_dimension_by_the_first_shard(tmp_path):
    store, raw, rows = stored(tmp_path, "int8")
    scales = np.array([1, 2, 127, .5, 1, 3e-5, 4, 8, 1]) / 127  # the largest of rows 0 and 1; 0 throughout: 1
    assert store.manifest.scales == pytest.approx(scales) and "first 2 texts" in store.manifest.calibration
    assert raw.dtype == np.int8 and raw[0].tolist() == [127, -127, 0, 127, 0, 127, -127, 127, 127]
    assert raw[2].tolist() == [127, 127, 0, -127, 64, 0, 127, 16, -127]  # 2 of 1, 3 of 2, -1 of .5 are cut
    assert store.manifest.total("clipped") == 3
    assert rows == pytest.approx(raw * scales) and np.abs(rows[:2] - VECTORS_IN[:2]).max() <= scales.max() / 2 + 1e-6


def test_binary_holds_the_signs(tmp_path):
    store, raw, rows = stored(tmp_path, "binary")
    assert raw.shape == (3, 2) and raw.tolist() == [[0b10010101, 0b10000000], [0b01010010, 0b10000000], [0b11001011, 0]]
    assert np.array_equal(rows, np.where(VECTORS_IN > 0, 1, -1)) and store.dimension == 9
    hamming = int(np.bitwise_count(raw[0] ^ raw[1]).sum()) if hasattr(np, "bitwise_count") else 5
    assert float(rows[0] @ rows[1]) == 9 - 2 * hamming


def test_what_float16_cannot_hold(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "VECTORS_IN", VECTORS_IN * 1e5)
    with pytest.raises(EncoderError, match=r"--store-dtype float16 cannot hold 800000: use float32 or int8"):
        stored(tmp_path, "float16")


def test_bits_are_packed_as_those_of_a_smaller_copy():
    assert np.array_equal(as_stored(VECTORS_IN, "binary", None)[0], packed(VECTORS_IN))
