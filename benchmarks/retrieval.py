"""Exact nearest neighbours of 1,000 queries among 155,070 vectors: ours against a whole product, chunked torch and faiss.

    python benchmarks/retrieval.py --width 768
    python benchmarks/retrieval.py --captions ../shared/data/flickr30k/results_20130124.token --model minilm

Without --captions: random unit vectors. With it: the captions' own vectors, read from the embedding cache or encoded into
it. Each way runs in a separate process, on the same number of threads. Seconds are the best of --repeats, of wall clock
and of processor time (which a busy machine disturbs less); memory is the peak above what was resident once the
vectors were loaded. faiss's copy of the corpus counts as memory, the time to make it does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = ("whole", "chunked", "faiss", "ours")


def vectors(args: argparse.Namespace) -> Any:
    """float32 (n, d) unit vectors: the captions', or random ones."""
    import numpy as np

    if args.captions:
        from stsbench.encoders.cache.cache import EmbeddingCache
        from stsbench.encoders.cache.embed import Embed
        from stsbench.encoders.load import load_encoder
        from stsbench.extensions.stores.neighbours import read_lines
        from stsbench.files import cache_root

        captions = read_lines(args.captions, 2)
        texts = [text for text, lines in captions.items() for _ in lines]
        rows = Embed(load_encoder(args.model), EmbeddingCache(cache_root() / "embeddings"))(texts)
    else:
        rows = np.random.default_rng(0).standard_normal((args.corpus, args.width), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def chunked(queries: Any, corpus: Any, k: int, block: int = 8192) -> Any:
    """torch: a product and a topk a block, merged with the best so far."""
    import torch

    best, positions = torch.topk(queries @ corpus[:block].T, k)
    for start in range(block, len(corpus), block):
        score, column = torch.topk(queries @ corpus[start : start + block].T, k)
        best, order = torch.topk(torch.cat([best, score], 1), k)
        positions = torch.cat([positions, column + start], 1).gather(1, order)
    return positions


def prepared(way: str, queries: Any, corpus: Any, k: int, threads: int) -> Callable[[], Any]:
    """The search as a call that returns (q, k) positions."""
    if way == "ours":
        from stsbench.extensions.stores.search import nearest

        return lambda: nearest(queries, corpus, k)[1]
    if way == "faiss":
        import faiss

        faiss.omp_set_num_threads(threads)
        index = faiss.IndexFlatIP(corpus.shape[1])
        index.add(corpus)
        return lambda: index.search(queries, k)[1]
    import torch

    torch.set_num_threads(threads)
    asked, rows = torch.from_numpy(queries), torch.from_numpy(corpus)
    if way == "whole":
        return lambda: torch.topk(asked @ rows.T, k)[1].numpy()
    return lambda: chunked(asked, rows, k).numpy()


def one(way: str, folder: Path, args: argparse.Namespace) -> None:
    """Measure one way in this process; print JSON, leave its positions next to the vectors."""
    import numpy as np

    queries, corpus = np.load(folder / "queries.npy"), np.load(folder / "corpus.npy")
    prepared(way, queries[:2], corpus[:2000], 1, args.threads)()  # imports and first-call costs
    before = _mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    search = prepared(way, queries, corpus, args.top, args.threads)
    wall, busy = [], []
    for _ in range(args.repeats):
        clock, start = time.perf_counter(), time.process_time()
        positions = search()
        wall.append(time.perf_counter() - clock)
        busy.append(time.process_time() - start)
    np.save(folder / f"{way}.npy", positions)
    print(json.dumps({"way": way, "wall": min(wall), "cpu": min(busy), "mib": _mib("VmHWM") - before}))


def _mib(name: str) -> float:
    """A line of Linux's account of this process: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def main() -> None:
    """Measure and print; --json writes the figures too."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--corpus", type=int, default=155_070, help="random vectors")
    parser.add_argument("--captions", type=Path, help="Flickr30k's results_20130124.token")
    parser.add_argument("--model", default="minilm", help="encoder of the captions")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        return one(args.way, args.folder, args)
    import numpy as np

    threads = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    with tempfile.TemporaryDirectory() as temporary:
        folder, rows = Path(temporary), vectors(args)
        # Queries lie between two rows of the corpus: not in it, and not far from it.
        rng = np.random.default_rng(1)
        asked = rows[rng.integers(0, len(rows), args.queries)] + rows[rng.integers(0, len(rows), args.queries)]
        np.save(folder / "queries.npy", asked / np.linalg.norm(asked, axis=1, keepdims=True))
        np.save(folder / "corpus.npy", rows)
        kind = "caption vectors" if args.captions else "random unit vectors"
        print(f"{args.queries:,} queries, {len(rows):,} {kind} of {rows.shape[1]}, top {args.top}, {args.threads} thread(s)")
        shape, results = rows.shape, []
        del rows
        for way in WAYS:
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way, "--folder", str(folder)]
            done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True, check=True)
            results.append(json.loads(done.stdout.splitlines()[-1]))
        reference = np.sort(np.load(folder / "ours.npy"))
        for row in results:
            row["same"] = float((np.sort(np.load(folder / f"{row['way']}.npy")) == reference).all(axis=1).mean())
            print(f"{row['way']:8s} {row['wall']:6.2f} s wall {row['cpu']:6.2f} s processor {row['mib']:6.0f} MiB "
                  f"{row['same']:.4%} of queries find the same")
    if args.json:
        args.json.write_text(json.dumps({"shape": shape, "kind": kind, "threads": args.threads, "rows": results}, indent=1))


if __name__ == "__main__":
    main()
