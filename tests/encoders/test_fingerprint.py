"""A fingerprint covers every file that is opened, whatever its name, whatever opens it, and whenever, and no README: a model
folder that changes in place never gives the vectors that were cached before."""

import importlib.metadata
import os
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from code_folders import own_module
from model_folder_kinds import KINDS
from model_folders import TEXTS, WIDTH, adapter, change, declare, nudge, pooling, tokenizer, transformer, write
from published_vectors import fresh_library, own_home  # noqa: F401 - a fixture
from safetensors.numpy import save_file
from safetensors.torch import load_file

from stsbench import load_encoder
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.encoders.forward import identity
from stsbench.encoders.forward.identity import Opened, external_data, folder_digest
from stsbench.errors import EncoderError

TWO = ["a dog runs", "a cat sleeps"]
_MODULE = """
import pathlib
import torch
from safetensors.torch import load_file
from sentence_transformers.sentence_transformer.modules import LayerNorm
def table(path):
    return {read}
class MyModule(LayerNorm):
    table = None
    def forward(self, features):
        if {when}:
            self.table = table({path!r})
        if self.table is not None:
            features["sentence_embedding"] = features["sentence_embedding"] + self.table
        return features
"""
_READ = {  # by Python, by a library in Rust, and through a copy of the path that nobody could foresee
    "python": "torch.tensor([float(word) for word in pathlib.Path(path).read_text().split()])",
    "rust": "load_file(path)['table']",
}


def table_module(folder, path, read_by, when="self.table is None"):
    """A folder whose own module adds the table in a file."""
    own_module(folder)
    (folder / "mine.py").write_text(_MODULE.format(read=_READ[read_by], when=when, path=str(path)), "utf-8")
    (folder / "README.md").touch()


def write_table(path, read_by, value):
    path.parent.mkdir(exist_ok=True)
    if read_by == "rust":
        save_file({"table": np.full(WIDTH, value, np.float32)}, path)
    else:
        path.write_text(" ".join([str(value)] * WIDTH))


def loaded(folder, trusted=True, **options):
    return load_encoder(str(folder), trust_remote_code=trusted, device="cpu", offline=True, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what libraries in Rust open")
@pytest.mark.parametrize(("name", "read_by"), [  # of what Rust opens, the folder's own files are watched
    ("m/table.png", "rust"), ("m/README.md", "python"), ("outside/t.bin", "python")])
def test_what_code_opens_is_part_of_the_fingerprint(tmp_path, name, read_by):
    folder, file = tmp_path / "m", tmp_path / name
    table_module(folder, file, read_by)
    write_table(file, read_by, 1.0)
    first = loaded(folder)
    before = first.encode(TWO)
    assert first.cacheable
    if file.name != "README.md":  # it counts where code reads it
        (folder / "README.md").write_text("Another text.\n")
        assert loaded(folder).spec.fingerprint() == first.spec.fingerprint()
    write_table(file, read_by, 2.0)
    other = loaded(folder)
    assert np.allclose(other.encode(TWO) - before, 1, atol=1e-5)
    assert other.spec.fingerprint() != first.spec.fingerprint()


def test_a_file_that_only_some_text_opens_is_refused(tmp_path):
    table_module(tmp_path / "m", tmp_path / "m" / "t.png", "python", when="len(features['sentence_embedding']) == 3")
    write_table(tmp_path / "m" / "t.png", "python", 1.0)
    encoder = loaded(tmp_path / "m")
    encoder.encode(TWO)
    with pytest.raises(EncoderError, match=r"opens .*t\.png while it encodes, which its fingerprint does not cover"):
        encoder.encode([*TWO, "a horse"])


def test_a_file_that_is_read_again_after_it_has_changed_is_refused(tmp_path):
    file = tmp_path / "m" / "table.png"
    table_module(tmp_path / "m", file, "python", when="True")
    write_table(file, "python", 1.0)
    encoder = loaded(tmp_path / "m")
    encoder.encode(TWO)
    file.chmod(0o600)  # the same content
    encoder.encode(TWO)
    write_table(file, "python", 2.0)
    with pytest.raises(EncoderError, match=r"table\.png has changed since .* was loaded"):
        encoder.encode(TWO)


def test_weights_that_change_while_our_own_pass_uses_them_are_refused(tmp_path):
    folder = declare(transformer(tmp_path / "m"), pooling("mean"))
    encoder = loaded(folder, False)
    encoder.encode(TWO)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-4] + bytes(4))
    with pytest.raises(EncoderError, match=r"model\.safetensors has changed since"):
        encoder.encode(["a horse"])


