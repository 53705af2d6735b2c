"""How an encoder's author reads and compares texts: its traits, and which of its prompts stands before a text, chosen by the
text's role and its task, in mteb's order of names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROLES = ("query", "document")  # prompts of these names are known to every encoder; empty where none is stored
# jina-embeddings-v3's adapters by mteb's types of task, as mteb's loader of that model names them
ADAPTERS = {
    "STS": "text-matching", "BitextMining": "text-matching", "Summarization": "text-matching",
    "Classification": "classification", "MultilabelClassification": "classification",
    "PairClassification": "classification", "Clustering": "separation", "Reranking": "separation",
    "Retrieval-query": "retrieval.query", "Retrieval-document": "retrieval.passage",
}


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
        """Return whether texts are read by role and task: behind other prompts, or by other ways through the model."""
        return bool(self.prompts or self.adapters or self.default_route or self.asks_task)


@dataclass(frozen=True)
class TextTask:
    """What a text is read for. name: mteb's name of the task where it has one, else ours; type: mteb's type of it, such as
    STS, Classification or Retrieval, "" where none is known; metadata: mteb's TaskMetadata, where mteb asks."""

    name: str = ""
    type: str = ""
    metadata: Any = field(default=None, compare=False, repr=False)


def prompt_name(prompts: Mapping[str, Any], task: TextTask, role: str | None) -> str | None:
    """Return the name of the prompt that mteb takes (2.26, models/abs_encoder.py, get_prompt_name); None where it takes
    none.

    In this order: {task}-{role}, {task}, {type}-{role}, {type}, {role}.
    """
    names = [name for of in (task.name, task.type) if of for name in ([f"{of}-{role}", of] if role else [of])]
    return next((name for name in [*names, *([role] if role else [])] if name in prompts), None)


def reading(traits: Traits, task: TextTask, role: str | None) -> tuple[str | None, str | None]:
    """Return how an encoder reads texts of a task in a role, "query", "document" or None: what `Encoder.for_role` is to be
    given.

    The second is None where the encoder has no prompt for them, so that its default prompt stays, if it has one.
    """
    if traits.adapters:
        by_task = ADAPTERS.get(prompt_name(ADAPTERS, task, role) or "")
        adapter = by_task if by_task in traits.adapters else None
        if adapter is not None and adapter in traits.prompts:
            return adapter, traits.prompts[adapter]
        return adapter, _chosen(traits, task, role)
    return role, _chosen(traits, task, role)


def _chosen(traits: Traits, task: TextTask, role: str | None) -> str | None:
    if not traits.prompts:
        return None
    if (name := prompt_name(traits.prompts, task, role)) is not None:
        return traits.prompts[name]
    # In sentence-transformers every model has a prompt of each role, if only an empty one: no default prompt then.
    return traits.default_prompt if role is None else ""


def reading_in_words(role: str, prompt: str, route: str | None) -> str:
    """Return how texts of a role ("text" for none) are read, for people: query "query: " by query_tower."""
    shown = json.dumps(prompt, ensure_ascii=False) if prompt else "no prompt"
    return " ".join([*([] if role == "text" else [role]), shown, *([] if route in (None, role) else [f"by {route}"])])


def stated(prompts: Mapping[str, str]) -> dict[str, Any]:
    """Return prompts as a spec holds them: texts by name, or, of those that are made when they are asked for, what
    decides them."""
    described: dict[str, Any] = getattr(prompts, "described", None) or dict(prompts)
    return described
