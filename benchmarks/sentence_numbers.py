"""Which pairs of STS12-16, STS-B and SICK share sentences: makes stsbench/data/sets/sentence_numbers.npz.

`python benchmarks/sentence_numbers.py`, a few seconds, with the data where `stsbench eval` finds them. The file holds hashes
of pairs and numbers of sentences, and no text.
"""

from __future__ import annotations

import numpy as np

from stsbench.data.fetch.sources import load_data
from stsbench.data.sets.sentences import FILE, packed, pair_keys, rows_name
from stsbench.files import atomic_write
from stsbench.protocols.regression import TASKS, _split_rows

SETS = ("sts12/test", "sts13/test", "sts14/test", "sts15/test", "sts16/test", "stsb/train", "stsb/dev", "stsb/test",
        "sick-r/mteb")


def numbers() -> dict[str, np.ndarray]:
    """Return what the file holds, from the real data."""
    sets = [load_data(name) for name in SETS]
    first, second = ([text for data in sets for text in getattr(data, side)] for side in ("first", "second"))
    made = packed(pair_keys(first, second), first, second)
    keys = np.unique(pair_keys(first, second) >> np.uint64(16))
    for name in TASKS.values():
        data = load_data(name)
        rows = _split_rows(data)["test"]
        pairs = pair_keys(*([getattr(data, side)[at] for at in rows] for side in ("first", "second")))
        made[rows_name(rows)] = np.searchsorted(keys, pairs >> np.uint64(16)).astype(np.uint16)
        assert (keys[made[rows_name(rows)]] == pairs >> np.uint64(16)).all()
    return made


if __name__ == "__main__":
    made = numbers()
    with atomic_write(FILE, "wb") as stream:
        np.savez_compressed(stream, **made)
    print(f"{FILE}: {made['key'].shape[1]:,} pairs, {made['sentence'].max() + 1:,} sentences, {FILE.stat().st_size:,} bytes")
