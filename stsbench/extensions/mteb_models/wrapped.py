"""A model as mteb's loader gives it: which sentence-transformers model is in it, if any, and what it puts before a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

_METHODS = {"encode": None, "encode_query": "query", "encode_document": "document"}  # -> the role that it reads texts in


@dataclass(frozen=True)
class Call:
    """How a loader's class calls sentence-transformers for a task. prompt: the text that this puts before each text."""

    role: str | None
    prompt: str


class _Called(BaseException):
    """No Exception: a class that catches those must not go on."""


def library_model(wrapped: Any) -> Any:
    """The SentenceTransformer in it, or None."""
    model = getattr(wrapped, "model", None)
    return model if hasattr(model, "transformers_model") and hasattr(model, "max_seq_length") else None


def decides_by_prompt(wrapped: Any) -> bool:
    """Whether it is one of mteb's two general classes: a vector then depends on the text, the role and the prompt alone."""
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.models.instruct_wrapper import InstructSentenceTransformerModel

    return type(wrapped) in (SentenceTransformerEncoderWrapper, InstructSentenceTransformerModel)


def inputs_of(texts: Sequence[str], batch: int) -> Any:
    """n texts as mteb gives them to its models: a DataLoader of batches {"text": list of str}."""
    from datasets import Dataset
    from torch.utils.data import DataLoader

    return DataLoader(Dataset.from_dict({"text": list(texts)}), batch_size=batch)


def call_of(wrapped: Any, metadata: Any, prompt_type: Any) -> Call | None:
    """What the SentenceTransformer in it is asked for texts of a task; None without such a model. Nothing is computed."""
    model = library_model(wrapped)
    if model is None:
        return None
    calls: list[tuple[str, dict[str, Any]]] = []

    def record(name: str, *_: Any, **settings: Any) -> None:
        calls.append((name, settings))
        raise _Called

    for name in _METHODS:
        setattr(model, name, partial(record, name))
    try:
        about = {"task_metadata": metadata, "hf_split": "test", "hf_subset": "default"}
        wrapped.encode(inputs_of(["a"], 1), prompt_type=prompt_type, **about)
    except _Called:
        pass
    finally:
        for name in _METHODS:
            delattr(model, name)
    return _resolved(model, *calls[0]) if calls else None


def _resolved(model: Any, name: str, settings: dict[str, Any]) -> Call:
    """The prompt that sentence-transformers takes: given, named, the first stored one of the role, or the default."""
    stored, role = model.prompts or {}, _METHODS[name]
    if settings.get("prompt") is not None:
        return Call(role, settings["prompt"])
    names: Iterable[str | None] = [settings.get("prompt_name")]
    if settings.get("prompt_name") is None:
        names = {None: [model.default_prompt_name], "query": ["query"], "document": ["document", "passage", "corpus"]}[role]
    return Call(role, next((stored[known] or "" for known in names if known in stored), ""))


def tells_roles_apart(model: Any) -> bool:
    """Whether a SentenceTransformer reads queries otherwise than documents, whatever stands before them."""
    parts = list(model.modules())
    return any(type(part).__name__ in ("Router", "Asym") for part in parts) or any(
        getattr(part, name, None) for part in parts for name in ("query_length", "document_length", "query_expansion"))
