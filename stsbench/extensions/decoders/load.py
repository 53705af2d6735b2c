"""From what stands after --preset to a reading: NAME, NAME:FORM, NAME:SETTING=VALUE,... or NAME:FORM,SETTING=VALUE,..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stsbench.config import parse_yaml
from stsbench.encoders.prompt.reading import Reader, ReadingOption
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.decoders.base import Preset
from stsbench.extensions.decoders.contrastive import Contrastive
from stsbench.extensions.decoders.echo import Echo
from stsbench.extensions.decoders.llm2vec import Llm2Vec
from stsbench.extensions.decoders.one_word import Knowledge, MetaEOL, PretendedCoT
from stsbench.extensions.decoders.prompteol import PromptEOL
from stsbench.extensions.decoders.reading import PresetReading, described
from stsbench.extensions.decoders.token_prepending import TokenPrepending
from stsbench.extensions.decoders.weighted_mean import WeightedMean
from stsbench.registry import did_you_mean

if TYPE_CHECKING:
    from stsbench.extensions.decoders.options import Asked

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


class Presets(ReadingOption):
    """The option --preset."""

    @staticmethod
    def reading(options: Asked) -> PresetReading:  # type: ignore[override]
        """Return what the preset of that name, form and settings does, in the layer that --layer names."""
        preset = options.preset or ""
        reading = load_preset(preset).reading()
        return reading if options.layer is None else replace(reading, layer=options.layer)

    @staticmethod
    def reader(
        reading: PresetReading, model: Any, tokenizer: Any, name: str, limit: int | None, limit_name: str
    ) -> Reader:
        """Return the model as the preset has it."""
        from stsbench.extensions.decoders.vectors import Decoder

        return Decoder(reading, model, tokenizer, name, limit, limit_name)

    @staticmethod
    def described(options: Mapping[str, Any]) -> list[str]:
        """Return what a spec's options say to people."""
        return described(options)
