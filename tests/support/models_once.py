"""A tiny model is read once from the same files, and copied from then on, which takes a twentieth of the time."""

import copy
import functools
import hashlib
import io
import json
import pickle
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from stsbench.encoders.forward import checkpoint

LARGEST = 4_000_000  # bytes of a folder: copies of larger models would stay in memory
_PLAIN = {"dtype", "local_files_only", "trust_remote_code", "add_pooling_layer", "attn_implementation", "_from_auto",
          "cache_dir", "revision", "token", "adapter_kwargs", "device_map"}


def patch(patches):
    """From here on `from_pretrained` of transformers' models gives copies of what it has read from the same files."""
    patches.setattr(PreTrainedModel, "from_pretrained", classmethod(_read_once(PreTrainedModel.from_pretrained.__func__)))
    patches.setattr(checkpoint, "_check_size", _sized_once(checkpoint._check_size))


def _sized_once(check):
    """A model that its files can hold is one again: there, too, a model is made, on the device "meta"."""
    known = set()

    def _check_size(kind, config, source, trust):
        if not type(config).__module__.startswith("transformers.models."):
            return check(kind, config, source, trust)
        sizes = [(path.name, path.stat().st_size) for path in checkpoint.weight_files(source)]
        key = kind, type(config), repr(_settings(config)), repr(sizes)
        if key not in known:
            check(kind, config, source, trust)
            known.add(key)

    return _check_size


def _read_once(read):
    known = {}

    @functools.wraps(read)
    def from_pretrained(cls, name, *args, config=None, output_loading_info=False, **how):
        key = None if args else _key(cls, name, config, how)
        if key is None:
            return read(cls, name, *args, config=config, output_loading_info=output_loading_info, **how)
        if key in known:
            model, info = known[key].again()
            model.config.name_or_path = name
            for part in model.modules():
                if isinstance(part, PreTrainedModel):
                    part.name_or_path = str(name)
            if "device_map" not in how:
                _draw_missing(model, info["missing_keys"])
        else:
            model, info = read(cls, name, config=config, output_loading_info=True, **how)
            if _can_be_copied(model, info):
                known[key] = Copied((model, info))
        return (model, info) if output_loading_info else model

    return from_pretrained


class Copied:
    """What `copy.deepcopy` gives, by pickle: in a sixth of the time for a tiny model, most of which is not tensors."""

    def __init__(self, model):
        self.tensors = []
        stream = io.BytesIO()
        _Pickler(stream, self.tensors).dump(model)
        self.rest, self.tensors = stream.getvalue(), copy.deepcopy(self.tensors)

    def again(self):
        """Another one; tensors that were one are one again."""
        return _Unpickler(io.BytesIO(self.rest), copy.deepcopy(self.tensors)).load()


class _Pickler(pickle.Pickler):
    def __init__(self, stream, tensors):
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.tensors = tensors

    def persistent_id(self, value):
        if not isinstance(value, torch.Tensor):
            return None
        self.tensors.append(value)
        return len(self.tensors) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream, tensors):
        super().__init__(stream)
        self.tensors = tensors

    def persistent_load(self, number):
        return self.tensors[number]


def _key(cls, name, config, how):
    """By what a model is the same again: class, settings and the bytes that are read. None where it is to be read anew.
    On the device "meta" names, types and shapes are read of safetensors, and no numbers."""
    folder, device = Path(str(name)), how.get("device_map")
    if device not in (None, "meta"):
        return None
    if not cls.__module__.startswith("transformers.models.") or not how.keys() <= _PLAIN or not folder.is_dir():
        return None
    if (folder / "adapter_config.json").exists() or "_adapter_model_path" in (how.get("adapter_kwargs") or {}):
        return None
    if not isinstance(config, PreTrainedConfig | None):
        return None
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if sum(path.stat().st_size for path in paths) > LARGEST:
        return None
    digest = hashlib.blake2b()
    for path in paths:
        content = _header(path) if device and path.suffix == ".safetensors" else path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(content)} ".encode() + content)
    settings = _settings(config) if config is not None else None
    defaults = (torch.get_default_dtype(), str(torch.get_default_device()))
    return cls, repr(settings), repr(sorted(how.items())), *defaults, digest.digest()


def _settings(config):
    """Without the folder, which is set in each copy."""
    return {key: value for key, value in vars(config).items() if key != "_name_or_path"}


def _header(path):
    """The header of a safetensors file, in one order, and the file's size; all of another file by that name."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            stored = sorted(json.loads(stream.read(min(length, LARGEST))).items())
        except (ValueError, AttributeError, RecursionError):
            return path.read_bytes()
    return f"{path.stat().st_size} {stored}".encode()


def _can_be_copied(model, info):
    """Whole, or without weights of modules that `_draw_missing` draws as transformers does."""
    if getattr(model, "generation_config", None) is not None or info["mismatched_keys"] or info["error_msgs"]:
        return False
    missing = info["missing_keys"]
    parts = any(isinstance(part, PreTrainedModel) for part in [*model.modules()][1:])  # each draws its own
    owners = {key.rpartition(".")[0] for key in missing}
    drawn = {f"{name}.{key}" for name in owners for key, _ in model.get_submodule(name).named_parameters()}
    return not missing or (not parts and missing == drawn)


def _draw_missing(model, missing):
    owners = {key.rpartition(".")[0] for key in missing}
    with torch.no_grad():
        for name, module in model.named_modules():  # leaves, of which the order of siblings is that of initialisation
            if name in owners:
                model._init_weights(module)
