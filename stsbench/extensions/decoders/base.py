"""What a preset is: a name, forms with their settings, and the PresetReading that these make.

Whoever adds one derives from Preset, describes the settings by an Options, writes `reading` and a page NAME.md beside the
module, and adds the class to PRESETS (load.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from stsbench.config import validate
from stsbench.encoders.forward.pooling import LAST
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.decoders.reading import PresetReading
from stsbench.registry import did_you_mean
from stsbench.settings import Settings, setting

_ELSEWHERE = ("layer", "demonstrations")
CleanUp = Literal["none", "full_stop", "prompteol"]


class PresetOptions(Settings):
    """The settings of one preset, each made by `stsbench.settings.setting`."""

    model_config = ConfigDict(validate_default=True)

    layer: int = setting(LAST, "the hidden state that is read, as --layer: 0 the embeddings, -1 the last one, normed", "")


class PromptOptions(PresetOptions):
    """Of presets whose template stands around a text."""

    clean_up: CleanUp = setting("prompteol", "the rule by which a text is changed first", "evaluation.py")


class Preset(ABC):
    """A subclass sets `name`, `sentence`, `source`, `Options` and `forms`, and reads `self.options`."""

    name: ClassVar[str]
    sentence: ClassVar[str]  # what it does
    source: ClassVar[str]  # the paper
    Options: ClassVar[type[PresetOptions]] = PromptOptions
    # name of a form -> the settings that it changes; the first one holds where none is named
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"released": {}}
    options: Any  # an instance of Options

    def __init__(self, form: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        """settings: by name, others as the form has them. EncoderError, one line: unknown or wrong."""
        self.form = form or next(iter(self.forms))
        if self.form not in self.forms:
            raise EncoderError(f"--preset {self.name}: unknown form '{self.form}'{did_you_mean(self.form, self.forms)}")
        for key in settings or {}:
            if key not in self.Options.model_fields:
                raise EncoderError(f"--preset {self.name}: no setting '{key}'{did_you_mean(key, self.Options.model_fields)}")
        try:
            self.options = validate(self.Options, {**self.forms[self.form], **(settings or {})}, f"--preset {self.name}")
        except StsbenchError as error:
            raise EncoderError(str(error)) from error

    @property
    def spelled(self) -> str:
        """NAME:FORM, and the settings that differ from the form's; a spec holds the layer and a file's content otherwise."""
        as_form = self.Options(**self.forms[self.form])
        values = ((key, getattr(self.options, key), getattr(as_form, key)) for key in self.Options.model_fields)
        changed = [f"{key}={value}" for key, value, known in values if value != known and key not in _ELSEWHERE]
        return ",".join([f"{self.name}:{self.form}", *changed])

    @abstractmethod
    def reading(self) -> PresetReading:
        """How a text is read. EncoderError: a file that a setting names cannot be read."""
