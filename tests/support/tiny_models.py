"""Small random transformers models written to a folder: no network, no download, a second to build."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
import transformers as hf
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from written_once import written_once

from stsbench.training.recipes.recipes import TEXTS

WORDS = ["a", "the", "man", "woman", "cat", "dog", "plays", "eats", "runs", "sleeps", "guitar", "food", "park", "red",
         "blue", "big", "small", "with", "in", "on", "means", ":", "."]
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
# What a method needs, beside its default recipe, of a model of this shape: words of the command line.
SETTINGS = {
    "sg-opt": ("--set", "options.projection_width=16"), "infocse": ("--set", "options.frozen_layers=2"),
    "whitenedcse": ("--set", "options.groups=4", "--set", "options.eps=0.1"), "distil": ("--set", "backbone.layers=[1]")}
READ = 3  # layers of a model that is read, not trained: with two, first_last of the first layer would be last2
MINILM = Path(__file__).resolve().parents[3] / "shared" / "models" / "minilm-l6-fp16"


def tokenizer(family):
    """A WordPiece tokenizer whose file carries the truncation and fixed padding of all-MiniLM-L6-v2's."""
    cls, sep, pad, mask = ("[CLS]", "[SEP]", "[PAD]", "[MASK]") if family == "bert" else ("<s>", "</s>", "<pad>", "<mask>")
    special = [*((pad, cls) if family == "bert" else (cls, pad)), sep, mask, "[UNK]"]
    letters = [chr(i) for i in range(97, 123)]
    pieces = dict.fromkeys([*WORDS, *letters, *("##" + letter for letter in letters)])
    vocab = {token: i for i, token in enumerate([*special, *pieces])}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(cls, vocab[cls]), (sep, vocab[sep])]
    backend.post_processor = processors.TemplateProcessing(single=f"{cls} $A {sep}", special_tokens=ends)
    backend.enable_truncation(8)
    backend.enable_padding(length=8, pad_id=vocab[pad], pad_token=pad)
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, cls_token=cls, sep_token=sep, pad_token=pad, mask_token=mask,
                                   unk_token="[UNK]", model_max_length=64)


def spaced_tokenizer():
    """Words that know the space before them, as RoBERTa's do, and a mask token that swallows it."""
    words = [*WORDS, "'", *(chr(i) for i in range(97, 123))]
    special = ["<s>", "<pad>", "</s>", "<mask>", "[UNK]"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys([*special, *words, *("Ġ" + word for word in words)]))}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="<s>", sep_token="</s>", pad_token="<pad>",
                                      unk_token="[UNK]", mask_token=AddedToken("<mask>", lstrip=True, special=True))


@written_once
def build(folder, family="bert", pooler=True, positions=64, layers=None, width=SHAPE["hidden_size"]):
    """Write a random model of `family` and its tokenizer to `folder`, with weights that tell texts apart.
    layers: by default READ with a pooler layer and as in SHAPE without one, as trainings want it."""
    layers = layers or (READ if pooler else SHAPE["num_hidden_layers"])
    shape = {**SHAPE, "num_hidden_layers": layers, "hidden_size": width}
    torch.manual_seed(7)
    tok = tokenizer("bert" if family in ("bert", "distilbert") else "roberta")
    vocab = {"vocab_size": len(tok), "pad_token_id": tok.pad_token_id, "initializer_range": 0.3}
    if family == "bert":
        model = hf.BertModel(hf.BertConfig(**shape, **vocab, max_position_embeddings=positions), add_pooling_layer=pooler)
    elif family == "roberta":
        config = hf.RobertaConfig(**shape, **vocab, max_position_embeddings=positions + 2, type_vocab_size=1)
        model = hf.RobertaModel(config, add_pooling_layer=pooler)
    elif family == "mpnet":
        model = hf.MPNetModel(hf.MPNetConfig(**shape, **vocab, max_position_embeddings=positions + 2))
    else:
        model = hf.DistilBertModel(hf.DistilBertConfig(dim=32, n_layers=layers, n_heads=4, hidden_dim=48, **vocab,
                                                       max_position_embeddings=positions))
    with torch.no_grad():  # biases are initialised to zero, which would hide a forgotten one
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.2)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def build_for_sample(folder, **shape):
    """A model for training that knows the sample's usual words: of letters alone a sentence would be several times as
    long."""
    texts = "".join(path.read_text("utf-8") for path in TEXTS.parent.rglob("*") if path.is_file())
    usual = Counter(re.findall(r"[a-z]{3,}", texts.lower())).most_common(800)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "WORDS", [*WORDS, *(word for word, _ in usual)])
        return build.__wrapped__(folder, pooler=False, positions=132, **shape)


@written_once
def masked_lm(folder, family="bert", seed=11, copies=False, spaced=False, **shape):
    """A random masked LM of a family, with its head, and the family's tokenizer. shape: other sizes than SHAPE.
    copies: it mostly guesses the token that it sees, as trained ones do, and any other one at a mask."""
    torch.manual_seed(seed)
    tok = spaced_tokenizer() if spaced else tokenizer(family)
    sizes = {**SHAPE, "vocab_size": len(tok), "pad_token_id": tok.pad_token_id, "initializer_range": 0.3, **shape}
    if family == "bert":
        model = hf.BertForMaskedLM(hf.BertConfig(max_position_embeddings=64, **sizes))
    else:
        model = hf.RobertaForMaskedLM(hf.RobertaConfig(max_position_embeddings=66, type_vocab_size=1, **sizes))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.1 if copies else 0.5)
            elif weight.ndim == 1 and not copies:
                weight += 0.2 * torch.randn(len(weight))  # LayerNorm's
            if copies and ("encoder" in name or "position" in name):
                weight *= 0.3
        if copies:
            transform = model.cls.predictions.transform if family == "bert" else model.lm_head
            torch.nn.init.eye_(transform.dense.weight)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


@written_once
def headed(folder, family="bert", tied=True, seed=5, extra_rows=0):
    """`build`'s encoder with a masked-LM head of random numbers, biases too. extra_rows: the likeliest, of no token."""
    build(folder, family)
    config = hf.AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = tied
    whole = hf.AutoModelForMaskedLM.from_pretrained(folder, config=config)
    if extra_rows:
        whole.resize_token_embeddings(config.vocab_size + extra_rows)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in whole.named_parameters():
            if not name.startswith(whole.base_model_prefix):
                weight.normal_(0, 0.3)
        if extra_rows:
            whole.get_output_embeddings().bias[-extra_rows:] += 100
    whole.save_pretrained(folder)
    return folder


def add_modules(folder, pooling, extra=("Normalize",), **settings):
    """Make `folder` a sentence-transformers folder: modules.json, 1_Pooling and the top settings."""
    modules = [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
               for i, kind in enumerate(["Transformer", "Pooling", *extra])]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **pooling}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8, "do_lower_case": False}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def sentences(count, longest=30, seed=0):
    generator = torch.Generator().manual_seed(seed)
    actual = {}
    while len(actual) < count:
        length = int(torch.randint(1, longest + 1, (1,), generator=generator))
        actual[" ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (length,), generator=generator))] = None
    return list(actual)
