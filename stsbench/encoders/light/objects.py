"""Objects of other libraries that encode, a SentenceTransformer and an encoder of mteb, as functions of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stsbench.encoders.roles import ROLES

Function = Callable[..., Any]  # of a list of n texts
# Given a role (query, document or None) and a prompt, what reads texts so; None: what reads any text.
Roles = Callable[[str | None, str | None], Function | None]


def library_roles(model: Any) -> Roles | None:
    """How a SentenceTransformer reads queries and documents; None for an object that makes no difference."""
    methods = {None: "encode", "query": "encode_query", "document": "encode_document"}
    if not all(callable(getattr(model, name, None)) for name in methods.values()):
        return None

    def reads(role: str | None, prompt: str | None) -> Function | None:
        if prompt is None and (role is None or not (stored_prompts(model) or _routes(model))):
            return None
        method: Function = getattr(model, methods[role])
        return method if prompt is None else partial(method, prompt=prompt)

    return reads


def stored_prompts(model: Any) -> dict[str, str]:
    """The prompts of a SentenceTransformer by name; none where all of them are empty."""
    prompts = getattr(model, "prompts", None)
    if not isinstance(prompts, Mapping) or not any(prompts.values()):
        return {}
    return {name: text for name, text in prompts.items() if text or (text == "" and name not in ROLES)}


def _routes(model: Any) -> bool:
    modules = getattr(model, "modules", None)
    return callable(modules) and any(type(module).__name__ in ("Router", "Asym") for module in modules())


def is_mteb(model: Any) -> bool:
    """Whether an object is one of mteb's encoders."""
    return hasattr(model, "mteb_model_meta") and callable(getattr(model, "encode", None))


class MtebTexts:
    """An encoder of mteb in a role, query, document or None.

    mteb's encoders choose a prompt by task, too: the texts are given to them as those of STSBenchmark.
    """

    def __init__(self, model: Any, role: str | None = None) -> None:
        self.model, self.role = model, role
        self.fingerprint = getattr(model, "fingerprint", None)
        self.__module__, self.__qualname__ = type(model).__module__, type(model).__qualname__

    @property
    def name(self) -> str:
        """The class, and what mteb calls the model."""
        known = getattr(self.model.mteb_model_meta, "name", None)
        return f"python:{self.__module__}:{self.__qualname__}{f' of {known}' if known else ''}"

    def __call__(self, texts: list[str]) -> Any:
        """Its vectors of n texts."""
        from datasets import Dataset
        from mteb.tasks import STSBenchmarkSTS
        from mteb.types import PromptType
        from torch.utils.data import DataLoader

        return self.model.encode(
            DataLoader(Dataset.from_dict({"text": texts}), batch_size=32), task_metadata=STSBenchmarkSTS.metadata,
            hf_split="test", hf_subset="default", prompt_type=None if self.role is None else PromptType(self.role),
        )

    def reads(self, role: str | None, prompt: str | None) -> Function | None:
        """`Roles`; a prompt is the model's own affair."""
        return None if role is None or prompt is not None else MtebTexts(self.model, role)
