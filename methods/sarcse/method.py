"""SARCSE (Liu et al. 2024): a TextCNN over the tokens gives the sentence's vector, from which tokens are reconstructed."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.data.text.examples import token_counts
from stsbench.encoders.forward.model import borrowed
from stsbench.encoders.forward.token_pooler import Features, TextCNN
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import reconstruction, token_errors, token_weights
from stsbench.torch_random import forked
from stsbench.training.api.batch import Batch, Examples, Shares, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Method, Needs
from stsbench.training.api.views import pairs_or_sentence, role_views
from stsbench.training.modules.backbone import Backbone
from stsbench.training.rows.batches import to_batch

from .options import SARCSEOptions

_TEXTS = 64  # in each forward pass of `token_losses`


class SARCSE(Method):
    """The loss alpha * L_I + beta * L_R + gamma * L_R+: InfoNCE on the TextCNN's vectors, and the reconstruction of tokens
    in the first view and in all others, weighted by Eq. 8. With beta and gamma 0 there is no decoder."""

    trained_pooler = "text_cnn"
    Options = SARCSEOptions
    options: SARCSEOptions
    weights: Tensor  # (vocabulary,) of Eq. 8
    sums: Tensor  # (2,) errors and weights since the last `metrics`
    tokens: Tensor  # () number of tokens in `sums`

    def __init__(self, backbone: Backbone, options: SARCSEOptions) -> None:
        """Create the decoder. backbone: with the pooler text_cnn. Raises StsbenchError, one line, for another pooler."""
        super().__init__(backbone, options)
        self.decoder: Decoder | None = None
        if options.rebuilds:
            assert isinstance(backbone.head, TextCNN)
            std = getattr(backbone.model.config, "initializer_range", 0.02)
            self.decoder = Decoder(backbone.head, options, backbone.max_length - 2, std)
            size = len(backbone.model.get_input_embeddings().weight)
            # Eq. 8 needs the training text: weights are NaN until `prepare` counts its tokens or a checkpoint is loaded
            start = torch.nan if options.self_adaptive else 1.0
            self.register_buffer("weights", torch.full((size,), start))
            # buffers, so that a resumed run logs the same
            self.register_buffer("sums", torch.zeros(2))
            self.register_buffer("tokens", torch.zeros((), dtype=torch.long))

    @classmethod
    def needs(cls, options: SARCSEOptions) -> Needs:
        """Return the needs: sentences, or pairs and hard negatives; dropout where the data have no positives."""
        return Needs(partial(pairs_or_sentence, view=options.view), dropout=options.view == "dropout")

    def prepare(self, rows: Any) -> None:
        """Compute the weights of Eq. 8 from the tokens of all training texts, cut as for training.

        Special tokens around a text and padding are not counted.
        """
        if self.decoder is None or not self.options.self_adaptive:
            return
        tokenizer = self.backbone.tokenizer
        around = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
        special = [token for token in (*around, tokenizer.pad_token_id) if token is not None]
        counts = token_counts(rows, len(self.weights), special)
        self.weights.copy_(token_weights(counts, self.options.theta, self.options.frequency_scale))

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice, or a view for each role of the data."""
        return role_views(self, rows)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, and with a decoder reconstruction (of the first view) and reconstruction_positive (of all
        other views)."""
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
        """Return options.head_rate for TextCNN and decoder, which start from random weights."""
        rate = self.options.head_rate
        return {} if rate == 1 else {"backbone.head.": rate, "decoder.": rate}

    def metrics(self) -> dict[str, float]:
        """Return reconstruction_error, the unweighted mean squared error of a coordinate over this process's tokens, and
        token_weight, the mean of Eq. 8 over these tokens, since the last call."""
        if self.decoder is None or not (count := int(self.tokens)):
            return {}
        error, weight = (self.sums / count).tolist()
        self.sums.zero_()
        self.tokens.zero_()
        return {"reconstruction_error": error, "token_weight": weight}

    def token_losses(self, texts: list[str]) -> list[list[tuple[str, float, float]]]:
        """Return (token, squared error, weight) for every token of each text, cut as in training. The error is the mean or
        sum over coordinates, by options.mse_reduction, without dropout. The method's state is not changed.

        Raises StsbenchError, one line, for a model without a decoder.
        """
        if self.decoder is None:
            raise StsbenchError("this sarcse has no decoder to rebuild tokens: options.beta and options.gamma are 0")
        device = self.weights.device
        tokenizer = copy.deepcopy(self.backbone.tokenizer)  # calls with truncation change a tokenizer
        pad = 0 if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        losses = []
        # the packed pass draws a random seed even without dropout
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
        """Return (rows, T) squared errors of the tokens, by options.mse_reduction, and their weights. ids: (rows, L)."""
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


class Decoder(nn.Module):
    """The decoder of Liu et al. (2024), SARCSE, Eq. 5 to 7: the TextCNN reversed, with its own weights, no activations.
    Eq. 5: a transposed convolution gives H'_k, a row of channels for each kernel k. With "separate" each kernel has its own
    convolution, whose row k is used; the only difference from "shared" is one bias for each kernel instead of one for all.
    Eq. 6: the paper does not say how a pooled channel becomes a sequence. unpool "max": it fills the window of its maximum,
    others are 0; "repeat": every window; "repeat+position": every window, plus a learned vector of channels for each window.
    A transposed convolution then gives X'_k. Eq. 7: X' is their mean.
    """

    def __init__(self, head: TextCNN, options: SARCSEOptions, longest: int, std: float = 0.02) -> None:
        """longest: most tokens of a text, without the first and the last; std: of the position vectors' initial values."""
        super().__init__()
        self.unpool = options.unpool
        self.shape = head.fusion_channels, head.channels - head.fusion_width + 1
        rows = len(head.kernels)
        self.fusions = nn.ModuleList(
            nn.ConvTranspose2d(head.fusion_channels, 1, (rows, head.fusion_width))
            for _ in range(1 if options.transposed_fusion == "shared" else rows)
        )
        self.kernels = head.kernels
        self.convs = nn.ModuleList(nn.ConvTranspose1d(head.channels, head.width, kernel) for kernel in head.kernels)
        self.positions: nn.Parameter | None = None
        if options.unpool == "repeat+position":
            windows = max(longest, *head.kernels) - min(head.kernels) + 1
            self.positions = nn.Parameter(torch.randn(head.channels, windows) * std)

    def forward(self, features: Features) -> Tensor:
        """Return (n, T, d) reconstructed token vectors, valid where `features.real` is true, independent of padding."""
        total = features.tokens.shape[1]
        counts = features.real.sum(1)
        parts = []
        channels_of = self._channels(features.vectors)
        for conv, kernel, channels, indices in zip(self.convs, self.kernels, channels_of, features.offsets, strict=True):
            windows = total - kernel + 1
            last = (counts - kernel).clamp(min=0)  # a text shorter than the kernel has one window
            parts.append(conv(self._unpooled(channels, indices, last, windows)))
        rebuilt: Tensor = torch.stack(parts).mean(0) if len(parts) > 1 else parts[0]
        return rebuilt.transpose(1, 2)

    def _channels(self, vectors: Tensor) -> list[Tensor]:
        """Return H'_k of Eq. 5, (n, channels) for each kernel. vectors: (n, vector_width)."""
        maps = vectors.view(len(vectors), self.shape[0], 1, self.shape[1])
        if len(self.fusions) == 1:
            return list(self.fusions[0](maps)[:, 0].unbind(1))
        return [fusion(maps)[:, 0, row] for row, fusion in enumerate(self.fusions)]

    def _unpooled(self, channels: Tensor, indices: Tensor, last: Tensor, windows: int) -> Tensor:
        """Return (n, channels, windows), 0 in windows after a text's last one, which contain padding.

        channels: (n, channels); indices: (n, channels), the window of each maximum in the encoder; last: (n,), the index of
        each text's last window.
        """
        if self.unpool == "max":
            empty = channels.new_zeros(*channels.shape, windows)
            return empty.scatter(2, indices.unsqueeze(2), channels.unsqueeze(2))
        spread = channels.unsqueeze(2).expand(-1, -1, windows)
        if self.positions is not None:
            known = self.positions[:, :windows]
            spread = spread + nn.functional.pad(known, (0, windows - known.shape[1]))  # further windows are padding
        beyond = torch.arange(windows, device=channels.device) > last.unsqueeze(1)
        return spread.masked_fill(beyond.unsqueeze(1), 0)
