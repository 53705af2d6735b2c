"""The base class of encoders, which turn texts into vectors, and their spec, which names everything that changes a vector.

To add a kind of encoder, this file is all you need: derive from Encoder, set `spec`, write `run`, and register the class
under its kind in the entry points `stsbench.encoders`. `stsbench eval --model KIND:ARGUMENT` then calls its `load`.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.interface import Interface
from stsbench.encoders.interface import checked_texts as checked_texts
from stsbench.encoders.options import CHANGING as CHANGING
from stsbench.encoders.options import EncoderOptions as EncoderOptions
from stsbench.encoders.traits import TextTask, stated
from stsbench.encoders.traits import Traits as Traits
from stsbench.errors import EncoderError
from stsbench.registry import check_written
from stsbench.torch_state import fresh_torch

if TYPE_CHECKING:
    import torch

Progress = Callable[[int], None]  # called with the number of texts just finished
Call = tuple[str, tuple[Any, ...]]  # "for_role", "for_task", "with_prompt" or "anew", with its arguments


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that changes a vector of an encoder. `name` is for users; all other fields decide the fingerprint."""

    name: str  # as the user wrote it; not part of the fingerprint
    kind: str  # "transformers", "sentence-transformers", "words", "lexical", "vectors", "callable"
    weights: str  # sha256 over the model folder's files, or over the source of an encoder without files
    tokenizer: str = ""  # sha256 over the tokenizer's files, in records made before `weights` covered the whole folder
    pooler: str | None = None
    template: str | None = None
    prefix: str | None = None  # the prompt before each text, the model's or the user's; records call it prefix, too
    max_length: int | None = None  # tokens, special ones included
    dtype: str = "float32"
    normalize: bool = False
    post: str | None = None  # post-processing, e.g. "whitening"
    fitted_on: str | None = None  # id@digest of what an encoder or its post-processing was fitted on
    # Settings of a single kind of encoder, by name; `model`: mteb's name of the model.
    options: dict[str, Any] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Return sha256 over every field but the display name."""
        return mapping_fingerprint(asdict(self))


def mapping_fingerprint(spec: Mapping[str, Any]) -> str:
    """Return the fingerprint, as `EncoderSpec.fingerprint`, of a spec that is stored as a mapping."""
    known = {name: value for name, value in spec.items() if name != "name"}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


EQUAL_LENGTHS = "padding changes its vectors, so that each batch holds texts of equal length only"


@dataclass(frozen=True)
class Encoded:
    """Encoded texts. vectors: float32 (n, d), dense or scipy CSR; truncated: bool (n,), texts cut at max_length."""

    vectors: Any
    truncated: NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """Sizes of an encoder, None where unknown or absent. parameters: of the model, each counted once; tokens: how many it
    reads of some texts, prompts and special tokens included; threads: torch's in other processes, where those compute."""

    parameters: int | None = None
    tokens: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class TokenTable:
    """A language model's embedding table of V tokens. name: that of the weight; values: float32 (V, d).

    notes: what a user should know of the table, a line each.
    """

    name: str
    values: NDArray[np.float32]
    notes: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return sha256 over shape and values."""
        little = np.ascontiguousarray(self.values, "<f4")
        return hashlib.sha256(f"{little.shape}\n".encode() + little.tobytes()).hexdigest()


class Encoder(Interface, ABC):
    """Base class of encoders, text to vectors. A subclass sets `spec` and writes `run`, which may assume distinct texts."""

    usage: str = ""  # how the kind is written after --model and what it needs: a line of `stsbench list encoders`
    spec: EncoderSpec
    cacheable: bool = True  # False: cheaper to compute than to read, or not a function of the text alone
    # True: fitted on each set's own texts before they are encoded, so that no score depends on the other tasks of a run.
    fitted_per_set: bool = False
    notes: tuple[str, ...] = ()  # what a user should know of a run, a line each; it may grow while texts are encoded
    dimension: int | None = None  # the width of the vectors, where it is known before any is computed
    engine: str = ""  # what runs the model, for people
    traits: Traits = Traits()  # what is known of it besides the spec
    equal_lengths: bool = False  # see `keep_lengths_apart`
    processes: int = 1  # how many compute its vectors
    text_similarities: tuple[str, ...] = ()  # for a kind without vectors: its similarities of two texts (similarity.py)
    # Where its cost in time and memory arises: in this process, in several, on a server, or nowhere (vectors are looked up).
    computes_in: Literal["process", "processes", "server", "nothing"] = "process"
    stride: int = 1  # the cache calls `run` with stride * 1,024 texts: more where it tokenises beside a GPU

    def __repr__(self) -> str:
        spec = vars(self).get("spec")  # the spec of a function is unknown until it has run
        return f"<{type(self).__name__}{f' {spec.name}, pooler {spec.pooler}' if spec else ''}>"

    def __init_subclass__(cls, **settings: Any) -> None:
        """Let `run` and `ready` of every subclass compute with torch's initial settings, whatever the caller has set."""
        super().__init_subclass__(**settings)
        if stray := sorted({entry.name for entry in fields(Traits)} & vars(cls).keys()):
            raise TypeError(f"{cls.__name__}.{stray[0]} would have no effect: write traits = Traits({stray[0]}=...)")
        for name in ("run", "ready"):
            if name in vars(cls):
                setattr(cls, name, fresh_torch()(vars(cls)[name]))

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder for `--model KIND:ARGUMENT`, here `cls(ARGUMENT)`, for kinds without options.

        A kind that honours `options` writes its own. Raises EncoderError, one line, for whatever a user can put right.
        """
        options.refuse_changes()
        check_written(cls, EncoderError)
        make = cast(Callable[[str], Encoder], cls)
        return make(argument)

    @abstractmethod
    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return vectors of n distinct texts, in their order."""

    @property
    def identity(self) -> EncoderSpec:
        """Return the spec that records hold, the same for all tasks: `spec` with all prompts, adapters and the default
        route, among which a text's task chooses."""
        traits = self.traits
        if not traits.by_task:
            return self.spec
        route = traits.default_route
        chosen = {"prompts": stated(traits.prompts), "adapters": list(traits.adapters), "default_route": route}
        return replace(self.spec, options={**self.spec.options, **{key: value for key, value in chosen.items() if value}})

    def spent_in_words(self) -> str:
        """Return `spent` as a line for users; "" where nothing is counted."""
        return ""

    @property
    def spent(self) -> Mapping[str, Any]:
        """Return the usage of a server since the encoder was loaded, for a record's provenance; {} without a server."""
        return {}

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return this encoder for texts of a role, "query", "document" or the name of an adapter (None: for any text), or
        with `prompt` before them.

        An encoder whose author stores nothing for a role returns itself.
        """
        return self

    def with_prompt(self, prompt: str) -> Encoder:
        """Return this encoder with one prompt, "" for none, before every text of any role and task, as with the option
        --prompt.

        An encoder that puts no prompt before a text returns itself.
        """
        return self.for_role(None, prompt)

    def anew(self) -> Encoder:
        """Return this encoder fitted again on its texts, where it had read them with another prompt; any other returns
        itself."""
        return self

    def for_task(self, task: TextTask) -> Encoder:
        """Return this encoder for texts of a task; itself, unless the task decides more than a prompt."""
        return self

    def with_dropout(self, seed: int) -> Encoder:
        """Return this encoder with its dropout on: each call of `run` draws new masks, reproducible by `seed`.

        EncoderError, one line: it has no dropout, or none that could be switched on.
        """
        raise EncoderError(f"{self.spec.name} has no dropout that could be switched on")

    def as_timed(self, texts: Sequence[str]) -> Encoder:
        """Return the encoder whose cost is measured on `texts`: one that is fitted on each set returns a copy fitted on
        them, one that remembers texts returns a copy that remembers none."""
        return self

    @property
    def uses_torch(self) -> bool:
        """Return whether torch computes, on `device` and in its threads."""
        return self.spec.kind not in ("lexical", "words", "vectors")

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the encoder's number of parameters, and how many tokens it reads of `texts`."""
        return Counts()

    def bytes_a_vector(self, vectors: Any) -> float:
        """Return the average bytes of a stored vector, of (n, d) vectors of `run`: float32 where dense; where sparse, each
        number that is not 0 and its position, 4 bytes each."""
        return float(8 * vectors.nnz / max(1, vectors.shape[0]) if hasattr(vectors, "nnz") else 4 * vectors.shape[1])

    def token_table(self, which: str) -> TokenTable:
        """Return the language model's table that decodes a state ("output") or reads a token ("input").

        EncoderError, one line: the encoder has no such table, or gives no access to it.
        """
        raise EncoderError(f"{self.spec.name} gives no {which} embedding: only a transformer of our own forward pass does "
                           "(a model folder, with a --pooler)")

    def token_vectors(self, texts: Sequence[str]) -> tuple[list[NDArray[np.float32]], NDArray[np.bool_]]:
        """Return float32 (tokens, d) token vectors of each of n texts, special ones included, and bool (n,), which were cut.

        EncoderError, one line: the encoder has no token vectors, or gives no access to them.
        """
        raise EncoderError(f"{self.spec.name} gives no vector of a token: only a transformer of our own forward pass does "
                           "(a model folder, with a --pooler, and nothing done to its vectors, as by --post)")

    def ready(self) -> None:
        """Load the model, where that is put off until the first run: `engine` and `notes` are complete afterwards."""
        return

    def keep_lengths_apart(self) -> None:
        """Batch only texts of equal length from now on, as padding would change their vectors; a note tells the user."""
        if not self.equal_lengths:
            self.equal_lengths = True
            self.notes = (*self.notes, f"{self.spec.name}: {EQUAL_LENGTHS}")

    def use_cache(self, cache: Any) -> None:
        """Set the EmbeddingCache of a run, or None, before anything is encoded: for encoders built on another one."""
        return

    def identified(self) -> Encoder:
        """Return this encoder with a fingerprint of its present state, where its vectors may differ at its next use;
        called before anything is scored."""
        return self

    def fit(self, texts: Sequence[str], source: str) -> Encoder:
        """Return this encoder fitted on `texts`, known as `source`; those that need no fitting return themselves."""
        return self

    def fit_readings(
        self, readings: Sequence[tuple[Encoder, Sequence[str]]], texts: Sequence[str], source: str
    ) -> Encoder:
        """Return this encoder fitted on a set's texts, by default as `fit` does, whatever their roles. readings: for each
        role, this encoder with the role's prompt, and the texts of the role."""
        return self.fit(texts, source)

    def of_call(self, vectors: Any) -> Any:
        """Return the (n, d) vectors of one call of `encode`, made from those of `run`: the same, unless they depend on all
        texts of the call, as a calibration does."""
        return vectors


