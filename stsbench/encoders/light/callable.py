"""`python:package.module:callable`: any Python callable that turns a list of n texts into n vectors.

SentenceTransformers and mteb's encoders are wrapped as such functions.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from stsbench.encoders.base import Counts, Encoded, Encoder, EncoderOptions, EncoderSpec, Progress, Traits, count_parameters
from stsbench.encoders.probe import Probe, probed
from stsbench.encoders.traits import ROLES
from stsbench.errors import EncoderError
from stsbench.metrics.similarity import SIMILARITIES

if TYPE_CHECKING:
    import torch

Function = Callable[..., Any]  # takes a list of n texts
# Takes a role (query, document or None) and a prompt, returns the function for such texts; None: the one for any text.
Roles = Callable[[str | None, str | None], Function | None]


def library_roles(model: Any) -> Roles | None:
    """Return the Roles of a SentenceTransformer; None for an object without encode_query and encode_document."""
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
    """Return the prompts of a SentenceTransformer by name; {} where all of them are empty."""
    prompts = getattr(model, "prompts", None)
    if not isinstance(prompts, Mapping) or not any(prompts.values()):
        return {}
    return {name: text for name, text in prompts.items() if text or (text == "" and name not in ROLES)}


def _routes(model: Any) -> bool:
    modules = getattr(model, "modules", None)
    return callable(modules) and any(type(module).__name__ in ("Router", "Asym") for module in modules())


class MtebTexts:
    """An encoder of mteb as a function of texts in a role, query, document or None.

    mteb's encoders choose a prompt by task, too: they get the texts as those of STSBenchmark.
    """

    def __init__(self, model: Any, role: str | None = None) -> None:
        self.model, self.role = model, role
        self.fingerprint = getattr(model, "fingerprint", None)
        self.__module__, self.__qualname__ = type(model).__module__, type(model).__qualname__

    @property
    def name(self) -> str:
        """Return python:MODULE:CLASS, and mteb's name of the model."""
        known = getattr(self.model.mteb_model_meta, "name", None)
        return f"python:{self.__module__}:{self.__qualname__}{f' of {known}' if known else ''}"

    def __call__(self, texts: list[str]) -> Any:
        """Return the vectors of n texts."""
        from datasets import Dataset
        from mteb.tasks import STSBenchmarkSTS
        from mteb.types import PromptType
        from torch.utils.data import DataLoader

        return self.model.encode(
            DataLoader(Dataset.from_dict({"text": texts}), batch_size=32), task_metadata=STSBenchmarkSTS.metadata,
            hf_split="test", hf_subset="default", prompt_type=None if self.role is None else PromptType(self.role),
        )

    def reads(self, role: str | None, prompt: str | None) -> Function | None:
        """Return the function for a role, as `Roles`; None with a prompt, which the model itself chooses."""
        return None if role is None or prompt is not None else MtebTexts(self.model, role)


