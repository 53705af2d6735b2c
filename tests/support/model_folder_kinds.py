"""Every kind of folder that sentence-transformers gives the vectors of: what it declares has to be honoured.

A kind may also carry a regular expression of a refusal: then either is right, the same vectors or that one line. The kinds
with code are in code_folders.py."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_folders import PROMPT, WIDTH, WORDS, adapter, change, declare, dense, normalize, pooling, tokenizer, transformer

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


KINDS = {}


def kind(name, **expected):
    def enter(build):
        assert name not in KINDS
        KINDS[name] = Kind(build, **expected)
        return build

    return enter


def of(*modules, model=None, **declared):
    """Build a folder of a transformer (a BERT, or as `model` says) and these modules behind it."""
    return lambda folder: declare(transformer(folder, **(model or {})), *modules, **declared)


# Pooling --------------------------------------------------------------------------------------------------------------

kind("pooling lasttoken, prompt left out, padding left, similarity dot", alone=True)(of(
    pooling("lasttoken", include_prompt=False), model=dict(tok=tokenizer(padding_side="left")),
    settings={"prompts": {"sts": PROMPT}, "default_prompt_name": "sts", "similarity_fn_name": "dot"}))
kind("legacy booleans, two true")(lambda folder: declare(transformer(folder), ("sentence_transformers.models.Pooling", {
    "word_embedding_dimension": WIDTH, "pooling_mode_mean_sqrt_len_tokens": True, "pooling_mode_cls_token": True,
})))
kind("new module paths")(lambda folder: declare(
    transformer(folder), (f"{NEW}.pooling.Pooling", {"embedding_dimension": WIDTH, "pooling_mode": "mean"}),
    ("sentence_transformers.base.modules.normalize.Normalize", {})))

# Families -------------------------------------------------------------------------------------------------------------

kind("family longt5")(of(pooling("mean"), normalize(), model=dict(family="longt5")))
kind("masked-LM weights")(of(pooling("cls"), model=dict(family="bert-lm")))
kind("transformer in a sub-folder, the settings' old file name")(lambda folder: declare(
    transformer(folder / "0_Transformer", "roberta").parent, pooling("mean"), limit=8, first="0_Transformer",
    transformer_file="sentence_roberta_config.json"))
_EVERY = (  # family, tokenizer (None: BERT's), EOS, padding: what its models use, and every way to pool and to end in turn
    ("data2vec", "roberta", True, "right"), ("qwen2", "qwen3", False, "left"), ("gemma3", "llama", True, "left"),
    ("gpt2", "gpt2", False, "right"), ("deberta-v2", None, True, "right"), ("t5", "t5", True, "right"))
for _i, (_family, _tok, _end, _side) in enumerate(_EVERY):
    _mode = ("mean", "lasttoken", "weightedmean", "max")[_i % 4]
    _words = tokenizer(_tok or "bert", ends=_end, padding_side=_side, blanks=_family == "qwen2")
    kind(f"every family: {_family} {_mode} {_tok} {_end} {_side}", empty=_end)(
        of(pooling(_mode, width=32), normalize(), model=dict(family=_family, tok=_words)))
kind("gemma3 bidirectional cls")(
    of(pooling("cls", width=32), model=dict(family="gemma3 bidirectional", tok=tokenizer("roberta"))))
kind("gpt_neox, more tokens than positions")(of(
    pooling("mean", width=32), model=dict(family="gpt_neox", tok=tokenizer("llama"), max_position_embeddings=40), limit=500))
kind("opt, states of another width")(
    of(pooling("mean", width=20), model=dict(family="opt", tok=tokenizer("llama"), word_embed_proj_dim=20)))
kind("roberta, blanks count")(of(
    pooling("mean"), model=dict(family="roberta", tok=tokenizer("roberta", blanks=True)),
    settings={"prompts": {"sts": "red : "}, "default_prompt_name": "sts"}))
kind("token_type_ids of 1", refused="token_type_ids")(of(pooling("mean"), model=dict(tok=tokenizer(kinds=True))))

# Modules --------------------------------------------------------------------------------------------------------------


kind("dense, then normalize")(of(pooling("mean"), dense(), normalize()))
kind("dense for other vectors", refused="cannot encode with")(of(pooling("mean"), dense(given=8)))
kind("dense with an activation of its own", refused=r"activation_function")(lambda folder: (
    declare(transformer(folder), pooling("mean"), dense()),
    change(folder / "2_Dense" / "config.json", activation_function="my_code.Activation")))


def word_embeddings():
    import torch
    from sentence_transformers.sentence_transformer.modules import WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    torch.manual_seed(2)
    return WordEmbeddings(WhitespaceTokenizer(WORDS, stop_words=set()), torch.randn(len(WORDS), WIDTH))


@kind("word embeddings and a cnn", alone=True)
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import CNN

    words = word_embeddings()
    torch.manual_seed(4)
    declare(folder, words, CNN(WIDTH, out_channels=5, kernel_sizes=[3]), pooling("mean", width=5), first=None)


@kind("bag of words")
def _(folder):
    from sentence_transformers.sentence_transformer.modules import BoW

    declare(folder, BoW(WORDS, {word: 1 + i**0.5 for i, word in enumerate(WORDS)}), first=None)  # no two pairs tie


def static(seed):
    import torch
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tok = tokenizer()
    torch.manual_seed(seed)
    return StaticEmbedding(tok, embedding_weights=torch.randn(len(tok), WIDTH))


def router(folder, *modules, **declared):
    from sentence_transformers.base.modules import Router

    return declare(folder, Router.for_query_document([static(7)], [static(8)]), *modules, first=None, **declared)


kind("router of queries and documents", refused=r"Router|route")(lambda folder: router(folder, normalize()))


@kind("router without a default", refused=r"Router|route")
def _(folder):
    from sentence_transformers.base.modules import Router

    declare(folder, Router({"one": [static(7)], "other": [static(8)]}), first=None)


# What settings declare ------------------------------------------------------------------------------------------------

kind("max_seq_length over the tokenizer's")(of(pooling("mean"), limit=20, model=dict(tok=tokenizer(limit=7))))
kind("a limit of no token", refused="token limit 0 is not a positive number")(of(pooling("mean"), limit=0))
kind("truncation_side left")(of(pooling("mean"), limit=8, model=dict(tok=tokenizer(truncation_side="left"))))
kind("do_lower_case")(of(pooling("cls"), stored={"do_lower_case": True}))
kind("tokenizer_args", refused=r"tokenizer_args|processor_kwargs")(
    of(pooling("mean"), limit=None, stored={"tokenizer_args": {"model_max_length": 8}}))


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


kind("another pooler beside config_kwargs", options={"pooler": "mean"}, refused="config_kwargs")(
    of(pooling("mean"), stored={"config_kwargs": {"hidden_act": "relu"}}))


@kind("a tokenizer's class that lowers texts, in the library", refused="makes another tokenizer of its class's name")
def _(folder):
    declare(transformer(folder), pooling("mean"), dense())
    change(folder / "tokenizer_config.json", tokenizer_class="BertTokenizer")


@kind("a token beyond the table, in the library", refused="'zebra' the token id")
def _(folder):
    declare(transformer(folder), pooling("mean"), dense())
    words = tokenizer()
    words.add_tokens(["zebra"])
    words.save_pretrained(folder)


@kind("the tokenizer cuts and pads by itself")
def _(folder):
    tok = tokenizer()
    tok.backend_tokenizer.enable_truncation(6)
    tok.backend_tokenizer.enable_padding(length=6, pad_id=tok.pad_token_id, pad_token=tok.pad_token)
    declare(transformer(folder, tok=tok), pooling("mean"))


# Files of weights -----------------------------------------------------------------------------------------------------


@kind("adapter beside the model, base elsewhere")
def _(folder):
    """Its weights are the folder's, its config is the base's."""
    base = transformer(folder.with_name(folder.name + "-base"), seed=4)
    declare(adapter(transformer(folder), folder, named=str(base)), pooling("mean"), normalize())


@kind("adapter alone", options={"pooler": "mean"})
def _(folder):
    adapter(folder, transformer(folder.with_name(folder.name + "-base")))
    tokenizer(limit=20).save_pretrained(folder)


@kind("transformers_weights, sharded")
def _(folder):
    other = transformer(folder.with_name(folder.name + "-other"), seed=8, save={"max_shard_size": "8KB"})
    transformer(folder)
    for path in other.glob("model*"):
        name = "tuned.safetensors.index.json" if path.name.endswith("index.json") else path.name
        shutil.move(path, folder / name)
    change(folder / "config.json", transformers_weights="tuned.safetensors.index.json")
    declare(folder, pooling("mean"))


@kind("fp16 weights as .bin")
def _(folder):
    import torch
    from safetensors.torch import load_file

    transformer(folder, dtype="float16")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    declare(folder, pooling("mean"))


# Folders of transformers, without modules -----------------------------------------------------------------------------

kind("plain decoder, last", options={"pooler": "last"})(
    lambda folder: transformer(folder, "qwen3-lm", tok=tokenizer("qwen3", limit=20, padding_side="left")))
kind("plain fnet, mean", options={"pooler": "mean"}, alone=True)(lambda folder: transformer(folder, "fnet"))
