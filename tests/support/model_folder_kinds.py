"""Every kind of folder that sentence-transformers gives the vectors of: what it declares has to be honoured.

A kind may also carry a regular expression of a refusal: then either is right, the same vectors or that one line. The kinds
with code are in code_folders.py."""

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

kind("pooling cls")(of(pooling("cls")))
kind("pooling mean_sqrt_len_tokens")(of(pooling("mean_sqrt_len_tokens")))
kind("pooling lasttoken, prompt left out, padding left", alone=True)(of(
    pooling("lasttoken", include_prompt=False), model=dict(tok=tokenizer(padding_side="left")),
    settings={"prompts": {"sts": PROMPT}, "default_prompt_name": "sts"},
))
kind("legacy booleans, two true")(lambda folder: declare(transformer(folder), (f"{LEGACY}.Pooling", {
    "word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True,
})))
kind("new module paths")(lambda folder: declare(
    transformer(folder), (f"{NEW}.pooling.Pooling", {"embedding_dimension": WIDTH, "pooling_mode": "mean"}),
    ("sentence_transformers.base.modules.normalize.Normalize", {}),
))

# Families -------------------------------------------------------------------------------------------------------------

for _family in ("t5-whole", "longt5"):
    kind(f"family {_family}")(of(pooling("mean"), normalize(), model=dict(family=_family)))
kind("masked-LM weights")(of(pooling("cls"), model=dict(family="bert-lm")))
kind("transformer in a sub-folder")(
    lambda folder: declare(transformer(folder / "0_Transformer").parent, pooling("mean"), first="0_Transformer")
)
kind("qwen3-lm weightedmean, padding left")(of(
    pooling("weightedmean"), normalize(), model=dict(family="qwen3-lm", tok=tokenizer("qwen3", padding_side="left"))
))
_EVERY = (  # family, tokenizer (None: BERT's), EOS, padding: what its models use, and every way to pool and to end in turn
    ("data2vec", "roberta", True, "right"), ("llama", "llama", False, "left"), ("gemma3", "llama", True, "left"),
    ("gpt2", "gpt2", False, "right"), ("opt", "llama", False, "right"), ("qwen2", "qwen3", False, "left"),
    ("deberta-v2", None, True, "right"), ("modernbert", None, True, "left"),
)
for _i, (_family, _tok, _end, _side) in enumerate(_EVERY):
    _mode = ("mean", "lasttoken", "weightedmean", "max")[_i % 4]
    _words = tokenizer(_tok or "bert", ends=_end, padding_side=_side, blanks=_family == "qwen2")
    _pooling = pooling(_mode, width=WIDTH if _family == "modernbert" else 32)
    kind(f"every family: {_family} {_mode} {_tok} {_end} {_side}", empty=_end or _tok == "llama")(
        of(_pooling, normalize(), model=dict(family=_family, tok=_words))
    )
kind("gemma3 bidirectional cls")(
    of(pooling("cls", width=32), model=dict(family="gemma3 bidirectional", tok=tokenizer("roberta")))
)
kind("gpt_neox, more tokens than positions")(of(
    pooling("mean", width=32), model=dict(family="gpt_neox", tok=tokenizer("llama"), max_position_embeddings=40), limit=500,
))
kind("opt, states of another width")(
    of(pooling("mean", width=20), model=dict(family="opt", tok=tokenizer("llama"), word_embed_proj_dim=20))
)
kind("roberta, blanks count")(of(
    pooling("mean"), model=dict(family="roberta", tok=tokenizer("roberta", blanks=True)),
    settings={"prompts": {"sts": "red : "}, "default_prompt_name": "sts"},
))
kind("token_type_ids of 1", refused="token_type_ids")(of(pooling("mean"), model=dict(tok=tokenizer(kinds=True))))
kind("stored cls of a decoder", refused=r"cls.*causal|causal.*cls")(
    of(pooling("cls"), model=dict(family="qwen3", tok=tokenizer("qwen3")))
)

# Modules --------------------------------------------------------------------------------------------------------------


kind("normalize")(of(pooling("mean"), normalize()))
kind("dense, then normalize")(of(pooling("mean"), dense(), normalize()))
kind("dense for other vectors", refused="cannot encode with")(of(pooling("mean"), dense(given=8)))
kind("dense with an activation of its own", refused=r"activation_function")(lambda folder: (
    declare(transformer(folder), pooling("mean"), dense()),
    change(folder / "2_Dense" / "config.json", activation_function="my_code.Activation"),
))


