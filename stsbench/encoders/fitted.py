"""Which test sets an encoder has seen: what it was fitted on, as `fitted_on` in a spec says it (ID@DIGEST, or ID+ID@DIGEST),
and the data whose sentences it was trained on, as `trained_on` in a record's provenance names them (sts12, stsb, ...)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence

from stsbench.data.sets.sets import FROM_MTEB

# Sets of one set's sentences: what mteb loads, STS-B in its second version and beside its translations.
SAME_SENTENCES = {
    FROM_MTEB + "STSBenchmark": "stsb/test", FROM_MTEB + "SICK-R": "sick-r/mteb", "stsb.v2/test": "stsb/test",
    "stsb-multi/test": "stsb/test",
}
STATE = "post_state"  # in a spec's options: the digest of what the fitting of a post-processing found


def named_source(texts: Sequence[str], source: str) -> str:
    """`source` as it is where it names a digest (ID@DIGEST), else with that of the texts: a name alone may be of others."""
    return source if "@" in source else f"{source}@{hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()}"


def fitted_sets(fitted_on: object) -> tuple[str, ...]:
    """The ids of the sets, or the file's name; () where nothing was fitted."""
    return tuple(str(fitted_on).partition("@")[0].split("+")) if fitted_on else ()


def shortened(fitted_on: str) -> str:
    """ID@DIGEST with 12 digits of the digest, as messages print it."""
    ids, at, digest = fitted_on.partition("@")
    return ids + at + digest[:12]


def is_transductive(fitted_on: object, set_id: str) -> bool:
    """Whether the very texts of a set were fitted on, alone or with the other splits of its data."""
    return set_id in fitted_sets(fitted_on)


def was_trained_on(trained_on: Collection[str], set_id: str) -> bool:
    """Whether the sentences of a set were among the training text: of sts12/test, or of mteb:STS12, which mteb loads.

    trained_on: data (sts12), which stand for all of their sets, or one set (sick-r/mteb).
    """
    name = SAME_SENTENCES.get(set_id, set_id)
    return name in trained_on or name.removeprefix(FROM_MTEB).partition("/")[0].lower() in trained_on
