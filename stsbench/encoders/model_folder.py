"""Checks of downloaded model folders: no paths that lead out of them, no absurd sizes, no patterns that never end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from stsbench.errors import EncoderError
from stsbench.parsing import read_json_object

_MOST_BYTES = 8_000_000  # the longest config.json lists some 20,000 labels or added tokens
_MOST_LAYERS = 256  # the deepest published encoders have some 100
_MOST = 1 << 24  # positions, widths and tokens; a vocabulary has some 300,000, a long context 10 million
_COUNTS = re.compile(r"layers?$|layers?_|^depth|groups$|blocks?$")
_PATTERNS = ("target_modules", "exclude_modules", "layers_pattern", "modules_to_save", "target_parameters")
_LONGEST_PATTERN, _MOST_REPEATS = 1000, 4
_MOST_RANK = 1 << 13  # an adapter's rank
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")  # a tokenizer's steps, beside its vocabulary
_LONGEST_STEP = 1000  # characters or entries of one of their settings
_LONG_STEPS = ("precompiled_charsmap", "Regex")  # settings that are longer in published tokenizers
_MOST_MODES = 16  # a pooling's modes, each as wide as the model
# A module's settings that are passed to from_pretrained, and the arguments in them that decide what is read or run.
_ARGUMENTS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
_LOADING = {
    "weights_only", "trust_remote_code", "code_revision", "revision", "subfolder", "variant", "gguf_file", "config",
    "state_dict", "cache_dir", "offload_folder", "offload_state_dict", "adapter_kwargs", "adapter_name",
    "pretrained_model_name_or_path", "local_files_only", "force_download", "token", "proxies", "mirror", "use_kernels",
    "kernel_config", "allow_all_kernels", "tokenizer_file", "vocab_file", "merges_file", "key_mapping",
    "quantization_config", "device_map", "tp_plan",
}


_METHODS = re.compile(r"forward|get_(text|image|vision|audio|video|multimodal)_features")  # that sentence-transformers calls


def read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a model folder, empty where there is no such file. EncoderError, one line: the
    file holds no object, or is a config.json that is too large."""
    if not path.is_file():
        return {}
    if path.name.endswith("config.json") and path.stat().st_size > _MOST_BYTES:
        raise EncoderError(f"{path} is larger than {_MOST_BYTES:,} bytes: not read")
    return read_json_object(path, EncoderError)


def check_inside(folder: Path, value: str, where: str) -> None:
    """Raise EncoderError where the path `value`, read from `where`, leads out of `folder`."""
    path = PureWindowsPath(value)
    if path.anchor or value.startswith("/") or ".." in path.parts or "\0" in value:
        raise EncoderError(f"{folder / where}: the path {value!r} leads out of the folder")


def check_settings(folder: Path) -> None:
    """Raise EncoderError, one line, for a transformers folder whose settings lead out of it, fetch code, or state a size or
    a pattern that no model has.

    transformers would build a model of these sizes, fetch a kernel, or match a pattern, before it looks at the weights.
    """
    _check_kernels(folder / "config.json", read_settings(folder / "config.json"))
    for key, value in _values(read_settings(folder / "config.json")):
        if isinstance(value, int) and not isinstance(value, bool):
            most = _MOST_LAYERS if _COUNTS.search(key) else _MOST
            if abs(value) > most and not re.search("theta|param", key):  # a rotary base, a count of weights
                raise EncoderError(f"{folder / 'config.json'}: {key} {_text(value)} is no model's (at most {most:,})")
    for key, value in _values(read_settings(folder / "tokenizer_config.json")):
        if key.endswith("_file") and isinstance(value, str):
            check_inside(folder, value, f"tokenizer_config.json: {key}")
    adapter = read_settings(folder / "adapter_config.json")
    stored = [name for name in ("adapter_model.safetensors", "adapter_model.bin") if (folder / name).is_file()]
    if stored and not adapter:
        raise EncoderError(f"{folder} holds {stored[0]}, and no adapter_config.json to read it by: fetch the whole model")
    for key in _PATTERNS:
        check_pattern(adapter.get(key), f"{folder / 'adapter_config.json'}: {key}")
    ranks = adapter.get("rank_pattern")
    for rank in (adapter.get("r"), *(ranks.values() if isinstance(ranks, dict) else ())):
        if isinstance(rank, int) and rank > _MOST_RANK:
            file = folder / "adapter_config.json"
            raise EncoderError(f"{file}: the rank {_text(rank)} is no adapter's (at most {_MOST_RANK:,})")
    if adapter.get("megatron_config"):  # peft then imports the module that megatron_core names
        raise EncoderError(f"{folder / 'adapter_config.json'}: megatron_config has peft import code: take the key out")
    for key in ("rank_pattern", "alpha_pattern"):
        if isinstance(adapter.get(key), dict):
            for pattern in adapter[key]:
                check_pattern(pattern, f"{folder / 'adapter_config.json'}: {key}")


def check_tokenizer(file: Path) -> None:
    """Raise EncoderError for a tokenizer.json by which a short text, or its tokens, would fill the memory."""
    stored, chains = read_settings(file), [("", 1.0)]  # what a replacement writes, and the growth of a text until then
    for key, value in _nested({key: stored.get(key) for key in _STEPS}):
        if isinstance(value, str | list) and key not in _LONG_STEPS and len(value) > _LONGEST_STEP:
            what = f"{len(value):,} {'characters' if isinstance(value, str) else 'entries'}"
            raise EncoderError(f"{file}: {key} of {what} (at most {_LONGEST_STEP:,})")
        if isinstance(value, dict) and value.get("type") == "Replace":
            pattern = value.get("pattern")
            old = pattern.get("String") if isinstance(pattern, dict) else None
            new = str(value.get("content", ""))
            # A replacement can match what an earlier one wrote if they share a character; a pattern can match anything.
            before = max(growth for text, growth in chains if not (text and isinstance(old, str)) or set(old) & set(text))
            length = len(old) if isinstance(old, str) and old else 1
            chains.append((new, before * max(1.0, len(new) / length)))
    if (growth := max(growth for _, growth in chains)) > _LONGEST_STEP:
        raise EncoderError(f"{file}: its replacements make a text {growth:,.0f} times as long (at most {_LONGEST_STEP:,})")


