"""What is known of an encoder beside its spec: how its author reads and compares texts, and what its weights come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Traits:
    """What an encoder that is made of another one passes on whole: a trait is added here, and nowhere else.

    similarity: what the model's author compares vectors by, cosine, dot, euclidean or manhattan. prompts: name -> text, of
    which that of a text is chosen by its role and its task (encoders/roles.py); none: one for all. default_prompt: the one
    before texts that `prompts` has none for, where the spec does not hold it. adapters: names, of which one is chosen by a
    text's task; default_route: the way of texts without a role, where queries and documents take other ways. trained_on: the
    test data whose sentences it was trained on, so that its scores there are transductive; training_overlap: what its
    training texts share with test sets. libraries: installed packages whose version may change a vector. attention: by which
    pass, as in EncoderOptions; its vectors are kept apart where the user chose one. asks_task: the model itself
    is told a text's task, whatever it makes of it.
    """

    similarity: str = "cosine"
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    adapters: tuple[str, ...] = ()
    default_route: str | None = None
    trained_on: tuple[str, ...] = ()
    training_overlap: tuple[Mapping[str, Any], ...] = ()
    libraries: tuple[str, ...] = ()
    attention: str = "auto"
    asks_task: bool = False

    @property
    def by_task(self) -> bool:
        """Whether texts are read by role and task: behind other prompts, or by other ways through the model."""
        return bool(self.prompts or self.adapters or self.default_route or self.asks_task)
