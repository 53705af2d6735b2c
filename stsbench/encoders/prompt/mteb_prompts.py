"""What mteb's own loader of a model that it registers puts before a text, told from its loader's arguments alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from stsbench.data.fetch.mteb import undisturbed
from stsbench.encoders.roles import ROLES
from stsbench.errors import EncoderError


class Instructions(Mapping[str, str]):
    """The prompts of a model that reads an instruction of the task: made by mteb's code for the name that is asked for.

    Names are mteb's tasks and types of task, alone or with -query or -document. `described`: what decides them.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        from mteb import __version__
        from mteb.models.instruct_wrapper import InstructSentenceTransformerModel

        self._model: Any = object.__new__(InstructSentenceTransformerModel)  # without its weights
        for name in ("instruction_template", "prompts_dict"):
            setattr(self._model, name, arguments.get(name))
        if (order := arguments.get("prompt_priority")) is not None:
            from mteb.models.abs_encoder import PromptSource

            self._model.prompt_priority = [PromptSource.from_str(source) for source in order]
        self._passages = bool(arguments.get("apply_instruction_to_passages", True))
        shown = self._model.format_instruction("{instruction}") if self._model.instruction_template else "{instruction}"
        self.described = {"mteb": __version__, "template": shown, "documents": self._passages,
                          "instructions": dict(arguments.get("prompts_dict") or {})}

    def __getitem__(self, key: str) -> str:
        task, _, role = key.rpartition("-") if key.endswith(tuple(f"-{role}" for role in ROLES)) else (key, "", "")
        metadata = _metadata(task)
        if metadata is None:
            raise KeyError(key)
        from mteb.types import PromptType

        if role == "document" and not self._passages:
            return ""
        with undisturbed():
            return str(self._model.get_task_instruction(metadata, PromptType(role) if role else None) or "")

    def __contains__(self, key: object) -> bool:
        name = str(key)
        return _metadata(name.rpartition("-")[0] if name.endswith(tuple(f"-{role}" for role in ROLES)) else name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(_types())

    def __len__(self) -> int:
        return len(_types())


@cache
def _types() -> dict[str, str]:
    """mteb's types of task -> the name of one such task, whose class has the instruction of its type."""
    from mteb.get_tasks import TASK_LIST

    return {task.metadata.type: task.metadata.name for task in reversed(TASK_LIST) if getattr(task, "abstask_prompt", "")}


@cache
def _metadata(name: str) -> Any:
    """mteb's description of a task; of a type of task one without an instruction of its own; None for neither."""
    if name in _types():
        return SimpleNamespace(name=_types()[name], type=name, prompt=None)
    with undisturbed() as mteb:
        try:
            return mteb.get_task(name).metadata
        except KeyError:
            return None


def passed_by_mteb(hub_id: str) -> Mapping[str, str] | None:
    """The prompts that mteb's loader of this model passes; None where mteb leaves them to the model's folder.

    EncoderError, one line: mteb loads the model by code of its own.
    """
    with undisturbed():
        from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
        from mteb.models.model_implementations import MODEL_REGISTRY
        from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
    meta = MODEL_REGISTRY.get(hub_id)
    if meta is None:
        return None
    arguments, loader = meta.loader_kwargs, meta.loader
    if loader is SentenceTransformerEncoderWrapper:
        prompts: Mapping[str, str] | None = arguments.get("model_prompts")
        return prompts
    if loader is InstructSentenceTransformerModel:
        return Instructions(arguments)
    if getattr(loader, "__name__", "") == "q3e_instruct_loader":  # Qwen3: an InstructSentenceTransformerModel of its making
        template = sys.modules[loader.__module__].instruction_template
        return Instructions({"instruction_template": template, "apply_instruction_to_passages": False})
    name = getattr(loader, "__name__", loader)
    raise EncoderError(f"--prompt mteb: mteb loads {hub_id} by code of its own ({name}), and what that passes cannot be "
                       "told from outside: leave --prompt out")
