"""What storing embeddings costs in a folder that holds few shards or many: milliseconds a `put`, and their ratio.

    python benchmarks/cache.py --shards 20,2000

The folder holds so many shards of eight small vectors, made beforehand. `roomy`: its limit is far away, as that of most
users; `full`: it holds as much as its limit lets it, so that every put passes the limit. Each put writes and syncs one
file, which takes as long as the disk likes: the folders take turns, and processor time is given, too. The first put of
a process, which looks through the folder, is timed by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from stsbench.encoders.base import Encoded
from stsbench.encoders.cache.cache import EmbeddingCache

KEY = "0" * 64
TEXTS, WIDTH = 8, 32


def put(store: EmbeddingCache, name: str) -> tuple[float, float]:
    """Seconds that storing TEXTS vectors takes, of wall clock and of processor."""
    encoded = Encoded(np.zeros((TEXTS, WIDTH), np.float32), np.zeros(TEXTS, dtype=bool))
    start, busy = time.perf_counter(), time.process_time()
    store.put(KEY, [f"{name} {i}" for i in range(TEXTS)], encoded)
    return time.perf_counter() - start, time.process_time() - busy


def filled(folder: Path, shards: int) -> int:
    """Put so many shards into a folder; returns their bytes."""
    store = EmbeddingCache(folder)
    put(store, "first")
    [first] = (folder / KEY).glob("*.shard")
    content = first.read_bytes()
    for i in range(1, shards):
        path = folder / KEY / f"{i:020d}-copy.shard"
        path.write_bytes(content)
        os.utime(path, (i, i))
    return shards * len(content)


def measured(counts: list[int], full: bool, puts: int) -> list[list[float]]:
    """Mean milliseconds a put among so many shards, of wall clock and of processor; the folders take turns."""
    with contextlib.ExitStack() as folders:
        stores = []
        for shards in counts:
            folder = Path(folders.enter_context(tempfile.TemporaryDirectory()))
            size = filled(folder, shards)
            stores.append(EmbeddingCache(folder, size if full else 1000 * size))
        firsts = [put(store, "first of the process") for store in stores]
        for shards, (wall, _) in zip(counts, firsts, strict=True):
            print(f"  the first put among {shards:,} shards: {1e3 * wall:.1f} ms")
        times = [[put(store, str(i)) for store in stores] for i in range(puts)]
        return (1e3 * np.mean(times, axis=0)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", default="20,2000")
    parser.add_argument("--puts", type=int, default=400)
    args = parser.parse_args()
    counts = [int(word) for word in args.shards.split(",")]
    for full in (False, True):
        print("full:" if full else "roomy:")
        means = measured(counts, full, args.puts)
        for shards, (wall, processor) in zip(counts, means, strict=True):
            ratios = f"{wall / means[0][0]:.2f} and {processor / means[0][1]:.2f}"
            print(f"  {shards:,} shards: {wall:.2f} ms a put, {processor:.2f} ms of processor; {ratios} of the first")


if __name__ == "__main__":
    main()
