"""A TransformerEncoder loaded at once, by its folder."""

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.transformer.config import resolve_config
from stsbench.encoders.transformer.live import with_prompt
from stsbench.encoders.transformer.parts import load_parts
from stsbench.encoders.transformer.transformer import TransformerEncoder


def loaded(folder, *, prompt=None, **options):
    """prompt: of the pooler mask, in the place of a stored one; options: of EncoderOptions."""
    asked = EncoderOptions(**options)
    if prompt is not None:
        return with_prompt(str(folder), prompt, asked)
    config = resolve_config(str(folder), asked)
    parts = load_parts(config, asked.device, asked.attention)
    return TransformerEncoder(config, parts, batch_tokens=asked.batch_tokens, attention=asked.attention)
