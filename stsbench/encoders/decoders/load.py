"""From what stands after --preset to a Reading: NAME, NAME:FORM, NAME:SETTING=VALUE,... or NAME:FORM,SETTING=VALUE,..."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from stsbench.config import parse_yaml
from stsbench.encoders.decoders.base import Preset
from stsbench.encoders.decoders.contrastive import Contrastive
from stsbench.encoders.decoders.echo import Echo
from stsbench.encoders.decoders.llm2vec import Llm2Vec
from stsbench.encoders.decoders.metaeol import MetaEOL
from stsbench.encoders.decoders.one_word import Knowledge, PretendedCoT
from stsbench.encoders.decoders.prompteol import PromptEOL
from stsbench.encoders.decoders.token_prepending import TokenPrepending
from stsbench.encoders.decoders.weighted_mean import WeightedMean
from stsbench.errors import EncoderError, StsbenchError
from stsbench.registry import did_you_mean

PRESETS: dict[str, type[Preset]] = {
    kind.name: kind for kind in (
        PromptEOL, PretendedCoT, Knowledge, MetaEOL, TokenPrepending, Contrastive, Echo, WeightedMean, Llm2Vec,
    )
}


def load_preset(text: str) -> Preset:
    """The preset that `text` spells. EncoderError, one line: an unknown name, form or setting, or a wrong value."""
    name, colon, rest = text.partition(":")
    words = [word.strip() for word in rest.split(",")] if colon else []
    if name not in PRESETS:
        raise EncoderError(f"--preset {text}: unknown preset '{name}'{did_you_mean(name, PRESETS)}")
    named = [word for word in words if "=" not in word]
    pairs = [(key.strip(), value) for key, equals, value in (word.partition("=") for word in words) if equals]
    if len(named) > 1 or not all(named) or len(dict(pairs)) < len(pairs):
        raise EncoderError(f"--preset {text}: write NAME, NAME:FORM or NAME:FORM,SETTING=VALUE,..., each setting once")
    return PRESETS[name](named[0] if named else None, {key: _value(PRESETS[name], key, value) for key, value in pairs})


def _value(kind: type[Preset], key: str, value: str) -> Any:
    """A number where the setting is one; else text as it stands, which YAML would take apart at a colon."""
    field = kind.Options.model_fields.get(key)
    if field is None or field.annotation not in (int, float):
        return value
    try:
        return parse_yaml(value, f"--preset {kind.name}: {key}")
    except StsbenchError as error:
        raise EncoderError(str(error)) from error


def page(name: str) -> str:
    """What a preset is: the text beside its module. EncoderError, with a suggestion: there is none."""
    kind = type(load_preset(name))
    file = Path(inspect.getfile(kind)).with_name(f"{kind.name.replace('-', '_')}.md")
    return file.read_text("utf-8").rstrip()
