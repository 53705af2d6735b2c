"""The identity of a model behind a server: its vectors of a dozen fixed texts, recognised although last digits vary.

The probe texts' vectors are requested twice, the second time alone and in a larger batch. The largest distance between the
two, relative to a vector's length, is the server's noise; later vectors may differ by the tolerance, four times the noise,
at least 1e-4 and at most .1. If a probe of the same model's name is stored on this machine and the two agree within both
tolerances, the model has the stored identity. Otherwise it is new: a digest of 36 projections of the vectors, rounded to
.001, and of their lengths, so that a float32 model nearly always has the same digest on another machine.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import EncoderError, StsbenchError
from stsbench.files import cache_root, create_whole

BY_SERVER_PROBE = "server probe 1"  # the number rises with each change of TEXTS or of the digest's computation
FLOOR, TIMES, CEILING = 1e-4, 4.0, 0.1  # of the tolerance: least value, factor of the noise, largest value
TOO_NOISY = 0.05  # relative noise beyond which two models cannot be distinguished
_DIRECTIONS, _STEP = 3, 1e-3  # number of projections of each text's vector, and the step of their rounding

# Invented. The last one is the longest, and no longer than the shortest limit that servers have by default.
TEXTS = (
    "The kettle is on.", "the kettle is on", "Nobody has mended the bridge since the flood.",
    "Warum singt der Kranich im März?", "Кто оставил лодку у причала?", "橋の上で猫が眠っている。",
    "القطار يصل عند الفجر", "3.5 kg at 12 % is less than 1,204 / 7",
    "for i in range(9): print(i ** 2)", "no", "A girl sells pears beside the fountain, and a dog waits for one to fall.",
    " ".join(f"On step {step} the clerk moved {step * 41 % 17} boxes to shelf {step * 29 % 13}." for step in range(1, 7)),
)
_SHORT = len(TEXTS) - 1  # all but the last are short enough to be sent along with every request
# Texts that fill the second request to the size of a run's batches, for which other kernels may be used.
BESIDE = tuple(f"{TEXTS[text % _SHORT]} {TEXTS[text * 5 % _SHORT]}" for text in range(20))
# Batches of the second request, each with the positions in TEXTS of its last texts. Half precision varies most with padding,
# so the longest text is sent apart from the others, and some texts are sent alone.
AGAIN = (((*BESIDE, *TEXTS[:_SHORT]), tuple(range(_SHORT))), *(((TEXTS[text],), (text,)) for text in (0, 5, 9, _SHORT)))


@dataclass
class Identity:
    """A model's identity at loading. weights: stands for a digest of weights in its spec; vectors: float32 (12, d) of TEXTS;
    noise, tolerance: relative; farthest: largest relative distance of a probe text's later vectors."""

    weights: str
    vectors: NDArray[np.float32]
    noise: float
    tolerance: float
    farthest: float = 0.0
    _turn: itertools.count[int] = field(default_factory=itertools.count, repr=False)

    @property
    def known(self) -> bool:
        """Return whether the noise is small enough to distinguish the model from others."""
        return self.noise <= TOO_NOISY

    def next_text(self) -> int:
        """Return the position in TEXTS of the text to send with the next request, in turn."""
        return next(self._turn) % _SHORT

    def check(self, text: int, vector: NDArray[np.float32]) -> str | None:
        """Return what has changed in the vector (d,) of a probe text, in words; None where it is within the tolerance."""
        if vector.shape != self.vectors[text].shape:
            return f"vectors of {len(vector)} numbers, and of {self.vectors.shape[1]} when it was loaded"
        distance = difference(vector[None], self.vectors[text][None])
        if distance <= self.tolerance:
            self.farthest = max(self.farthest, distance)
            return None
        return (f"another vector for a text of the probe than when it was loaded (relative difference {distance:.1e}, "
                f"allowed {self.tolerance:.1e})")


