"""The interface for extensions that read vectors off a transformer in another way than by a prompt and a pooler.

An entry point of the group READINGS is named as the extension's option of encoders, and is a ReadingOption.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from stsbench.encoders.forward.pooling import LAST
from stsbench.encoders.traits import STATE
from stsbench.registry import names, resolve

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from stsbench.encoders.forward.batching import Groups
    from stsbench.encoders.options import EncoderOptions

    Forward = Callable[[Tensor, Groups, tuple[int, ...]], list[Tensor]]  # tokens to the hidden states of these indices
    Compute = Callable[[list[list[int]], "Pass"], NDArray[np.float32]]  # token ids of n texts to (n, k), batch by batch

READINGS = "stsbench.readings"
# Keys that the core writes into the options of a transformer's spec; beside `layer`, all other keys are an extension's.
_CORE = frozenset((
    "prompt", "prompts", "full_stop", "layer", "truncate_dim", "rescaled", "role", "revision", "trust_remote_code",
    "adapters", "default_route", "precision", "calibration", "clip", "dropout", "identity", STATE,
))


class Pass(ABC):
    """A pass over texts: computes rows of each batch."""

    @abstractmethod
    def marks(self, order: NDArray[np.int64], put: Callable[[Tensor], Tensor]) -> Any:
        """Return what `__call__` needs to know of the texts in `order`, to be sliced by batches.

        put: copies a tensor to the model's device.
        """

    @abstractmethod
    def __call__(self, ids: Tensor, groups: Groups, marks: Any) -> Tensor:
        """Return float32 (n, k) rows of a batch."""


class Reader(ABC):
    """A Reading bound to a model: texts to token ids and vectors."""

    passes: int  # how many sequences the model reads for each text

    @abstractmethod
    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return the token ids of n texts in the first pass, and bool (n,), which texts were cut.

        EncoderError: the limit leaves no token of a text.
        """

    @abstractmethod
    def read(
        self, forward: Forward, texts: Sequence[str], compute: Compute
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return (n, d) vectors of n texts, neither truncated nor normalised, and bool (n,), which texts were cut."""

    @abstractmethod
    def check(self, forward: Forward, ids: Sequence[list[int]]) -> None:
        """Raise EncoderError for a model that does not suit the reading. ids: of two texts with the same beginning."""


class Reading(ABC):
    """A way to read vectors off any model. Equal readings give the same vectors."""

    option: ClassVar[str]  # the name of the option that asks for it
    pooler: str  # as the spec names it
    layer: int  # the hidden state that is read
    bidirectional: bool  # whether a causal model attends in both directions

    @property
    @abstractmethod
    def template(self) -> str | None:
        """Return the spec's template."""

    @abstractmethod
    def spec_options(self) -> dict[str, Any]:
        """Return EncoderSpec.options: all else that changes a vector, `layer` and the option by its name included."""


class ReadingOption(ABC):
    """An option of encoders that says how texts are read."""

    @staticmethod
    @abstractmethod
    def reading(options: EncoderOptions) -> Reading:
        """Return the reading that the option asks for. EncoderError, one line: a wrong value, or options that exclude it."""

    @staticmethod
    @abstractmethod
    def reader(reading: Any, model: Any, tokenizer: Any, name: str, limit: int | None, limit_name: str) -> Reader:
        """Return the Reader of a transformers model, called `name`. limit: of tokens, set by the option `limit_name`.

        EncoderError, one line: the model does not suit the reading.
        """

    @staticmethod
    @abstractmethod
    def described(options: Mapping[str, Any]) -> list[str]:
        """Return phrases for users on a spec's options, as a Reading states them."""


def asked_reading(options: EncoderOptions) -> Reading | None:
    """Return the Reading that an option of an extension asks for; None where no such option is set."""
    for name in names(READINGS):
        if getattr(options, name) is not None:
            asked: Reading = resolve(READINGS, name).reading(options)
            return asked
    return None


def read_otherwise(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of an encoder's spec.options that belong to a reading: its option, where the extension is
    installed, else all that are not the core's."""
    if option := {name: options[name] for name in names(READINGS) if name in options}:
        return option
    return {name: value for name, value in options.items() if name not in _CORE} if "layer" in options else {}


def described_reading(options: Mapping[str, Any], brief: bool = False) -> list[str]:
    """Return phrases for users on the reading and the layer in an encoder's spec.options."""
    option = read_otherwise(options)
    if not brief and (name := next((name for name in names(READINGS) if name in option), None)):
        words: list[str] = resolve(READINGS, name).described(options)
        return words
    shown = {name: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for name, value in option.items()}
    layer = [options["layer"]] if "layer" in options else []
    return [*map(" ".join, shown.items()), *(f"layer {index}" if brief else layer_in_words(index) for index in layer)]


def layer_in_words(layer: int) -> str:
    """Return a phrase on which of transformers' hidden_states is read: "hidden state -2, not normed"."""
    return "last layer, normed" if layer == LAST else f"hidden state {layer}{'' if layer else ' (embeddings)'}, not normed"
