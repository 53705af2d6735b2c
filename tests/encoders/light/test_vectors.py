"""vectors:FILE.npz: looking up, and what damage does; its refusals are rows of tests/refusals/encoders.yaml."""

import itertools

import numpy as np
import pytest

from stsbench.encoders.load import load_encoder
from stsbench.encoders.post import source
from stsbench.errors import EncoderError

TEXTS = ["a", "b b", "ü"]
VECTORS = np.arange(6, dtype=np.float64).reshape(3, 2)


def save(tmp_path, **arrays):
    path = tmp_path / "v.npz"
    np.savez(path, **arrays)
    return f"vectors:{path}"


def test_rows_come_back_in_the_order_asked_for(tmp_path):
    encoder = load_encoder(save(tmp_path, texts=np.array(TEXTS), vectors=VECTORS))
    got = encoder.encode(["ü", "a", "ü"])
    assert got.dtype == np.float32 and got.tolist() == [[4, 5], [0, 1], [4, 5]]
    assert encoder.encode([]).shape == (0, 2) and not encoder.cacheable and len(encoder.spec.weights) == 64
    same = save(tmp_path, texts=np.array(["a", "a"]), vectors=np.ones((2, 2)))
    assert load_encoder(same).encode(["a"]).tolist() == [[1, 1]]


def test_a_compressed_file_damaged_anywhere_is_one_line(tmp_path):
    path = tmp_path / "v.npz"
    np.savez_compressed(path, texts=np.array(TEXTS * 50), vectors=np.tile(VECTORS, (50, 1)))
    whole = path.read_bytes()
    for at, size in itertools.product(range(0, len(whole), 13), (1, 40)):
        path.write_bytes(whole[:at] + bytes(255 - byte for byte in whole[at : at + size]) + whole[at + size :])
        try:
            load_encoder(f"vectors:{path}")  # a byte of a time or of an attribute changes nothing
        except EncoderError as error:
            assert str(path) in str(error) and len(str(error).splitlines()) == 1


def test_a_file_that_unpacks_to_many_times_its_size_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.encoders.light.vectors._MOST_BYTES", 10**6)
    np.savez_compressed(tmp_path / "x.npz", texts=np.array(["a"]), vectors=np.zeros((1, 10**6)))
    with pytest.raises(EncoderError, match=r"x\.npz unpacks to 8\.0 MB, over 50 times its size"):
        load_encoder(f"vectors:{tmp_path}/x.npz")


class Toys:
    """A format of folders: toy.txt, a text a line, whose vector is its length."""

    @staticmethod
    def recognises(folder):
        return (folder / "toy.txt").exists()

    @staticmethod
    def encoder(folder, name):
        if not Toys.recognises(folder):
            raise EncoderError(f"{folder} has no toy.txt")
        return load_encoder(lambda texts: [[len(text)] for text in texts])


def test_a_folder_is_read_by_the_extension_that_knows_its_format(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "names", lambda group: [])
    with pytest.raises(EncoderError, match="is a folder, and no installed extension reads vectors from folders"):
        load_encoder(f"vectors:{tmp_path}")
    assert source.vector_format(tmp_path) is None
    monkeypatch.setattr(source, "names", lambda group: ["toys"])
    monkeypatch.setattr(source, "resolve", lambda group, name: Toys)
    with pytest.raises(EncoderError, match="has no toy"):
        load_encoder(f"vectors:{tmp_path}")
    (tmp_path / "toy.txt").write_text("a\n")
    assert load_encoder(f"vectors:{tmp_path}").encode(["abc"]).tolist() == [[3]] and source.vector_format(tmp_path) is Toys