class CallableEncoder(Encoder):
    """A callable as an encoder: `fn(list of n str)` -> (n, d) array, nested list, torch tensor or scipy sparse matrix.

    The weights behind a callable cannot be read. It is identified by its user's `fingerprint`, to be changed whenever its
    vectors change, or else by a probe (stsbench/encoders/probe.py). Vectors are cached under a user's fingerprint only.
    """

    usage = "python:module:callable"

    def __init__(
        self, fn: Function, name: str | None = None, fingerprint: str | None = None, roles: Roles | None = None
    ) -> None:
        """fingerprint: by default the attribute of that name of `fn`, or of the object whose method it is. roles: functions
        for queries, documents and texts with a prompt, where these are not `fn`."""
        if not callable(fn):
            one = "one at a time, as " if isinstance(fn, list | tuple) else ""
            hint = f"give {one}a model's name, an encoder, or a function from texts to vectors"
            raise EncoderError(f"{name or fn!r} is not callable: its type is {type(fn).__name__}; {hint}")
        owner = getattr(fn, "__self__", None)
        stated = (fingerprint, getattr(fn, "fingerprint", None), getattr(owner, "fingerprint", None))
        self._fn, self._name = fn, name or f"python:{_qualified(fn)}{_of_model(owner)}"
        self._stated = next((candidate for candidate in stated if isinstance(candidate, str) and candidate), None)
        self.cacheable = self._stated is not None
        self._roles = roles
        self._role: str | None = None
        self._prompt: str | None = None
        self._device = getattr(owner if owner is not None else fn, "device", None)

    @classmethod
    def wrap(cls, model: Any, fingerprint: str | None = None) -> CallableEncoder:
        """Return the encoder of a function or an object's `encode`, which is used for torch modules: they take tensors."""
        encode = getattr(model, "encode", None)
        if hasattr(model, "mteb_model_meta") and callable(encode):  # one of mteb's encoders
            texts = MtebTexts(model)
            return cls(texts, texts.name, fingerprint, texts.reads)
        if not callable(encode) and hasattr(model, "forward") and hasattr(model, "save_pretrained"):
            raise EncoderError(f"a {type(model).__name__} reads tokens: give the pair (model, tokenizer), and a pooler")
        if not callable(encode) or (callable(model) and not hasattr(model, "forward")):
            return cls(model, fingerprint=fingerprint)
        encoder = cls(encode, fingerprint=fingerprint, roles=library_roles(model))
        if encoder._roles is not None:  # a SentenceTransformer
            prompts, stated = stored_prompts(model), getattr(model, "similarity_fn_name", None)
            encoder.traits = Traits(
                similarity=stated if stated in SIMILARITIES else "cosine", prompts=prompts,
                default_prompt=prompts.get(getattr(model, "default_prompt_name", None) or ""),
            )
        return encoder

    @cached_property
    def probe(self) -> Probe | None:
        """Return the identity by probe texts; None where the user has given a fingerprint."""
        if self._stated is not None:
            return None
        return probed(lambda texts: self.run(texts).vectors, self._name, _qualified(self._fn))

    @cached_property
    def spec(self) -> EncoderSpec:  # type: ignore[override]
        """Return the spec. It is first read before anything is scored: the callable is probed then."""
        role = {} if self._role is None else {"role": self._role}
        spec = EncoderSpec(name=self._name, kind="callable", weights="", prefix=self._prompt or None, options=role)
        if self.probe is None:
            return replace(spec, weights=_source_digest(self._fn), options={**role, "fingerprint": self._stated})
        self.notes = (*self.notes, self.probe.note)
        return self.probe.stamp(spec)

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> CallableEncoder:
        """Return the encoder of `python:package.module:callable`; dots after the second colon are allowed."""
        options.refuse_changes()
        return cls(_imported(argument, options.model), options.model)

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return a SentenceTransformer or encoder of mteb for texts of a role, or with `prompt`; a function as it is."""
        fn = None if self._roles is None else self._roles(role, prompt)
        if fn is None:
            return self
        other = CallableEncoder(fn, self._name, self._stated)
        other._role, other._prompt, other._device, other._roles = role, prompt, self._device, self._roles
        other.traits = self.traits
        return other

    @property
    def device(self) -> torch.device:
        """Return the device of the object whose method is called; the CPU where it has none."""
        import torch

        return self._device if isinstance(self._device, torch.device) else torch.device("cpu")

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the parameters of the module whose method is called, where it is one."""
        owner = getattr(self._fn, "__self__", self._fn)
        return Counts(count_parameters(owner) if callable(getattr(owner, "parameters", None)) else None)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d), dense or CSR. Raises EncoderError when the callable fails or returns anything else."""
        try:
            returned = self._fn(list(texts))
        except EncoderError:
            raise
        except Exception as error:  # whatever the user's code raises; the cause stays for --debug
            raise EncoderError(f"{self._name} raised {type(error).__name__}: {error}") from error
        vectors = as_matrix(returned, len(texts), self._name)
        if progress is not None:
            progress(len(texts))
        return Encoded(vectors, np.zeros(len(texts), dtype=bool))


def _imported(argument: str, name: str) -> Callable[[list[str]], Any]:
    """Return the callable `package.module:callable`. EncoderError, which calls it `name`: it cannot be imported."""
    module_name, _, attribute = argument.partition(":")
    if not module_name or not attribute:
        raise EncoderError(f"{name}: expected python:package.module:callable")
    if "" not in sys.path:
        sys.path.append("")  # last, so that a stray tokenize.py in the working folder shadows nothing installed
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module may fail with anything at all while it is imported
        raise EncoderError(f"{name}: cannot import {module_name}: {type(error).__name__}: {error}") from error
    try:
        fn: Callable[[list[str]], Any] = operator.attrgetter(attribute)(module)
    except AttributeError as error:
        where = getattr(module, "__file__", None) or module_name
        raise EncoderError(f"{name}: {where} has no '{attribute}'") from error
    return fn


def as_matrix(returned: Any, n: int, name: str) -> Any:
    """Return `returned` as float32 (n, d), CSR if it is sparse; EncoderError says what it is and what it should be."""
    kind = type(returned).__name__
    torch = sys.modules.get("torch")  # a tensor can only come from a torch that is loaded already
    if torch is not None and isinstance(returned, torch.Tensor):
        returned = returned.detach().cpu()
        # numpy has no bfloat16, and half precision must not decide the shape of an error message
        returned = (returned.float() if returned.is_floating_point() else returned).numpy()
    if issparse(returned):
        array: Any = csr_matrix(returned)
    else:
        try:
            array = np.asarray(returned)
        except (ValueError, TypeError) as error:  # mostly rows of different length
            raise EncoderError(f"{name} returned {kind} that is not an array ({error})") from error
    if array.dtype.kind not in "fiub" or array.ndim != 2 or array.shape[0] != n or array.shape[1] == 0:
        got = f"{kind} of {array.dtype} with shape {array.shape}"
        raise EncoderError(f"{name} returned {got}; expected numbers of shape ({n}, d) for {n} texts")
    with np.errstate(over="ignore"):  # infinities are for the caller to find, with the text they belong to
        return array.astype(np.float32) if issparse(array) else np.ascontiguousarray(array, dtype=np.float32)


def _qualified(fn: Any) -> str:
    """Return module:qualified name of a function, or of the class of an object that can be called."""
    while isinstance(fn, partial):
        fn = fn.func
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{named.__module__}:{named.__qualname__}"


def _of_model(owner: Any) -> str:
    """Return " of NAME" where the model whose method is called knows what it was loaded from, to distinguish two models of
    one class. Of a path only the last part is returned: records name no folders of this machine."""
    attributes = ("name_or_path", "model_card_data.model_id", "config._name_or_path", "model_card_data.base_model")
    parts = [owner, *([owner[0], getattr(owner[0], "auto_model", None)] if hasattr(owner, "_modules") and
                      hasattr(owner, "__getitem__") and len(owner) else [])]
    for part in parts:
        for attribute in attributes:
            try:
                value = operator.attrgetter(attribute)(part)
            except Exception:  # an attribute of a user's object may raise anything
                continue
            if isinstance(value, str) and value:
                path = Path(value)
                return f" of {path.name if path.is_absolute() or value.startswith(('.', '~')) else value}"
    return ""


def _source_digest(fn: Any) -> str:
    """Return sha256 over the qualified name and the file the callable is written in, where there is one."""
    named = inspect.unwrap(fn) if hasattr(fn, "__qualname__") else type(fn)
    try:
        source = Path(inspect.getsourcefile(named) or "").read_bytes()
    except (OSError, TypeError):  # built in, or defined in an interactive session
        source = b""
    return hashlib.sha256(_qualified(fn).encode() + b"\0" + source).hexdigest()
