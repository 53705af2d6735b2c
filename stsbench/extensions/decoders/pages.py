"""`stsbench show preset NAME`, and what `stsbench list encoders` says of presets."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from stsbench.extensions.decoders.load import PRESETS, load_preset
from stsbench.settings import described


class PresetPages:
    """The presets by name."""

    title = "presets of causal models (--preset NAME):"

    @staticmethod
    def rows() -> list[tuple[str, ...]]:
        """Return name, what it does and the paper of each."""
        return [(name, kind.sentence, kind.source) for name, kind in PRESETS.items()]

    @staticmethod
    def page(name: str) -> str:
        """Return the text beside a preset's module, its forms and settings. EncoderError, with a suggestion: unknown."""
        preset = load_preset(name)
        file = Path(inspect.getfile(type(preset))).with_name(f"{preset.name.replace('-', '_')}.md")
        lines = [file.read_text("utf-8").rstrip(), f"\nForms (`--preset {preset.name}:FORM`; the first by default):\n"]
        for form, settings in preset.forms.items():
            changed = ", ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
            lines.append(f"- {form}" + (f": {changed}" if changed else ""))
        lines.append(f"\nSettings (`--preset {preset.name}:SETTING=VALUE`, or `{preset.name}:FORM,SETTING=VALUE`):\n")
        defaults = {key: field.default for key, field in preset.Options.model_fields.items()}
        for entry in described(preset.Options, defaults):
            source = f" Source: {entry.source}." if entry.source else ""
            lines.append(f"- {entry.name} = {entry.default} ({entry.values}): {entry.meaning}.{source}")
        return "\n".join(lines)
