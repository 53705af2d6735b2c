"""A transformer read through a prompt that it was not trained with."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.prompt.prompt import Prompt, PromptSettings
from stsbench.encoders.transformer.config import resolve_config
from stsbench.encoders.transformer.parts import load_parts
from stsbench.encoders.transformer.transformer import TransformerEncoder


def with_prompt(name: str, prompt: Prompt, options: EncoderOptions | None = None) -> TransformerEncoder:
    """The BERT or RoBERTa `name` as if `prompt` were stored with it; the fingerprint covers the values of its tensors.

    EncoderError, one line: no such model, or a prompt that does not fit it.
    """
    asked = replace(options or EncoderOptions(), pooler="mask", template=prompt.template)
    config = resolve_config(name, asked)
    parts = replace(load_parts(config, asked.device, asked.attention), prompt=prompt)
    if values := prompt.digest():
        config = replace(config, weights=hashlib.sha256(f"{config.weights} {values}".encode()).hexdigest())
    config = replace(config, prompt=PromptSettings.of(prompt.settings()))
    return TransformerEncoder(config, parts, batch_tokens=asked.batch_tokens, attention=asked.attention)
