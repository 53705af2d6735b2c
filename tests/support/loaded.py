"""A TransformerEncoder loaded at once, from a folder alone or with a prompt in memory."""

from __future__ import annotations

from dataclasses import replace

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.prompt.prompt import PromptSettings
from stsbench.encoders.transformer.config import resolve_config
from stsbench.encoders.transformer.parts import load_parts
from stsbench.encoders.transformer.transformer import TransformerEncoder


def loaded(folder, *, engine="auto", prompt=None, **options):
    """prompt: in the place of a stored one; options: of EncoderOptions."""
    if prompt is not None:
        options["template"] = prompt.template
    asked = EncoderOptions(**options)
    config = resolve_config(str(folder), asked)
    parts = load_parts(config, asked.device)
    if prompt is not None:
        config = replace(config, prompt=PromptSettings.of(prompt.settings()))
        parts = replace(parts, prompt=prompt)
    return TransformerEncoder(config, parts, batch_tokens=asked.batch_tokens, engine=engine)