def test_code_of_a_model_that_our_own_pass_runs(tmp_path):
    folder = transformer(tmp_path / "m")
    change(folder / "config.json", auto_map={"AutoModel": "mine.MyModel"})
    (folder / "mine.py").write_text(f"""
from pathlib import Path
from transformers import BertModel
class MyModel(BertModel):
    def forward(self, *given, **named):
        output = super().forward(*given, **named)
        output.last_hidden_state = output.last_hidden_state + float(Path({str(folder / 'shift.pdf')!r}).read_text())
        return output
""")
    stock, prints = loaded(folder, False, pooler="mean"), []
    before = stock.encode(TWO)
    for shift in ("1", "2"):
        (folder / "shift.pdf").write_text(shift)
        encoder = loaded(folder, pooler="mean")
        prints.append((encoder.spec.fingerprint(), encoder.encode(TWO)))
    assert prints[0][0] != prints[1][0] and np.allclose(prints[1][1] - prints[0][1], 1, atol=1e-5)
    assert np.allclose(prints[0][1] - before, 1, atol=1e-5)
    assert "auto_map: mine.MyModel), which is not run" in " ".join(stock.notes) and not encoder.notes


def test_where_the_system_does_not_tell_nothing_is_cached(tmp_path, monkeypatch):
    table_module(tmp_path / "m", tmp_path / "m" / "t.png", "python")
    write_table(tmp_path / "m" / "t.png", "python", 1.0)
    assert loaded(tmp_path / "m").cacheable
    monkeypatch.setattr(identity, "_watch", lambda real: False)
    encoder = loaded(tmp_path / "m")
    assert not encoder.cacheable and any("does not tell which files" in note for note in encoder.notes)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what C++ and Rust open")
@pytest.mark.parametrize("by_process", [True, False])
def test_what_another_process_opens(tmp_path, monkeypatch, by_process):
    """An indexer that looks at a folder is no part of the model, where the system says who opens a file."""
    if by_process and identity._watchers()[1] < 0:
        pytest.skip("this system does not say which process opens a file")
    library, first, second, _ = identity._watchers()
    monkeypatch.setattr(identity, "_watchers", lambda watchers=(library, first if by_process else -1, second, {}): watchers)
    for name in ("a.bin", "b.png", "c.png"):
        (tmp_path / name).write_bytes(b"a")
    digest = folder_digest(tmp_path)
    with (opened := Opened([tmp_path], native=True)):
        subprocess.run(["cat", tmp_path / "b.png"], check=True, stdout=subprocess.DEVNULL)
    assert (opened.digest("m", digest) == digest) == by_process
    with opened:
        library.close(library.open(os.fsencode(tmp_path / "c.png"), os.O_RDONLY))
    assert opened.digest("m", digest) == folder_digest(tmp_path, (), [tmp_path / n for n in ("b.png", "c.png")[by_process:]])


def test_external_data_of_a_nested_graph(tmp_path):
    name = "a/" * 70 + "w.md"
    onnx = pytest.importorskip("onnx")
    helper, TensorProto = onnx.helper, onnx.TensorProto
    tensor = onnx.numpy_helper.from_array(np.zeros(4, np.float32), "inner")
    onnx.external_data_helper.set_external_data(tensor, name)
    inner = helper.make_graph([], "inner", [], [], [tensor])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    (tmp_path / "g.onnx").write_bytes(helper.make_model(helper.make_graph([node], "g", [], [output])).SerializeToString())
    assert external_data(tmp_path / "g.onnx") == [name]


