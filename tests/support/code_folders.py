"""Folders with code in them, which writes a file when it runs: without --trust-remote-code it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_folder_kinds import Kind, static, word_embeddings
from model_folders import WIDTH, adapter, change, declare, dense, pooling, read, tokenizer, transformer, write
from refused_folders import MEAN, refused

CODE: dict[str, Kind] = {}


def ran(folder: Path) -> Path:
    """The file that a folder's code writes when it runs."""
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
_TOKENIZER = """
from pathlib import Path
Path({ran!r}).write_text("it ran")
from transformers import PreTrainedTokenizerFast
class MyTokenizer(PreTrainedTokenizerFast):
    pass
"""


def code(folder: Path, name: str, source: str, factor: float = 2.0) -> None:
    """Write a folder's code; factor: a number in it."""
    (folder / name).write_text(source.format(ran=str(ran(folder)), factor=factor), "utf-8")


def own_model(folder: Path) -> Path:
    """A model type that only the folder's own code knows."""
    change(transformer(folder) / "config.json", model_type="mine", architectures=["MyModel"], auto_map={
        "AutoConfig": "mine.MyConfig", "AutoModel": "mine.MyModel",
    })
    code(folder, "mine.py", _CONFIG)
    return folder


def own_module(folder: Path) -> Path:
    """A module whose class lies in the folder."""
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    declare(transformer(folder), pooling("mean"), LayerNorm(WIDTH))
    entries = read(folder / "modules.json")
    entries[2]["type"] = "mine.MyModule"
    write(folder / "modules.json", entries)
    code(folder, "mine.py", _MODULE)
    return folder


REMOTE = r"trust-remote-code|trust_remote_code"
refused("auto_map, plain", r"auto_map|mine\.py|" + REMOTE, table=CODE, **MEAN)(own_model)
refused("auto_map, with modules", r"auto_map|mine\.py|" + REMOTE, table=CODE)(
    lambda folder: declare(own_model(folder), pooling("mean"))
)
refused("auto_map, in the library", r"auto_map|mine\.py|" + REMOTE, table=CODE)(
    lambda folder: declare(own_model(folder), pooling("mean"), dense())
)
refused("auto_map of a known type", r"auto_map|mine\.py|" + REMOTE, table=CODE, **MEAN)(
    lambda folder: change(own_model(folder) / "config.json", model_type="bert")
)
refused("auto_map with the code elsewhere", r"auto_map|mine\.py|" + REMOTE, table=CODE, **MEAN)(
    lambda folder: change(own_model(folder) / "config.json", auto_map={"AutoModel": "someone/else--mine.MyModel"})
)
refused("module of its own", r"mine\.MyModule", table=CODE)(own_module)


class _Runs:
    """What runs once it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "it ran")


def _pickled(folder: Path, name: str) -> None:
    """Weights whose pickle runs something."""
    import torch

    path = folder / name
    torch.save({"a": torch.zeros(2), "b": _Runs(ran(folder))}, path.with_name(path.name.replace(".safetensors", ".bin")))
    path.unlink(missing_ok=True)


for _file in ("pytorch_model.bin", "2_Dense/pytorch_model.bin"):
    refused(f"a pickle in {_file}", r"model\.bin|[Ww]eights only|weights_only|cannot load", table=CODE)(
        lambda folder, file=_file: (
            declare(transformer(folder), pooling("mean"), dense()), _pickled(folder, file),
            (folder / file).with_name("model.safetensors").unlink(),
        )
    )


@refused("a pickle as adapter", r"adapter_model|[Ww]eights only|weights_only|cannot load", table=CODE, **MEAN)
def _(folder):
    adapter(transformer(folder), folder)
    _pickled(folder, "adapter_model.safetensors")


@refused("a tokenizer class of word embeddings", r"mine\.MyTokenizer", table=CODE)
def _(folder):
    declare(folder, word_embeddings(), pooling("mean"), first=None)
    change(folder / "0_WordEmbeddings/wordembedding_config.json", tokenizer_class="mine.MyTokenizer")
    for place in (folder, folder / "0_WordEmbeddings"):
        (place / "mine.py").write_text(_TOKENIZER.format(ran=str(ran(folder))), "utf-8")


@refused("a module inside a router", r"mine\.MyModule", table=CODE)
def _(folder):
    from sentence_transformers.base.modules import Router

    declare(folder, Router.for_query_document([static(7)], [static(8)]), first=None)
    config = read(folder / "0_Router/router_config.json")
    config["types"] = {**config["types"], next(iter(config["types"])): "mine.MyModule"}
    write(folder / "0_Router/router_config.json", config)
    for place in (folder, folder / "0_Router"):
        (place / "mine.py").write_text(_MODULE.format(ran=str(ran(folder)), factor=2.0), "utf-8")


@refused("tokenizer of its own", r"auto_map|MyTokenizer|mine\.py|" + REMOTE, table=CODE, **MEAN)
def _(folder):
    transformer(folder)
    declared = {"auto_map": {"AutoTokenizer": [None, "mine.MyTokenizer"]}, "tokenizer_class": "MyTokenizer"}
    change(folder / "tokenizer_config.json", **declared)
    code(folder, "mine.py", _TOKENIZER)


@refused("adapter whose base has code", r"auto_map|mine\.py|base_model_name_or_path|" + REMOTE, table=CODE, **MEAN)
def _(folder):
    base = transformer(folder.with_name(folder.name + "-base"))
    adapter(folder, base)
    tokenizer().save_pretrained(folder)
    change(base / "config.json", model_type="mine", architectures=["MyModel"], auto_map={
        "AutoConfig": "mine.MyConfig", "AutoModel": "mine.MyModel",
    })
    (base / "mine.py").write_text(_CONFIG.format(ran=str(ran(folder)), factor=2.0), "utf-8")
