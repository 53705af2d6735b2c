"""The identity of encoders whose weights cannot be read, such as a Python function, by their vectors of 32 fixed texts."""

from __future__ import annotations

import copy
import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoder, EncoderSpec

_Encoder = TypeVar("_Encoder", bound=Encoder)

IDENTITY = "identity"  # in a spec's options: how the encoder was identified
BY_PROBE, NONE = "probe 1", "none"  # the number rises when TEXTS change
_DISTINCT = 16  # least number of different vectors of TEXTS: a table of other texts gives all of them the same one

# Invented; of many lengths, scripts and kinds. The last text is longer than most models read, and is encoded alone.
TEXTS = (
    "The ferry leaves at noon.", "the ferry leaves at noon", "A ferry left the harbour before anybody had noticed the fog.",
    "Nobody answered.", "Who painted the blue gate behind the bakery?", "Stop!", "Seven", "a", ".", "-- ...", "42",
    "3.14159 is less than 22/7, and 1,000,000 is 10^6.", "Call 555-0142 between 9:30 and 17:45.", "http://example.org/a?b=c#d",
    "Zoë's naïve café was “closed” — again…", "Die Fähre fährt über den großen Fluss.", "Паром уходит в полдень.",
    "渡し船は正午に出ます。", "العبّارة تغادر عند الظهر", "नाव दोपहर को निकलती है", "🙂🚢 on the sea",
    "e\u0301 and \u00e9 look the same",
    "tab\there and  two blanks", "[MASK] <mask> [SEP] </s> are words, too", "def f(x): return x ** 2  # a line of code",
    "Two women carry a long ladder through a narrow street while a boy watches them from a window.",
    "A boy watches from a window while two women carry a long ladder through a narrow street.",
    "Two men do not carry anything.", "supercalifragilistic antidisestablishmentarianism", "yes no yes no yes no",
    " ".join(f"On day {day} the keeper of the lighthouse counted {day * 37 % 101} ships." for day in range(1, 9)),
    " ".join(f"Shelf {shelf} holds {shelf * 53 % 97} jars of {shelf * 29 % 83} kinds." for shelf in range(1, 131)),
)


@dataclass(frozen=True)
class Probe:
    """The identity of a probed encoder. vectors: float32, one array for each of its calls; note: a line for users."""

    weights: str  # takes the place of a digest of weights
    identity: str  # BY_PROBE or NONE
    note: str
    vectors: tuple[NDArray[np.float32], ...] = ()

    def stamp(self, spec: EncoderSpec) -> EncoderSpec:
        """Return `spec` with this identity."""
        return replace(spec, weights=self.weights, options={**spec.options, IDENTITY: self.identity})


def probed(encode: Callable[[list[str]], Any], name: str, code: str) -> Probe:
    """Return the identity of `encode`, a function from a list of texts to vectors, dense or sparse. code: the name of what
    is called, a part of the digest beside the vectors.

    A function that fails, that returns other vectors the second time, or the same vector for most texts has no identity:
    it gets a random digest, so that no two runs of it count as the same encoder.
    """
    try:
        first, second = _vectors(encode), _vectors(encode)
    except Exception as error:  # a function may raise anything on texts that it was not written for
        return _unknown(name, f"it fails on texts of ours ({' '.join(f'{type(error).__name__}: {error}'.split())[:160]})")
    if [array.tobytes() for array in first] != [array.tobytes() for array in second]:
        return _unknown(name, "it gives other vectors for the same texts the second time")
    rows = {row.tobytes() for array in first for row in array}
    if len(rows) < _DISTINCT:
        return _unknown(name, f"it gives {len(TEXTS)} different texts only {len(rows)} different vectors")
    digest = hashlib.sha256(f"{BY_PROBE} {code}".encode())
    for vectors in first:
        digest.update(f"{vectors.shape}".encode())
        digest.update(np.ascontiguousarray(vectors, "<f4").tobytes())
    note = (f"{name} is identified by its vectors of {len(TEXTS)} probe texts, and not cached; a fingerprint of your own "
            "(fingerprint=, or an attribute of that name) would do both")
    return Probe(digest.hexdigest(), BY_PROBE, note, first)


def identified_now(encoder: _Encoder, name: str) -> _Encoder:
    """Return a copy of an encoder that is identified by its present vectors of TEXTS; a note says so."""
    probe, other = probed(lambda texts: encoder.run(texts).vectors, name, encoder.spec.kind), copy.copy(encoder)
    other.spec, other.notes = probe.stamp(encoder.spec), (*encoder.notes, probe.note)
    return other


def has_identity(spec: Mapping[str, Any]) -> bool:
    """Return whether an encoder's spec, as records hold it, identifies it: False where no identity was found, and for a
    model in memory that was not probed."""
    return bool((spec.get("options") or {}).get(IDENTITY) != NONE and spec.get("weights") != "live")


def _vectors(encode: Callable[[list[str]], Any]) -> tuple[NDArray[np.float32], ...]:
    """Return the vectors of all TEXTS but the last, and of the last: padded to its length the others would take minutes."""
    made = [encode(list(part)) for part in (TEXTS[:-1], TEXTS[-1:])]
    return tuple(np.asarray(array.toarray() if hasattr(array, "toarray") else array, np.float32) for array in made)


def _unknown(name: str, why: str) -> Probe:
    note = (f"warning: {name} has no identity: {why}. It is not cached, and no two runs of it count as the same encoder or "
            "as its seeds; a fingerprint of your own (fingerprint=, or an attribute of that name) gives it one")
    return Probe(hashlib.sha256(uuid.uuid4().bytes).hexdigest(), NONE, note)
