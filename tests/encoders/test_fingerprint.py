"""A model folder that changes in place never gives the vectors that were cached before."""

import importlib.metadata
import json
import random
import shutil

import numpy as np
import pytest
from folder_edits import EDITS
from model_folder_settings import KINDS
from model_folders import TEXTS
from own_home import own_home  # noqa: F401 - a fixture
from published_vectors import fresh_library

from stsbench import load_encoder
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.errors import EncoderError

CLOSE = 1e-5


def encoder_of(folder, options):
    return load_encoder(str(folder), **{"device": "cpu", "offline": True, **options})


def through(cache, folder, options, texts):
    """(fingerprint, vectors) by way of the cache; an EncoderError's text where the folder is refused."""
    try:
        encoder = encoder_of(folder, options)
        return encoder.spec.fingerprint(), encode_cached(encoder, texts, cache).vectors
    except EncoderError as error:
        assert str(error) and "\n" not in str(error)
        return None, str(error)


def close(vectors):
    """1e-5 of numbers around 1; weights that were pushed far away give larger ones."""
    return CLOSE * max(1, np.abs(vectors).max())


def same(first, second):
    return isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and (
        first.shape == second.shape and np.allclose(first, second, atol=close(first))
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """What is computed of a kind of folder for one edit is there for the next."""
    return EmbeddingCache(tmp_path_factory.mktemp("shared"))


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_in_place_gives_no_old_vector(tmp_path, shared, name):
    edit = EDITS[name]
    kind, folder, cache = edit.kind, tmp_path / "f", shared
    texts = [text for text in TEXTS if text or kind.empty]
    folder.mkdir()
    kind.build(folder)
    key, before = through(cache, folder, kind.options, texts)
    if isinstance(before, str):
        assert kind.refused, before
        pytest.skip("refused by its name: nothing is cached")
    edit.make(folder)
    other, after = through(cache, folder, kind.options, texts)
    # another fingerprint is another key, so that these vectors are fresh
    fresh = after if other not in (None, key) else through(None, folder, kind.options, texts)[1]
    assert isinstance(after, str) == isinstance(fresh, str), f"cached: {after}, fresh: {fresh}"
    if isinstance(fresh, str):
        assert edit.refused, fresh
        return
    assert same(after, fresh), "old vectors from the cache"
    assert not same(before, after), "the edit changes nothing, and proves nothing"
    assert key != other or same(before, fresh), "two encoders under one fingerprint"
    trusted = bool(kind.options.get("trust_remote_code"))
    library = fresh_library(folder, trusted).encode(texts, batch_size=1 if kind.alone else 32, show_progress_bar=False)
    np.testing.assert_allclose(fresh, library, atol=close(fresh))


@pytest.mark.parametrize("name", ["normalize", "dense, then normalize"])
def test_a_readme_and_pictures_are_no_part_of_the_encoder(tmp_path, name):
    kind, folder = KINDS[name], tmp_path / "f"
    folder.mkdir()
    kind.build(folder)
    before = encoder_of(folder, kind.options).spec.fingerprint()
    (folder / "README.md").write_text("A model.\n")
    (folder / "assets").mkdir()
    for picture in ("plot.png", "assets/a photo.jpg", "assets/curve.svg"):
        (folder / picture).write_bytes(b"\x89 no weights")
    assert encoder_of(folder, kind.options).spec.fingerprint() == before
    (folder / "README.md").write_text("A model, described anew.\n")
    shutil.copytree(folder, tmp_path / "elsewhere" / "g")  # it is known by its files wherever it lies
    for place in (folder, tmp_path / "elsewhere" / "g"):
        assert encoder_of(place, kind.options).spec.fingerprint() == before


@pytest.mark.parametrize("name", ["dense, then normalize", "adapter alone"])
def test_another_version_of_a_library_is_a_miss(tmp_path, monkeypatch, name):
    kind, folder, cache = KINDS[name], tmp_path / "f", EmbeddingCache(tmp_path / "cache")
    folder.mkdir()
    kind.build(folder)
    through(cache, folder, kind.options, SHORT)
    computed = []

    def found():
        encoder = encoder_of(folder, kind.options)
        run = encoder.run
        monkeypatch.setattr(encoder, "run", lambda *given: computed.append(given) or run(*given))
        computed.clear()
        encode_cached(encoder, SHORT, cache)
        return not computed

    assert found()
    real = importlib.metadata.version
    own = {"dense, then normalize": "sentence-transformers", "adapter alone": "peft"}.get(name)
    libraries = ["torch", "transformers", "tokenizers", *([own] if own else [])]
    for library in libraries:
        with monkeypatch.context() as patch:
            patch.setattr(
                "stsbench.encoders.cache.encode.version", lambda asked, new=library: "99" if asked == new else real(asked)
            )
            assert not found(), library
        assert found()


# One of each way to run and to store.
ANY = [
    "normalize", "dense, then normalize", "default_prompt_name", "truncate_dim", "static embedding",
    "transformers_weights, sharded", "adapter beside the model", "word embeddings with weights", "weighted layer pooling",
    "router of queries and documents", "transformer in a sub-folder", "bag of words", "weights as .bin",
]
SHORT = TEXTS[:2] + TEXTS[3:5]


def leaves(value, path=()):
    """Where a JSON value holds one that has no parts."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [leaf for key, part in parts for leaf in leaves(part, (*path, key))]
    return inner or [path]


def altered(value, how):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return (value + 1, value - 1, 0, value * 2)[how % 4]
    if isinstance(value, float):
        return (value + 0.25, 0.0, -value, value * 3)[how % 4]
    if isinstance(value, str):
        return (value + "x", "", value[::-1], value.upper())[how % 4]
    return (1, True, "x", [1])[how % 4]  # null, an empty list or object


def edit_json(path, where, how):
    stored = json.loads(path.read_text("utf-8"))
    all_leaves = leaves(stored)
    leaf = all_leaves[where % len(all_leaves)]
    if not leaf:
        return
    holder = stored
    for key in leaf[:-1]:
        holder = holder[key]
    if how == 9:
        del holder[leaf[-1]]
    else:
        holder[leaf[-1]] = altered(holder[leaf[-1]], how)
    path.write_text(json.dumps(stored), "utf-8")


def edit_byte(path, where, how):
    content = bytearray(path.read_bytes())
    if content:
        # the sign and the exponent of a number as often as its last digits
        content[where % len(content)] ^= 1 << how % 8
    path.write_bytes(content)


@pytest.mark.parametrize("name", ANY)
def test_any_edit_of_any_file_gives_another_key_or_equal_vectors(tmp_path, name):
    """Of each file a byte somewhere, and of JSON a value: the cache holds the vectors of the folder as it was."""
    cache, folder, draw = EmbeddingCache(tmp_path / "cache"), tmp_path / "f", random.Random(name)
    folder.mkdir()
    KINDS[name].build(folder)
    through(cache, folder, {}, SHORT)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for edit in (edit_byte, *([edit_json] if path.suffix == ".json" else [])):
            edit(path, draw.randrange(1 << 30), draw.randrange(10))
            try:
                encoder = encoder_of(folder, {})
                hits = cache.get(cache_key(encoder), SHORT)
                if hits.mask.any():
                    fresh = through(None, folder, {}, SHORT)[1]
                    assert hits.mask.all() and same(hits.vectors, fresh), f"old vectors from the cache: {path}"
                elif edit is edit_json:
                    encoder.encode(SHORT)  # or one line
            except EncoderError as error:
                assert str(error) and "\n" not in str(error)
            path.write_bytes(content)
