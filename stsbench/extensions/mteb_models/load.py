"""mteb's own loading of a registered model: with the options that it honours, and every accident in one line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any
from unittest.mock import patch

from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.options import EncoderOptions
from stsbench.encoders.transformer.declared import BY_ROLE, ROLE_PROMPTS
from stsbench.encoders.transformer.parts import choose_device
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.mteb_models.registered import Registered, hub_messages
from stsbench.hub import hub_errors

_LOCK = RLock()  # what is put in a library's place is there for all threads
_METHODS = {"encode": None, "encode_query": "query", "encode_document": "document"}  # -> the role that it reads texts in


@contextmanager
def guarded(name: str, trusted: bool, offline: bool) -> Iterator[set[str]]:
    """Let transformers, sentence-transformers and torch run code of a repository in the block only if `trusted`, and fetch
    nothing if `offline`. What they ran is in the set that is given back: the sha256 of each file.

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


@dataclass(frozen=True)
class Call:
    """How a loader's class calls sentence-transformers for a task. prompt: the text that this puts before each text."""

    role: str | None
    prompt: str


class _Called(BaseException):
    """No Exception: a class that catches those must not go on."""


def library_model(wrapped: Any) -> Any:
    """Return the SentenceTransformer in it, or None."""
    model = getattr(wrapped, "model", None)
    return model if hasattr(model, "transformers_model") and hasattr(model, "max_seq_length") else None


def decides_by_prompt(wrapped: Any) -> bool:
    """Return whether it is one of mteb's two general classes: a vector then depends on the text, the role and the prompt
    alone."""
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.models.instruct_wrapper import InstructSentenceTransformerModel

    return type(wrapped) in (SentenceTransformerEncoderWrapper, InstructSentenceTransformerModel)


def as_batches(texts: Sequence[str], batch: int) -> Any:
    """Return n texts as mteb gives them to its models: a DataLoader of batches {"text": list of str}."""
    from datasets import Dataset
    from torch.utils.data import DataLoader

    return DataLoader(Dataset.from_dict({"text": list(texts)}), batch_size=batch)


def find_call(wrapped: Any, metadata: Any, prompt_type: Any) -> Call | None:
    """Return what the SentenceTransformer in it is asked for texts of a task; None without such a model. Nothing is
    computed."""
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
        wrapped.encode(as_batches(["a"], 1), prompt_type=prompt_type, **about)
    except _Called:
        pass
    finally:
        for name in _METHODS:
            delattr(model, name)
    return _resolved(model, *calls[0]) if calls else None


def _resolved(model: Any, name: str, settings: dict[str, Any]) -> Call:
    """Return the prompt that sentence-transformers takes: given, named, the first stored one of the role, or the default."""
    stored, role = model.prompts or {}, _METHODS[name]
    if settings.get("prompt") is not None:
        return Call(role, settings["prompt"])
    names: Iterable[str | None] = [settings.get("prompt_name")]
    if settings.get("prompt_name") is None:
        names = [model.default_prompt_name] if role is None else ROLE_PROMPTS[role]
    return Call(role, next((stored[known] or "" for known in names if known in stored), ""))


def tells_roles_apart(model: Any) -> bool:
    """Return whether a SentenceTransformer reads queries otherwise than documents, whatever stands before them."""
    parts = list(model.modules())
    return any(type(part).__name__ in ("Router", "Asym") for part in parts) or any(
        getattr(part, name, None) for part in parts for name in BY_ROLE)


