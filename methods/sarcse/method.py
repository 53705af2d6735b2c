"""SARCSE (Liu et al. 2024): a TextCNN over the tokens is the sentence encoder, and its vector has to rebuild the tokens."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stsbench.data.text.examples import token_counts
from stsbench.encoders.forward.model import borrowed
from stsbench.encoders.forward.token_pooler import Features, TextCNN
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import reconstruction, token_errors, token_weights
from stsbench.torch_random import forked
from stsbench.training.api.batch import Batch, Examples, Shares, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.api.views import pairs_or_sentence, role_views
from stsbench.training.modules.backbone import Backbone
from stsbench.training.rows.batches import to_batch

from .decoder import Decoder
from .options import SARCSEOptions

_TEXTS = 64  # a pass of `token_losses`


class SARCSE(Method):
    """alpha * L_I + beta * L_R + gamma * L_R+: InfoNCE on the vectors of the TextCNN, and the reconstruction of the tokens
    of the first view and of all others, each token weighted by Eq. 8. With beta and gamma 0 there is no decoder."""

    name = "sarcse"
    Options = SARCSEOptions
    options: SARCSEOptions
    weights: Tensor  # (vocabulary,) of Eq. 8
    sums: Tensor  # (2,) errors and weights since the last `metrics`
    tokens: Tensor  # () how many tokens these are of

    def __init__(self, backbone: Backbone, options: SARCSEOptions) -> None:
        """Make the decoder. backbone: with the pooler text_cnn; another raises StsbenchError, one line."""
        super().__init__(backbone, options)
        check_pooler(backbone.pooler)
        self.decoder: Decoder | None = None
        if options.rebuilds:
            assert isinstance(backbone.head, TextCNN)
            std = getattr(backbone.model.config, "initializer_range", 0.02)
            self.decoder = Decoder(backbone.head, options, backbone.max_length - 2, std)
            size = len(backbone.model.get_input_embeddings().weight)
            # Eq. 8 needs the training text: until `prepare` has counted it, or a checkpoint is read, there are no weights
            start = torch.nan if options.self_adaptive else 1.0
            self.register_buffer("weights", torch.full((size,), start))
            # buffers, so that a resumed run logs the same
            self.register_buffer("sums", torch.zeros(2))
            self.register_buffer("tokens", torch.zeros((), dtype=torch.long))

    @classmethod
    def needs(cls, options: SARCSEOptions) -> Needs:
        """Return sentences, or pairs and hard negatives; dropout where the data give no positive."""
        return Needs(partial(pairs_or_sentence, view=options.view), dropout=options.view == "dropout")

    def prepare(self, rows: Any) -> None:
        """Compute the weights of Eq. 8, from the tokens of all texts trained on as they are cut for training.

        What the tokenizer puts around a text, and padding, is not counted.
        """
        if self.decoder is None or not self.options.self_adaptive:
            return
        tokenizer = self.backbone.tokenizer
        around = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
        special = [token for token in (*around, tokenizer.pad_token_id) if token is not None]
        counts = token_counts(rows, len(self.weights), special)
        self.weights.copy_(token_weights(counts, self.options.theta, self.options.frequency_scale))

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice, or as many views as the data have roles."""
        return role_views(self, rows)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, and with a decoder reconstruction (of the first view) and reconstruction_positive (of all
        others)."""
        options, n = self.options, len(batch)
        features = self._features(batch)
        queries, keys, *negatives = features.vectors.split(n)
        contrastive = contrast(
            queries, keys, negatives, batch.shares, self.gather_mode,
            temperature=options.temperature, similarity=options.similarity,
        )
        contrastive.weight = options.contrastive_weight
        terms = {"contrastive": contrastive}
        if self.decoder is not None:
            errors, weights = self._errors(features, batch.ids)
            self._count(errors.detach(), weights, features)
            for name, part, weight in (
                ("reconstruction", slice(n), options.beta),
                ("reconstruction_positive", slice(n, None), options.gamma),
            ):
                value = reconstruction(errors[part], weights[part], features.real[part])
                terms[name] = Term(value, len(errors[part]), weight)
        return terms

    def rates(self) -> dict[str, float]:
        """Return options.head_rate for what starts from nothing: TextCNN and decoder."""
        rate = self.options.head_rate
        return {} if rate == 1 else {"backbone.head.": rate, "decoder.": rate}

    def metrics(self) -> dict[str, float]:
        """reconstruction_error: mean squared error a coordinate, every token of this process alike; token_weight: the mean
        of Eq. 8 over those tokens."""
        if self.decoder is None or not (count := int(self.tokens)):
            return {}
        error, weight = (self.sums / count).tolist()
        self.sums.zero_()
        self.tokens.zero_()
        return {"reconstruction_error": error, "token_weight": weight}

    def inference(self) -> Inference:
        """Return transformer and TextCNN; the decoder is left behind."""
        return Inference(self.backbone.model, self.backbone.tokenizer, "text_cnn", token_pooler=self.backbone.head)

    def token_losses(self, texts: list[str]) -> list[list[tuple[str, float, float]]]:
        """For each text, cut as in training: a token as the vocabulary spells it, its squared error (the mean or the sum
        over coordinates, by options.mse_reduction), its weight. Without dropout; everything is left as it was.

        Raises StsbenchError, one line, for a model without a decoder.
        """
        if self.decoder is None:
            raise StsbenchError("this sarcse has no decoder to rebuild tokens: options.beta and options.gamma are 0")
        device = self.weights.device
        tokenizer = copy.deepcopy(self.backbone.tokenizer)  # truncation, once set, would stay on in the shared one
        pad = 0 if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        losses = []
        # the packed pass draws a seed even where nothing is dropped
        with forked(), borrowed(self):
            for start in range(0, len(texts), _TEXTS):
                part = texts[start : start + _TEXTS]
                ids = tokenizer(part, truncation=True, max_length=self.backbone.max_length, padding=False)["input_ids"]
                batch = to_batch(Views([ids]), Shares((len(part),)), pad, device)
                errors, weights = (values.tolist() for values in self._errors(self._features(batch), batch.ids))
                for row, error, weight in zip(ids, errors, weights, strict=True):
                    losses.append(list(zip(tokenizer.convert_ids_to_tokens(row[1:-1]), error, weight, strict=False)))
        return losses

    def _features(self, batch: Batch) -> Features:
        assert isinstance(self.backbone.head, TextCNN)
        return self.backbone.head.features(self.backbone(batch.ids, batch.mask)[0], batch.mask)

    def _errors(self, features: Features, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return (rows, T) the squared error of each token, by options.mse_reduction, and its weight. ids: (rows, L)."""
        assert self.decoder is not None
        target = features.tokens.detach() if self.options.detach_target else features.tokens
        errors = token_errors(self.decoder(features), target, self.options.mse_reduction)
        inner = ids[:, 1:-1]
        inner = torch.nn.functional.pad(inner, (0, features.real.shape[1] - inner.shape[1]))
        return errors, self.weights[inner]

    def _count(self, errors: Tensor, weights: Tensor, features: Features) -> None:
        scale = 1 if self.options.mse_reduction == "mean" else features.tokens.shape[2]
        both = torch.stack([errors / scale, weights.to(errors)]).masked_fill(~features.real, 0).sum((1, 2))
        self.sums += both.to(self.sums)
        self.tokens += features.real.sum()


def check_pooler(pooler: str) -> None:
    """Raise StsbenchError for another sentence encoder than SARCSE's."""
    if pooler != "text_cnn":
        raise StsbenchError(f"sarcse trains the pooler text_cnn, not {pooler}: set backbone.pooler text_cnn")
