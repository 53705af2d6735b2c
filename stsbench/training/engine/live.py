"""The encoder of a method while it is being trained."""

from __future__ import annotations

from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.training.api.method import Inference


def live_encoder(inference: Inference, name: str) -> LiveEncoder:
    """The encoder that would be tested if training ended now, up to the model's position limit, on its device, float32.

    Make it after the model is on its device. It reads the weights at every use and leaves modes, gradients, random states
    and tokenizer alone; nothing is cached.
    """
    parts = Parts(inference.model, inference.tokenizer, inference.dense, inference.token_pooler, inference.prompt)
    return LiveEncoder(parts, pooler=inference.pooler, name=name)
