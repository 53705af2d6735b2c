"""TSDAE by sentence-transformers' own DenoisingAutoEncoderLoss, with the weights of a method made here."""

from __future__ import annotations

import pytest
import torch
from diffcse_oracle import masked_lm
from method_oracle import LIMIT, MemoryRows, make
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from stsbench.methods.tsdae.method import TSDAE

TEXTS = [
    "the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue",
    "the dog runs with a cat",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """family -> the folder of a tiny masked LM."""
    place = tmp_path_factory.mktemp("tsdae")
    return {family: masked_lm(place / family, family) for family in ("bert", "roberta")}


def rows_of(folder, texts=TEXTS):
    return MemoryRows(folder, {"sentence": texts})


def tsdae(folder, pooler="cls", dropout=0.0, **options):
    """In float64 and train mode, the cross-attention with biases that a forgotten one would show by."""
    method = make(TSDAE, folder, options, pooler=pooler, dropout=dropout)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if "crossattention" in name:
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return method


def library_loss(folder, method, decoder=None):
    """The library's loss in float64, without dropout, and decoder weights equal to the method's, by the method's names."""
    words = Transformer(str(folder), max_seq_length=LIMIT)
    pooling = Pooling(method.backbone.width, pooling_mode=method.backbone.pooler)
    model = SentenceTransformer(modules=[words, pooling], device="cpu")
    tie = method.options.tie
    loss = DenoisingAutoEncoderLoss(model, None if tie else str(decoder or folder), tie_encoder_decoder=tie).double()
    whole = loss.decoder
    base = getattr(whole, whole.base_model_prefix)
    weights = {f"decoder.model.{name}": weight for name, weight in base.named_parameters(remove_duplicate=False)}
    owners = dict(whole.named_children())
    for part in method.decoder.head.parts:
        named = owners[part].named_parameters(remove_duplicate=False)
        weights |= {f"decoder.head.parts.{part}.{name}": weight for name, weight in named}
    every = dict(method.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, weight in weights.items():
            if name in every:
                weight.copy_(every[name])
    encoder = model[0].auto_model if hasattr(model[0], "auto_model") else model[0].model
    weights |= {f"backbone.model.{name}": weight for name, weight in encoder.named_parameters() if "pooler" not in name}
    for module in loss.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return loss.eval(), weights


def features(batch, view):
    """Of one view, padded to its own longest row as the library's collator does."""
    rows = slice(view * len(batch), (view + 1) * len(batch))
    longest = int(batch.mask[rows].sum(1).max())
    return {"input_ids": batch.ids[rows, :longest], "attention_mask": batch.mask[rows, :longest]}