def count_parameters(*parts: Any) -> int | None:
    """Return how many numbers torch modules and tensors hold, each tensor counted once; None where there are none, as in an
    exported graph. None among `parts` is skipped."""
    tensors = {id(tensor): tensor for part in parts if part is not None
               for tensor in (part.parameters() if hasattr(part, "parameters") else [part])}
    return sum(int(tensor.numel()) for tensor in tensors.values()) or None


class Wrapper(Encoder):
    """An encoder around another one, `base`: it changes the vectors, or where they are computed, by its `run` and `on`."""

    def __init__(self, base: Encoder) -> None:
        self.base = base
        self.spec, self.traits, self.notes = base.spec, base.traits, base.notes
        self.dimension, self.equal_lengths = base.dimension, base.equal_lengths

    @abstractmethod
    def on(self, base: Encoder, call: Call) -> Encoder:
        """Return this wrapper around another base: the one that `call` of the present base returned."""

    def take_notes(self) -> None:
        """Add the notes that the base has gained, and batch equal lengths only if the base does."""
        self.equal_lengths = self.equal_lengths or self.base.equal_lengths
        self.notes = (*self.notes, *(line for line in self.base.notes if line not in self.notes))

    @property
    def identity(self) -> EncoderSpec:
        """Return the base's identity."""
        return self.base.identity

    @property
    def engine(self) -> str:  # type: ignore[override]
        """Return what runs the base."""
        return self.base.engine

    @property
    def spent(self) -> Mapping[str, Any]:
        """Return the base's usage of a server."""
        return self.base.spent

    def spent_in_words(self) -> str:
        """Return the base's usage of a server as a line."""
        return self.base.spent_in_words()

    @property
    def computes_in(self) -> Any:  # type: ignore[override]
        """Return where the base computes."""
        return self.base.computes_in

    @property
    def device(self) -> torch.device:
        """Return the base's device."""
        return self.base.device

    @property
    def uses_torch(self) -> bool:
        """Return whether the base computes with torch."""
        return self.base.uses_torch

    def ready(self) -> None:
        """Load the base."""
        self.base.ready()
        self.take_notes()

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the base's counts."""
        return self.base.counts(texts)

    def token_table(self, which: str) -> TokenTable:
        """Return the base's table."""
        return self.base.token_table(which)

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return this wrapper around the base for texts of a role."""
        return self._around("for_role", role, prompt)

    def with_prompt(self, prompt: str) -> Encoder:
        """Return this wrapper around the base with one prompt."""
        return self._around("with_prompt", prompt)

    def for_task(self, task: TextTask) -> Encoder:
        """Return this wrapper around the base for texts of a task."""
        return self._around("for_task", task)

    def anew(self) -> Encoder:
        """Return this wrapper around the base fitted again."""
        return self._around("anew")

    def _around(self, method: str, *arguments: Any) -> Encoder:
        base: Encoder = getattr(self.base, method)(*arguments)
        return self if base is self.base else self.on(base, (method, arguments))