def make_identity(name: str, model: str, first: NDArray[np.float32], again: Sequence[NDArray[np.float32]]) -> Identity:
    """Return the identity of a probed model. first: vectors (12, d) of TEXTS; again: those of the batches AGAIN; model: its
    requested name and settings. Raises EncoderError for vectors that are not finite, or equal for different texts."""
    if any(vectors.shape[1] != first.shape[1] for vectors in again):
        raise EncoderError(f"{name}: the server gives vectors of {first.shape[1]} numbers in one answer, and others in "
                           "the next")
    if not all(np.isfinite(vectors).all() for vectors in (first, *again)):
        raise EncoderError(f"{name}: the server gives NaN or infinity for a text of the probe")
    if len(np.unique(first, axis=0)) < len(TEXTS) // 2:
        raise EncoderError(f"{name}: the server gives {len(TEXTS)} different texts only {len(np.unique(first, axis=0))} "
                           "different vectors")
    noise = max(difference(vectors[-len(rows):], first[list(rows)])
                for vectors, (_, rows) in zip(again, AGAIN, strict=True))
    made = Identity(sketched(first), first, noise, drift_tolerance(noise))
    if made.known:
        made.weights = _adopted(
        cache_root() / "servers" / hashlib.sha256(f"{BY_SERVER_PROBE} {model}".encode()).hexdigest()[:32], made)
    return made


def drift_tolerance(noise: float) -> float:
    """Return the tolerance, by the relative distance from the first vectors, for a server with this noise."""
    tolerance = max(FLOOR, TIMES * noise)
    return tolerance if noise > TOO_NOISY else min(tolerance, CEILING)


def difference(vectors: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return the largest distance of n vectors (n, d) from `reference` (n, d), relative to the reference's length; infinite
    for another shape and for NaN or infinity."""
    if vectors.shape != reference.shape or not np.isfinite(vectors).all():
        return float("inf")
    lengths = np.maximum(np.linalg.norm(reference.astype(np.float64), axis=1), 1e-12)
    return float((np.linalg.norm(vectors.astype(np.float64) - reference, axis=1) / lengths).max())


def sketched(vectors: NDArray[np.float32]) -> str:
    """Return sha256 of rounded features of vectors (n, d): their lengths to 5 %, and three projections of each direction."""
    lengths = np.maximum(np.linalg.norm(vectors.astype(np.float64), axis=1), 1e-12)
    projected = np.einsum("nd,nkd->nk", vectors / lengths[:, None], _directions(*vectors.shape))
    about = [BY_SERVER_PROBE, list(vectors.shape), np.round(projected / _STEP).astype(int).tolist(),
             np.round(np.log(lengths) * 20).astype(int).tolist()]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _directions(count: int, width: int) -> NDArray[np.float64]:
    """Return (count, 3, width) pseudo-random signs 1 and -1, the same on every machine."""
    drawn = hashlib.shake_256(f"{BY_SERVER_PROBE} {width}".encode()).digest(-(-count * _DIRECTIONS * width // 8))
    signs = np.unpackbits(np.frombuffer(drawn, np.uint8))[:count * _DIRECTIONS * width]
    return (2 * signs.astype(np.float64) - 1).reshape(count, _DIRECTIONS, width)


def _adopted(folder: Path, identity: Identity) -> str:
    """Return the identity of the nearest stored probe within the tolerance; else store `identity`, and return its own."""
    if weights := _nearest(folder, identity):
        return weights
    content = BytesIO()
    np.savez(content, vectors=identity.vectors, noise=identity.noise)
    try:
        if create_whole(folder / f"{identity.weights}.npz", content.getvalue()):
            return identity.weights
        # Another process has just stored it, or a different model has the same digest.
        return _nearest(folder, identity) or hashlib.sha256(identity.vectors.tobytes()).hexdigest()
    except StsbenchError:
        return identity.weights  # nothing can be stored on this machine, so the digest alone identifies the model


def _nearest(folder: Path, identity: Identity) -> str:
    distance = {path.stem: _distance(path, identity) for path in sorted(folder.glob("*.npz"))}
    return min((weights for weights in distance if distance[weights] < float("inf")), key=distance.__getitem__, default="")


def _distance(path: Path, identity: Identity) -> float:
    """Return the distance of a stored probe from this one; infinite beyond either tolerance, or if the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            distance, noise = difference(identity.vectors, np.asarray(kept["vectors"], np.float32)), float(kept["noise"])
    except Exception:  # zipfile, zlib and numpy have a dozen kinds of errors for a damaged file
        return float("inf")
    return distance if distance <= min(identity.tolerance, drift_tolerance(noise)) else float("inf")