def check_module(path: Path, trusted: bool) -> None:
    """Raise EncoderError for a module's settings file that sentence-transformers would ignore in part, that decides what
    is read or run, or that states sizes larger than its files of weights."""
    settings = read_json_object(path, EncoderError)
    _check_kernels(path, settings)
    for key in _ARGUMENTS:
        arguments = settings.get(key)
        if isinstance(arguments, dict) and (chosen := sorted(arguments.keys() & _LOADING - _quantisation_keys(arguments))):
            raise EncoderError(f"{path}: {key} sets {chosen[0]}, which is the user's to choose, not a folder's: take it out")
    modes = settings.get("pooling_mode")
    if isinstance(modes, list) and len(modes) > _MOST_MODES:
        raise EncoderError(f"{path}: {len(modes)} values of pooling_mode (at most {_MOST_MODES})")
    if not trusted:
        _check_names(path, settings)
    sizes: list[Any] = [settings.get(key) for key in ("in_features", "out_features")]
    if not all(isinstance(size, int) for size in sizes):
        return
    if sizes[0] * sizes[1] > 4 * sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file()):
        raise EncoderError(f"{path}: {_text(sizes[0])} x {_text(sizes[1])} weights are more than its files hold")


def _quantisation_keys(arguments: dict[str, Any]) -> set[str]:
    """Return {"quantization_config"} where it asks bitsandbytes for weights of 4 bits, which is a part of the model and runs
    no code of the folder; else an empty set."""
    settings = arguments.get("quantization_config")
    stated = [settings.get(key) for key in ("quant_method", "load_in_4bit")] if isinstance(settings, dict) else []
    return {"quantization_config"} if stated == ["bitsandbytes", True] else set()


def _check_names(path: Path, settings: dict[str, Any]) -> None:
    """Raise EncoderError for names by which a folder would decide what sentence-transformers calls or reads."""
    modalities = settings.get("modality_config")
    for called in [*modalities.values()] if isinstance(modalities, dict) else []:
        stated = called if isinstance(called, dict) else {}
        method, outputs = stated.get("method", "forward"), stated.get("method_output_name")
        if not (isinstance(method, str) and _METHODS.fullmatch(method)):
            raise EncoderError(f"{path}: modality_config: {method!r} is no method that gives a model's states: not called")
        for name in outputs if isinstance(outputs, list) else [outputs]:
            if isinstance(name, str) and name.startswith("_"):
                raise EncoderError(f"{path}: modality_config: {name!r} is no output of a model: not read")
    activation = settings.get("activation_function")
    if activation is not None and not (isinstance(activation, str) and activation.startswith("torch.")):
        raise EncoderError(
            f"{path}: the activation_function {activation} is code: sentence-transformers takes Tanh in its place, unless "
            "--trust-remote-code runs it"
        )


def _check_kernels(path: Path, settings: Any) -> None:
    for key, value in _values(settings):
        if key.endswith("_implementation") and isinstance(value, str) and "/" in value:
            raise EncoderError(f"{path}: {key} {value!r} is code from the Hub: not run; take the key out")


def _text(number: int) -> str:
    return f"{number:.10g}" if abs(number) < 10**300 else "beyond 1e300"


def check_pattern(pattern: Any, what: str) -> None:
    """Raise EncoderError for a regular expression that may never end: a repeat of something that itself repeats or
    offers several ways, or many repeats one after the other. Lists are names, not patterns."""
    if not isinstance(pattern, str):
        return
    try:
        from re import _parser as parser  # type: ignore[attr-defined]

        repeats = 0
        stack: list[tuple[Any, bool]] = [(parser.parse(pattern), False)]
        while stack:
            items, repeated = stack.pop()
            for operation, argument in items:
                name = str(operation)
                again = name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and int(argument[1]) > _MOST_REPEATS
                repeats += again
                if repeated and (again or name in ("BRANCH", "GROUPREF")):
                    raise EncoderError(f"{what} {pattern[:60]!r} repeats what itself repeats: such a pattern may never end")
                stack += [(part, repeated or again) for part in _parts(argument)]
    except (re.error, RecursionError, OverflowError) as error:
        raise EncoderError(f"{what} {pattern[:60]!r} is not a regular expression: {error}") from error
    if repeats > _MOST_REPEATS or len(pattern) > _LONGEST_PATTERN:
        raise EncoderError(f"{what} {pattern[:60]!r}: a pattern with so many repeats may never end")


def _parts(argument: Any) -> Iterator[Any]:
    """Yield the parsed patterns inside the argument of an operation."""
    if hasattr(argument, "data"):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _parts(part)


def _nested(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of every value at any depth, dicts and lists before their contents."""
    yield key, settings
    if isinstance(settings, dict):
        for name, value in settings.items():
            yield from _nested(value, str(name))
    elif isinstance(settings, list) and len(settings) <= _LONGEST_STEP:
        for value in settings:
            yield from _nested(value, key)


def _values(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of every value that is not a dict or list, at any depth; items of a list have its key."""
    if isinstance(settings, dict):
        for name, value in settings.items():
            yield from _values(value, str(name))
    elif isinstance(settings, list):
        for value in settings:
            yield from _values(value, key)
    else:
        yield key, settings
