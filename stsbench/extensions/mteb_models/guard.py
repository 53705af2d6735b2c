"""What a loader of mteb may not do, whatever its own arguments say: run a repository's code, or go on the network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any
from unittest.mock import patch

from stsbench.errors import EncoderError

_LOCK = RLock()  # what is put in a library's place is there for all threads


@contextmanager
def guarded(name: str, trusted: bool, offline: bool) -> Iterator[set[str]]:
    """A block in which transformers, sentence-transformers and torch run code of a repository only if `trusted`, and nothing
    is fetched if `offline`. What they ran is in the set that is given back: the sha256 of each file.

    EncoderError from within: they were about to run code. Every class from a repository goes through one function of
    transformers, whatever asked for it; kernels from the Hub through another one; and a pickle through torch.load.
    """
    import torch
    from huggingface_hub import constants
    from transformers import dynamic_module_utils
    from transformers.integrations import hub_kernels

    ran: set[str] = set()
    load, fetch, unpickle = dynamic_module_utils.get_class_in_module, hub_kernels.get_kernel, torch.load

    def code(class_name: str, module_path: Any, **settings: Any) -> Any:
        if not trusted:
            where = f"{Path(module_path).name}: {class_name}"
            raise EncoderError(f"mteb loads {name} with code from its repository ({where}): read it, then give "
                               "--trust-remote-code")
        file = Path(dynamic_module_utils.HF_MODULES_CACHE) / module_path
        for path in (file, *map(Path, dynamic_module_utils.get_relative_import_files(file))):
            ran.add(hashlib.sha256(path.read_bytes()).hexdigest())
        return load(class_name, module_path, **settings)

    def kernel(repository: str, *arguments: Any, **settings: Any) -> Any:
        if not trusted:
            raise EncoderError(f"{name} asks for a kernel from the Hub, which is code ({repository}): read it, then give "
                               "--trust-remote-code")
        return fetch(repository, *arguments, **settings)

    def weights(file: Any, *arguments: Any, **settings: Any) -> Any:
        if not trusted and settings.get("weights_only") is False:
            raise EncoderError(f"mteb reads {name} from a pickle that may run code ({Path(str(file)).name}): "
                               "--trust-remote-code reads it")
        return unpickle(file, *arguments, **settings)

    with ExitStack() as replaced:
        replaced.enter_context(_LOCK)
        for owner, attribute, value in (
            (dynamic_module_utils, "get_class_in_module", code), (hub_kernels, "get_kernel", kernel),
            (torch, "load", weights), (constants, "HF_HUB_OFFLINE", offline or constants.HF_HUB_OFFLINE),
        ):
            replaced.enter_context(patch.object(owner, attribute, value))
        yield ran
