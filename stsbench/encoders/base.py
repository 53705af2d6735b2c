"""What an encoder is: text in, vectors out, and a spec that names everything which changes a vector.

Whoever adds a kind of encoder needs this file alone: derive from Encoder, set `spec`, write `run`, and register the class
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
    """Everything that changes a vector. `name` and `kind` are for people; the rest decides the fingerprint."""

    name: str  # as the user wrote it; not part of the fingerprint
    kind: str  # "transformers", "sentence-transformers", "words", "lexical", "vectors", "callable"
    weights: str  # sha256 over the model folder's files (or the source, for encoders without any)
    tokenizer: str = ""  # sha256 over the tokenizer's files, in records made before `weights` covered the whole folder
    pooler: str | None = None
    template: str | None = None
    prefix: str | None = None  # the prompt before each text, stored or asked for; named as the key in records, which stays
    max_length: int | None = None  # tokens, special ones included
    dtype: str = "float32"
    normalize: bool = False
    post: str | None = None  # post-processing, e.g. "whitening"
    fitted_on: str | None = None  # id@digest of what an encoder or its post-processing was fitted on
    # Further named settings of one kind of encoder; `model`: the name by which mteb knows what it computes.
    options: dict[str, Any] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Return sha256 over every field but the display name."""
        return mapping_fingerprint(asdict(self))


def mapping_fingerprint(spec: Mapping[str, Any]) -> str:
    """Return the fingerprint of a spec that was written down as a mapping, as `EncoderSpec.fingerprint`."""
    known = {name: value for name, value in spec.items() if name != "name"}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


EQUAL_LENGTHS = "padding changes its vectors, so that each batch holds texts of equal length only"