def load_registered(registered: Registered, options: EncoderOptions) -> tuple[Any, set[str]]:
    """Return mteb's model, and the sha256 of each file of code that was run for it. EncoderError, one line: it cannot be
    loaded, is no encoder, or does not honour an option."""
    meta, name = registered.meta, registered.name
    arguments = {} if options.dtype == EncoderOptions.dtype else {"model_kwargs": _in_dtype(meta, options.dtype)}
    width, widths = options.truncate_dim, meta.embed_dim
    if width is not None and width == (max(widths) if isinstance(widths, Sequence) else widths):
        raise EncoderError(f"--truncate-dim {width} cuts nothing: the vectors of {name} have {width} numbers; leave it out")
    device = options.device and str(choose_device(options.device))
    try:
        with guarded(name, options.trust_remote_code, options.offline) as code:
            model = meta.load_model(device=device, embed_dim=width, **arguments)
    except StsbenchError:
        raise
    except Exception as error:  # whatever the loaders of several hundred models raise
        raise _refused(error, registered, options) from error
    if not callable(getattr(model, "encode", None)):
        raise EncoderError(f"{name}: mteb's {type(model).__name__} has no encode: it is no encoder")
    if options.dtype != EncoderOptions.dtype and (stands := weight_dtype(model)) != options.dtype:
        raise EncoderError(f"--dtype {options.dtype}: mteb's loader of {name} does not honour it (its weights: "
                           f"{stands or 'none'})")
    if options.max_length is not None:
        _set_length(model, name, options.max_length)
    return model, code


def weight_dtype(model: Any) -> str | None:
    """Return the type of the first floating-point weight of what mteb has loaded, such as "float32"; None without
    weights."""
    parameters = getattr(getattr(model, "model", None), "parameters", None)
    weights = parameters() if callable(parameters) else iter(())
    return next((str(weight.dtype).removeprefix("torch.") for weight in weights if weight.is_floating_point()), None)


def _in_dtype(meta: Any, dtype: str) -> dict[str, Any]:
    import torch

    stated = dict(meta.loader_kwargs.get("model_kwargs") or {})
    stated.pop("torch_dtype", None)
    return {**stated, "dtype": getattr(torch, dtype)}


def _set_length(model: Any, name: str, length: int) -> None:
    """Set the limit of tokens. Raises EncoderError if the model's class has its own limit, or fewer positions."""
    library = library_model(model)
    if library is None or not decides_by_prompt(model):
        runs = f"mteb's {type(model).__name__}, which runs {name}"
        raise EncoderError(f"--max-length: {runs}, has a length of its own: leave it out")
    inner = library.transformers_model
    limit = None if inner is None else position_limit(inner, library.tokenizer)
    if inner is None or (limit is not None and length > limit):
        what = "has no limit of tokens" if inner is None else f"has {limit} positions"
        raise EncoderError(f"--max-length {length}: {name} {what}")
    library.max_seq_length = length


def _refused(error: Exception, registered: Registered, options: EncoderOptions) -> EncoderError:
    """Return a loader's error as one line: a missing package with its command, the Hub's, or the error itself."""
    meta, name = registered.meta, registered.name
    for cause in _causes(error):
        if isinstance(cause, StsbenchError):  # the guard's error in a library's own words
            return EncoderError(str(cause))
        if type(cause).__module__.startswith(("huggingface_hub.", "httpx")):
            return _of_the_hub(cause, meta, options.offline)
    if isinstance(error, ModuleNotFoundError) and error.name and not meta.extra_requirements_groups:
        package = error.name.partition(".")[0]
        return EncoderError(f"{name} needs the package {package}: pip install {package}")
    if isinstance(error, ImportError):
        groups = ",".join(meta.extra_requirements_groups or ())
        if not groups:
            return EncoderError(f"{name} needs packages that are not here: {' '.join(str(error).split())[:300]}")
        why = first_line(error).rstrip(".")
        return EncoderError(f"{name} needs packages that are not here ({why}): pip install 'mteb[{groups}]'")
    return EncoderError(f"mteb cannot load {name}: {type(error).__name__}: {first_line(error)}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _of_the_hub(cause: BaseException, meta: Any, offline: bool) -> EncoderError:
    from huggingface_hub.errors import OfflineModeIsEnabled

    messages = hub_messages(meta.name, meta.revision, offline)
    if isinstance(cause, OfflineModeIsEnabled) or type(cause).__module__.startswith("httpx"):
        unreachable: EncoderError = messages["unreachable"]
        return unreachable
    try:
        with hub_errors(meta.name, error_class=EncoderError, **messages):
            raise cause
    except EncoderError as refused:
        return refused
