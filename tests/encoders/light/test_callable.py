"""python:module:callable and CallableEncoder: what may be returned, and when vectors may be cached."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import issparse, lil_matrix

from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.load import load_encoder

MODULE = """
import numpy as np
def lengths(texts):
    assert type(texts) is list
    return [[len(t), 1] for t in texts]
class Model:
    def encode(self, texts): return np.ones((len(texts), 3))
    def __call__(self, texts): return self.encode(texts)
model = Model()
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The working folder holds a module of the user's own, as it would on the command line."""
    (tmp_path / "my_encoder_x.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path / "my_encoder_x.py"
    sys.modules.pop("my_encoder_x", None)


def test_a_module_in_the_working_folder(module):
    encoder = load_encoder("python:my_encoder_x:lengths")
    vectors = encoder.encode(["ab", "c", "ab"])
    assert vectors.dtype == np.float32 and vectors.tolist() == [[2, 1], [1, 1], [2, 1]]
    assert encoder.spec.name == "python:my_encoder_x:lengths" and not encoder.cacheable
    assert load_encoder("python:my_encoder_x:model").encode(["a"]).shape == (1, 3)
    assert load_encoder("python:my_encoder_x:model.encode").encode(["a"]).shape == (1, 3)
    del sys.modules["my_encoder_x"]
    module.write_text(MODULE.replace("len(t), 1", "len(t), 2"))  # as it computes, so it is known
    for cached in module.parent.rglob("*.pyc"):
        cached.unlink()
    other = load_encoder("python:my_encoder_x:lengths")
    assert other.encode(["a"]).tolist() == [[1, 2]] and other.spec.fingerprint() != encoder.spec.fingerprint()


def test_sparse_and_integer_results():
    sparse = CallableEncoder(lambda texts: lil_matrix(np.eye(2))).encode(["a", "b"])
    assert issparse(sparse) and sparse.format == "csr" and sparse.dtype == np.float32
    assert CallableEncoder(lambda texts: np.eye(2, dtype=np.int8)).encode(["a", "b"]).dtype == np.float32


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    for tensor in (torch.ones(2, 3, requires_grad=True), torch.ones(2, 3).bfloat16(), torch.ones(2, 3).long()):
        vectors = CallableEncoder(lambda texts, tensor=tensor: tensor).encode(["a", "b"])
        assert isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.shape == (2, 3)


class _Loaded:
    """A model as sentence-transformers' are: what it was loaded from stands in its first module."""

    def __init__(self, path):
        self._modules, self.path = {}, path

    def __len__(self):
        return 1

    def __getitem__(self, number):
        return SimpleNamespace(auto_model=SimpleNamespace(config=SimpleNamespace(_name_or_path=self.path)))

    def encode(self, texts):
        return np.eye(len(texts))


def test_two_models_of_one_class_have_two_names_without_a_path_of_this_machine():
    names = [CallableEncoder.wrap(_Loaded(path))._name for path in ("org/one", "/home/me/models/two", "./three", "")]
    assert [name.rpartition(":")[2] for name in names] == [
        "_Loaded.encode of org/one", "_Loaded.encode of two", "_Loaded.encode of three", "_Loaded.encode"]
    assert CallableEncoder(len)._name == "python:builtins:len"
