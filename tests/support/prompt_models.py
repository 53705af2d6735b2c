"""Tokenizers and small random models for templates: a byte-level BPE as RoBERTa's, and their folders."""

from functools import cache

import torch
from tiny_models import READ, SHAPE, build
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel
from written_once import written_once

from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.training.modules.backbone import Backbone

LINES = [
    "This sentence : ' the cat eats ' means well .", 'This sentence of "a dog runs" means little.',
    "The sentence : ' a big man sleeps in the red park ' means much .", "the small woman plays the guitar with the man .",
    "a man eats food in the park, and the dog sleeps on the blue guitar!", "what means this sentence ? nothing means a lot",
    'a sentence of ""the cat"" and of ""a dog"" means it',
] * 3
BERT = 'the man of "{}" means [MASK].'
ROBERTA = "This sentence : ' {} ' means{mask}."


@cache
def _trained():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(LINES, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return str(backend.to_str())


def bpe():
    """A byte-level BPE tokenizer with RoBERTa's special tokens and its mask token, which swallows the blanks before it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()), cls_token="<s>", bos_token="<s>", sep_token="</s>",
        eos_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token=AddedToken("<mask>", lstrip=True, special=True),
    )


@written_once
def folder(path, family):
    """A tiny random model: "bert" or "roberta" with WordPiece (tiny_models), or "bpe", RoBERTa with the byte-level BPE."""
    if family != "bpe":
        return build(path, family, pooler=False, layers=READ)
    torch.manual_seed(7)
    tok = bpe()
    config = RobertaConfig(
        **{**SHAPE, "num_hidden_layers": READ}, vocab_size=len(tok), pad_token_id=1, initializer_range=0.3,
        max_position_embeddings=66, type_vocab_size=1)
    model = RobertaModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.2)
    model.save_pretrained(path)
    tok.save_pretrained(path)
    return path


def backbone(path, family, engine="auto", dtype=torch.float64):
    """The same in training, its pooler mask."""
    model, _ = load_model(folder(path, family), "tiny", "float32")
    return Backbone(model.requires_grad_(True), load_tokenizer(path, "tiny"), "mask", 32, engine=engine).to(dtype)
