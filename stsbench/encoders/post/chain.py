"""Chains of post-processings: parsed from --post, fitted step by step, written to files and read from them.

A fitted chain on disk is post.json (what it is) and post.safetensors (what fitting found).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stsbench.config import parse_yaml
from stsbench.encoders.base import Encoder
from stsbench.encoders.post.affine import Affine, moments
from stsbench.encoders.post.base import FromWeights, Post, Vectors, VectorSource
from stsbench.errors import EncoderError, StsbenchError
from stsbench.parsing import read_json
from stsbench.registry import check_written, names, resolve

GROUP = "stsbench.post"
_OUTSIDE = r"(?![^\[]*\])"  # not inside brackets: a setting may be a list
SETTINGS, TENSORS = "post.json", "post.safetensors"
TYPE = "stsbench.encoders.post.module.PostProcessing"  # the module of sentence-transformers that reads them, in modules.json


def post_names() -> list[str]:
    """Return the names of all post-processings, sorted, as --post takes them."""
    return names(GROUP)


def load_post(name: str) -> type[Post]:
    """Return the class registered as `name`. StsbenchError, one line, with a suggestion: there is none, or it cannot be
    used."""
    kind = resolve(GROUP, name)
    if not (isinstance(kind, type) and issubclass(kind, Post)):
        raise StsbenchError(f"entry point {name}: {kind!r} is not a class derived from stsbench.encoders.post.base.Post")
    check_written(kind)
    return kind


def card(name: str) -> str:
    """Return the description of a post-processing: the text beside its module, else its class's docstring."""
    kind = load_post(name)
    path = card_path(Path(inspect.getfile(kind)), name)
    return path.read_text("utf-8").rstrip() if path else inspect.getdoc(kind) or ""


def card_path(module: Path, name: str) -> Path | None:
    """Return the text beside the module of the post-processing `name`, all_but_the_top.md or card.md; None without one."""
    texts = (module.with_name(text) for text in (f"{name.replace('-', '_')}.md", "card.md"))
    return next((path for path in texts if path.is_file()), None)


