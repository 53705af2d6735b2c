"""The texts that are encoded: those of the seven STS tasks, as SimCSE's evaluation reads them."""

from __future__ import annotations

import random
from pathlib import Path

Pair = tuple[str, str, float]


def read_tasks(downstream: Path) -> tuple[list[list[Pair]], dict[str, list[Pair]]]:
    """The pair lists that SimCSE encodes, in its order, and by its name each of the seven tasks that are scored."""
    every: list[list[Pair]] = []
    scored: dict[str, list[Pair]] = {}
    for year in range(12, 17):
        for inputs in sorted((downstream / "STS" / f"STS{year}-en-test").glob("STS.input.*.txt")):
            texts = inputs.read_text(encoding="utf-8").splitlines()
            gold = (inputs.parent / inputs.name.replace("input", "gs")).read_text(encoding="utf-8").splitlines()
            rows = [(*text.split("\t")[:2], float(g)) for text, g in zip(texts, gold, strict=True) if g.strip()]
            every.append(sorted(rows, key=lambda r: (len(r[0].split()), len(r[1].split()), r[2])))
            scored.setdefault(f"STS{year}", []).extend(every[-1])
    for split in ("train", "dev", "test"):
        lines = (downstream / "STS" / "STSBenchmark" / f"sts-{split}.csv").read_text(encoding="utf-8").split("\n")
        fields = [line.strip().split("\t") for line in lines if line.strip()]
        every.append([(f[5], f[6], float(f[4])) for f in fields])
    scored["STS-B"] = every[-1]
    for split in ("train", "trial", "test_annotated"):
        lines = (downstream / "SICK" / f"SICK_{split}.txt").read_text(encoding="utf-8").split("\n")
        fields = [line.strip().split("\t") for line in lines[1:] if line.strip()]
        every.append([(f[1], f[2], float(f[3])) for f in fields])
    scored["SICK-R"] = every[-1]
    return every, scored


def batches_of(tasks: list[list[Pair]], size: int = 128) -> list[list[str]]:
    """SimCSE's batches: first and second sentences of the same rows apart."""
    return [
        [" ".join(row[side].split()) for row in task[start:start + size]]
        for task in tasks for start in range(0, len(task), size) for side in (0, 1)
    ]


def sample(texts: list[str], count: int, seed: int) -> list[str]:
    """About `count` texts in runs of 32 neighbours of the order by length, so that the library pads them as it pads all."""
    by_length = sorted(texts, key=len, reverse=True)
    blocks = [by_length[i:i + 32] for i in range(0, len(texts), 32)]
    chosen = random.Random(seed).sample(range(len(blocks)), min(len(blocks), max(4, count // 32)))
    return [text for i in sorted(chosen) for text in blocks[i]]


def spearman(vectors: dict[str, list[float]], pairs: list[Pair]) -> float:
    """Of the pairs' cosines with the gold scores, x 100."""
    import numpy as np
    from scipy.stats import spearmanr

    first, second = (np.array([vectors[" ".join(row[side].split())] for row in pairs], dtype=float) for side in (0, 1))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    return float(100 * spearmanr(cosines, [row[2] for row in pairs]).statistic)
