"""Parse --preset (NAME, NAME:FORM or NAME:FORM,SETTING=VALUE,...) into a reading, and list and show presets."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.config import parse_yaml
from stsbench.encoders.prompt.reading import Reader, ReadingOption
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.decoders.base import Preset, PresetReading, described
from stsbench.extensions.decoders.presets import (
    Contrastive,
    Echo,
    Knowledge,
    Llm2Vec,
    MetaEOL,
    PretendedCoT,
    PromptEOL,
    TokenPrepending,
    WeightedMean,
)
from stsbench.registry import did_you_mean
from stsbench.settings import described as described_settings

if TYPE_CHECKING:
    from stsbench.extensions.decoders.options import EncoderDecoderOptions


PRESETS: dict[str, type[Preset]] = {
    kind.name: kind for kind in (
        PromptEOL, PretendedCoT, Knowledge, MetaEOL, TokenPrepending, Contrastive, Echo, WeightedMean, Llm2Vec,
    )
}


def load_preset(text: str) -> Preset:
    """Return the preset of a --preset value. Raises EncoderError, one line, for an unknown name, form, setting or value."""
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
    """Return the parsed number for a numeric setting, else the unchanged text, which YAML would parse at a colon."""
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
    def reading(options: EncoderDecoderOptions) -> PresetReading:  # type: ignore[override]
        """Return the reading of --preset, with the layer of --layer if that is set."""
        preset = options.preset or ""
        reading = load_preset(preset).reading()
        return reading if options.layer is None else replace(reading, layer=options.layer)

    @staticmethod
    def reader(
        reading: PresetReading, model: Any, tokenizer: Any, name: str, limit: int | None, limit_name: str
    ) -> Reader:
        """Return the reader that computes vectors of the model under the preset."""
        from stsbench.extensions.decoders.vectors import Decoder

        return Decoder(reading, model, tokenizer, name, limit, limit_name)

    @staticmethod
    def described(options: Mapping[str, Any]) -> list[str]:
        """Return a spec's options in words."""
        return described(options)


class PresetPages:
    """The presets as a kind of thing that `stsbench list` and `show` know."""

    title = "presets of causal models (--preset NAME):"

    @staticmethod
    def rows() -> list[tuple[str, ...]]:
        """Return (name, description, paper) of each preset."""
        return [(name, kind.sentence, kind.source) for name, kind in PRESETS.items()]

    @staticmethod
    def page(name: str) -> str:
        """Return a preset's description, forms and settings as text. Raises EncoderError for an unknown name."""
        preset = load_preset(name)
        file = Path(inspect.getfile(type(preset))).with_name(f"{preset.name.replace('-', '_')}.md")
        lines = [file.read_text("utf-8").rstrip(), f"\nForms (`--preset {preset.name}:FORM`; the first by default):\n"]
        for form, settings in preset.forms.items():
            changed = ", ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
            lines.append(f"- {form}" + (f": {changed}" if changed else ""))
        lines.append(f"\nSettings (`--preset {preset.name}:SETTING=VALUE`, or `{preset.name}:FORM,SETTING=VALUE`):\n")
        defaults = {key: field.default for key, field in preset.Options.model_fields.items()}
        for entry in described_settings(preset.Options, defaults):
            source = f" Source: {entry.source}." if entry.source else ""
            lines.append(f"- {entry.name} = {entry.default} ({entry.values}): {entry.meaning}.{source}")
        return "\n".join(lines)
