"""Which test sets an encoder has seen: what it was fitted on, as `fitted_on` in a spec says it (ID@DIGEST, or ID+ID@DIGEST),
the data whose sentences it was trained on, as `trained_on` in a record's provenance names them (sts12, stsb, ...), and what
its training texts share with them, as `training_overlap` there says it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stsbench.data.sets.sets import FROM_MTEB

# Sets of one set's sentences: what mteb loads, STS-B in its second version and beside its translations.
SAME_SENTENCES = {
    FROM_MTEB + "STSBenchmark": "stsb/test", FROM_MTEB + "SICK-R": "sick-r/mteb", "stsb.v2/test": "stsb/test",
    "stsb-multi/test": "stsb/test",
}
# Sets whose tested sentences are those of another one, or hold them.
_WITH_SENTENCES_OF = {
    "stsb/splits": "stsb/test", "sick-r/splits": "sick-r/test", "sick-e/splits": "sick-r/test", "sick-r/mteb": "sick-r/test",
}
_YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
STATE = "post_state"  # in a spec's options: the digest of what the fitting of a post-processing found


def named_source(texts: Sequence[str], source: str) -> str:
    """Return `source` as it is where it names a digest (ID@DIGEST), else with that of the texts: a name alone may be of
    others."""
    return source if "@" in source else f"{source}@{hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()}"


def fitted_sets(fitted_on: object) -> tuple[str, ...]:
    """Return the ids of the sets, or the file's name; () where nothing was fitted."""
    return tuple(str(fitted_on).partition("@")[0].split("+")) if fitted_on else ()


def shortened(fitted_on: str) -> str:
    """Return ID@DIGEST with 12 digits of the digest, as messages print it."""
    ids, at, digest = fitted_on.partition("@")
    return ids + at + digest[:12]


def is_transductive(fitted_on: object, set_id: str) -> bool:
    """Return whether the very texts of a set were fitted on, alone or with the other splits of its data."""
    return set_id in fitted_sets(fitted_on)


def was_trained_on(trained_on: Collection[str], set_id: str) -> bool:
    """Return whether the sentences of a set were among the training text: of sts12/test, or of mteb:STS12, which mteb loads.

    trained_on: data (sts12), which stand for all of their sets, or one set (sick-r/mteb).
    """
    name = SAME_SENTENCES.get(set_id, set_id)
    return name in trained_on or name.removeprefix(FROM_MTEB).partition("/")[0].lower() in trained_on


@dataclass(frozen=True)
class SharedTexts:
    """What one training text shares with one test set: distinct test texts that it holds as they stand, and those that it
    holds but for case and punctuation, of `texts`; and the training rows that hold one."""

    training: str
    test: str
    texts: int
    exact: int
    normalised: int
    rows: int

    def __str__(self) -> str:
        either = self.exact + self.normalised
        return (f"{self.training} holds {either:,} of the {self.texts:,} texts of {self.test}, {self.exact:,} as they stand "
                f"and {self.normalised:,} but for case and punctuation")


def texts_shared(training_overlap: Iterable[Mapping[str, Any]], set_id: str, sample: bool = False) -> list[SharedTexts]:
    """Return what each training text shares with a test set, of those that share anything.

    training_overlap: as a record's provenance has it; set_id: sts12/test, or mteb:STS12; sample: whether the set is that
    of the package's sample, which has the same name.

    >>> overlap = {"text": "notes.txt", "shared": {"mr": {"texts": 10662, "exact": 2, "normalised": 1, "rows": 3}}}
    >>> print(*texts_shared([overlap], "mr"))
    notes.txt holds 3 of the 10,662 texts of mr, 2 as they stand and 1 but for case and punctuation
    """
    name = _compared_as(set_id)
    name = _WITH_SENTENCES_OF.get(name, name)
    return [SharedTexts(text["text"], name, **text["shared"][name]) for text in training_overlap
            if name in text["shared"] and text.get("sample", False) == sample]


def texts_not_compared(training_overlap: Iterable[Mapping[str, Any]], set_id: str, sample: bool = False) -> list[str]:
    """Return the training texts of which nobody knows whether they share anything with a test set. The arguments are
    those of `texts_shared`."""
    name = _compared_as(set_id)
    known = {name} if name == "sick-r/mteb" else {name, _WITH_SENTENCES_OF.get(name, name)}  # it has training pairs, too
    return [text["text"] for text in training_overlap if text.get("sample", False) != sample
            or not (known & {*text["none"]} or texts_shared([text], set_id, sample))]


def _compared_as(set_id: str) -> str:
    """Return the catalog's id of a set with the same sentences."""
    name = SAME_SENTENCES.get(set_id, set_id)
    year = name.removeprefix(FROM_MTEB).lower()
    return f"{year}/test" if name.startswith(FROM_MTEB) and year in _YEARS else name
