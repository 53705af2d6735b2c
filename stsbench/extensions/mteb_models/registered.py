"""Find a model in mteb's registry, check that it gives one vector per text, and identify it."""

from __future__ import annotations

import enum
import hashlib
import inspect
import json
import re
import warnings
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from stsbench.encoders.forward.identity import folder_digest, walk
from stsbench.encoders.options import CHANGING, EncoderOptions, spelled
from stsbench.encoders.transformer.find import resolve_base
from stsbench.errors import EncoderError, NotOnThisMachineError
from stsbench.hub import hub_errors
from stsbench.registry import did_you_mean

# mteb's model types -> why such a model is no encoder here; "dense" and "router" (an encoder for each side) are.
_OTHERS = {
    "late-interaction": "gives a vector for each token (multi-vector), not one for a text",
    "cross-encoder": "is a cross-encoder: it reads two texts at once, and gives no vectors",
    "sparse": "is a sparse or lexical search model, not one of dense vectors",
    "hybrid": "searches a corpus, and gives no vectors",
}
_HONOURED = ("max_length", "dtype", "truncate_dim", "revision", "trust_remote_code")  # options that change a vector
_COMMIT = re.compile(r"[0-9a-f]{40}")


def refusal(meta: Any) -> str | None:
    """Return why a registered model is not a text encoder, as the end of a sentence; None if it is one."""
    if meta.loader is None:
        return "is registered by mteb for its results alone: mteb has nothing that runs it"
    if "dense" not in meta.model_type and (others := [_OTHERS[kind] for kind in meta.model_type if kind in _OTHERS]):
        return others[0]
    if "text" not in meta.modalities:
        return f"reads no text, only {' and '.join(meta.modalities)}"
    return None


def needs_code(meta: Any) -> bool:
    """Return whether mteb's loader runs code of a model's repository, by its arguments, its defaults or its source."""
    loader = getattr(meta.loader, "func", meta.loader)
    if loader is None:
        return False
    asked = [meta.loader_kwargs, getattr(meta.loader, "keywords", {})]
    stated = {name for arguments in asked for name in _names(arguments)}
    if "trust_remote_code" in stated:
        return any(_asks(arguments) for arguments in asked)
    return _written_with_code(loader)


@cache
def _written_with_code(loader: Any) -> bool:
    """Return whether a loader's defaults or its source ask for a repository's code."""
    default = inspect.signature(loader).parameters.get("trust_remote_code")
    if default is not None and default.default is True:
        return True
    try:
        return bool(re.search(r"trust_remote_code\s*=\s*True", inspect.getsource(loader)))
    except (OSError, TypeError):  # written at a prompt
        return False


def _names(value: Any) -> Set[str]:
    if not isinstance(value, Mapping):
        return set()
    return set(value) | {name for part in value.values() for name in _names(part)}


def _asks(value: Any) -> bool:
    return isinstance(value, Mapping) and (
        value.get("trust_remote_code") is True or any(_asks(part) for part in value.values()))


@dataclass(frozen=True)
class Registered:
    """A model to be loaded by mteb. meta: mteb's ModelMeta, with the requested revision."""

    meta: Any
    name: str  # as the user wrote it
    weights: str  # sha256 over its name and revision; of a local folder over its files
    notes: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()  # a local folder, and those that it builds on

    @property
    def identity(self) -> dict[str, Any]:
        """Return the model's name, revision and loader, and a digest of the loader's arguments."""
        meta, loader = self.meta, self.meta.loader
        arguments = {**getattr(loader, "keywords", {}), **meta.loader_kwargs}
        text = json.dumps(plain(arguments), sort_keys=True)
        return {
            "model": meta.name, "revision": meta.revision, "loader": _qualified(loader),
            "arguments": hashlib.sha256(text.encode()).hexdigest(),
        }


