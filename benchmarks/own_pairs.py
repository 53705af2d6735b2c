"""Memory and time of `stsbench eval` on a user's own pairs, by how many there are and how wide the vectors.

    python benchmarks/own_pairs.py [PAIRS ...]
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [f"w{i}" for i in range(5_000)]
RESAMPLES = 40
MODELS = ["lexical:token-set", "python:own_pairs:narrow", "python:own_pairs:wide"]


@cache
def _table(width: int) -> Any:
    return np.random.default_rng(0).standard_normal((len(WORDS), width), dtype=np.float32)


def _means(texts: list[str], width: int) -> Any:
    table = _table(width)
    return np.stack([table[[int(word[1:]) for word in text.split()]].mean(axis=0) for text in texts])


def narrow(texts: list[str]) -> Any:
    """(n, 384): the mean of a random vector a word, which costs next to nothing to compute."""
    return _means(texts, 384)


def wide(texts: list[str]) -> Any:
    """(n, 1024): the same."""
    return _means(texts, 1024)


def write(path: Path, pairs: int) -> None:
    """A TSV of pairs of eight words each, some of which they share: the score says how many."""
    rng = random.Random(0)
    with path.open("w") as stream:
        stream.write("sentence1\tsentence2\tscore\n")
        for _ in range(pairs):
            first = rng.choices(WORDS, k=8)
            second = [word if rng.random() < 0.6 else rng.choice(WORDS) for word in first]
            score = 5 * sum(map(str.__eq__, first, second)) / 8
            stream.write(f"{' '.join(first)}\t{' '.join(second)}\t{score:.2f}\n")


def measured(model: str, path: Path, output: Path) -> tuple[float, float]:
    """Peak memory in MB and seconds of the processor of one evaluation, in a process of its own."""
    words = ["-m", "stsbench", "eval", "--model", model, "--protocol", f"sts:{path}", "--resamples",
             str(RESAMPLES), "--output", str(output)]
    code = "import resource, subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True, " \
           "capture_output=True); used = resource.getrusage(resource.RUSAGE_CHILDREN); " \
           "print(used.ru_maxrss / 1024, used.ru_utime + used.ru_stime)"
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True, text=True, env=here)
    peak, seconds = map(float, done.stdout.split())
    return peak, seconds


def main() -> None:
    """A line for each number of pairs and each model."""
    sizes = [int(word) for word in sys.argv[1:]] or [250_000, 1_000_000]
    with tempfile.TemporaryDirectory() as folder:
        for pairs in sizes:
            path = Path(folder, f"{pairs}.tsv")
            write(path, pairs)
            for at, model in enumerate(MODELS):
                began = time.monotonic()
                peak, seconds = measured(model, path, Path(folder, f"run-{pairs}-{at}"))
                print(f"{pairs:,} pairs, {model}: peak memory {peak:,.0f} MB, {seconds:.0f} s of the processor, "
                      f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
