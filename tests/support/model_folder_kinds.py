"""Every kind of folder that sentence-transformers gives the vectors of: what it declares has to be honoured.

A kind may also carry a regular expression of a refusal: then either is right, the same vectors or that one line. Here are
the kinds by pooling, family and modules, in model_folder_settings.py those by settings and files; those with code are in
code_folders.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_folders import (
    PROMPT,
    WIDTH,
    WORDS,
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
    def enter(build: Callable[[Path], Any]) -> Callable[[Path], Any]:
        assert name not in KINDS
        KINDS[name] = Kind(build, **expected)
        return build

    return enter


def of(*modules: Any, model: dict[str, Any] | None = None, **declared: Any) -> Callable[[Path], Any]:
    """Build a folder of a transformer (a BERT, or as `model` says) and these modules behind it."""
    return lambda folder: declare(transformer(folder, **(model or {})), *modules, **declared)


# Pooling --------------------------------------------------------------------------------------------------------------

for _mode in ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"):
    kind(f"pooling {_mode}")(lambda folder, mode=_mode: declare(transformer(folder), pooling(mode)))
    _side = "right" if _mode in ("cls", "max") else "left"
    kind(f"pooling {_mode}, prompt left out, padding {_side}", alone=_side == "left")(
        lambda folder, mode=_mode, side=_side: declare(
            transformer(folder, tok=tokenizer(padding_side=side)), pooling(mode, include_prompt=False),
            settings={"prompts": {"sts": PROMPT}, "default_prompt_name": "sts"}))
kind("two modes concatenated")(of(pooling("mean", "cls")))
kind("two modes, normalised")(of(pooling("max", "lasttoken"), normalize()))
kind("legacy booleans, two true")(lambda folder: declare(transformer(folder), (f"{LEGACY}.Pooling", {
    "word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True,
})))
kind("new module paths")(lambda folder: declare(
    transformer(folder), (f"{NEW}.pooling.Pooling", {"embedding_dimension": WIDTH, "pooling_mode": "mean"}),
    ("sentence_transformers.base.modules.normalize.Normalize", {}),
))

# Families -------------------------------------------------------------------------------------------------------------

for _family in (
    "roberta", "xlm-roberta", "distilbert", "mpnet", "electra", "albert", "modernbert", "t5", "t5-whole", "longt5",
):
    kind(f"family {_family}")(
        lambda folder, family=_family: declare(transformer(folder, family), pooling("mean"), normalize())
    )
kind("t5 with dense")(
    lambda folder: declare(
        transformer(folder, "t5"), pooling("mean"), dense(10, bias=False, activation_function=_identity()), normalize()
    )
)
kind("masked-LM weights")(of(pooling("cls"), model=dict(family="bert-lm")))
kind("transformer in a sub-folder")(
    lambda folder: declare(transformer(folder / "0_Transformer").parent, pooling("mean"), first="0_Transformer")
)
for _family, _mode, _tok in (
    ("qwen3", "lasttoken", {"padding_side": "left"}), ("qwen3", "mean", {"padding_side": "left"}),
    ("qwen3", "lasttoken", {"padding_side": "right"}), ("qwen3", "lasttoken", {"padding_side": "left", "ends": False}),
    ("qwen3-lm", "weightedmean", {"padding_side": "left"}),
):
    kind(
        f"{_family} {_mode}, padding {_tok['padding_side']}{'' if _tok.get('ends', True) else ', no EOS'}",
        empty=_tok.get("ends", True),
    )(lambda folder, family=_family, mode=_mode, tok=_tok: declare(
        transformer(folder, family, tok=tokenizer("qwen3", **tok)), pooling(mode), normalize()
    ))
_EVERY = (  # family, tokenizer (None: BERT's), EOS, padding: what its models use, and every way to pool and to end in turn
    ("data2vec", "roberta", True, "right"), ("deberta-v2", None, True, "right"), ("ernie", None, True, "right"),
    ("eurobert", "llama", True, "left"), ("gemma", "llama", False, "left"), ("gemma2", "llama", True, "right"),
    ("gemma3", "llama", True, "left"), ("gemma3 bidirectional", "llama", True, "right"), ("gpt2", "gpt2", False, "right"),
    ("gpt_neox", "gpt2", False, "left"), ("granite", "gpt2", True, "left"), ("jina_embeddings_v3", "roberta", True, "right"),
    ("llama", "llama", False, "left"), ("mistral", "llama", False, "left"), ("nomic_bert", None, True, "right"),
    ("olmo2", "gpt2", True, "right"), ("opt", "llama", False, "right"), ("phi3", "llama", False, "left"),
    ("qwen2", "qwen3", False, "left"), ("smollm3", "gpt2", False, "right"), ("mistral", "llama", True, "right"),
    ("llama", "gpt2", False, "left"), ("gemma3", "llama", False, "right"), ("modernbert", None, True, "left"),
)
for _i, (_family, _tok, _end, _side) in enumerate(_EVERY):
    _mode = ("mean", "lasttoken", "weightedmean", "max")[_i % 4]
    kind(f"every family: {_family} {_mode} {_tok} {_end} {_side}", empty=_end or _tok == "llama")(
        lambda folder, family=_family, mode=_mode, tok=_tok, end=_end, side=_side: declare(
            transformer(folder, family, tok=tokenizer(
                tok or "bert", ends=end, padding_side=side, blanks=family == "qwen2",
            )), pooling(mode, width=WIDTH if family == "modernbert" else 32), normalize()))
for _family in ("eurobert", "gemma3 bidirectional", "jina_embeddings_v3", "modernbert", "nomic_bert"):
    kind(f"{_family} cls")(lambda folder, family=_family: declare(
        transformer(folder, family, tok=tokenizer("roberta")), pooling("cls", width=WIDTH if family == "modernbert" else 32),
    ))
for _family in ("gemma3", "gpt_neox", "modernbert", "nomic_bert"):
    kind(f"{_family}, more tokens than positions")(lambda folder, family=_family: declare(
        transformer(folder, family, tok=tokenizer("llama"), max_position_embeddings=40),
        pooling("mean", width=WIDTH if family == "modernbert" else 32), limit=500,
    ))
kind("opt, states of another width")(
    of(pooling("mean", width=20), model=dict(family="opt", tok=tokenizer("llama"), word_embed_proj_dim=20))
)
for _family in ("roberta", "qwen3"):
    kind(f"{_family}, blanks count")(lambda folder, family=_family: declare(
        transformer(folder, family, tok=tokenizer(family, blanks=True)), pooling("mean"),
        settings={"prompts": {"sts": "red : "}, "default_prompt_name": "sts"},
    ))
kind("token_type_ids of 1", refused="token_type_ids")(of(pooling("mean"), model=dict(tok=tokenizer(kinds=True))))
kind("plain, token_type_ids of 1", refused="token_type_ids", options={"pooler": "mean"})(
    lambda folder: transformer(folder, tok=tokenizer(kinds=True))
)
kind("stored cls of a decoder", refused=r"cls.*causal|causal.*cls")(
    of(pooling("cls"), model=dict(family="qwen3", tok=tokenizer("qwen3")))
)
kind("qwen3, bidirectional")(of(pooling("mean"), model=dict(family="qwen3", is_causal=False)))

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


kind("normalize")(of(pooling("mean"), normalize()))
kind("normalize, padding left", alone=True)(
    of(pooling("mean"), normalize(), model=dict(tok=tokenizer(padding_side="left")))
)
kind("dense, then normalize")(of(pooling("mean"), dense(), normalize()))
kind("normalize, then dense")(of(pooling("mean"), normalize(), dense()))
kind("two dense")(of(pooling("cls"), dense(12), dense(6, 12)))
kind("dense with residual")(of(pooling("mean"), dense(use_residual=True)))
kind("dense on tokens")(of(dense(WIDTH, module_input_name="token_embeddings"), pooling("mean")))
kind("dense with an activation of its own", refused=r"activation_function")(lambda folder: (
    declare(transformer(folder), pooling("mean"), dense()),
    change(folder / "2_Dense" / "config.json", activation_function="my_code.Activation"),
))


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


def word_embeddings() -> Any:
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

    words = word_embeddings()
    torch.manual_seed(3)
    declare(folder, words, LSTM(WIDTH, 6), pooling("lasttoken", "mean", width=12), first=None)


@kind("word embeddings and a cnn", alone=True)
def _(folder):
    import torch
    from sentence_transformers.sentence_transformer.modules import CNN

    words = word_embeddings()
    torch.manual_seed(4)
    declare(folder, words, CNN(WIDTH, out_channels=5, kernel_sizes=[3]), pooling("mean", width=5), first=None)


@kind("word embeddings with weights")
def _(folder):
    from sentence_transformers.sentence_transformer.modules import WordWeights

    weights = WordWeights(WORDS, {word: 1 / (1 + i) for i, word in enumerate(WORDS)})
    declare(folder, word_embeddings(), weights, pooling("mean"), normalize(), first=None)


@kind("bag of words")
def _(folder):
    from sentence_transformers.sentence_transformer.modules import BoW

    declare(folder, BoW(WORDS, {word: 1 + i**0.5 for i, word in enumerate(WORDS)}), first=None)  # no two pairs tie


def static(seed: int) -> Any:
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
