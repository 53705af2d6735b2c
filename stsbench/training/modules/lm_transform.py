"""Where LMTransform starts from: the first half of a masked-LM head that a checkpoint stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from stsbench.encoders.prompt.lm_transform import LMTransform
from stsbench.errors import EncoderError
from stsbench.training.modules.lm_head import LMHead


def load_transform(folder: Path, model: Any, name: str) -> LMTransform:
    """The transform of the masked-LM head that `folder` stores, in float32 and trainable.

    model: the encoder loaded from there; name: what errors call it.

    EncoderError, one line: a folder without a masked-LM head, a head that is not known here.
    """
    head = LMHead.load(folder, model, name, tied=False)
    if not head.stored:
        raise EncoderError(
            f"{name} stores no masked-LM head, and the transform is the first half of one: train one with "
            "`stsbench train mlm`, take a checkpoint that has one, or choose another head"
        )
    dense, activation, norm = _transform_parts(head, model.config, name)
    made = LMTransform(int(dense.in_features), activation, float(norm.eps))
    made.to(dense.weight.device)
    made.dense.load_state_dict(dense.state_dict())
    made.norm.load_state_dict(norm.state_dict())
    _check_transform(made, head, name)
    made.train(model.training)
    return made


def _transform_parts(head: LMHead, config: Any, name: str) -> tuple[Any, str, Any]:
    """Dense layer, activation's name and LayerNorm of a head."""
    parts = head.parts
    predictions: Any = getattr(parts["cls"], "predictions", None) if "cls" in parts else None
    if hasattr(predictions, "transform"):
        part: Any = predictions.transform
        return part.dense, str(config.hidden_act), part.LayerNorm
    if "lm_head" in parts and hasattr(parts["lm_head"], "layer_norm"):
        part = parts["lm_head"]
        return part.dense, "gelu", part.layer_norm  # RoBERTa's head never asks the config
    if "vocab_transform" in parts:
        return parts["vocab_transform"], str(config.activation), parts["vocab_layer_norm"]
    raise EncoderError(f"{name}: the masked-LM head of {head.architecture.__name__} has no transform known here")


def _check_transform(made: LMTransform, head: LMHead, name: str) -> None:
    """EncoderError unless the transform and then the head's output layer give the head's logits."""
    decoder = head.decoder
    with torch.no_grad():
        hidden = torch.linspace(-2, 2, made.width, device=made.dense.weight.device).unsqueeze(0)
        same = torch.allclose(decoder(made(hidden)), head(hidden), rtol=1e-4, atol=1e-4)
    if not same:
        raise EncoderError(f"{name}: {head.architecture.__name__} does more in its head than a dense layer and LayerNorm")
