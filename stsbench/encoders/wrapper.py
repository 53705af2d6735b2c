"""An encoder made of another one. What it does not change is that one's: a new trait or method is passed on here alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stsbench.encoders.base import Counts, Encoder, EncoderSpec, TokenTable
from stsbench.encoders.roles import TextTask

if TYPE_CHECKING:
    import torch

Call = tuple[str, tuple[Any, ...]]  # "for_role", "for_task", "behind" or "anew", with its arguments


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
        """The base's."""
        return self.base.identity

    @property
    def engine(self) -> str:  # type: ignore[override]
        """What runs the base."""
        return self.base.engine

    @property
    def spent(self) -> Mapping[str, Any]:
        """What the base asked a server for."""
        return self.base.spent

    def spent_in_words(self) -> str:
        """Return the base's line."""
        return self.base.spent_in_words()

    @property
    def computes_in(self) -> Any:  # type: ignore[override]
        """Where the base computes."""
        return self.base.computes_in

    @property
    def device(self) -> torch.device:
        """The base's."""
        return self.base.device

    @property
    def uses_torch(self) -> bool:
        """Whether the base does."""
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

    def behind(self, prompt: str) -> Encoder:
        """Return the same around the base behind one prompt."""
        return self._around("behind", prompt)

    def for_task(self, task: TextTask) -> Encoder:
        """Return the same around the base as it reads texts of a task."""
        return self._around("for_task", task)

    def anew(self) -> Encoder:
        """Return the same around a base that is fitted once more."""
        return self._around("anew")

    def _around(self, method: str, *arguments: Any) -> Encoder:
        base: Encoder = getattr(self.base, method)(*arguments)
        return self if base is self.base else self.on(base, (method, arguments))
