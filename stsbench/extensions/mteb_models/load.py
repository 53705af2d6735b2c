"""mteb's own loading of a registered model: with the options that it honours, and every accident in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.options import EncoderOptions
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.mteb_models.guard import guarded
from stsbench.extensions.mteb_models.registered import Registered, hub_messages
from stsbench.extensions.mteb_models.wrapped import decides_by_prompt, library_model
from stsbench.hub import hub_errors


def load_registered(registered: Registered, options: EncoderOptions) -> tuple[Any, set[str]]:
    """mteb's model, and the sha256 of each file of code that was run for it. EncoderError, one line: it cannot be loaded, is
    no encoder, or does not honour an option."""
    meta, name = registered.meta, registered.name
    arguments = {} if options.dtype == EncoderOptions.dtype else {"model_kwargs": _in_dtype(meta, options.dtype)}
    width, widths = options.truncate_dim, meta.embed_dim
    if width is not None and width == (max(widths) if isinstance(widths, Sequence) else widths):
        raise EncoderError(f"--truncate-dim {width} cuts nothing: the vectors of {name} have {width} numbers; leave it out")
    try:
        with guarded(name, options.trust_remote_code, options.offline) as code:
            model = meta.load_model(device=options.device, embed_dim=width, **arguments)
    except StsbenchError:
        raise
    except Exception as error:  # whatever the loaders of several hundred models raise
        raise _refused(error, registered, options) from error
    if not callable(getattr(model, "encode", None)):
        raise EncoderError(f"{name}: mteb's {type(model).__name__} has no encode: it is no encoder")
    _check_dtype(model, name, options.dtype)
    if options.max_length is not None:
        _cut_at(model, name, options.max_length)
    return model, code


def dtype_of(model: Any) -> str | None:
    """The type of the first floating-point weight of what mteb has loaded, such as "float32"; None without weights."""
    parameters = getattr(getattr(model, "model", None), "parameters", None)
    weights = parameters() if callable(parameters) else iter(())
    return next((str(weight.dtype).removeprefix("torch.") for weight in weights if weight.is_floating_point()), None)


def _in_dtype(meta: Any, dtype: str) -> dict[str, Any]:
    import torch

    stated = dict(meta.loader_kwargs.get("model_kwargs") or {})
    stated.pop("torch_dtype", None)
    return {**stated, "dtype": getattr(torch, dtype)}


def _check_dtype(model: Any, name: str, dtype: str) -> None:
    if dtype != EncoderOptions.dtype and (stands := dtype_of(model)) != dtype:
        raise EncoderError(f"--dtype {dtype}: mteb's loader of {name} does not honour it (its weights: {stands or 'none'})")


def _cut_at(model: Any, name: str, length: int) -> None:
    """Texts at so many tokens. EncoderError: its class has a length of its own, or it has fewer positions."""
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
    """A loader's error as one line: a missing package with its command, the Hub's, or the error itself."""
    meta, name = registered.meta, registered.name
    for cause in _causes(error):
        if isinstance(cause, StsbenchError):  # of the guard, in a library's own words
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
