"""Folders with code in them, which writes a file when it runs: without --trust-remote-code it must not."""

from pathlib import Path

from model_folder_kinds import Kind
from model_folders import WIDTH, change, declare, dense, pooling, read, transformer, write


def ran(folder):
    return folder.with_name(folder.name + "-ran")


_CONFIG = """
from pathlib import Path
Path({ran!r}).write_text("it ran")
from transformers import BertConfig, BertModel
class MyConfig(BertConfig):
    model_type = "mine"
class MyModel(BertModel):
    config_class = MyConfig
    def forward(self, *words, **named):
        given = super().forward(*words, **named)
        given.last_hidden_state = given.last_hidden_state * {factor}
        return given
"""
_MODULE = """
from pathlib import Path
Path({ran!r}).write_text("it ran")
from sentence_transformers.sentence_transformer.modules import LayerNorm
class MyModule(LayerNorm):
    def forward(self, features):
        features["sentence_embedding"] = features["sentence_embedding"] * {factor} + 1
        return features
"""


def code(folder, name, source, factor=2.0):
    """Write a folder's code; factor: a number in it."""
    (folder / name).write_text(source.format(ran=str(ran(folder)), factor=factor), "utf-8")


def own_model(folder):
    """A model type that only the folder's own code knows."""
    change(transformer(folder) / "config.json", model_type="mine", architectures=["MyModel"],
           auto_map={"AutoConfig": "mine.MyConfig", "AutoModel": "mine.MyModel"})
    code(folder, "mine.py", _CONFIG)
    return folder


def own_module(folder):
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    declare(transformer(folder), pooling("mean"), LayerNorm(WIDTH))
    entries = read(folder / "modules.json")
    entries[2]["type"] = "mine.MyModule"
    write(folder / "modules.json", entries)
    code(folder, "mine.py", _MODULE)
    return folder


def own_tokenizer(folder):
    transformer(folder)
    change(folder / "tokenizer_config.json", tokenizer_class="MyTokenizer",
           auto_map={"AutoTokenizer": [None, "mine.MyTokenizer"]})
    code(folder, "mine.py", _CONFIG + "class MyTokenizer:\n    pass\n")
    return folder


class _Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "it ran")


def pickled(folder):
    """Weights of a module behind the pooling whose pickle runs something."""
    import torch

    declare(transformer(folder), pooling("mean"), dense())
    (folder / "2_Dense" / "model.safetensors").unlink()
    torch.save({"a": torch.zeros(2), "b": _Runs(ran(folder))}, folder / "2_Dense" / "pytorch_model.bin")
    return folder


REMOTE, MEAN = r"auto_map|mine\.py|trust.remote.code", {"pooler": "mean"}
CODE = {
    "model": Kind(own_model, refused=REMOTE, options=MEAN),
    "model, in the library": Kind(lambda folder: declare(own_model(folder), pooling("mean"), dense()), refused=REMOTE),
    "model of a type that transformers knows": Kind(
        lambda folder: change(own_model(folder) / "config.json", model_type="bert"), refused=REMOTE, options=MEAN),
    "module": Kind(own_module, refused=r"mine\.MyModule"),
    "tokenizer": Kind(own_tokenizer, refused=REMOTE + "|MyTokenizer", options=MEAN),
    "pickle": Kind(pickled, refused=r"model\.bin|[Ww]eights.only|cannot load"),
}
