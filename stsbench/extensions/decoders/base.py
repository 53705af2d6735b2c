"""Base classes of presets, which say how vectors are read off a causal language model, and their readings."""

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
    """A demonstration for in-context learning: a sentence, of which records hold only the sha256, and its word."""

    word: str
    sha256: str


@dataclass(frozen=True)
class Prepend:
    """Token Prepending: a placeholder token gets the last position's state before each layer l with start <= l < exit.

    Layers are counted from 0. token: the placeholder's embedding, drawn from N(0, 1) with `seed`, or zeros.
    """

    start: int
    exit: int
    token: Literal["random", "zero"]
    seed: int


@dataclass(frozen=True)
class Contrast:
    """Contrastive Prompting: an auxiliary prompt's attention output is subtracted at the last position of one layer.

    template: the auxiliary prompt; at: the layer, counted from 0; kind: "scaled" is alpha (A - B), "norm" is A - B scaled to
    the length of A, with alpha None; A and B: inputs of the attention's output projection with the prompt and the auxiliary.
    """

    template: str
    at: int
    kind: Literal["scaled", "norm"]
    alpha: float | None


@dataclass(frozen=True)
class PresetReading(Reading):
    """How a causal model turns a text into a vector. The encoder's spec holds everything but `shots`.

    templates: with {} for the text, twice where it is repeated; vectors of several templates are averaged. shots: the
    demonstrations as text, put before the template. over: tokens for the poolers mean and weighted_mean: "all"; "copy",
    the text's last copy and what follows it; "alone", as many last tokens as text and suffix have when tokenised alone.
    layer: an index of hidden_states. own_ends: keep the special tokens that the tokenizer appends. segments: the parts of a
    single template that are tokenised separately, in which {bos} and {eos} are the tokenizer's tokens.
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
        """Return the template if there is a single one; None for the text alone and for several templates."""
        return self.templates[0] if len(self.templates) == 1 and self.templates != ("{}",) else None

    def spec_options(self) -> dict[str, Any]:
        """Return EncoderSpec.options: all settings that the spec's fields `pooler` and `template` do not hold."""
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
    """Return a spec's options, made by `spec_options`, in words."""
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
    """The settings of presets with a template around the text."""

    clean_up: CleanUp = setting("prompteol", "the rule by which a text is changed first", "evaluation.py")


class Preset(ABC):
    """The base class of presets. A subclass sets `name`, `sentence`, `source`, `Options` and `forms`, and defines `reading`
    from `self.options`."""

    name: ClassVar[str]
    sentence: ClassVar[str]  # one-line description
    source: ClassVar[str]  # the paper
    Options: ClassVar[type[PresetOptions]] = PromptOptions
    # name of a form -> the settings that it changes; the first form is the default
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"released": {}}
    options: Any  # an instance of Options

    def __init__(self, form: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        """Set the options from a form, changed by `settings`. Raises EncoderError, one line, for an unknown or wrong one."""
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
        """Return NAME:FORM with the settings that differ from the form's, except for the layer and demonstrations, which a
        spec holds elsewhere."""
        as_form = self.Options(**self.forms[self.form])
        values = ((key, getattr(self.options, key), getattr(as_form, key)) for key in self.Options.model_fields)
        changed = [f"{key}={value}" for key, value, known in values if value != known and key not in _ELSEWHERE]
        return ",".join([f"{self.name}:{self.form}", *changed])

    @abstractmethod
    def reading(self) -> PresetReading:
        """Return the reading of this preset's options. Raises EncoderError for an unreadable file of demonstrations."""
