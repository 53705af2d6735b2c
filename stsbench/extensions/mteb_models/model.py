"""`mteb:NAME`: an encoder of mteb's registry, loaded and called by mteb's own code."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.data.fetch.mteb import undisturbed
from stsbench.encoders.base import Counts, Encoded, Encoder, EncoderOptions, EncoderSpec, Progress, Traits, count_parameters
from stsbench.encoders.forward import batching
from stsbench.encoders.forward.batching import NO_LIMIT, restore, sharing_limit
from stsbench.encoders.forward.checkpoint import first_line, quiet
from stsbench.encoders.forward.identity import BLIND, Opened
from stsbench.encoders.light.callable import as_matrix
from stsbench.encoders.traits import TextTask
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.mteb_models.load import (
    Call,
    as_batches,
    decides_by_prompt,
    find_call,
    guarded,
    library_model,
    load_registered,
    tells_roles_apart,
    weight_dtype,
)
from stsbench.extensions.mteb_models.registered import Registered, find_registered
from stsbench.metrics.similarity import SIMILARITIES

if TYPE_CHECKING:
    import torch

_LIBRARIES = ("mteb", "sentence-transformers", "transformers", "torch")
_CHUNK, _BATCH = 1024, 32  # texts between two reports of progress; texts per batch, mteb's default
_PLAIN = "STS", "", None


def task_metadata(kind: str, name: str) -> Any:
    """Return mteb's TaskMetadata of the task `name`, where it is of the type `kind` ("STS", "Classification",
    "Retrieval", ...); else that of a task of ours, by which a model takes what it has for the type. Imports mteb."""
    from mteb.get_tasks import TASK_LIST

    registered = (task.metadata for task in TASK_LIST if task.metadata.name == name and task.metadata.type == kind)
    return next(registered, None) or _generic(kind).metadata


@cache
def _generic(kind: str) -> Any:
    """Return a task of a type and of no further name or prompt. It is a class, and kept: mteb looks up the instruction
    for a type among the classes of tasks that are there."""
    from mteb.get_tasks import TASK_LIST

    kin = [task for task in TASK_LIST if task.metadata.type == kind]
    with_text = [task for task in kin if getattr(task, "abstask_prompt", "")] or kin
    closest = next((task for task in with_text if task.metadata.eval_langs == ["eng-Latn"]), with_text[0])
    base = next(parent for parent in closest.__mro__ if parent.__name__.startswith("AbsTask"))
    metadata = closest.metadata.model_copy(update={"name": f"stsbench {kind}", "prompt": None})
    return type(f"Stsbench{kind}", (base,), {"metadata": metadata, "__module__": __name__})


class MtebModel(Encoder):
    """An encoder of mteb's registry. It gets each text with a task of mteb, by which it chooses prompts, instructions and
    adapters: by default an STS task, for queries and documents a Retrieval task."""

    usage = "mteb:NAME: a model that mteb registers, by mteb's own code"

    def __init__(self, registered: Registered, options: EncoderOptions) -> None:
        """Load the model. Raises EncoderError, one line, if it cannot be loaded, or does not honour an option."""
        self.registered, self.options, self.notes = registered, options, registered.notes
        self._opened = Opened(registered.sources, native=True) if registered.sources else None
        with self._opened or nullcontext():
            self.model, code = load_registered(registered, options)
        self.library, self.by_prompt = library_model(self.model), decides_by_prompt(self.model)
        self.engine = "" if self.library is None else f"mteb's {type(self.model).__name__}"
        self.traits = Traits(libraries=("stsbench", *_LIBRARIES, "tokenizers"), asks_task=True)
        self._code, self._dtype = sorted(code), weight_dtype(self.model) or EncoderOptions.dtype
        self._parts = [] if self.library is None else list(self.library.modules())
        self._read(_PLAIN)
        self._plain = self.spec
        self._probe()
        if self._opened is not None:
            weights = self._opened.digest(registered.name, registered.weights)
            self.registered = replace(registered, weights=weights)
            self.spec = self._plain = replace(self.spec, weights=weights)
            if self._opened.blind:
                self.cacheable, self.notes = False, (*self.notes, f"{registered.name}: {BLIND}")

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder `mteb:NAME`, NAME as in mteb's registry."""
        with undisturbed() as mteb, quiet():
            return cls(find_registered(argument, options, mteb), options)

    @property
    def device(self) -> torch.device:
        """Return the device of mteb's model."""
        import torch

        device = getattr(getattr(self.model, "model", None), "device", None)
        return device if isinstance(device, torch.device) else torch.device("cpu")

    @property
    def identity(self) -> EncoderSpec:
        """Return the spec without a task, the same for all tasks: a task's prompt follows from mteb's loader, which it
        holds."""
        return replace(self._plain)

    def for_task(self, task: TextTask) -> Encoder:
        """Return the same model for texts of a task; for a task of an unknown type, as for any text."""
        return self._copy((task.type or _PLAIN[0], task.name, None), task.metadata)

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return the same model for queries or documents of its task; mteb's model chooses the prompt itself."""
        if prompt is not None or role == self._task[2]:
            return self
        if self._task == _PLAIN:
            return self._copy(("Retrieval", "", role))
        return self._copy((*self._task[:2], role), self.metadata)

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the parameters of what mteb loaded."""
        loaded = self.library if self.library is not None else getattr(self.model, "model", None)
        return Counts(count_parameters(loaded) if hasattr(loaded, "parameters") else None)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d) vectors. Raises EncoderError for any error of the model's code, or other than n vectors."""
        vectors: Any = None
        for rows in self._batches(texts):
            part = self._encode([texts[row] for row in rows], _BATCH)
            if vectors is None:
                vectors = np.zeros((len(texts), part.shape[1]), dtype=np.float32)
            vectors[rows] = part
            if progress is not None:
                progress(len(rows))
        if self._opened is not None:
            self._opened.check(self.registered.name)
        if vectors is None:
            vectors = np.zeros((0, self.dimension or 0), dtype=np.float32)
        return Encoded(vectors, np.array([self._cut(text) for text in texts], dtype=np.bool_))

    def encode_batches(self, inputs: Any, **task: Any) -> Any:
        """Return float32 (n, d) vectors of mteb's batches, passed on with all of their columns."""
        with self._calling(), self._opened or nullcontext():
            returned = self.model.encode(inputs, **task)
        return as_matrix(returned, len(inputs.dataset), self.spec.name)

    def _encode(self, texts: list[str], batch: int) -> Any:
        """Return float32 (n, d)."""
        for part in self._parts:
            restore(part)
        return self.encode_batches(
            as_batches(texts, batch), task_metadata=self.metadata, hf_split="test", hf_subset="default",
            prompt_type=self._prompt_type, batch_size=batch, show_progress_bar=False,
        )

    def _batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Yield positions of texts that are encoded by one call: any, unless longer ones beside them would move their
        vectors."""
        limit = 0 if self.equal_lengths else min(map(sharing_limit, self._parts[:1]), default=NO_LIMIT)
        sizes = [len((self._prompt + text).encode("utf-8", "replace")) for text in texts]  # tokens hold a byte or more
        short = [row for row, size in enumerate(sizes) if size + 2 <= limit]
        for start in range(0, len(short), _CHUNK):
            yield short[start:start + _CHUNK]
        yield from ([row] for row, size in enumerate(sizes) if size + 2 > limit)

    def _cut(self, text: str) -> bool:
        limit, text = self.spec.max_length, self._prompt + text
        if limit is None or len(text.encode("utf-8", "replace")) + 2 <= limit:
            return False
        return len(self.library.tokenizer(text, verbose=False)["input_ids"]) > limit

    @property
    def _prompt(self) -> str:
        return self.spec.prefix or ""

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Run the model's own code in the block. Raises EncoderError, one line, for any error of it."""
        name = self.registered.name
        try:
            with (undisturbed(), guarded(name, self.options.trust_remote_code, self.options.offline),
                  redirect_stderr(io.StringIO())):  # bars of its own
                yield
        except StsbenchError:
            raise
        except Exception as error:  # several hundred models raise errors of any kind
            raise EncoderError(f"{name} cannot encode: {type(error).__name__}: {first_line(error)}") from error

    def _copy(self, task: tuple[str, str, str | None], metadata: Any = None) -> Encoder:
        other = copy.copy(self)
        other._read(task, metadata)
        return self if other.spec == self.spec else other

    def _read(self, task: tuple[str, str, str | None], metadata: Any = None) -> None:
        """Set the task of the texts from now on: (type, name, role)."""
        with self._calling():
            from mteb.types import PromptType

            self._task, self.metadata = task, metadata or task_metadata(*task[:2])
            self._prompt_type = None if task[2] is None else PromptType(task[2])
            self.spec = self._spec(find_call(self.model, self.metadata, self._prompt_type))

    def _spec(self, call: Call | None) -> EncoderSpec:
        role = self._task[2]
        asked: dict[str, Any] = {"truncate_dim": self.options.truncate_dim, "code": self._code, "commits": self._commits()}
        if self.by_prompt and call is not None:
            asked["role"] = call.role if tells_roles_apart(self.library) else None
        else:  # what its class makes of a task nobody can see
            asked |= {"task": self.metadata.name, "task_type": self.metadata.type, "role": role}
        versions = {name: version(name).partition("+")[0] for name in _LIBRARIES}
        modules = [] if self.library is None else [type(module).__name__ for module in self.library]
        return EncoderSpec(
            name=self.registered.name, kind="mteb", weights=self.registered.weights, prefix=(call and call.prompt) or None,
            max_length=self._limit(), dtype=self._dtype, normalize=modules[-1:] == ["Normalize"],
            options={**self.registered.identity, "versions": versions}
            | {name: value for name, value in asked.items() if value},
        )

    def _commits(self) -> list[str]:
        """Return the Hub's commits of what else was loaded, such as an adapter's base: mteb pins that of the model alone."""
        configs = (vars(part).get("config") for part in self._parts)
        commits = {str(commit) for config in configs if (commit := getattr(config, "_commit_hash", None))}
        return sorted(commits - {self.registered.meta.revision})

    def _limit(self) -> int | None:
        """Return the limit of tokens, where sentence-transformers truncates texts; else None."""
        if self.library is None or not getattr(self.library.tokenizer, "is_fast", False):
            return None
        length = self.library.max_seq_length
        return length if isinstance(length, int) and length < 1_000_000 else None

    def _probe(self) -> None:
        """Find out the dimension, and whether texts may share a batch. Raises EncoderError for an option without effect."""
        short = self._encode([batching.SHORT], 1)
        width, asked = short.shape[1], self.options.truncate_dim
        if asked is not None and width != asked:
            raise EncoderError(f"--truncate-dim {asked}: mteb's loader of {self.spec.name} gives vectors of {width} numbers")
        self.dimension = width
        exact = self._dtype if self._dtype in ("float32", "float64") else "bfloat16"
        if batching.depends_on_batch(lambda texts: self._encode(texts, len(texts)), exact):
            self.keep_lengths_apart()
        declared = getattr(self.registered.meta.similarity_fn_name, "value", None)
        stated = getattr(self.library, "similarity_fn_name", None) if self.by_prompt else declared
        self.traits = replace(self.traits, similarity=stated if stated in SIMILARITIES else "cosine")