@dataclass(frozen=True)
class Encoded:
    """vectors: float32 (n, d), dense or scipy CSR; truncated: bool (n,), texts that lost tokens to max_length."""

    vectors: Any
    truncated: NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """parameters: of what computes, each counted once; tokens: that it reads of some texts, those around a text included.
    None: not known, or it has none. threads: torch's in the processes that compute, where those are others than this one."""

    parameters: int | None = None
    tokens: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class TokenTable:
    """A model's table of token vectors. name: of the weight in its language model; values: float32 (V, d).

    notes: what a user should know of it, a line each.
    """

    name: str
    values: NDArray[np.float32]
    notes: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return sha256 over shape and values."""
        little = np.ascontiguousarray(self.values, "<f4")
        return hashlib.sha256(f"{little.shape}\n".encode() + little.tobytes()).hexdigest()


class Encoder(Interface, ABC):
    """Text to vectors. A kind of encoder sets `spec` and writes `run`; `run` may assume distinct texts."""

    usage: str = ""  # how the kind is written after --model and what it needs: a line of `stsbench list encoders`
    spec: EncoderSpec
    cacheable: bool = True  # False: cheaper to compute than to read, or not a function of the text alone
    # True: `fit` on a set's own texts before encoding them, so that a score does not depend on which other tasks were run.
    fitted_per_set: bool = False
    notes: tuple[str, ...] = ()  # what a user should know of a run, a line each; it may grow while texts are encoded
    dimension: int | None = None  # the width of the vectors, where it is known before any is computed
    engine: str = ""  # what runs the model, for people
    traits: Traits = Traits()  # what an encoder that is made of this one passes on
    equal_lengths: bool = False  # see `keep_lengths_apart`
    processes: int = 1  # in which it computes
    text_similarities: tuple[str, ...] = ()  # of a kind without vectors: how it compares two texts (encoders/similarity.py)
    # Whose clock and memory tell what it costs: that of this process, of several, of a server, or of nothing (looked up).
    computes_in: Literal["process", "processes", "server", "nothing"] = "process"
    stride: int = 1  # from the cache `run` gets so many times 1,024 texts: more where it tokenises them beside a GPU

    def __repr__(self) -> str:
        spec = vars(self).get("spec")  # that of a function is not known before it has run
        return f"<{type(self).__name__}{f' {spec.name}, pooler {spec.pooler}' if spec else ''}>"

    def __init_subclass__(cls, **settings: Any) -> None:
        """Whoever calls what computes, of whatever kind: it does so as torch does at its start."""
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
        """Return the spec by which records know it, whatever the task: `spec`, and all that is chosen among by a text's
        task."""
        traits = self.traits
        if not traits.by_task:
            return self.spec
        route = traits.default_route
        chosen = {"prompts": stated(traits.prompts), "adapters": list(traits.adapters), "default_route": route}
        return replace(self.spec, options={**self.spec.options, **{key: value for key, value in chosen.items() if value}})

    def spent_in_words(self) -> str:
        """Return what `spent` says in a line; "" where it says nothing."""
        return ""

    @property
    def spent(self) -> Mapping[str, Any]:
        """Return what a server was asked for since the encoder was loaded, for a record's provenance; {} without one."""
        return {}

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return this encoder as it reads texts of a role, "query", "document" or the name of an adapter, or behind
        `prompt`; None: as it reads any text.

        An encoder whose author stores nothing for a role returns itself.
        """
        return self

    def with_prompt(self, prompt: str) -> Encoder:
        """Return this encoder with one prompt, "" for none, before every text, whatever its role and task: as the option
        --prompt.

        An encoder that puts no prompt before a text returns itself.
        """
        return self.for_role(None, prompt)

    def anew(self) -> Encoder:
        """Return this encoder fitted once more where it was fitted on texts that were read otherwise; any other is
        itself."""
        return self

    def for_task(self, task: TextTask) -> Encoder:
        """Return this encoder as it reads texts of a task; itself, unless more than a prompt is chosen by it."""
        return self

    def with_dropout(self, seed: int) -> Encoder:
        """Return this encoder with its dropout on: each call of `run` draws other masks, the same after the same seed.

        EncoderError, one line: it has no dropout, or none that could be switched on here.
        """
        raise EncoderError(f"{self.spec.name} has no dropout that could be switched on")

    def as_timed(self, texts: Sequence[str]) -> Encoder:
        """Return this encoder as its cost is measured on `texts`: what is fitted on each set gives a copy fitted on
        these, and what remembers texts a copy that starts anew."""
        return self

    @property
    def uses_torch(self) -> bool:
        """Return whether torch computes, on `device` and in its threads."""
        return self.spec.kind not in ("lexical", "words", "vectors")

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return how many parameters it has, and how many tokens it reads of `texts`."""
        return Counts()

    def bytes_a_vector(self, vectors: Any) -> float:
        """Return what each of (n, d) vectors of `run` takes where they are stored: dense as float32, sparse as the
        numbers that are not 0 with their positions (4 bytes each)."""
        return float(8 * vectors.nnz / max(1, vectors.shape[0]) if hasattr(vectors, "nnz") else 4 * vectors.shape[1])

    def token_table(self, which: str) -> TokenTable:
        """Return the table by which the encoder's language model decodes a state ("output") or reads a token ("input").

        EncoderError, one line: it has none, or none that is reached here.
        """
        raise EncoderError(f"{self.spec.name} gives no {which} embedding: only a transformer of our own forward pass does "
                           "(a model folder, with a --pooler)")

    def token_vectors(self, texts: Sequence[str]) -> tuple[list[NDArray[np.float32]], NDArray[np.bool_]]:
        """Return a vector of each token, special ones included, float32 (tokens, d) for each of n texts, and which were cut.

        EncoderError, one line: it has none, or none that is reached here.
        """
        raise EncoderError(f"{self.spec.name} gives no vector of a token: only a transformer of our own forward pass does "
                           "(a model folder, with a --pooler, and nothing done to its vectors, as by --post)")

    def ready(self) -> None:
        """Load what computes, where it is loaded late: `engine` and `notes` then say all that is known before a run."""
        return

    def keep_lengths_apart(self) -> None:
        """From now on no text is padded: a longer one in its batch would move its vector. A note says so."""
        if not self.equal_lengths:
            self.equal_lengths = True
            self.notes = (*self.notes, f"{self.spec.name}: {EQUAL_LENGTHS}")

    def use_cache(self, cache: Any) -> None:
        """Take a run's EmbeddingCache, or None, before anything is encoded: for encoders built on another one."""
        return

    def identified(self) -> Encoder:
        """Return this encoder with a fingerprint of what it is now, for one that may be another at its next use; asked
        for before anything is scored."""
        return self

    def fit(self, texts: Sequence[str], source: str) -> Encoder:
        """Return this encoder fitted on `texts`, known as `source`; those that need no fitting return themselves."""
        return self

    def fit_readings(
        self, readings: Sequence[tuple[Encoder, Sequence[str]]], texts: Sequence[str], source: str
    ) -> Encoder:
        """Return `fit`, for one that is fitted on a set's texts as they are read. readings: this encoder as it reads the
        texts of a role, with these."""
        return self.fit(texts, source)

    def of_call(self, vectors: Any) -> Any:
        """Return what (n, d) vectors of `run` become where it matters which texts one call asks for; any other's stay as
        they are."""
        return vectors


