"""Encoders with truncated and quantised vectors of another encoder: its first dimensions, of one byte or one bit each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from stsbench.encoders.base import Call, Encoded, Encoder, EncoderSpec, Progress, Wrapper
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.probe import TEXTS
from stsbench.encoders.traits import STATE, fitted_sets, named_source
from stsbench.errors import EncoderError
from stsbench.extensions.smaller_copies.codes import BYTES, PRECISIONS, WHOLE, Ranges, codes, compared, size
from stsbench.registry import did_you_mean

# Texts for calibration: all of a set; those of a call, as in mteb's CompressionWrapper; those of a file.
SHARED, CALL, FILE = "shared", "call", "file"
Floats = NDArray[np.float32]


class Vectors:
    """The vectors that encoders have computed, shared by their copies: each distinct text is encoded once per encoder."""

    def __init__(self, cache: Any = None) -> None:
        """Hold no vectors yet. cache: an EmbeddingCache in which vectors are looked up first, or None."""
        self._cache = cache
        self._of: dict[str, Embed] = {}

    def embed(self, encoder: Encoder) -> Embed:
        """Return the Embed that holds the vectors of an encoder."""
        key = encoder.spec.fingerprint()
        if key not in self._of:
            self._of[key] = Embed(encoder, self._cache)
        return self._of[key]

    def all_normalized(self, base: Encoder) -> bool:
        """Return whether all computed vectors of `base`, in any role, have length 1; without any, those of the probe's
        texts. It is measured, as a function or a server cannot declare it."""
        identity = base.identity.fingerprint()
        embeds = [embed for embed in self._of.values()
                  if embed.encoder.identity.fingerprint() == identity and embed.text_count]
        if not embeds:
            embeds = [self.embed(base)]
            embeds[0].add(TEXTS)
        return all(embed.all_normalized() for embed in embeds)


class Held(Wrapper):
    """`base` with its own fingerprint, whose vectors are kept in `vectors`."""

    cacheable = False  # the vectors of `base` are cached instead
    computes_in = "nothing"  # vectors are looked up, and their cost is that of the base

    def __init__(self, base: Encoder, vectors: Vectors) -> None:
        super().__init__(base)
        self._vectors = vectors

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d) vectors of the base, each computed once; a vector that is not finite is NaN."""
        embed = self._vectors.embed(self.base)
        embed.progress = progress
        try:
            encoded = Encoded(embed(texts), embed.truncated(texts))
        finally:
            embed.progress = None
        self.take_notes()
        return encoded

    def on(self, base: Encoder, call: Call) -> Encoder:
        """Return `base`, made by `call`, with its vectors kept in the same place."""
        return Held(base, self._vectors)