class Chain:
    """One post-processing or several, applied from left to right."""

    def __init__(self, steps: Sequence[Post]) -> None:
        """Raise StsbenchError where a step that is made from the model's weights does not come first."""
        self.steps = tuple(steps)
        if late := [step.name for step in self.steps[1:] if isinstance(step, FromWeights)]:
            raise StsbenchError(f"--post {self.names}: {late[0]} is made for the model's own vectors: it must come first")

    @classmethod
    def parse(cls, text: str) -> Chain:
        """Return the chain `standardise+whitening:dimensions=256,divisor=n`. StsbenchError, one line, with a suggestion."""
        steps = []
        for part in re.split(rf"\+{_OUTSIDE}", text):
            name, colon, settings = part.strip().partition(":")
            if not name or (colon and not settings.strip()):
                raise StsbenchError(f"--post {text}: write NAME, NAME:SETTING=VALUE,... or several of them joined by +")
            words = re.split(rf",{_OUTSIDE}", settings) if settings else []
            pairs = [_setting(word.strip(), text) for word in words]
            if len(dict(pairs)) < len(pairs):
                raise StsbenchError(f"--post {text}: a setting of {name} is given twice")
            steps.append(load_post(name)(dict(pairs)))
        return cls(steps)

    def spelled(self) -> str:
        """Return every step with all its settings, such that `parse` gives the chain back."""
        return "+".join(_spelled(step) for step in self.steps)

    @property
    def names(self) -> str:
        """Return the names of the steps alone."""
        return "+".join(step.name for step in self.steps)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes of all fitted steps, a line each."""
        return tuple(line for step in self.steps for line in step.notes)

    def unfitted(self) -> Chain:
        """Return an unfitted chain with the same settings."""
        return Chain([step.unfitted() for step in self.steps])

    @property
    def needs_texts(self) -> bool:
        """Return whether a step is fitted on the vectors of texts; else the model's weights determine all of them."""
        return any(not isinstance(step, FromWeights) for step in self.steps)

    @property
    def table(self) -> str:
        """Return NAME@DIGEST of the model's table that the first step was made from."""
        first = self.steps[0]
        assert isinstance(first, FromWeights) and first.made_of is not None
        return first.made_of

    def with_token_weights(self, encoder: Encoder) -> Self:
        """Return this chain with the steps that the weights of `encoder` determine, made once.

        StsbenchError, one line: the encoder has no such weights, or they are of another width than its vectors.
        """
        for step in self.steps:
            if isinstance(step, FromWeights) and step.made_of is None:
                table = encoder.token_table(step.options.table)
                width = table.values.shape[1]
                if encoder.dimension not in (None, width):
                    raise StsbenchError(f"{step.name}: {table.name} of {encoder.spec.name} has width {width}, and its "
                                        f"vectors have {encoder.dimension} numbers")
                step.fit_table(table)
                step.made_of = f"{table.name}@{table.digest()}"
        return self

    def fit(self, source: VectorSource) -> Self:
        """Return this chain, fitted: each step on what the steps before it make of `source`.

        Consecutive affine steps are fitted from one pass over the vectors. StsbenchError, one line: a step cannot be fitted.
        """
        stats, name = None, source.name.partition("@")[0]
        for number, step in enumerate(self.steps):
            if not isinstance(step, Affine):
                step.fit(_mapped(source, self.steps[:number]))
                stats = None
                continue
            if stats is None:
                stats = moments(_mapped(source, self.steps[:number]).blocks(), name)
            step.fit_moments(stats, name)
            stats = stats.image(step.mean, step.kernel)
        return self

    def transform(self, vectors: Vectors) -> Vectors:
        """Return (n, k) vectors, the (n, d) ones put through all steps."""
        for step in self.steps:
            vectors = step.transform(vectors)
        return vectors

    def dimension(self, d: int) -> int:
        """Return k, the width of transformed vectors of width d. StsbenchError: a step does not suit d."""
        for step in self.steps:
            d = step.dimension(d)
        return d

    def affine(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return kernel (d, k) and bias (k,) with transform(x) = x @ kernel + bias; None where a step is not affine."""
        kernel: Any = None
        bias: Any = None
        for step in self.steps:
            if (one := step.affine()) is None:
                return None
            mean, by = one
            kernel, bias = (by, -mean @ by) if kernel is None else (kernel @ by, (bias - mean) @ by)
        return kernel, bias

    def digest(self) -> str:
        """Return sha256 over the steps' settings and states."""
        return hashlib.sha256(json.dumps([step.digest() for step in self.steps]).encode()).hexdigest()


@dataclass(frozen=True)
class _Mapped:
    """A VectorSource whose vectors go through the given steps."""

    source: VectorSource
    steps: tuple[Post, ...]

    @property
    def sides(self) -> int:
        return self.source.sides

    @property
    def name(self) -> str:
        return self.source.name

    def __len__(self) -> int:
        return len(self.source)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        return map(self._through, self.source.blocks())

    def shuffled(self, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
        for batch in self.source.shuffled(batch_size, rng):
            yield self._through(batch.reshape(-1, batch.shape[-1])).reshape(*batch.shape[:2], -1)

    def with_dropout(self, seed: int) -> VectorSource:
        return _Mapped(self.source.with_dropout(seed), self.steps)

    def _through(self, vectors: Vectors) -> NDArray[np.float32]:
        return Chain(self.steps).transform(vectors).astype(np.float32, copy=False)


def _mapped(source: VectorSource, steps: tuple[Post, ...]) -> VectorSource:
    return _Mapped(source, steps) if steps else source


def _setting(word: str, whole: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise StsbenchError(f"--post {whole}: '{word}' is not SETTING=VALUE")
    return key.strip(), parse_yaml(value, f"--post {whole}")


def _spelled(step: Post) -> str:
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in step.settings().items()}
    settings = ",".join(f"{key}={value}" for key, value in values.items())
    return f"{step.name}:{settings}" if settings else step.name


def write_post(folder: Path, chain: Chain, fitted_on: str) -> None:
    """Write post.json and post.safetensors into `folder`. Arrays keep their types; those of step I, from 0, are I.NAME."""
    from safetensors.numpy import save_file

    states = [step.state() for step in chain.steps]
    arrays = {  # contiguous: safetensors writes an array's memory, in whatever order that is
        f"{index}.{name}": np.ascontiguousarray(array) for index, state in enumerate(states) for name, array in state.items()
    }
    save_file(arrays, folder / TENSORS)
    settings = {"format": 1, "post": chain.spelled(), "fitted_on": fitted_on, "digest": chain.digest()}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def read_post(folder: Path) -> tuple[Chain, str]:
    """Return the fitted chain and what it was fitted on. EncoderError, one line: a file is missing, damaged, or of another
    chain."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        stored: Mapping[str, Any] = read_json(folder / SETTINGS, EncoderError)
        if stored["format"] != 1:
            raise EncoderError(f"{folder / SETTINGS} was written by a newer stsbench (format {stored['format']}): update it")
        chain = Chain.parse(stored["post"])
        arrays = load_file(folder / TENSORS)
        for index, step in enumerate(chain.steps):
            start = f"{index}."
            step.restore({name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)})
        digest, fitted_on = stored["digest"], str(stored["fitted_on"])
        same = chain.digest() == digest
    except EncoderError:
        raise
    except (StsbenchError, SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise EncoderError(f"{folder}: cannot read its post-processing: {reason}") from error
    if not same:
        raise EncoderError(f"{folder / TENSORS} is not the file that {SETTINGS} was written with (its digest differs)")
    return chain, fitted_on
