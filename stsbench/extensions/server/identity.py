"""Who a model behind a server is: what it makes of a dozen fixed texts, known again although the last digits vary.

The rule: a server is asked for the texts' vectors once more, alone and in a larger batch. How far they are from the first
ones is its noise (relative to a vector's length, the largest of all texts), and what it may differ by later is four times as
much, at least 1e-4 and at most .1. If a probe of the same model's name was kept on this machine and the two are as near as
both may be, the model has its identity; else its identity is new: a digest of 36 projections of the vectors, rounded to
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

BY_SERVER_PROBE = "server probe 1"  # the number rises when TEXTS, or what is made of them, change
FLOOR, TIMES, CEILING = 1e-4, 4.0, 0.1  # the tolerance: at least, times the noise, at most
TOO_NOISY = 0.05  # relative noise beyond which nothing tells two models from one
_DIRECTIONS, _STEP = 3, 1e-3  # projections of each text's vector, and what they are rounded to

# Invented. The last one is the longest, and no longer than the shortest limit that servers have by default.
TEXTS = (
    "The kettle is on.", "the kettle is on", "Nobody has mended the bridge since the flood.",
    "Warum singt der Kranich im März?", "Кто оставил лодку у причала?", "橋の上で猫が眠っている。",
    "القطار يصل عند الفجر", "3.5 kg at 12 % is less than 1,204 / 7",
    "for i in range(9): print(i ** 2)", "no", "A girl sells pears beside the fountain, and a dog waits for one to fall.",
    " ".join(f"On step {step} the clerk moved {step * 41 % 17} boxes to shelf {step * 29 % 13}." for step in range(1, 7)),
)
_SHORT = len(TEXTS) - 1  # so many are short enough to go with every request
# What they stand beside once more, so that the batch is as large as those of a run: other kernels may compute it.
BESIDE = tuple(f"{TEXTS[text % _SHORT]} {TEXTS[text * 5 % _SHORT]}" for text in range(20))
# The batches of the second time, each with the positions of the texts at its end. Half precision varies most with padding:
# the longest text is not beside the others again, and some are alone.
AGAIN = (((*BESIDE, *TEXTS[:_SHORT]), tuple(range(_SHORT))), *(((TEXTS[text],), (text,)) for text in (0, 5, 9, _SHORT)))


@dataclass
class Identity:
    """A model as it was when it was loaded. weights: of its spec, in the place of a digest of weights; vectors: float32
    (12, d) of TEXTS; noise and tolerance: relative; farthest: how far a text of the probe has been from its vector since."""

    weights: str
    vectors: NDArray[np.float32]
    noise: float
    tolerance: float
    farthest: float = 0.0
    _turn: itertools.count[int] = field(default_factory=itertools.count, repr=False)

    @property
    def known(self) -> bool:
        """Return whether it can be told from other models at all."""
        return self.noise <= TOO_NOISY

    def next_text(self) -> int:
        """Return the position in TEXTS of the one that goes with the next request, in turn."""
        return next(self._turn) % _SHORT

    def check(self, text: int, vector: NDArray[np.float32]) -> str | None:
        """Return what is wrong where the vector (d,) of a text of the probe is not what it was; None where it is."""
        if vector.shape != self.vectors[text].shape:
            return f"vectors of {len(vector)} numbers, and of {self.vectors.shape[1]} when it was loaded"
        distance = difference(vector[None], self.vectors[text][None])
        if distance <= self.tolerance:
            self.farthest = max(self.farthest, distance)
            return None
        return (f"another vector for a text of the probe than when it was loaded (relative difference {distance:.1e}, "
                f"allowed {self.tolerance:.1e})")


def make_identity(name: str, model: str, first: NDArray[np.float32], again: Sequence[NDArray[np.float32]]) -> Identity:
    """first: the vectors (12, d) of TEXTS; again: those of the batches AGAIN. model: by which name, and with which settings,
    the server was asked. EncoderError: they are not finite, or the same for texts that differ."""
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
    """Return how far vectors may be from the first ones of a server with this noise."""
    tolerance = max(FLOOR, TIMES * noise)
    return tolerance if noise > TOO_NOISY else min(tolerance, CEILING)


def difference(vectors: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return the largest distance of n vectors (n, d) from others, each relative to the other one's length; infinite for
    other shapes and for what is not finite."""
    if vectors.shape != reference.shape or not np.isfinite(vectors).all():
        return float("inf")
    lengths = np.maximum(np.linalg.norm(reference.astype(np.float64), axis=1), 1e-12)
    return float((np.linalg.norm(vectors.astype(np.float64) - reference, axis=1) / lengths).max())


def sketched(vectors: NDArray[np.float32]) -> str:
    """Return sha256 of what rounding leaves of vectors (n, d): their lengths to 5 %, and three projections of each
    direction."""
    lengths = np.maximum(np.linalg.norm(vectors.astype(np.float64), axis=1), 1e-12)
    projected = np.einsum("nd,nkd->nk", vectors / lengths[:, None], _directions(*vectors.shape))
    about = [BY_SERVER_PROBE, list(vectors.shape), np.round(projected / _STEP).astype(int).tolist(),
             np.round(np.log(lengths) * 20).astype(int).tolist()]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _directions(count: int, width: int) -> NDArray[np.float64]:
    """Return (count, 3, width) of 1 and -1, the same everywhere and always."""
    drawn = hashlib.shake_256(f"{BY_SERVER_PROBE} {width}".encode()).digest(-(-count * _DIRECTIONS * width // 8))
    signs = np.unpackbits(np.frombuffer(drawn, np.uint8))[:count * _DIRECTIONS * width]
    return (2 * signs.astype(np.float64) - 1).reshape(count, _DIRECTIONS, width)


def _adopted(folder: Path, identity: Identity) -> str:
    """Return the identity of the nearest probe that is kept and near enough; else that of `identity`, which is kept then."""
    if weights := _nearest(folder, identity):
        return weights
    content = BytesIO()
    np.savez(content, vectors=identity.vectors, noise=identity.noise)
    try:
        if create_whole(folder / f"{identity.weights}.npz", content.getvalue()):
            return identity.weights
        # another process has just kept it, or what rounding leaves is that of another model
        return _nearest(folder, identity) or hashlib.sha256(identity.vectors.tobytes()).hexdigest()
    except StsbenchError:
        return identity.weights  # nothing can be kept here: the digest has to do


def _nearest(folder: Path, identity: Identity) -> str:
    distance = {path.stem: _distance(path, identity) for path in sorted(folder.glob("*.npz"))}
    return min((weights for weights in distance if distance[weights] < float("inf")), key=distance.__getitem__, default="")


def _distance(path: Path, identity: Identity) -> float:
    """Return how far a probe that is kept is from this one; infinite where they are not of one model, or where it is
    damaged."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            distance, noise = difference(identity.vectors, np.asarray(kept["vectors"], np.float32)), float(kept["noise"])
    except Exception:  # zipfile, zlib and numpy have a dozen kinds of errors for a damaged file
        return float("inf")
    return distance if distance <= min(identity.tolerance, drift_tolerance(noise)) else float("inf")
