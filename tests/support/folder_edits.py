"""Edits in place of the folders of each kind: what an author, a training or a sync may change under one path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from code_folders import own_module
from model_folder_kinds import Kind
from model_folder_settings import KINDS
from model_folders import (
    adapter,
    change,
    declare,
    dense,
    nudge,
    pooling,
    read,
    tokenizer,
    transformer,
    write,
)


@dataclass(frozen=True)
class Edit:
    """What is changed in a folder of one kind, so that its vectors come out different."""

    kind: Kind
    make: Callable[[Path], Any]
    refused: bool = False  # the edited folder may be refused


EDITS: dict[str, Edit] = {}


def edit(name: str, kind: str | Kind, make: Callable[[Path], Any], **expected: bool) -> None:
    assert name not in EDITS
    EDITS[name] = Edit(KINDS[kind] if isinstance(kind, str) else kind, make, **expected)


def listed(folder: Path, position: int, **values: Any) -> None:
    stored = read(folder / "modules.json")
    stored[position].update(values)
    write(folder / "modules.json", stored)


MODEL = "model.safetensors"
NATIVE, DENSE = "normalize", "dense, then normalize"

# Weights --------------------------------------------------------------------------------------------------------------

@lambda make: edit("one number, size and times kept", NATIVE, make)
def _(folder):
    path = folder / MODEL
    before = path.stat()
    nudge(path, "layer.1.output.LayerNorm")
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@lambda make: edit("safetensors put beside a .bin", "weights as .bin", make)
def _(folder):
    shutil.copy(transformer(folder.with_name("other"), seed=9) / MODEL, folder)


def _sharded_as_pictures(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    stored = load_file(transformer(folder) / MODEL)
    (folder / MODEL).unlink()
    torch.save(stored, folder / "logo.png")
    write(folder / "pytorch_model.bin.index.json", {"metadata": {}, "weight_map": dict.fromkeys(stored, "logo.png")})
    declare(folder, pooling("mean"))


@lambda make: edit("a shard called as a picture", Kind(_sharded_as_pictures, refused="logo.png"), make)
def _(folder):
    import torch

    stored = torch.load(folder / "logo.png")
    stored["encoder.layer.1.output.dense.bias"] += 1.5 * torch.arange(len(stored["encoder.layer.1.output.dense.bias"]))
    torch.save(stored, folder / "logo.png")


# Adapters -------------------------------------------------------------------------------------------------------------


def _base(folder: Path) -> Path:
    return folder.with_name(folder.name + "-base")


ADAPTER = "adapter_model.safetensors"
edit("weights of an adapter's base", "adapter alone, with modules",
     lambda folder: nudge(_base(folder) / MODEL, "layer.1.output"))
edit("adapter beside the model: config of a base elsewhere", "adapter beside the model, base elsewhere",
     lambda folder: change(_base(folder) / "config.json", hidden_act="relu"), refused=True)


def _linked_adapter(folder: Path) -> None:
    base, real = transformer(_base(folder)), folder.with_name(folder.name + "-real")
    adapter(real, base)
    tokenizer().save_pretrained(real)
    for path in declare(real, pooling("mean")).iterdir():
        (folder / path.name).symlink_to(path)


edit("base of an adapter that is a link", Kind(_linked_adapter),
     lambda folder: nudge(_base(folder) / MODEL, "layer.1.output"))
edit("an adapter put beside modules", DENSE, lambda folder: adapter(folder, folder))
edit("an adapter taken away", "adapter beside the model",
     lambda folder: ((folder / "adapter_config.json").unlink(), (folder / ADAPTER).unlink()))

# Links: a Hub cache is a folder of links, and a disk may hold a part elsewhere ----------------------------------------


def _links(folder: Path) -> None:
    real = folder.with_name(folder.name + "-blobs")
    real.mkdir()
    declare(transformer(real), pooling("mean"), dense())
    for path in real.iterdir():
        (folder / path.name).symlink_to(path)  # a sub-folder as a whole, too


edit("links: the weights' target", Kind(_links),
     lambda folder: nudge(folder.with_name(folder.name + "-blobs") / MODEL, "layer.1"))


def _odd_folders(folder: Path) -> None:
    """A module in a sub-folder that one might take for something else."""
    declare(transformer(folder), pooling("mean"), dense(12))
    (folder / read(folder / "modules.json")[2]["path"]).rename(folder / "checkpoint-7")
    listed(folder, 2, path="checkpoint-7")


edit("a module in a folder called checkpoint-7", Kind(_odd_folders), lambda folder: nudge(folder / "checkpoint-7" / MODEL))

# Code, trusted --------------------------------------------------------------------------------------------------------

TRUSTED = {"trust_remote_code": True}


def _with_helper(folder: Path) -> None:
    own_module(folder)
    source = (folder / "mine.py").read_text("utf-8")
    (folder / "mine.py").write_text("from .helper import FACTOR\n" + source.replace("* 2.0", "* FACTOR"), "utf-8")
    (folder / "helper.py").write_text("FACTOR = 2.0\n", "utf-8")


edit("code that the code imports", Kind(_with_helper, options=TRUSTED),
     lambda folder: (folder / "helper.py").write_text("FACTOR = 7.0\n"))
