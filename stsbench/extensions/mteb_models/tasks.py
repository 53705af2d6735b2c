"""The tasks that mteb's models are told their texts are of: mteb's own by its name, else one of ours of the same type."""

from __future__ import annotations

from functools import cache
from typing import Any


def task_metadata(kind: str, name: str) -> Any:
    """mteb's TaskMetadata of the task `name`, where it is of the type `kind` ("STS", "Classification", "Retrieval", ...);
    else that of a task of ours, by which a model takes what it has for the type. Imports mteb."""
    from mteb.get_tasks import TASK_LIST

    registered = (task.metadata for task in TASK_LIST if task.metadata.name == name and task.metadata.type == kind)
    return next(registered, None) or _generic(kind).metadata


@cache
def _generic(kind: str) -> Any:
    """A task of a type and of no further name or prompt. It is a class, and kept: mteb looks up the instruction for a type
    among the classes of tasks that are there."""
    from mteb.get_tasks import TASK_LIST

    kin = [task for task in TASK_LIST if task.metadata.type == kind]
    with_text = [task for task in kin if getattr(task, "abstask_prompt", "")] or kin
    closest = next((task for task in with_text if task.metadata.eval_langs == ["eng-Latn"]), with_text[0])
    base = next(parent for parent in closest.__mro__ if parent.__name__.startswith("AbsTask"))
    metadata = closest.metadata.model_copy(update={"name": f"stsbench {kind}", "prompt": None})
    return type(f"Stsbench{kind}", (base,), {"metadata": metadata, "__module__": __name__})