def count_parameters(*parts: Any) -> int | None:
    """Return the parameters of torch modules, and the numbers of tensors, each counted once; None where there are none: a
    graph's are not torch's. None among the parts stands for no part."""
    tensors = {id(tensor): tensor for part in parts if part is not None
               for tensor in (part.parameters() if hasattr(part, "parameters") else [part])}
    return sum(int(tensor.numel()) for tensor in tensors.values()) or None


class Wrapper(Encoder):
    """`base`, of which a subclass changes the vectors or the place: it writes `run`, and `on`, itself around another one."""

    def __init__(self, base: Encoder) -> None:
        self.base = base
        self.spec, self.traits, self.notes = base.spec, base.traits, base.notes
        self.dimension, self.equal_lengths = base.dimension, base.equal_lengths

    @abstractmethod
    def on(self, base: Encoder, call: Call) -> Encoder:
        """Return the same around another base, which `call` of this one's gave, and which reads its texts otherwise."""

    def take_notes(self) -> None:
        """Take over what the base has to say since, and whether it keeps lengths apart."""
        self.equal_lengths = self.equal_lengths or self.base.equal_lengths
        self.notes = (*self.notes, *(line for line in self.base.notes if line not in self.notes))

    @property
    def identity(self) -> EncoderSpec:
        """Return the base's."""
        return self.base.identity

    @property
    def engine(self) -> str:  # type: ignore[override]
        """Return what runs the base."""
        return self.base.engine

    @property
    def spent(self) -> Mapping[str, Any]:
        """Return what the base asked a server for."""
        return self.base.spent

    def spent_in_words(self) -> str:
        """Return the base's line."""
        return self.base.spent_in_words()

    @property
    def computes_in(self) -> Any:  # type: ignore[override]
        """Return where the base computes."""
        return self.base.computes_in

    @property
    def device(self) -> torch.device:
        """Return the base's."""
        return self.base.device

    @property
    def uses_torch(self) -> bool:
        """Return whether the base does."""
        return self.base.uses_torch

    def ready(self) -> None:
        """Load the base."""
        self.base.ready()
        self.take_notes()

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the base's."""
        return self.base.counts(texts)

    def token_table(self, which: str) -> TokenTable:
        """Return the base's."""
        return self.base.token_table(which)

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return the same around the base as it reads texts of a role."""
        return self._around("for_role", role, prompt)

    def with_prompt(self, prompt: str) -> Encoder:
        """Return the same around the base behind one prompt."""
        return self._around("with_prompt", prompt)

    def for_task(self, task: TextTask) -> Encoder:
        """Return the same around the base as it reads texts of a task."""
        return self._around("for_task", task)

    def anew(self) -> Encoder:
        """Return the same around a base that is fitted once more."""
        return self._around("anew")

    def _around(self, method: str, *arguments: Any) -> Encoder:
        base: Encoder = getattr(self.base, method)(*arguments)
        return self if base is self.base else self.on(base, (method, arguments))
