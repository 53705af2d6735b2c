"""Encoding with a cache: look up, compute what is missing in chunks that are stored as they finish, check everything.

An encoder's vectors are kept under a key of what the encoder is, and of the code that computes with it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress, checked_texts
from stsbench.encoders.cache.cache import CacheNote, EmbeddingCache
from stsbench.errors import DegenerateError, EncoderError
from stsbench.processes import release_memory
from stsbench.registry import calling, where

# Increased with every change of the code that changes vectors of any encoder, so that no earlier vector is read again.
# 2: texts beyond the length up to which BigBird and longrope models share batches; word files with a byte order mark.
# 3: torch settings of the calling program (autocast, TF32, ...) have no effect any more; such vectors were kept as float32.
# 4: texts without padding for more families than BERT and RoBERTa: last digits.
# 5: frequencies of rotary positions stay float32 beside bfloat16 weights.
ENCODING = "5"
# Environment variables by which libraries below torch round float32 products, whatever torch's own settings are.
_ROUNDING = ("NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")

_ENCODING = "stsbench's encoding"
_ASKED = 1000  # size of the sample of texts that `is_cached` looks up
CHUNK = 1024  # texts between two writes, for each process: what an interrupted run loses at most


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the installed versions of packages, "none" for one that is not installed, and ENCODING, the version of
    stsbench's own encoding."""
    return {_ENCODING: ENCODING, **{name: _version(name) for name in libraries}}


def cache_key(encoder: Encoder) -> str:
    """Return a sha256, 64 hex digits, over the fingerprint, the versions of `Traits.libraries`, ENCODING, rounding set by
    the environment, and a forward pass that the user chose: who compares passes must not get vectors of another pass."""
    rounding = {name: os.environ[name] for name in _ROUNDING if os.environ.get(name)}
    if encoder.traits.attention != "auto":
        rounding["attention"] = encoder.traits.attention
    about = json.dumps([encoder.spec.fingerprint(), versions(encoder.traits.libraries), *([rounding] if rounding else [])],
                       sort_keys=True)
    return hashlib.sha256(about.encode()).hexdigest()


def changed(stored: Mapping[str, str]) -> list[str]:
    """Return the versions that differ now from the `stored` ones, as "torch 2.12 -> 2.13"."""
    before = {_ENCODING: "1", **stored}  # the first ENCODING was not stored
    return [f"{name} {old} -> {new}" for name, old in before.items() if (new := _version(name)) != old]


def _version(name: str) -> str:
    if name == _ENCODING:
        return ENCODING
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


@runtime_checkable
class Preparable(Protocol):
    """An encoder that does better when it sees all texts before the first chunk, such as one that scans a file."""

    def prepare(self, texts: Sequence[str]) -> None:
        """Get ready for `texts`."""


def prepare(encoder: Any, texts: Sequence[str]) -> None:
    """Let a Preparable encoder see all texts. EncoderError where its code fails."""
    calling(type(encoder), "prepare", lambda: encoder.prepare(texts), raising=EncoderError)


def encode_cached(
    encoder: Encoder, texts: Sequence[str], cache: EmbeddingCache | None, progress: Progress | None = None,
    *, tolerant: bool = False,
) -> Encoded:
    """Return vectors (n, d) and truncated flags (n,) of any n texts, in their order; each distinct text is computed once.

    With a cache (and an encoder that may be cached) only missing texts run, longest first. `progress` is called with
    counts that sum to n. Raises EncoderError when the encoder returns anything but n finite vectors of one width;
    such vectors are never stored. `tolerant` lets rows with NaN or infinity through, as rows of NaN: the caller decides
    what they spoil.
    """
    texts = checked_texts(texts)
    distinct = list(dict.fromkeys(texts))
    if progress is not None and len(texts) > len(distinct):
        progress(len(texts) - len(distinct))
    if cache is None or not encoder.cacheable:
        encoded = _run(encoder, distinct, progress, tolerant)
    else:
        encoded = _through(encoder, distinct, cache, progress, tolerant)
    if len(distinct) == len(texts):
        return encoded
    row = {text: i for i, text in enumerate(distinct)}
    rows = np.array([row[text] for text in texts], dtype=np.intp)
    return Encoded(encoded.vectors[rows], encoded.truncated[rows])


