"""Every kind of folder that sentence-transformers gives the vectors of: what it declares has to be honoured.

A kind may also carry a regular expression of a refusal: then either is right, the same vectors or that one line. The kinds
that can only be refused are in refused_folder_kinds.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_folders import (
    PROMPT,
    WIDTH,
    WORDS,
    adapter,
    change,
    declare,
    dense,
    normalize,
    pooling,
    tokenizer,
    transformer,
)

LEGACY = "sentence_transformers.models"
NEW = "sentence_transformers.sentence_transformer.modules"


@dataclass(frozen=True)
class Kind:
    """How a folder is built, and what is expected of it."""

    build: Callable[[Path], Any]
    refused: str | None = None  # a regular expression of the line: such a refusal is right as well
    # The library's own vectors depend on the company in a batch (convolutions over padding, a BERT padded on the left, whose
    # positions count the padding): text by text is the reference.
    alone: bool = False
    empty: bool = True  # the library has a vector for the empty text
    options: dict[str, Any] = field(default_factory=dict)  # of load_encoder: what a folder without modules needs


KINDS: dict[str, Kind] = {}


def kind(name: str, **expected: Any) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Enter a builder as a kind."""

    def enter(build: Callable[[Path], Any]) -> Callable[[Path], Any]:
        assert name not in KINDS
        KINDS[name] = Kind(build, **expected)
        return build

    return enter


# Pooling --------------------------------------------------------------------------------------------------------------

for _mode in ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"):
    kind(f"pooling {_mode}")(lambda folder, mode=_mode: declare(transformer(folder), pooling(mode)))
    for _side in ("left", "right"):
        kind(f"pooling {_mode}, prompt left out, padding {_side}", alone=_side == "left")(
            lambda folder, mode=_mode, side=_side: declare(
                transformer(folder, tok=tokenizer(padding_side=side)), pooling(mode, include_prompt=False),
                settings={"prompts": {"sts": PROMPT}, "default_prompt_name": "sts"},
            )
        )  # fmt: skip
kind("two modes concatenated")(lambda folder: declare(transformer(folder), pooling("mean", "cls")))
kind("two modes, normalised")(lambda folder: declare(transformer(folder), pooling("max", "lasttoken"), normalize()))
kind("legacy booleans, two true")(lambda folder: declare(transformer(folder), (f"{LEGACY}.Pooling", {
    "word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True,
})))  # fmt: skip
kind("legacy booleans, none true")(lambda folder: declare(transformer(folder), (f"{LEGACY}.Pooling", {
    "word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": False, "pooling_mode_cls_token": False,
})))  # fmt: skip
kind("new module paths")(lambda folder: declare(
    transformer(folder), (f"{NEW}.pooling.Pooling", {"embedding_dimension": WIDTH, "pooling_mode": "mean"}),
    ("sentence_transformers.base.modules.normalize.Normalize", {}),
))  # fmt: skip

# Families -------------------------------------------------------------------------------------------------------------

for _family in ("roberta", "distilbert", "mpnet", "modernbert", "t5", "t5-whole"):
    kind(f"family {_family}")(lambda folder, family=_family: declare(transformer(folder, family), pooling("mean"), normalize()))
kind("t5 with dense")(
    lambda folder: declare(
        transformer(folder, "t5"), pooling("mean"), dense(10, bias=False, activation_function=_identity()), normalize()
    )
)
kind("masked-LM weights")(lambda folder: declare(transformer(folder, "bert-lm"), pooling("cls")))
kind("transformer in a sub-folder")(
    lambda folder: declare(transformer(folder / "0_Transformer").parent, pooling("mean"), first="0_Transformer")
)
for _family, _mode, _tok in (
    ("qwen3", "lasttoken", {"padding_side": "left"}), ("qwen3", "mean", {"padding_side": "left"}),
    ("qwen3", "lasttoken", {"padding_side": "right"}), ("qwen3", "lasttoken", {"padding_side": "left", "ends": False}),
    ("qwen3-lm", "weightedmean", {"padding_side": "left"}),
):  # fmt: skip
    kind(
        f"{_family} {_mode}, padding {_tok['padding_side']}{'' if _tok.get('ends', True) else ', no EOS'}",
        empty=_tok.get("ends", True),
    )(lambda folder, family=_family, mode=_mode, tok=_tok: declare(
        transformer(folder, family, tok=tokenizer("qwen3", **tok)), pooling(mode), normalize()
    ))  # fmt: skip
kind("stored cls of a decoder", refused=r"cls.*causal|causal.*cls")(
    lambda folder: declare(transformer(folder, "qwen3", tok=tokenizer("qwen3")), pooling("cls"))
)
kind("qwen3, bidirectional")(
    lambda folder: declare(transformer(folder, "qwen3", is_causal=False), pooling("mean"))
)

