"""What a preset is: a name, forms with their settings, and the PresetReading that these make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from stsbench.config import validate
from stsbench.encoders.forward.pooling import LAST
from stsbench.encoders.prompt.reading import Reading, layer_in_words
from stsbench.errors import EncoderError, StsbenchError
from stsbench.registry import did_you_mean
from stsbench.settings import Settings, setting

_ELSEWHERE = ("layer", "demonstrations")
CleanUp = Literal["none", "full_stop", "prompteol"]


@dataclass(frozen=True)
class Demonstration:
    """A sentence and its one word. A record holds the sentence's sha256 alone: some are licensed data."""

    word: str
    sha256: str


@dataclass(frozen=True)
class Prepend:
    """Token Prepending: a placeholder takes the last position's state before each layer l with start <= l < exit.

    Layers are counted from 0. token: its embedding, numbers from N(0, 1) drawn by `seed`, or zeros.
    """

    start: int
    exit: int
    token: Literal["random", "zero"]
    seed: int


@dataclass(frozen=True)
class Contrast:
    """Contrastive Prompting: another prompt's attention is taken away at the last position of one layer.

    template: the auxiliary prompt; at: the layer, counted from 0; kind: "scaled", alpha (A - B), or "norm", (A - B) of the
    length of A, where alpha is None; A and B: the inputs of the attention's output projection.
    """

    template: str
    at: int
    kind: Literal["scaled", "norm"]
    alpha: float | None


@dataclass(frozen=True)
class PresetReading(Reading):
    """How a causal model reads a text. Everything but `shots` stands in the encoder's spec.

    templates: {} for the text, twice where it is repeated; the vectors of several are averaged. shots: what stands before
    the first of them, the demonstrations written out. over: the tokens of the poolers mean and weighted_mean: "all"; "copy",
    those of the text's last copy and what follows; "alone", as many of the last as the text and what follows have by
    themselves. layer: an index of hidden_states. own_ends: the tokenizer's own last special token is kept; it is left out
    else. segments: the only template in parts that are tokenised apart, {bos} and {eos} in them the tokenizer's own.
    """

    option: ClassVar[str] = "preset"
    preset: str
    templates: tuple[str, ...] = ("{}",)
    clean_up: str = "none"
    pooler: Literal["last", "mean", "weighted_mean"] = "last"
    over: Literal["all", "copy", "alone"] = "all"
    layer: int = LAST
    shots: str = ""
    demonstrations: tuple[Demonstration, ...] = ()
    own_ends: bool = False
    segments: tuple[str, ...] = ()
    bidirectional: bool = False
    prepend: Prepend | None = None
    contrast: Contrast | None = None

    @property
    def template(self) -> str | None:
        """Return the only template; None for the text alone and for several."""
        return self.templates[0] if len(self.templates) == 1 and self.templates != ("{}",) else None

    def spec_options(self) -> dict[str, Any]:
        """EncoderSpec.options: all that the fields `pooler` and `template` of the spec do not say."""
        known: dict[str, Any] = {"preset": self.preset, "layer": self.layer, "clean_up": self.clean_up}
        if len(self.templates) > 1:
            known["templates"] = list(self.templates)
        if self.demonstrations:
            known["demonstrations"] = [asdict(shot) for shot in self.demonstrations]
        if self.over != "all":
            known["over"] = self.over
        if self.segments:
            known["segments"] = list(self.segments)
        if self.bidirectional:
            known["bidirectional"] = True
        known |= {name: asdict(getattr(self, name)) for name in ("prepend", "contrast") if getattr(self, name) is not None}
        return known


def described(options: Mapping[str, Any]) -> list[str]:
    """Return what the options of a spec, as `spec_options` made them, say to people."""
    parts = [f"preset {options['preset']}"]
    if templates := options.get("templates"):
        parts.append(f"mean over {len(templates)} templates: {' | '.join(templates)}")
    if shots := options.get("demonstrations"):
        parts.append(f"behind {len(shots)} demonstration{'s' * (len(shots) > 1)} ({', '.join(s['word'] for s in shots)})")
    if options.get("clean_up", "none") != "none":
        parts.append(f"texts cleaned up by the rule {options['clean_up']}")
    if options.get("bidirectional"):
        parts.append("attention in both directions")
    if prepend := options.get("prepend"):
        parts.append(f"a {prepend['token']} token before the text takes the last state before layers {prepend['start']} to "
                     f"{prepend['exit'] - 1} (counted from 0)")
    if contrast := options.get("contrast"):
        by = f" by {contrast['alpha']:g}" if contrast["alpha"] is not None else ""
        parts.append(f"{contrast['template']} taken away in layer {contrast['at']} (counted from 0), {contrast['kind']}{by}")
    if over := options.get("over"):
        parts.append("pooled over " + ("the second copy" if over == "copy" else "as many last tokens as the text has alone"))
    return [*parts, layer_in_words(options["layer"])]


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
        """Take the settings of a form. settings: by name, others as the form has them. EncoderError, one line: unknown or
        wrong."""
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
        """Return NAME:FORM, and the settings that differ from the form's; a spec holds the layer and a file's content
        otherwise."""
        as_form = self.Options(**self.forms[self.form])
        values = ((key, getattr(self.options, key), getattr(as_form, key)) for key in self.Options.model_fields)
        changed = [f"{key}={value}" for key, value, known in values if value != known and key not in _ELSEWHERE]
        return ",".join([f"{self.name}:{self.form}", *changed])

    @abstractmethod
    def reading(self) -> PresetReading:
        """Return how a text is read. EncoderError: a file that a setting names cannot be read."""