@dataclass(frozen=True)
class Form:
    """How a copy's vectors are stored.

    dims: the first numbers that are kept, None for all; a vector of length 1 gets that length again. precision: float32 or
    one of PRECISIONS. calibration, clip: of int8 and uint8, `Ranges` of which texts: SHARED, CALL or FILE.
    """

    dims: int | None = None
    precision: str = WHOLE
    calibration: str = SHARED
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Raise EncoderError for invalid values."""
        if self.precision not in (WHOLE, *PRECISIONS):
            raise EncoderError(f"--quantise {self.precision} is unknown{did_you_mean(self.precision, PRECISIONS)}")
        if self.dims is not None and self.dims < 1:
            raise EncoderError(f"--truncate-dims {self.dims}: a vector has 1 number or more")
        if self.clip is not None and not 0 < self.clip[0] < self.clip[1] < 1:
            raise EncoderError(f"--clip {self.clip[0]:g},{self.clip[1]:g}: give two shares between 0 and 1, the lower first")

    @property
    def calibrated(self) -> bool:
        """Return whether its codes depend on the range of each dimension."""
        return self.precision in BYTES

    def __str__(self) -> str:
        return f"{'full' if self.dims is None else self.dims} {self.precision}"

    def bytes(self, width: int) -> int:
        """Return the bytes of a stored vector, for an encoder with vectors of dimension `width`."""
        return size(self.precision, min(width, self.dims or width))

    def described(self, spec: EncoderSpec, rescaled: bool) -> EncoderSpec:
        """Return the spec of an encoder's copy. Truncation is described as by the option --truncate-dim, as it is the same.

        rescaled: whether cut vectors are normalised again."""
        options: dict[str, Any] = dict(spec.options)
        words = []
        if self.dims is not None:
            options["truncate_dim"] = self.dims
            if rescaled:
                options["rescaled"] = True
            words.append(f"{self.dims} numbers")
        if self.precision != WHOLE:
            options["precision"] = self.precision
            words.append(self.precision)
        if self.calibrated:
            options["calibration"] = self.calibration
            if self.clip is not None:
                options["clip"] = list(self.clip)
        return replace(spec, name=", ".join([spec.name, *words]), options=options)


def _digest(parts: Sequence[str]) -> str:
    """Return a single part unchanged, or the sha256 of several parts."""
    return parts[0] if len(parts) == 1 else hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _both(base: str | None, source: str) -> str:
    """Return ID@DIGEST of what a copy is calibrated on, and of what its base was fitted on, if it was."""
    named = [one for one in (base, source) if one is not None]
    ids = "+".join(id for one in named for id in fitted_sets(one))
    return f"{ids}@{_digest([one.partition('@')[2] for one in named])}"


class Variant(Held):
    """`base` in a form. With SHARED calibration it is fitted on each set's texts, of both sides and in their roles; `fit`
    returns a calibrated copy.
    """

    def __init__(
        self, base: Encoder, form: Form, vectors: Vectors, ranges: Ranges | None = None, fitted_on: str | None = None,
        rescaled: bool | None = None,
    ) -> None:
        """Make the copy. rescaled: whether cut vectors are normalised again; None: if the base's vectors have length 1."""
        super().__init__(base, vectors)
        self.form, self.ranges = form, ranges
        self.rescaled = form.dims is not None and (vectors.all_normalized(base) if rescaled is None else rescaled)
        self._fitted_on = fitted_on
        self.spec = self._described(base.spec)
        self.fitted_per_set = self._waits
        if self.dimension is not None and form.dims is not None:
            self.dimension = min(self.dimension, form.dims)

    @property
    def identity(self) -> EncoderSpec:
        """Return the identity of the base in this form."""
        named = self.base.identity
        return self.spec if named is self.base.spec else self._described(named)

    def _described(self, spec: EncoderSpec) -> EncoderSpec:
        spec = self.form.described(spec, self.rescaled)
        if self._waits:
            return replace(spec, fitted_on=None)  # a base may have been fitted on its own
        if self.ranges is None or self._fitted_on is None:
            return spec
        state = [spec.options[STATE]] if STATE in spec.options else []
        options = {**spec.options, STATE: _digest([*state, self.ranges.digest()])}
        return replace(spec, fitted_on=_both(spec.fitted_on, self._fitted_on), options=options)

    @property
    def _waits(self) -> bool:
        """Return whether the copy has still to be calibrated."""
        return self.form.calibrated and self.form.calibration != CALL and self.ranges is None

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return the float32 (n, d) numbers that are compared; with CALL calibration the vectors, which `of_call` codes."""
        if self._waits:
            raise EncoderError(f"{self.spec.name} has to be calibrated first: encoder.fit(texts, source='what they are')")
        encoded = super().run(texts, progress)
        vectors = self._cut(encoded.vectors)
        if not (self.form.calibrated and self.form.calibration == CALL):
            vectors = self._coded(vectors, self.ranges)
        return Encoded(vectors, encoded.truncated)

    def of_call(self, vectors: Any) -> Any:
        """Return one call's vectors coded as by mteb's CompressionWrapper, unchanged without CALL calibration."""
        form = self.form
        if not (form.calibrated and form.calibration == CALL) or not len(vectors) or not np.isfinite(vectors).all():
            return vectors
        ranges = Ranges.from_vectors(vectors, form.clip)
        if len(ranges.constant):
            raise EncoderError(
                f"--calibration {CALL}: dimension {ranges.constant[0]} is the same in all {len(vectors)} vectors of a call, "
                "for which mteb computes NaN: use another calibration"
            )
        return self._coded(np.clip(vectors, ranges.low, ranges.high), ranges)

    def fit(self, texts: Sequence[str], source: str) -> Variant:
        """Return a copy that is calibrated on `texts`, encoded without a role; source: the name of the texts."""
        return self.fit_readings([(self, texts)], texts, source)

    def fit_readings(
        self, readings: Sequence[tuple[Encoder, Sequence[str]]], texts: Sequence[str], source: str
    ) -> Variant:
        """Return a copy that is calibrated on the texts of all roles. Raises EncoderError without texts, and for vectors
        that are not finite."""
        if not self._waits:
            return self
        if not any(len(of_role) for _, of_role in readings):
            raise EncoderError(
                f"{self.form.precision} is calibrated on a set's texts, and mteb itself loads those of "
                f"{source.partition('@')[0]}: use --calibration {CALL}, or --calibration FILE"
            )
        parts = [reader._cut(Held.run(reader, list(dict.fromkeys(of_role))).vectors)
                 for reader, of_role in readings if isinstance(reader, Variant) and of_role]
        vectors = np.concatenate(parts)
        if not np.isfinite(vectors).all():
            raise EncoderError(f"{self.spec.name}: a text of {source.partition('@')[0]} has no finite vector")
        ranges = Ranges.from_vectors(vectors, self.form.clip)
        return Variant(self.base, self.form, self._vectors, ranges, named_source(texts, source), self.rescaled)

    def on(self, base: Encoder, call: Call) -> Variant:
        """Return the copy of another base in the same form."""
        return Variant(base, self.form, self._vectors, self.ranges, self._fitted_on, self.rescaled)

    def _cut(self, vectors: Any) -> Floats:
        """Return the base's vectors cut to (n, dims), normalised again if `rescaled`."""
        if issparse(vectors):
            raise EncoderError(f"{self.base.spec.name} gives sparse vectors, of which there is no smaller copy")
        dims = self.form.dims
        if dims is None:
            return np.asarray(vectors, np.float32)
        if dims > vectors.shape[1]:
            width = vectors.shape[1]
            raise EncoderError(f"--truncate-dims {dims}: the vectors of {self.base.spec.name} have {width} numbers")
        cut = np.ascontiguousarray(vectors[:, :dims], np.float32)
        if not self.rescaled:
            return cut
        lengths: Floats = np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), np.float32(1e-12))
        return cut / lengths

    def _coded(self, vectors: Floats, ranges: Ranges | None) -> Floats:
        precision, bad = self.form.precision, ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            vectors = vectors.copy()
            vectors[bad] = 0
        coded = compared(codes(vectors, precision, ranges), precision, vectors.shape[1])
        if bad.any():
            coded = coded.copy()
            coded[bad] = np.nan  # as in the base's vectors
        return coded
