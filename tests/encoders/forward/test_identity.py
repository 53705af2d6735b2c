"""A fingerprint covers every file that is opened, whatever its name, whatever opens it, and whenever, and no README."""

import os
import subprocess
import sys

import numpy as np
import pytest
from model_folders import WIDTH, change, declare, pooling, read, transformer, write
from safetensors.numpy import save_file

from stsbench import load_encoder
from stsbench.encoders.forward import identity
from stsbench.encoders.forward.identity import Opened, external_data, folder_digest
from stsbench.errors import EncoderError

TEXTS = ["a dog runs", "a cat sleeps"]
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


def own_module(folder, path, read_by, when="self.table is None"):
    """A folder whose own module adds the table in a file."""
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    declare(transformer(folder), pooling("mean"), LayerNorm(WIDTH))
    entries = read(folder / "modules.json")
    entries[2]["type"] = "mine.MyModule"
    write(folder / "modules.json", entries)
    (folder / "mine.py").write_text(_MODULE.format(read=_READ[read_by], when=when, path=str(path)), "utf-8")
    (folder / "README.md").touch()


def write_table(path, read_by, value):
    path.parent.mkdir(exist_ok=True)
    if read_by == "rust":
        save_file({"table": np.full(WIDTH, value, np.float32)}, path)
    else:
        path.write_text(" ".join([str(value)] * WIDTH))


def loaded(folder):
    return load_encoder(str(folder), trust_remote_code=True, device="cpu", offline=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what libraries in Rust open")
@pytest.mark.parametrize(("name", "read_by"), [  # of what Rust opens, the folder's own files are watched
    ("m/table.png", "rust"), ("m/README.md", "python"), ("outside/t.bin", "python"),
])
def test_what_code_opens_is_part_of_the_fingerprint(tmp_path, name, read_by):
    folder, file = tmp_path / "m", tmp_path / name
    own_module(folder, file, read_by)
    write_table(file, read_by, 1.0)
    first, again = loaded(folder), loaded(folder)
    before = again.encode(TEXTS)
    assert first.spec.fingerprint() == again.spec.fingerprint() and first.cacheable
    if file.name != "README.md":  # it counts where code reads it
        (folder / "README.md").write_text("Another text.\n")
        assert loaded(folder).spec.fingerprint() == first.spec.fingerprint()
    write_table(file, read_by, 2.0)
    other = loaded(folder)
    assert np.allclose(other.encode(TEXTS) - before, 1, atol=1e-5)
    assert other.spec.fingerprint() != first.spec.fingerprint()


def test_a_file_that_only_some_text_opens_is_refused(tmp_path):
    own_module(tmp_path / "m", tmp_path / "m" / "t.png", "python", when="len(features['sentence_embedding']) == 3")
    write_table(tmp_path / "m" / "t.png", "python", 1.0)
    encoder = loaded(tmp_path / "m")
    encoder.encode(TEXTS)
    with pytest.raises(EncoderError, match=r"opens .*t\.png while it encodes, which its fingerprint does not cover"):
        encoder.encode([*TEXTS, "a horse"])


def test_a_file_that_is_read_again_after_it_has_changed_is_refused(tmp_path):
    file = tmp_path / "m" / "table.png"
    own_module(tmp_path / "m", file, "python", when="True")
    write_table(file, "python", 1.0)
    encoder = loaded(tmp_path / "m")
    encoder.encode(TEXTS)
    file.chmod(0o600)  # the same content
    encoder.encode(TEXTS)
    write_table(file, "python", 2.0)
    with pytest.raises(EncoderError, match=r"table\.png has changed since .* was loaded"):
        encoder.encode(TEXTS)


def test_weights_that_change_while_our_own_pass_uses_them_are_refused(tmp_path):
    folder = declare(transformer(tmp_path / "m"), pooling("mean"))
    encoder = load_encoder(str(folder), device="cpu", offline=True)
    encoder.encode(TEXTS)
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-4] + bytes(4))
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
    prints = []
    for shift in ("1", "2"):
        (folder / "shift.pdf").write_text(shift)
        encoder = load_encoder(str(folder), pooler="mean", trust_remote_code=True, device="cpu", offline=True)
        prints.append((encoder.spec.fingerprint(), encoder.encode(TEXTS)))
    assert prints[0][0] != prints[1][0] and np.allclose(prints[1][1] - prints[0][1], 1, atol=1e-5)


def test_where_the_system_does_not_tell_nothing_is_cached(tmp_path, monkeypatch):
    own_module(tmp_path / "m", tmp_path / "m" / "t.png", "python")
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
    model = helper.make_model(helper.make_graph([node], "g", [], [output]))
    (tmp_path / "g.onnx").write_bytes(model.SerializeToString())
    assert external_data(tmp_path / "g.onnx") == [name]