def find_registered(argument: str, options: EncoderOptions, mteb: Any) -> Registered:
    """Return the registered model named `argument`. Raises EncoderError, one line, if it is unknown, is not a text encoder,
    needs code that is not allowed, or an option does not apply."""
    meta = _meta(argument, mteb)
    for name in CHANGING:
        if name not in _HONOURED and getattr(options, name) != getattr(EncoderOptions, name):
            raise EncoderError(f"{spelled(name)} does not apply to mteb:{argument}: mteb's loader decides it")
    if options.attention != "auto":
        raise EncoderError(f"--attention is for our own forward pass, and mteb's loader runs {argument}: leave it out")
    if (why := refusal(meta)) is not None:
        raise EncoderError(f"mteb:{argument} {why}")
    if needs_code(meta) and not options.trust_remote_code:
        raise EncoderError(f"mteb loads {argument} with code from its repository: read it, then give --trust-remote-code")
    folder = Path(meta.name)
    service = "API" in meta.framework
    if service and options.offline:
        raise EncoderError(f"mteb:{argument} is computed by a service on the network: leave --offline out")
    if folder.is_dir():  # what the libraries read in place of a repository of that name
        if options.revision is not None:
            raise EncoderError(f"--revision {options.revision}: {argument} is a folder here, which has no revisions")
        note = f"{options.model}: the folder {meta.name} on this machine is read, as the libraries do, not the Hub's model"
        notes = () if folder.is_absolute() else (note,)
        sources = _sources(folder, options.offline)
        return Registered(meta, options.model, folder_digest(sources[0], sources[1:]), notes, sources)
    if options.revision is not None and options.revision != meta.revision:
        if service:
            raise EncoderError(f"--revision {options.revision}: {argument} is a service, which has no revisions")
        meta = meta.model_copy(update={"revision": _commit(meta.name, options.revision, options.offline)})
    weights = hashlib.sha256(f"mteb {meta.name}@{meta.revision}".encode()).hexdigest()
    note = f"{options.model} is computed by a service, which may change it under the same name and fingerprint"
    return Registered(meta, options.model, weights, (note,) if service else ())


def _meta(name: str, mteb: Any) -> Any:
    """Return mteb's ModelMeta. Raises EncoderError, with the closest names, for an unknown model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model that was renamed
        try:
            return mteb.get_model_meta(name)
        except KeyError:
            pass
    known = [meta.name for meta in mteb.get_model_metas()]
    last = [full for full in known if full.partition("/")[2].lower() == name.lower()]
    hint = f"; did you mean {' or '.join(last[:2])}?" if last else did_you_mean(name, known)
    if hint.startswith("; known"):
        hint = "; mteb.get_model_metas() lists them, and a Hub id that it does not know goes without mteb:"
    raise EncoderError(f"mteb registers no model {name}{hint}")


def _sources(folder: Path, offline: bool) -> tuple[Path, ...]:
    adapters = [path.parent for path in sorted(walk(folder)) if path.name == "adapter_config.json"]
    bases = (resolve_base(adapter, offline) for adapter in adapters)
    return (folder, *dict.fromkeys(base for base in bases if base))


def _commit(name: str, revision: str, offline: bool) -> str:
    """Return the present commit of a branch, tag or commit. Raises EncoderError if it does not exist, or the Hub is
    unreachable."""
    if _COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import snapshot_download

    with hub_errors(name, error_class=EncoderError, **hub_messages(name, revision, offline)):
        return Path(snapshot_download(name, revision=revision, allow_patterns=["*.json"], local_files_only=offline)).name


def hub_messages(name: str, revision: str | None, offline: bool) -> dict[str, Any]:
    """Return what `hub_errors` says of a model of mteb."""
    why = "and --offline forbids fetching it" if offline else "and the Hub cannot be reached"
    return {
        "absent": f"mteb:{name}: there is no such model on the Hub any more",
        "no_revision": f"mteb:{name} has no revision {revision} on the Hub: --revision names another",
        "unreachable": NotOnThisMachineError(f"mteb:{name} is not in the Hub cache, {why}"),
    }


def plain(value: Any) -> Any:
    """Return a loader's argument as JSON data: a function as its name and a digest of its source."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Set):
        return sorted(str(plain(part)) for part in value)
    if value is None or isinstance(value, str | int | float):
        return value
    return _qualified(value, lines=True) if callable(value) else str(value)


def _qualified(value: Callable[..., Any], lines: bool = False) -> str:
    if isinstance(value, partial):
        return f"{_qualified(value.func, lines)} {json.dumps(plain(value.keywords), sort_keys=True)}"
    named = value if hasattr(value, "__qualname__") else type(value)
    name = f"{named.__module__}.{named.__qualname__}"
    if not lines:
        return name
    try:
        return f"{name} {hashlib.sha256(inspect.getsource(named).encode()).hexdigest()}"
    except (OSError, TypeError):
        return name
