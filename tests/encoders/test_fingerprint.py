"""A model folder that changes in place never gives the vectors that were cached before."""

import importlib.metadata
import os
import random
import shutil

import numpy as np
import pytest
import torch
from code_folders import own_module
from model_folder_kinds import KINDS
from model_folders import TEXTS, adapter, declare, nudge, pooling, tokenizer, transformer, write
from published_vectors import fresh_library, own_home  # noqa: F401 - a fixture
from safetensors.torch import load_file

from stsbench import load_encoder
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.errors import EncoderError

CLOSE = 1e-5


def encoder_of(folder, options):
    return load_encoder(str(folder), **{"device": "cpu", "offline": True, **options})


def through(cache, folder, options, texts):
    """(fingerprint, vectors) by way of the cache."""
    encoder = encoder_of(folder, options)
    return encoder.spec.fingerprint(), encode_cached(encoder, texts, cache).vectors


def close(vectors):
    """1e-5 of numbers around 1; weights that were pushed far away give larger ones."""
    return CLOSE * max(1, np.abs(vectors).max())


MODEL = "model.safetensors"


def linked_adapter(folder):
    """A folder of links, as in a Hub cache, to an adapter for a base elsewhere."""
    base, real = transformer(folder.with_name("base")), folder.with_name("real")
    adapter(real, base)
    tokenizer().save_pretrained(real)
    for path in declare(real, pooling("mean")).iterdir():
        (folder / path.name).symlink_to(path)


def sharded_as_pictures(folder):
    stored = load_file(transformer(folder) / MODEL)
    (folder / MODEL).unlink()
    torch.save(stored, folder / "logo.png")
    write(folder / "pytorch_model.bin.index.json", {"metadata": {}, "weight_map": dict.fromkeys(stored, "logo.png")})
    declare(folder, pooling("mean"))


def with_helper(folder):
    own_module(folder)
    source = (folder / "mine.py").read_text("utf-8")
    (folder / "mine.py").write_text("from .helper import FACTOR\n" + source.replace("* 2.0", "* FACTOR"), "utf-8")
    (folder / "helper.py").write_text("FACTOR = 2.0\n", "utf-8")


def one_number_size_and_times_kept(folder):
    path = folder / MODEL
    before = path.stat()
    nudge(path, "layer.1.output.LayerNorm")
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def another_picture(folder):
    stored = torch.load(folder / "logo.png")
    stored["encoder.layer.1.output.dense.bias"] += 1.5 * torch.arange(len(stored["encoder.layer.1.output.dense.bias"]))
    torch.save(stored, folder / "logo.png")


EDITS = {  # name -> the folder, how it is edited
    "one number": (KINDS["normalize"].build, one_number_size_and_times_kept),
    "a shard called as a picture": (sharded_as_pictures, another_picture),
    "base of an adapter that is a link": (
        linked_adapter, lambda folder: nudge(folder.with_name("base") / MODEL, "layer.1.output")),
    "target of an adapter that is a link": (
        linked_adapter, lambda folder: nudge(folder.with_name("real") / "adapter_model.safetensors")),
    "code that the code imports": (
        with_helper, lambda folder: (folder / "helper.py").write_text("FACTOR = 7.0\n")),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_in_place_gives_no_old_vector(tmp_path, name):
    (build, edit), folder, cache = EDITS[name], tmp_path / "f", EmbeddingCache(tmp_path / "cache")
    options = {"trust_remote_code": True} if build is with_helper else {}
    folder.mkdir()
    build(folder)
    key, before = through(cache, folder, options, TEXTS)
    edit(folder)
    other, after = through(cache, folder, options, TEXTS)
    assert key != other and not (before.shape == after.shape and np.allclose(before, after, atol=close(before)))
    library = fresh_library(folder, bool(options)).encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(after, library, atol=close(after))


def test_a_readme_and_pictures_are_no_part_of_the_encoder(tmp_path):
    KINDS["dense, then normalize"].build(folder := tmp_path / "f")
    before = encoder_of(folder, {}).spec.fingerprint()
    (folder / "README.md").write_text("A model.\n")
    (folder / "assets").mkdir()
    for picture in ("plot.png", "assets/a photo.jpg", "assets/curve.svg"):
        (folder / picture).write_bytes(b"\x89 no weights")
    assert encoder_of(folder, {}).spec.fingerprint() == before
    (folder / "README.md").write_text("A model, described anew.\n")
    shutil.copytree(folder, tmp_path / "elsewhere" / "g")  # it is known by its files wherever it lies
    for place in (folder, tmp_path / "elsewhere" / "g"):
        assert encoder_of(place, {}).spec.fingerprint() == before


@pytest.mark.parametrize(("name", "own"), [("dense, then normalize", "sentence-transformers"), ("adapter alone", "peft")])
def test_another_version_of_a_library_is_another_key(tmp_path, monkeypatch, name, own):
    kind, folder = KINDS[name], tmp_path / "f"
    folder.mkdir()
    kind.build(folder)
    encoder, real = encoder_of(folder, kind.options), importlib.metadata.version
    key = cache_key(encoder)
    assert cache_key(encoder_of(folder, kind.options)) == key
    for library in ("torch", "transformers", "tokenizers", own):
        with monkeypatch.context() as patch:
            patch.setattr(
                "stsbench.encoders.cache.encode.version", lambda asked, new=library: "99" if asked == new else real(asked)
            )
            assert cache_key(encoder) != key, library


@pytest.mark.parametrize("name", ["adapter beside the model", "transformers_weights, sharded"])
def test_any_byte_of_any_file_is_part_of_the_fingerprint(tmp_path, name):
    folder, draw = tmp_path / "f", random.Random(name)
    folder.mkdir()
    KINDS[name].build(folder)
    before = encoder_of(folder, {}).spec.fingerprint()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        content = path.read_bytes()
        changed = bytearray(content)
        changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        try:
            assert encoder_of(folder, {}).spec.fingerprint() != before, path
        except EncoderError as error:
            assert str(error) and "\n" not in str(error)
        path.write_bytes(content)