@kind("cnn", alone=True)
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import CNN

    torch.manual_seed(1)
    declare(transformer(folder), CNN(WIDTH, out_channels=4, kernel_sizes=[1, 3]), pooling("mean", width=8))


def word_embeddings():
    import torch
    from sentence_transformers.sentence_transformer.modules import WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    torch.manual_seed(2)
    table = torch.randn(len(WORDS), WIDTH)
    return WordEmbeddings(WhitespaceTokenizer(WORDS, stop_words=set()), table)


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


kind("static embedding")(lambda folder: declare(folder, static(6), normalize(), first=None))


@kind("router of queries and documents", refused=r"Router|route")
def _(folder):
    from sentence_transformers.base.modules import Router

    declare(folder, Router.for_query_document([static(7)], [static(8)]), normalize(), first=None)


@kind("router without a default", refused=r"Router|route")
def _(folder):
    from sentence_transformers.base.modules import Router

    declare(folder, Router({"one": [static(7)], "other": [static(8)]}), first=None)


# What settings declare ------------------------------------------------------------------------------------------------

kind("max_seq_length over the tokenizer's")(of(pooling("mean"), limit=20, model=dict(tok=tokenizer(limit=7))))
kind("a limit of no token", refused="token limit 0 is not a positive number")(of(pooling("mean"), limit=0))
kind("the tokenizer's limit alone")(of(pooling("mean"), limit=None, model=dict(tok=tokenizer(limit=9))))
kind("truncation_side left")(of(pooling("mean"), limit=8, model=dict(tok=tokenizer(truncation_side="left"))))
kind("the settings' old file name")(
    of(pooling("mean"), limit=8, transformer_file="sentence_roberta_config.json", model=dict(family="roberta"))
)
kind("do_lower_case")(of(pooling("cls"), stored={"do_lower_case": True}))
kind("tokenizer_args", refused=r"tokenizer_args|processor_kwargs")(
    of(pooling("mean"), limit=None, stored={"tokenizer_args": {"model_max_length": 8}})
)
kind("config_kwargs", refused=r"config_kwargs|hidden_act")(
    of(pooling("mean"), stored={"config_kwargs": {"hidden_act": "relu"}})
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


_PROMPTS = {"sts": PROMPT, "other": "red : "}
kind("default_prompt_name")(of(pooling("mean"), settings={"prompts": _PROMPTS, "default_prompt_name": "sts"}))
kind("a default prompt longer than the limit", refused="leaves no token")(
    of(pooling("mean"), limit=6, settings={"prompts": {"sts": PROMPT * 2}, "default_prompt_name": "sts"})
)
kind("truncate_dim, normalised before")(of(pooling("mean"), normalize(), settings={"truncate_dim": 6}))
kind("similarity dot")(of(pooling("mean"), settings={"similarity_fn_name": "dot"}))

# Files of weights -----------------------------------------------------------------------------------------------------


@kind("adapter beside the model")
def _(folder):
    adapter(transformer(folder), folder)
    declare(folder, pooling("mean"), normalize())


@kind("adapter beside the model, base elsewhere")
def _(folder):
    """Its weights are the folder's, its config is the base's."""
    base = transformer(folder.with_name(folder.name + "-base"), seed=4)
    declare(adapter(transformer(folder), folder, named=str(base)), pooling("mean"))


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


@kind("transformers_weights, sharded")
def _(folder):
    other = transformer(folder.with_name(folder.name + "-other"), seed=8, save={"max_shard_size": "8KB"})
    transformer(folder)
    for path in other.glob("model*"):
        name = "tuned.safetensors.index.json" if path.name.endswith("index.json") else path.name
        shutil.move(path, folder / name)
    change(folder / "config.json", transformers_weights="tuned.safetensors.index.json")
    declare(folder, pooling("mean"))


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

kind("plain decoder, last", options={"pooler": "last"})(
    lambda folder: transformer(folder, "qwen3-lm", tok=tokenizer("qwen3", limit=20, padding_side="left"))
)
kind("plain fnet, mean", options={"pooler": "mean"}, alone=True)(lambda folder: transformer(folder, "fnet"))
