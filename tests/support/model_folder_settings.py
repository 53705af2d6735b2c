"""The rest of the kinds: what settings declare, where weights may lie, and folders of transformers without modules."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from model_folder_kinds import KINDS, kind, of, static
from model_folders import PROMPT, adapter, change, declare, dense, normalize, pooling, tokenizer, transformer

__all__ = ["KINDS"]  # all of them, these and those of model_folder_kinds.py

# What settings declare ------------------------------------------------------------------------------------------------

kind("max_seq_length over the tokenizer's")(of(pooling("mean"), limit=20, model=dict(tok=tokenizer(limit=7))))
kind("the tokenizer's limit alone")(of(pooling("mean"), limit=None, model=dict(tok=tokenizer(limit=9))))
kind("no limit but the positions")(of(pooling("mean"), limit=None))
kind("max_seq_length 8, in the library")(of(pooling("mean"), dense(), limit=8))
kind("truncation_side left")(of(pooling("mean"), limit=8, model=dict(tok=tokenizer(truncation_side="left"))))
kind("the settings' old file name")(
    of(pooling("mean"), limit=8, transformer_file="sentence_roberta_config.json", model=dict(family="roberta"))
)
kind("do_lower_case")(of(pooling("cls"), stored={"do_lower_case": True}))
kind("do_lower_case, in the library")(of(pooling("cls"), dense(), stored={"do_lower_case": True}))
kind("tokenizer_args", refused=r"tokenizer_args|processor_kwargs")(
    of(pooling("mean"), limit=None, stored={"tokenizer_args": {"model_max_length": 8}})
)
kind("config_kwargs", refused=r"config_kwargs|hidden_act")(
    of(pooling("mean"), stored={"config_kwargs": {"hidden_act": "relu"}})
)
kind("query_length and document_length", refused=r"query_length|document_length")(
    of(pooling("mean"), stored={"query_length": 5, "document_length": 6})
)


@kind("the tokenizer's limit by its old name")
def _(folder):
    declare(transformer(folder), pooling("mean"), limit=None)
    change(folder / "tokenizer_config.json", model_max_length=None, max_len=9)


@kind("the tokenizer's own file cuts on the left")
def _(folder):
    tok = tokenizer()
    tok.backend_tokenizer.enable_truncation(6, direction="left")
    declare(transformer(folder, tok=tok), pooling("mean"), limit=8)
    change(folder / "tokenizer_config.json", truncation_side=None)


kind("plain, truncation_side left", options={"pooler": "mean", "max_length": 8}, refused="truncation_side")(
    of(pooling("mean"), limit=8, model=dict(tok=tokenizer(truncation_side="left")))
)
kind("another pooler beside config_kwargs", options={"pooler": "mean"}, refused="config_kwargs")(
    of(pooling("mean"), stored={"config_kwargs": {"hidden_act": "relu"}})
)


@kind("the tokenizer cuts and pads by itself")
def _(folder):
    tok = tokenizer()
    tok.backend_tokenizer.enable_truncation(6)
    tok.backend_tokenizer.enable_padding(length=6, pad_id=tok.pad_token_id, pad_token=tok.pad_token)
    declare(transformer(folder, tok=tok), pooling("mean"))


_PROMPTS = {"sts": PROMPT, "other": "red : "}
kind("default_prompt_name")(of(pooling("mean"), settings={"prompts": _PROMPTS, "default_prompt_name": "sts"}))
kind("default_prompt_name, in the library")(
    of(pooling("mean"), dense(), settings={"prompts": _PROMPTS, "default_prompt_name": "sts"})
)
kind("default prompt before static embeddings")(lambda folder: declare(
    folder, static(9), settings={"prompts": _PROMPTS, "default_prompt_name": "other"}, first=None
))
kind("a default prompt longer than the limit", refused="leaves no token")(
    of(pooling("mean"), limit=6, settings={"prompts": {"sts": PROMPT * 2}, "default_prompt_name": "sts"})
)
kind("truncate_dim")(of(pooling("mean"), settings={"truncate_dim": 6}))
kind("truncate_dim, normalised before")(of(pooling("mean"), normalize(), settings={"truncate_dim": 6}))
kind("similarity dot", refused=r"similarity_fn_name")(of(pooling("mean"), settings={"similarity_fn_name": "dot"}))

# Files of weights -----------------------------------------------------------------------------------------------------


@kind("adapter beside the model")
def _(folder):
    adapter(transformer(folder), folder)
    declare(folder, pooling("mean"), normalize())


def _base_elsewhere(folder: Path, **settings: Any) -> Path:
    """A whole model with an adapter that names another base: its weights are the folder's, its config is the base's."""
    base = transformer(folder.with_name(folder.name + "-base"), seed=4, **settings)
    return adapter(transformer(folder), folder, named=str(base))


kind("adapter beside the model, base elsewhere")(lambda folder: declare(_base_elsewhere(folder), pooling("mean")))
kind("adapter beside the model, base of another config", refused="base_model_name_or_path")(
    lambda folder: declare(_base_elsewhere(folder, hidden_act="relu"), pooling("mean"))
)


@kind("adapter alone, with modules")
def _(folder):
    base = transformer(folder.with_name(folder.name + "-base"))
    adapter(folder, base)
    tokenizer().save_pretrained(folder)
    declare(folder, pooling("cls"))


@kind("adapter alone", options={"pooler": "mean"})
def _(folder):
    base = transformer(folder.with_name(folder.name + "-base"))
    adapter(folder, base)
    tokenizer(limit=LIMIT_OF_ADAPTER).save_pretrained(folder)


LIMIT_OF_ADAPTER = 20


@kind("transformers_weights")
def _(folder):
    other = transformer(folder.with_name(folder.name + "-other"), seed=8)
    transformer(folder)
    shutil.move(other / "model.safetensors", folder / "tuned.safetensors")
    change(folder / "config.json", transformers_weights="tuned.safetensors")
    declare(folder, pooling("mean"))


@kind("transformers_weights, sharded")
def _(folder):
    other = transformer(folder.with_name(folder.name + "-other"), seed=8, save={"max_shard_size": "8KB"})
    transformer(folder)
    for path in other.glob("model*"):
        name = "tuned.safetensors.index.json" if path.name.endswith("index.json") else path.name
        shutil.move(path, folder / name)
    change(folder / "config.json", transformers_weights="tuned.safetensors.index.json")
    declare(folder, pooling("mean"))


kind("sharded weights")(of(pooling("mean"), normalize(), model=dict(save={"max_shard_size": "8KB"})))


@kind("weights as .bin")
def _(folder):
    import torch
    from safetensors.torch import load_file

    transformer(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    declare(folder, pooling("mean"))


kind("fp16 weights")(of(pooling("mean"), model=dict(dtype="float16")))

# Folders of transformers, without modules -----------------------------------------------------------------------------

kind("plain bert, mean", options={"pooler": "mean"})(lambda folder: transformer(folder))
kind("plain decoder, last", options={"pooler": "last"})(
    lambda folder: transformer(folder, "qwen3-lm", tok=tokenizer("qwen3", limit=20, padding_side="left"))
)
for _family in ("fnet", "convbert", "mobilebert"):
    kind(f"plain {_family}, mean", options={"pooler": "mean"}, alone=True)(
        lambda folder, family=_family: transformer(folder, family)
    )
