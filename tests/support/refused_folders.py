"""Folders that give no vectors: each has to be refused in one line that names what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from model_folder_kinds import Kind
from model_folders import (
    WIDTH,
    adapter,
    change,
    declare,
    dense,
    pooling,
    read,
    tokenizer,
    transformer,
    weights,
    write,
)

REFUSED: dict[str, Kind] = {}
MEAN = {"pooler": "mean"}


def refused(name: str, line: str, *, table: dict[str, Kind] = REFUSED, **options: Any):
    """Enter a builder; `line` is a regular expression of the error. It stands for the declaration, not for the prose."""

    def enter(build):
        assert name not in table
        table[name] = Kind(build, refused=line, options=options)
        return build

    return enter


# Other kinds of models ------------------------------------------------------------------------------------------------


@refused("splade", r"SparseEncoder|SpladePooling")
def _(folder):
    transformer(folder, "bert-lm")
    splade = ("sentence_transformers.sparse_encoder.models.SpladePooling", {"pooling_strategy": "max"})
    declare(folder, splade, settings={"model_type": "SparseEncoder", "prompts": {}})


@refused("splade, said by its module alone", r"SpladePooling")
def _(folder):
    transformer(folder, "bert-lm")
    splade = ("sentence_transformers.sparse_encoder.models.SpladePooling", {"pooling_strategy": "max"})
    entries = read(declare(folder, splade) / "modules.json")
    entries[0]["type"] = "sentence_transformers.sparse_encoder.models.MLMTransformer"
    write(folder / "modules.json", entries)


refused("sparse encoder that looks dense", r"SparseEncoder")(
    lambda folder: declare(transformer(folder), pooling("mean"), settings={"model_type": "SparseEncoder"})
)
refused("cross encoder", r"CrossEncoder")(lambda folder: declare(
    transformer(folder, "bert-classifier"), settings={"model_type": "CrossEncoder"},
    stored={"transformer_task": "sequence-classification"},
))
refused("cross encoder of one file", r"classifier|ForSequenceClassification|CrossEncoder", **MEAN)(
    lambda folder: transformer(folder, "bert-classifier")
)
for _type in ("MultiVectorEncoder", "ColBERT"):
    refused(f"late interaction, {_type}", _type)(lambda folder, type=_type: declare(
        transformer(folder), dense(8, module_input_name="token_embeddings"), settings={"model_type": type}
    ))
refused("late interaction, by its module", r"MultiVectorMask")(
    lambda folder: declare(
        transformer(folder), dense(8, module_input_name="token_embeddings"),
        ("sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask", {}),
    )
)
refused("no pooling", r"[Pp]ooling")(lambda folder: declare(transformer(folder)))
refused("cls of a decoder", r"cls.*causal|causal.*cls", pooler="cls")(
    lambda folder: transformer(folder, "qwen3", tok=tokenizer("qwen3"))
)
refused("unknown pooling mode", r"median")(lambda folder: declare(transformer(folder), pooling("median")))
refused("no pooling mode", r"pooling_mode|1_Pooling")(lambda folder: declare(transformer(folder), pooling()))
refused("pooling mode null", r"pooling_mode|1_Pooling")(lambda folder: (
    declare(transformer(folder), pooling("mean")),
    write(folder / "1_Pooling/config.json", {"embedding_dimension": WIDTH, "pooling_mode": None}),
))
refused("unknown module", r"NoSuchModule")(
    lambda folder: declare(transformer(folder), pooling("mean"), ("sentence_transformers.models.NoSuchModule", {}))
)
refused("default_prompt_name without its prompt", r"default_prompt_name|nowhere")(lambda folder: declare(
    transformer(folder), pooling("mean"), settings={"prompts": {}, "default_prompt_name": "nowhere"}
))

# Weights that do not fit ----------------------------------------------------------------------------------------------


def _unexpected(name: str, line: str, make: Any) -> None:
    """A weight that the model has no place for: in a plain folder, in one with modules, and where the library runs it."""

    def more(folder: Path) -> Path:
        import torch

        torch.manual_seed(11)
        weights(transformer(folder) / "model.safetensors", lambda tensors: tensors.update(make(torch, tensors)))
        return folder

    refused(f"{name}, plain", line, **MEAN)(more)
    refused(f"{name}, with modules", line)(lambda folder: declare(more(folder), pooling("mean")))
    refused(f"{name}, in the library", line)(lambda folder: declare(more(folder), pooling("mean"), dense()))


_unexpected("one layer more", r"encoder\.layer\.2\.", lambda torch, tensors: {
    name.replace("layer.1.", "layer.2."): tensor.clone() for name, tensor in tensors.items() if "layer.1." in name
})
_unexpected("relative_key", r"distance_embedding|relative_key", lambda torch, tensors: {
    f"encoder.layer.{i}.attention.self.distance_embedding.weight": torch.randn(59, 8) for i in (0, 1)
})
_unexpected("lora not merged", r"lora_[AB]", lambda torch, tensors: {
    f"encoder.layer.0.attention.self.query.lora_{side}.weight": torch.randn(*shape)
    for side, shape in (("A", (2, WIDTH)), ("B", (WIDTH, 2)))
})


@refused("one layer more, in a linked sub-folder", r"encoder\.layer\.2\.")
def _(folder):
    real = transformer(folder.with_name(folder.name + "-real"))
    weights(real / "model.safetensors", lambda tensors: tensors.update({
        name.replace("layer.1.", "layer.2."): tensor.clone() for name, tensor in tensors.items() if "layer.1." in name
    }))
    write(real / "sentence_bert_config.json", {"max_seq_length": 30})
    (folder / "0_Transformer").symlink_to(real)
    declare(folder, pooling("mean"), dense(), first="0_Transformer")


def _without(folder: Path, part: str) -> Path:
    weights(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name})
    return folder


for _where, _wrap in (("plain", lambda folder: folder), ("with modules", lambda folder: declare(folder, pooling("mean"))),
                      ("in the library", lambda folder: declare(folder, pooling("mean"), dense()))):
    refused(f"missing weights, {_where}", r"layer\.1\.output\.dense", **(MEAN if _where == "plain" else {}))(
        lambda folder, wrap=_wrap: (
            wrap(transformer(folder)), _without(folder / "model.safetensors", "encoder.layer.1.output.dense")
        )
    )
refused("missing weights of a dense", r"2_Dense|linear\.weight|model\.safetensors")(lambda folder: (
    declare(transformer(folder), pooling("mean"), dense()), (folder / "2_Dense" / "model.safetensors").unlink()
))
refused("no weights", r"holds no weights|model\.safetensors")(
    lambda folder: (declare(transformer(folder), pooling("mean")), (folder / "model.safetensors").unlink())
)
refused("transformers_weights names nothing", r"transformers_weights|tuned\.safetensors")(lambda folder: (
    declare(transformer(folder), pooling("mean")), change(folder / "config.json", transformers_weights="tuned.safetensors")
))
refused("transformers_weights outside the folder", r"transformers_weights")(lambda folder: (
    declare(transformer(folder), pooling("mean")),
    shutil.copy(folder / "model.safetensors", folder.with_name(folder.name + "-other.safetensors")),
    change(folder / "config.json", transformers_weights=f"../{folder.name}-other.safetensors"),
))

# Adapters -------------------------------------------------------------------------------------------------------------


@refused("adapter without its base", r"base_model_name_or_path|no-such-base", **MEAN)
def _(folder):
    base = transformer(folder.with_name(folder.name + "-base"))
    adapter(folder, base, named=str(folder.with_name("no-such-base")))
    tokenizer().save_pretrained(folder)


def _one_layer_more(tensors: dict[str, Any]) -> None:
    more = {name: value for name, value in tensors.items() if "layer.1." in name}
    tensors.update({name.replace("layer.1.", "layer.2."): value.clone() for name, value in more.items()})


# An adapter's report of what it loaded must not stand for the model's own.
for _name, _line, _damage in (
    ("missing weights", r"layer\.1\.output\.dense",
     lambda folder: _without(folder / "model.safetensors", "layer.1.output.dense")),
    ("one layer more", r"layer\.2\.", lambda folder: weights(folder / "model.safetensors", _one_layer_more)),
):
    refused(f"{_name} beside an adapter, plain", _line, **MEAN)(
        lambda folder, damage=_damage: (adapter(transformer(folder), folder), damage(folder))
    )
    refused(f"{_name} beside an adapter, with modules", _line)(
        lambda folder, damage=_damage: (declare(adapter(transformer(folder), folder), pooling("mean")), damage(folder))
    )
    refused(f"{_name} of an adapter's base", _line)(lambda folder, damage=_damage: (
        adapter(folder, transformer(folder.with_name(folder.name + "-base"))), tokenizer().save_pretrained(folder),
        declare(folder, pooling("mean")), damage(folder.with_name(folder.name + "-base")),
    ))


@refused("adapter without weights", r"adapter_model", **MEAN)
def _(folder):
    base = transformer(folder.with_name(folder.name + "-base"))
    adapter(folder, base)
    tokenizer().save_pretrained(folder)
    (folder / "adapter_model.safetensors").unlink()


@refused("adapter for other layers", r"adapter|lora_", **MEAN)
def _(folder):
    base = transformer(folder.with_name(folder.name + "-base"))
    adapter(folder, base)
    tokenizer().save_pretrained(folder)
    weights(folder / "adapter_model.safetensors", lambda tensors: {
        name.replace("layer.1.", "layer.7."): tensor for name, tensor in tensors.items()
    })


# Broken files ---------------------------------------------------------------------------------------------------------


def _broken(name: str, file: str, content: str, line: str, **changes: Any) -> None:
    refused(name, line)(lambda folder: (
        declare(transformer(folder, save={"max_shard_size": "8KB"}), pooling("mean"), settings={}),
        (folder / file).write_text(content, "utf-8"),
    ))


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
_INDEX = "model.safetensors.index.json"
for _name, _content in (
    ("cut short", '{"weight_map": {'), ("without a map", "{}"), ("a list", "[]"), ("deep", DEEP),
    ("a map of numbers", '{"weight_map": {"a": 1}}'), ("outside", '{"weight_map": {"a": "../../elsewhere.safetensors"}}'),
):
    _broken(f"index {_name}", _INDEX, _content, r"index\.json|elsewhere")
for _file in ("config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
              "config_sentence_transformers.json", "tokenizer_config.json", "tokenizer.json"):
    for _name, _content in (
        ("empty", ""), ("deep", DEEP), ("a string", '"text"'), ("not UTF-8", "\udcff"),
        ("an empty list", "[]") if _file == "modules.json" else ("a list", "[1]"),
    ):
        if _name == "not UTF-8":
            refused(f"{_file} {_name}", rf"{_file}|tokenizer")(lambda folder, file=_file: (
                declare(transformer(folder), pooling("mean"), settings={}), (folder / file).write_bytes(b"{\xff\xfe}")
            ))
        else:
            _broken(f"{_file} {_name}", _file, _content, rf"{_file}|tokenizer")
refused("modules.json with a path outside", r"modules\.json|\.\./")(lambda folder: (
    declare(transformer(folder), pooling("mean")),
    write(folder / "modules.json", [*read(folder / "modules.json")[:1], {
        "idx": 1, "name": "1", "path": f"../{folder.name}/1_Pooling", "type": "sentence_transformers.models.Pooling",
    }]),
))
refused("weights cut short", r"model\.safetensors|cannot load")(lambda folder: (
    declare(transformer(folder), pooling("mean")),
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:999]),
))