# Modules --------------------------------------------------------------------------------------------------------------


def _identity() -> Any:
    import torch

    return torch.nn.Identity()


@kind("layer norm")
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    module = LayerNorm(WIDTH)
    with torch.no_grad():
        module.norm.weight.copy_(torch.linspace(0.5, 2, WIDTH))
    declare(transformer(folder), pooling("mean"), module, normalize())


kind("normalize")(lambda folder: declare(transformer(folder), pooling("mean"), normalize()))
kind("normalize, padding left", alone=True)(
    lambda folder: declare(transformer(folder, tok=tokenizer(padding_side="left")), pooling("mean"), normalize())
)
kind("dense, then normalize")(lambda folder: declare(transformer(folder), pooling("mean"), dense(), normalize()))
kind("normalize, then dense")(lambda folder: declare(transformer(folder), pooling("mean"), normalize(), dense()))
kind("two dense")(lambda folder: declare(transformer(folder), pooling("cls"), dense(12), dense(6, 12)))
kind("dense with residual")(lambda folder: declare(transformer(folder), pooling("mean"), dense(use_residual=True)))
kind("dense on tokens")(lambda folder: declare(
    transformer(folder), dense(WIDTH, module_input_name="token_embeddings"), pooling("mean")
))  # fmt: skip
kind("dense with an activation of its own", refused=r"activation_function")(lambda folder: (
    declare(transformer(folder), pooling("mean"), dense()),
    change(folder / "2_Dense" / "config.json", activation_function="my_code.Activation"),
))  # fmt: skip


@kind("dropout")
def _(folder):
    from sentence_transformers.sentence_transformer.modules import Dropout

    declare(transformer(folder), pooling("mean"), Dropout(0.5), normalize())


@kind("cnn", alone=True)
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import CNN

    torch.manual_seed(1)
    declare(transformer(folder), CNN(WIDTH, out_channels=4, kernel_sizes=[1, 3]), pooling("mean", width=8))


@kind("weighted layer pooling")
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import WeightedLayerPooling

    layers = WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1)
    with torch.no_grad():
        layers.layer_weights.copy_(torch.tensor([1.0, 3.0]))
    transformer(folder)
    change(folder / "config.json", output_hidden_states=True)
    declare(folder, layers, pooling("mean"))


def _words() -> Any:
    import torch
    from sentence_transformers.sentence_transformer.modules import WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    torch.manual_seed(2)
    table = torch.randn(len(WORDS), WIDTH)
    return WordEmbeddings(WhitespaceTokenizer(WORDS, stop_words=set()), table)


@kind("word embeddings and an lstm")
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import LSTM

    words = _words()
    torch.manual_seed(3)
    declare(folder, words, LSTM(WIDTH, 6), pooling("lasttoken", "mean", width=12), first=None)


@kind("word embeddings and a cnn", alone=True)
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import CNN

    words = _words()
    torch.manual_seed(4)
    declare(folder, words, CNN(WIDTH, out_channels=5, kernel_sizes=[3]), pooling("mean", width=5), first=None)


@kind("word embeddings with weights")
def _(folder):
    from sentence_transformers.sentence_transformer.modules import WordWeights

    weights = WordWeights(WORDS, {word: 1 / (1 + i) for i, word in enumerate(WORDS)})
    declare(folder, _words(), weights, pooling("mean"), normalize(), first=None)


@kind("bag of words")
def _(folder):
    from sentence_transformers.sentence_transformer.modules import BoW

    declare(folder, BoW(WORDS, {word: 1 + i**0.5 for i, word in enumerate(WORDS)}), first=None)  # no two pairs tie


def _static(seed: int) -> Any:
    import torch
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tok = tokenizer()
    torch.manual_seed(seed)
    return StaticEmbedding(tok, embedding_weights=torch.randn(len(tok), WIDTH))


kind("static embedding")(lambda folder: declare(folder, _static(5), first=None))
kind("static embedding, normalised")(lambda folder: declare(folder, _static(6), normalize(), first=None))


@kind("router of queries and documents", refused=r"Router|route")
def _(folder):
    from sentence_transformers.base.modules import Router

    declare(folder, Router.for_query_document([_static(7)], [_static(8)]), normalize(), first=None)


@kind("router without a default", refused=r"Router|route")
def _(folder):
    from sentence_transformers.base.modules import Router

    declare(folder, Router({"one": [_static(7)], "other": [_static(8)]}), first=None)


# What settings declare ------------------------------------------------------------------------------------------------

