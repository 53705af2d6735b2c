"""The first half of a masked-LM head: what BERT makes of a hidden state before it is compared with words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.errors import EncoderError
from stsbench.modules.lm_head import LMHead


class LMTransform(nn.Module):
    """LayerNorm(activation(W x + b)), W of (d, d): BERT's cls.predictions.transform, RoBERTa's lm_head up to its decoder."""

    def __init__(self, width: int, activation: str, eps: float) -> None:
        """activation: by its name in transformers, e.g. "gelu"; eps: LayerNorm's."""
        super().__init__()
        from transformers.activations import get_activation

        self.width, self.activation, self.eps = width, activation, eps
        self.dense = nn.Linear(width, width)
        self.act = get_activation(activation)
        self.norm = nn.LayerNorm(width, eps=eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        found: Tensor = self.norm(self.act(self.dense(hidden)))
        return found

    @classmethod
    def load(cls, folder: Path, model: Any, name: str) -> LMTransform:
        """The one that `folder` stores, in float32 and trainable, for `model`, the encoder loaded from there.

        EncoderError, one line: a folder without a masked-LM head, a head that is not known here.
        """
        head = LMHead.load(folder, model, name, tied=False)
        if not head.found:
            raise EncoderError(
                f"{name} stores no masked-LM head, and the transform is the first half of one: train one with "
                "`stsbench train mlm`, take a checkpoint that has one, or choose another head"
            )
        dense, activation, norm = _parts(head, model.config, name)
        made = cls(int(dense.in_features), activation, float(norm.eps))
        made.to(dense.weight.device)
        made.dense.load_state_dict(dense.state_dict())
        made.norm.load_state_dict(norm.state_dict())
        _check(made, head, name)
        made.train(model.training)
        return made


def _parts(head: LMHead, config: Any, name: str) -> tuple[Any, str, Any]:
    """Dense layer, activation's name and LayerNorm of a head."""
    parts = head.parts
    if "cls" in parts and hasattr(getattr(parts["cls"], "predictions", None), "transform"):
        part: Any = parts["cls"].predictions.transform
        return part.dense, str(config.hidden_act), part.LayerNorm
    if "lm_head" in parts and hasattr(parts["lm_head"], "layer_norm"):
        part = parts["lm_head"]
        return part.dense, "gelu", part.layer_norm  # RoBERTa's head never asks the config
    if "vocab_transform" in parts:
        return parts["vocab_transform"], str(config.activation), parts["vocab_layer_norm"]
    raise EncoderError(f"{name}: the masked-LM head of {head.architecture.__name__} has no transform known here")


def _check(made: LMTransform, head: LMHead, name: str) -> None:
    """EncoderError unless the transform and then the head's output layer give the head's logits."""
    decoder = head.decoder
    with torch.no_grad():
        hidden = torch.linspace(-2, 2, made.width, device=made.dense.weight.device).unsqueeze(0)
        same = torch.allclose(decoder(made(hidden)), head(hidden), rtol=1e-4, atol=1e-4)
    if not same:
        raise EncoderError(f"{name}: {head.architecture.__name__} does more in its head than a dense layer and LayerNorm")
