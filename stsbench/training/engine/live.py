"""The encoder of a method while it is being trained."""

from __future__ import annotations

from stsbench.encoders.transformer.transformer import TransformerEncoder
from stsbench.training.api.method import Inference


def live_encoder(inference: Inference, name: str) -> TransformerEncoder:
    """The encoder that would be tested if training ended now, up to the model's position limit, on its device, float32.

    Make it after the model is on its device. It reads the weights at every use and leaves modes, gradients, random states
    and tokenizer alone; nothing is cached.
    """
    return TransformerEncoder.from_parts(
        inference.model, inference.tokenizer, pooler=inference.pooler, dense=inference.dense, text_cnn=inference.text_cnn,
        prompt=inference.prompt, name=name,
    )
