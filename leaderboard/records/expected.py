"""What the data alone decide of a record's observations (the right answers, the items, their subsets), as digests.

A record on the catalog's data whose observations give other digests was not measured on them. Digests only: the data
themselves are licensed and stay where they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Observations, Protocol
from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import reread
from stsbench.evaluation.run_file import load_records
from stsbench.files import atomic_write

from .paths import EXPECTED

HEAD = """\
# Protocol -> set -> part -> sha256 of what SentEval's data decide of a record's observations, as each protocol declares it
# (`Protocol.decided`). Written from runs that are known to be honest; again, for a new set or protocol:
# python -c "from stsbench.leaderboard.records.expected import learn; learn(['RUN', 'RUN'])"
"""
Digests = dict[str, dict[str, dict[str, str]]]


def decided(protocol: Protocol, observations: Observations) -> dict[str, str]:
    """Part -> sha256 of what the protocol says that the data decide."""
    return {part: _sha(values) for part, values in protocol.decided(observations).items()}


def comparable(record: Record) -> bool:
    """Whether a record claims to be of a whole set of the catalog in the text version that digests are known of."""
    whole = not record.protocol.settings.get("without_overlap")
    return record.data.known and record.data.text_version == "senteval" and whole


def unexpected(protocol: Protocol, record: Record, observations: Observations) -> str:
    """The first part that is not what the record's data decide, "" where all are, or where nothing is known of them."""
    if not comparable(record):
        return ""
    known = expected().get(record.protocol.name, {}).get(record.data.id, {})
    return next((part for part, sha in decided(protocol, observations).items() if known.get(part, sha) != sha), "")


@cache
def expected() -> Digests:
    """The digests shipped with the leaderboard, read once."""
    digests: Digests = yaml.safe_load(EXPECTED.read_text("utf-8"))
    return digests


def learn(runs: Iterable[str | Path], path: Path = EXPECTED) -> None:
    """Write `path` from honest run folders. Raises StsbenchError, naming the file, where two of them disagree."""
    digests: Digests = {}
    for folder in map(Path, runs):
        for file, record in load_records(folder):
            if not comparable(record):
                continue
            protocol, _, observations = reread(file, record)
            parts = digests.setdefault(record.protocol.name, {}).setdefault(record.data.id, {})
            for part, sha in decided(protocol, observations).items():
                if parts.setdefault(part, sha) != sha:
                    raise StsbenchError(f"{file}: its {part} of {record.data.id} is not that of a run before")
    kept = {name: sets for name, sets in digests.items() if any(sets.values())}
    with atomic_write(path) as stream:
        stream.write(HEAD + yaml.safe_dump(kept, sort_keys=True, width=125))


def _sha(values: Iterable[NDArray[Any] | Sequence[str]]) -> str:
    """sha256 over arrays, each with its shape, as little-endian numbers of eight bytes, and lists of names."""
    digest = hashlib.sha256()
    for part in values:
        if isinstance(part, np.ndarray):
            kind = "u" if part.dtype.kind == "b" else part.dtype.kind  # there are no booleans of eight bytes
            fixed = np.ascontiguousarray(part, dtype=f"<{kind}8")
            digest.update(f"{fixed.dtype.str}{fixed.shape}".encode())
            digest.update(fixed.tobytes())
        else:
            digest.update("\0".join(part).encode())
    return digest.hexdigest()