def through(cache, folder, trusted):
    """(fingerprint, vectors) by way of the cache."""
    encoder = loaded(folder, trusted)
    return encoder.spec.fingerprint(), encode_cached(encoder, TEXTS, cache).vectors


def close(vectors):
    """1e-5 of numbers around 1; weights that were pushed far away give larger ones."""
    return 1e-5 * max(1, np.abs(vectors).max())


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


EDITS = {  # name -> the folder, how it is edited, one time after another
    "one number": (KINDS["new module paths"].build, one_number_size_and_times_kept),
    "a shard called as a picture": (sharded_as_pictures, another_picture),
    "base, and then target, of an adapter that is a link": (
        linked_adapter, lambda folder: nudge(folder.with_name("base") / MODEL, "layer.1.output"),
        lambda folder: nudge(folder.with_name("real") / "adapter_model.safetensors")),
    "code that the code imports": (with_helper, lambda folder: (folder / "helper.py").write_text("FACTOR = 7.0\n")),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_in_place_gives_no_old_vector(tmp_path, name):
    (build, *edits), folder, cache = EDITS[name], tmp_path / "f", EmbeddingCache(tmp_path / "cache")
    trusted = build is with_helper
    folder.mkdir()
    build(folder)
    key, before = through(cache, folder, trusted)
    for edit in edits:
        edit(folder)
        other, after = through(cache, folder, trusted)
        assert key != other and not (before.shape == after.shape and np.allclose(before, after, atol=close(before)))
        key, before = other, after
    library = fresh_library(folder, trusted).encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(after, library, atol=close(after))


def test_a_readme_and_pictures_are_no_part_of_the_encoder(tmp_path):
    KINDS["dense, then normalize"].build(folder := tmp_path / "f")
    before = loaded(folder, False).spec.fingerprint()
    (folder / "README.md").write_text("A model.\n")
    (folder / "assets").mkdir()
    for picture in ("plot.png", "assets/a photo.jpg", "assets/curve.svg"):
        (folder / picture).write_bytes(b"\x89 no weights")
    assert loaded(folder, False).spec.fingerprint() == before
    (folder / "README.md").write_text("A model, described anew.\n")
    shutil.copytree(folder, tmp_path / "elsewhere" / "g")  # it is known by its files wherever it lies
    for place in (folder, tmp_path / "elsewhere" / "g"):
        assert loaded(place, False).spec.fingerprint() == before


@pytest.mark.parametrize(("name", "own"), [("dense, then normalize", "sentence-transformers"), ("adapter alone", "peft")])
def test_another_version_of_a_library_is_another_key(tmp_path, monkeypatch, name, own):
    kind, folder = KINDS[name], tmp_path / "f"
    folder.mkdir()
    kind.build(folder)
    encoder, real = loaded(folder, False, **kind.options), importlib.metadata.version
    key = cache_key(encoder)
    assert cache_key(loaded(folder, False, **kind.options)) == key
    for library in ("torch", "transformers", "tokenizers", own):
        with monkeypatch.context() as patch:
            patch.setattr("stsbench.encoders.cache.encode.version",
                          lambda asked, new=library: "99" if asked == new else real(asked))
            assert cache_key(encoder) != key, library


def test_any_byte_of_any_file_is_part_of_the_fingerprint(tmp_path):
    folder, draw = tmp_path / "f", random.Random(1)
    folder.mkdir()
    KINDS["transformers_weights, sharded"].build(folder)
    before = loaded(folder, False).spec.fingerprint()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        content = path.read_bytes()
        changed = bytearray(content)
        changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        try:
            assert loaded(folder, False).spec.fingerprint() != before, path
        except EncoderError as error:
            assert str(error) and "\n" not in str(error)
        path.write_bytes(content)
