"""vectors:FILE.npz: looking up, and every way such a file can be wrong."""

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


def test_missing_texts_are_counted_and_named(tmp_path):
    encoder = load_encoder(save(tmp_path, texts=np.array(TEXTS), vectors=VECTORS))
    with pytest.raises(EncoderError, match=r"no vector for 2 of 3 texts, the first: 'A'"):
        encoder.encode(["a", "A", "c"])


def test_repeated_texts_need_equal_vectors(tmp_path):
    same = save(tmp_path, texts=np.array(["a", "a"]), vectors=np.ones((2, 2)))
    assert load_encoder(same).encode(["a"]).tolist() == [[1, 1]]
    with pytest.raises(EncoderError, match="rows 0 and 1 give different vectors to the same text 'a'"):
        load_encoder(save(tmp_path, texts=np.array(["a", "a"]), vectors=np.eye(2)))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"texts": np.array(["a"])}, "no array 'vectors': it holds texts"),
        ({"vectors": np.eye(1)}, "no array 'texts'"),
        ({"texts": np.array(["a"], dtype=object), "vectors": np.eye(1)}, "not as dtype=object"),
        ({"texts": np.array([b"a"]), "vectors": np.eye(1)}, "'texts' must be n strings"),
        ({"texts": np.array([["a"]]), "vectors": np.eye(1)}, "'texts' must be n strings"),
        ({"texts": np.array(["a"]), "vectors": np.ones(1)}, r"'vectors' must be \(n, d\)"),
        ({"texts": np.array(["a"]), "vectors": np.array([["x"]])}, r"'vectors' must be \(n, d\)"),
        ({"texts": np.array(["a", "b"]), "vectors": np.ones((1, 1))}, "2 texts but 1 vectors"),
        ({"texts": np.array(["a", "b"]), "vectors": np.array([[1.0], [np.nan]])}, "1 vectors hold NaN.* that of 'b'"),
        ({"texts": np.array(["a", "b"]), "vectors": np.array([[1.0], [1e300]])}, "1 vectors hold NaN or infinity"),
    ],
)
def test_wrong_files(tmp_path, arrays, reason):
    with pytest.raises(EncoderError, match=reason):
        load_encoder(save(tmp_path, **arrays))


def test_files_that_are_no_archive(tmp_path):
    with pytest.raises(EncoderError, match="No such file"):
        load_encoder(f"vectors:{tmp_path}/none.npz")
    (tmp_path / "x.npz").write_bytes(b"nonsense")
    with pytest.raises(EncoderError, match=r"x\.npz is not an .npz archive with the arrays 'texts' and 'vectors'"):
        load_encoder(f"vectors:{tmp_path}/x.npz")
    np.save(tmp_path / "y.npy", VECTORS)
    with pytest.raises(EncoderError, match=r"not an \.npz archive"):
        load_encoder(f"vectors:{tmp_path}/y.npy")
    whole = tmp_path / "z.npz"
    np.savez(whole, texts=np.array(TEXTS), vectors=VECTORS)
    whole.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(EncoderError, match="cannot read"):
        load_encoder(f"vectors:{whole}")


@pytest.mark.parametrize("size", [1, 40])
def test_a_compressed_file_damaged_anywhere_is_one_line(tmp_path, size):
    path = tmp_path / "v.npz"
    np.savez_compressed(path, texts=np.array(TEXTS * 50), vectors=np.tile(VECTORS, (50, 1)))
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
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
