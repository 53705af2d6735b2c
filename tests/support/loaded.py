"""A TransformerEncoder loaded at once, by its folder."""

from dataclasses import replace

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.prompt.prompt import PromptSettings
from stsbench.encoders.transformer.config import resolve_config
from stsbench.encoders.transformer.parts import load_parts
from stsbench.encoders.transformer.transformer import TransformerEncoder


def loaded(folder, *, prompt=None, **options):
    """prompt: of the pooler mask, in the place of a stored one; options: of EncoderOptions."""
    if prompt is not None:
        options |= {"pooler": "mask", "template": prompt.template}
    asked = EncoderOptions(**options)
    config = resolve_config(str(folder), asked)
    parts = load_parts(config, asked.device, asked.attention)
    if prompt is not None:
        config = replace(config, prompt=PromptSettings.from_stored(prompt.settings()))
        parts = replace(parts, prompt=prompt)
    return TransformerEncoder(config, parts, batch_tokens=asked.batch_tokens, attention=asked.attention)