def is_cached(encoder: Encoder, texts: Sequence[str], cache: EmbeddingCache | None) -> bool:
    """Return whether a sample of n texts, spread over all, is in the cache, so that `encoder` probably has nothing to
    compute."""
    if cache is None or not encoder.cacheable:
        return False
    some = list(dict.fromkeys(texts[:: max(1, len(texts) // _ASKED)]))
    return bool(cache.get(cache_key(encoder), some).mask.all())


def _through(
    encoder: Encoder, texts: list[str], cache: EmbeddingCache, progress: Progress | None, tolerant: bool
) -> Encoded:
    """Return what `encode_cached` returns, for distinct texts and a cache."""
    key = cache_key(encoder)
    hits = cache.get(key, texts)
    vectors, truncated = hits.vectors, hits.truncated
    missing: NDArray[np.intp] = np.flatnonzero(~hits.mask)
    if progress is not None and len(missing) < len(texts):
        progress(len(texts) - len(missing))
    if not len(missing):
        if cache.about(key).equal_lengths:  # noted by the run that computed them
            encoder.keep_lengths_apart()
        return Encoded(vectors, truncated) if vectors is not None else _run(encoder, texts, progress, tolerant)
    # Longest first: a chunk then holds texts of like length, and a batch too large for the memory fails at once.
    missing = np.array(sorted(missing.tolist(), key=lambda i: -len(texts[i])), dtype=np.intp)
    if isinstance(encoder, Preparable):
        prepare(encoder, [texts[i] for i in missing])
    size = CHUNK * encoder.processes * encoder.stride
    for start in range(0, len(missing), size):
        rows = missing[start : start + size]
        chunk = [texts[i] for i in rows]
        encoded = _run(encoder, chunk, progress, tolerant)
        if issparse(encoded.vectors):
            raise EncoderError(f"{encoder.spec.name}: sparse vectors cannot be cached (set cacheable = False)")
        if vectors is None:
            vectors = np.zeros((len(texts), encoded.vectors.shape[1]), dtype=np.float32)
        if encoded.vectors.shape[1] != vectors.shape[1]:
            raise EncoderError(
                f"{encoder.spec.name} gave vectors of {encoded.vectors.shape[1]} numbers, and of {vectors.shape[1]} "
                "before, under the same fingerprint (stsbench cache clear removes stored ones)"
            )
        if start == 0:
            cache.note(key, CacheNote(asdict(encoder.spec), versions(encoder.traits.libraries), encoder.equal_lengths))
        good = np.isfinite(encoded.vectors).all(axis=1)
        kept = Encoded(encoded.vectors[good], encoded.truncated[good])
        cache.put(key, [text for text, fine in zip(chunk, good, strict=True) if fine], kept)
        vectors[rows], truncated[rows] = encoded.vectors, encoded.truncated
        release_memory()
    return Encoded(vectors, truncated)


def _run(encoder: Encoder, texts: list[str], progress: Progress | None, tolerant: bool) -> Encoded:
    """Return the checked result of `run`; texts that the encoder did not report to `progress` are reported at the end."""
    done = 0

    def count(finished: int) -> None:
        nonlocal done
        done += finished
        if progress is not None:
            progress(finished)

    kind, report = type(encoder), None if progress is None else count
    encoded = calling(kind, "run", lambda: encoder.run(texts, report), raising=EncoderError)
    if not isinstance(encoded, Encoded):
        raise EncoderError(f"{where(kind)}: run must return Encoded(vectors, truncated), not {type(encoded).__name__}")
    encoded = checked(encoder.spec, texts, encoded, tolerant)
    if progress is not None and done < len(texts):
        progress(len(texts) - done)
    return encoded


def checked(spec: EncoderSpec, texts: Sequence[str], encoded: Encoded, tolerant: bool = False) -> Encoded:
    """Return `encoded` as float32 if it is n finite vectors and n flags; else an EncoderError that names a text at fault.

    `tolerant`: dense rows that are not finite become rows of NaN instead.
    """
    vectors: Any = encoded.vectors
    name = spec.name
    if not issparse(vectors) and not isinstance(vectors, np.ndarray):
        raise EncoderError(f"{name} returned {type(vectors).__name__}, expected a numpy array or a CSR matrix")
    if vectors.dtype.kind != "f" or vectors.ndim != 2 or vectors.shape[0] != len(texts) or vectors.shape[1] == 0:
        got = f"{vectors.dtype} of shape {vectors.shape}"
        raise EncoderError(f"{name} returned {got} for {len(texts)} texts, expected floats of shape ({len(texts)}, d)")
    truncated = np.asarray(encoded.truncated, dtype=bool)
    if truncated.shape != (len(texts),):
        raise EncoderError(f"{name} returned truncated flags of shape {truncated.shape}, expected ({len(texts)},)")
    with np.errstate(over="ignore"):  # a float64 that overflows to infinity here is found below
        vectors = vectors.astype(np.float32, copy=False)
    if issparse(vectors):
        vectors = vectors.tocsr()
        row_of = np.repeat(np.arange(len(texts)), np.diff(vectors.indptr))
        bad = np.unique(row_of[~np.isfinite(vectors.data)])
    else:
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad) and tolerant and not issparse(vectors):
        vectors = vectors.copy()
        vectors[bad] = np.nan
    elif len(bad):
        raise DegenerateError(not_finite(spec, texts, bad))
    return Encoded(vectors, truncated)


def within_float16(spec: EncoderSpec, texts: Sequence[str], vectors: Any) -> None:
    """Raise DegenerateError, one line, if an encoder that computes in float16 has a text whose vector, of (n, d), is not
    finite."""
    if spec.dtype == "float16":
        checked(spec, texts, Encoded(vectors, np.zeros(len(texts), dtype=np.bool_)))


def not_finite(spec: EncoderSpec, texts: Sequence[str], bad: NDArray[np.intp]) -> str:
    """Return one line about the texts at positions `bad` that have no finite vector."""
    text = texts[int(bad[0])]
    shown = repr(text if len(text) <= 80 else text[:77] + "...")
    advice = "; float16 holds no number above 65,504: use --dtype bfloat16 or float32" if spec.dtype == "float16" else ""
    return f"{spec.name} returned NaN or infinity for {len(bad)} of {len(texts)} texts, the first: {shown}{advice}"
