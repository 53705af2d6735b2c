"""The tokenizer of an export is read by transformers as it was in training, and pads; else nothing is exported."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_models
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, AutoTokenizer, GPT2Config, GPT2Model, PreTrainedTokenizerFast

import stsbench
from stsbench.errors import StsbenchError
from stsbench.training.api.method import Inference
from stsbench.training.export.export import export_model, try_export, write_tokenizer

TEXTS = ["the cat.", "the dog runs in the big park with a woman and a man, and eats."]
CHARACTERS = " abcdefghijklmnopqrstuvwxyz.,'\"-?0123456789"


def by_characters(kind=models.WordLevel, **special):
    """A tokenizer with the special tokens given, in this order, and no others."""
    named = [*dict.fromkeys(special.values())]
    vocabulary = {token: number for number, token in enumerate([*named, *CHARACTERS])}
    unknown = special.get("unk_token", " ")
    backend = Tokenizer(kind(vocabulary, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if "cls_token" in special:
        ends = [(special[name], vocabulary[special[name]]) for name in ("cls_token", "sep_token")]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{ends[0][0]} $A {ends[1][0]}", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def gpt2(tokenizer):
    torch.manual_seed(0)
    return GPT2Model(GPT2Config(vocab_size=len(tokenizer), n_positions=256, n_embd=16, n_layer=2, n_head=2))


@pytest.mark.parametrize("special", [
    {"unk_token": "<unk>"}, {"bos_token": "<s>", "eos_token": "</s>"}, {"cls_token": "[CLS]", "sep_token": "[SEP]"},
    {"eos_token": "<|end|>", "pad_token": "<pad>"},
])
def test_three_readers_have_the_same_vectors(tmp_path, special):
    """Of two texts of unlike lengths, where the tokenizer had a padding token and where it had none."""
    tokenizer = by_characters(**special)
    before, model = tokenizer.pad_token, gpt2(tokenizer).eval()
    model.config._attn_implementation = "eager"
    export_model(Inference(model, tokenizer, "mean"), tmp_path / "out", card="")
    assert tokenizer.pad_token == before
    ours = stsbench.load_encoder(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    read = AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = read(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(tmp_path / "out").eval()(**batch).last_hidden_state
    real = batch["attention_mask"].unsqueeze(-1)
    plain = ((states * real).sum(1) / real.sum(1)).numpy()
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    np.testing.assert_allclose(plain, ours, atol=1e-5)
    assert read.pad_token is not None and read.pad_token in special.values()


def test_no_special_token_at_all(tmp_path):
    tokenizer = by_characters()
    with pytest.raises(StsbenchError, match="no special token to pad texts by"):
        write_tokenizer(tokenizer, tmp_path, 16)
    with pytest.raises(StsbenchError, match=r"^tiny could be trained, but not exported then: .*; choose another backbone$"):
        try_export(Inference(gpt2(tokenizer), tokenizer, "mean"), tmp_path, "tiny")
    assert not list(tmp_path.glob(".*"))


class Remade(PreTrainedTokenizerFast):
    """Says that it is a class that transformers makes anew, by other rules than its tokenizer.json."""

    named = "BertTokenizer"

    def save_pretrained(self, folder, **how):
        super().save_pretrained(folder, **how)
        path = folder / "tokenizer_config.json"
        stored = json.loads(path.read_text())
        path.write_text(json.dumps({**stored, "tokenizer_class": self.named}))


@pytest.mark.parametrize("named", ["BertTokenizer", "PreTrainedTokenizerFast", "NoSuchTokenizer"])
def test_a_class_that_would_be_remade(tmp_path, named):
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    whole = by_characters(**special)
    tokenizer = Remade(tokenizer_object=whole.backend_tokenizer, **special)
    tokenizer.named = named
    tiny_models.build(tmp_path / "out", pooler=False)  # with its config.json, which transformers also looks into
    for path in (tmp_path / "out").glob("tokenizer*"):
        path.unlink()
    write_tokenizer(tokenizer, tmp_path / "out", 64)
    read = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [read(text)["input_ids"] for text in TEXTS] == [whole(text)["input_ids"] for text in TEXTS]