kind("max_seq_length 8")(lambda folder: declare(transformer(folder), pooling("mean"), limit=8))
kind("max_seq_length over the tokenizer's")(
    lambda folder: declare(transformer(folder, tok=tokenizer(limit=7)), pooling("mean"), limit=20)
)
kind("the tokenizer's limit alone")(
    lambda folder: declare(transformer(folder, tok=tokenizer(limit=9)), pooling("mean"), limit=None)
)
kind("no limit but the positions")(lambda folder: declare(transformer(folder), pooling("mean"), limit=None))
kind("max_seq_length 8, in the library")(lambda folder: declare(transformer(folder), pooling("mean"), dense(), limit=8))
kind("truncation_side left")(
    lambda folder: declare(transformer(folder, tok=tokenizer(truncation_side="left")), pooling("mean"), limit=8)
)
kind("the settings' old file name")(
    lambda folder: declare(
        transformer(folder, "roberta"), pooling("mean"), limit=8, transformer_file="sentence_roberta_config.json"
    )
)
kind("do_lower_case")(lambda folder: declare(transformer(folder), pooling("cls"), stored={"do_lower_case": True}))
kind("do_lower_case, in the library")(
    lambda folder: declare(transformer(folder), pooling("cls"), dense(), stored={"do_lower_case": True})
)
kind("tokenizer_args", refused=r"tokenizer_args|processor_kwargs")(
    lambda folder: declare(transformer(folder), pooling("mean"), limit=None, stored={"tokenizer_args": {"model_max_length": 8}})
)
kind("config_kwargs", refused=r"config_kwargs|hidden_act")(
    lambda folder: declare(transformer(folder), pooling("mean"), stored={"config_kwargs": {"hidden_act": "relu"}})
)
kind("query_length and document_length", refused=r"query_length|document_length")(
    lambda folder: declare(transformer(folder), pooling("mean"), stored={"query_length": 5, "document_length": 6})
)


@kind("the tokenizer cuts and pads by itself")
def _(folder):
    tok = tokenizer()
    tok.backend_tokenizer.enable_truncation(6)
    tok.backend_tokenizer.enable_padding(length=6, pad_id=tok.pad_token_id, pad_token=tok.pad_token)
    declare(transformer(folder, tok=tok), pooling("mean"))


_PROMPTS = {"sts": PROMPT, "other": "red : "}
kind("default_prompt_name")(lambda folder: declare(
    transformer(folder), pooling("mean"), settings={"prompts": _PROMPTS, "default_prompt_name": "sts"}
))  # fmt: skip
kind("default_prompt_name, in the library")(lambda folder: declare(
    transformer(folder), pooling("mean"), dense(), settings={"prompts": _PROMPTS, "default_prompt_name": "sts"}
))  # fmt: skip
kind("default prompt before static embeddings")(lambda folder: declare(
    folder, _static(9), settings={"prompts": _PROMPTS, "default_prompt_name": "other"}, first=None
))  # fmt: skip
kind("prompts without a default")(lambda folder: declare(
    transformer(folder), pooling("mean"), settings={"prompts": {"query": "red : ", "document": "blue : "}}
))  # fmt: skip
kind("truncate_dim")(lambda folder: declare(transformer(folder), pooling("mean"), settings={"truncate_dim": 6}))
kind("truncate_dim, normalised before")(
    lambda folder: declare(transformer(folder), pooling("mean"), normalize(), settings={"truncate_dim": 6})
)
kind("truncate_dim, in the library")(
    lambda folder: declare(transformer(folder), pooling("mean"), dense(), settings={"truncate_dim": 6})
)
kind("similarity dot", refused=r"similarity_fn_name")(
    lambda folder: declare(transformer(folder), pooling("mean"), settings={"similarity_fn_name": "dot"})
)

# Files of weights -----------------------------------------------------------------------------------------------------


@kind("adapter beside the model")
def _(folder):
    adapter(transformer(folder), folder)
    declare(folder, pooling("mean"), normalize())


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


kind("sharded weights")(
    lambda folder: declare(transformer(folder, save={"max_shard_size": "8KB"}), pooling("mean"), normalize())
)


@kind("weights as .bin")
def _(folder):
    import torch
    from safetensors.torch import load_file

    transformer(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    declare(folder, pooling("mean"))


kind("fp16 weights")(lambda folder: declare(transformer(folder, dtype="float16"), pooling("mean")))
kind("fp16 weights, in the library")(lambda folder: declare(transformer(folder, dtype="float16"), pooling("mean"), dense()))

# Folders of transformers, without modules -----------------------------------------------------------------------------

kind("plain bert, mean", options={"pooler": "mean"})(lambda folder: transformer(folder))
kind("plain decoder, last", options={"pooler": "last"})(
    lambda folder: transformer(folder, "qwen3-lm", tok=tokenizer("qwen3", limit=20, padding_side="left"))
)
for _family in ("fnet", "convbert", "mobilebert"):
    kind(f"plain {_family}, mean", options={"pooler": "mean"}, alone=True)(
        lambda folder, family=_family: transformer(folder, family)
    )
