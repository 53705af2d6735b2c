"""SentEval's classifier on real vectors: all fits in lockstep against one fit after another.

    python benchmarks/transfer.py --data-dir ../shared/data --task CR --threads 1

`lockstep` runs a task's full 10-fold grid (400 fits for CR, 40 for TREC and MRPC) with `lockstep_solver`, and some of
the same fits one after another (torch.nn.Linear, autograd, torch.optim: tests/support/probe_oracle.py, in float32 as
SentEval computes and in the lockstep's own precision), with the same threads and in turn. The one-at-a-time seconds are
scaled up to the grid by fits: every fit of the sample is drawn at random, and `--one-by-one 400` runs them all. Both
sides must give the same classes where they compute in float64; float32 counts what rounding moves.
`exact` compares the exact solver with scikit-learn: benchmarks/transfer_exact.py.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
REGS = [1e-5, 1e-4, 1e-3, 1e-2]
NESTED = {"MR": ("rt-polarity.neg", "rt-polarity.pos"), "CR": ("custrev.neg", "custrev.pos"),
          "SUBJ": ("subj.subjective", "subj.objective"), "MPQA": ("mpqa.neg", "mpqa.pos")}


def vectors(task: str, downstream: Path, model: str) -> tuple[Any, Any, int]:
    """Features float32 (n, d), classes int64 (n,), and how many of the n are the training split, which comes first."""
    from stsbench.data.sets.readers import Labelled, read_class, read_mrpc, read_trec
    from stsbench.encoders.cache.cache import EmbeddingCache
    from stsbench.encoders.cache.embed import Embed
    from stsbench.encoders.load import load_encoder
    from stsbench.files import cache_root

    folder = downstream / task
    splits: list[list[Labelled]] = [[]]
    if task in NESTED:
        for label, name in enumerate(NESTED[task]):
            splits[0] += read_class(folder / name, label)
    elif task == "TREC":
        splits = [read_trec(folder / name, "") for name in ("train_5500.label", "TREC_10.label")]
    else:
        splits = [read_mrpc(folder / f"msr_paraphrase_{name}.txt", "") for name in ("train", "test")]
    first, second, labels = [], [], []
    for split in splits:
        items = [(one, two or one, label) for one, two, label, _ in split]
        rows = sorted(items, key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]))
        first += [row[0] or "." for row in rows]
        second += [row[1] or "." for row in rows]
        labels += [row[2] for row in rows]
    embed = Embed(load_encoder(model), EmbeddingCache(cache_root() / "embeddings"))
    u = embed(first)
    if first != second:
        v = embed(second)
        u = np.concatenate([np.abs(u - v), u * v], axis=1)
    return np.ascontiguousarray(u, dtype=np.float32), np.array(labels, dtype=np.int64), len(splits[0])


def grid_fits(y: Any, training: int, k: int) -> list[Any]:
    """The fits of the task's grid, as the scheme asks for them."""
    from stsbench.probes.schemes import cross_validated, nested

    asked: list[Any] = []

    def note(fits: Any) -> list[Any]:
        asked.append(list(fits))
        return [y[fit.predict] for fit in fits]

    if training == len(y):
        nested(y, k, 1111, REGS, note)
    else:
        cross_validated(y, np.arange(training), np.arange(training, len(y)), k, 1111, REGS, note)
    return asked[0]


def lockstep(x: Any, y: Any, training: int, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the grid on each side and in each precision, and how many classes differ."""
    import torch

    from stsbench.probes.lockstep import lockstep_solver

    sys.path.insert(0, str(ROOT / "tests"))
    from probe_oracle import Probe

    classes = int(y.max()) + 1
    fits = grid_fits(y, training, args.folds)
    some = sorted(random.Random(args.seed).sample(range(len(fits)), min(args.one_by_one, len(fits))))
    clock = time.process_time if args.cpu_time else time.perf_counter
    result: dict[str, Any] = {"fits": len(fits), "sample": len(some), "n": len(y), "d": x.shape[1]}

    for dtype in args.dtypes.split(","):
        began = clock()
        predictions = lockstep_solver(x, y, classes, dtype=dtype, device="cpu")(fits)
        seconds, alone, steps, moved, fits_moved = clock() - began, 0.0, 0, 0, 0
        for i in some:
            fit, began = fits[i], clock()
            probe = Probe(classes, fit.reg, dtype=getattr(torch, dtype))
            probe.fit(x[fit.train], y[fit.train], (x[fit.stop], y[fit.stop]))
            predicted = probe.predict(x[fit.predict])
            alone, steps = alone + clock() - began, steps + probe.steps
            differ = int((predicted != predictions[i]).sum())
            moved, fits_moved = moved + differ, fits_moved + bool(differ)
        result[dtype] = {
            "lockstep": seconds, "alone": alone * len(fits) / len(some), "ms a step": 1000 * alone / steps,
            "classes moved": moved, "fits moved": fits_moved, "classes": sum(len(fits[i].predict) for i in some),
        }
    return result


def show(task: str, result: dict[str, Any], threads: int) -> None:
    """Print one task's table."""
    print(f"\n{task}: {result['n']} items x {result['d']}, {result['fits']} fits, {threads} thread(s)")
    if result["sample"] < result["fits"]:
        print(f"sequential: {result['sample']} fits drawn at random, seconds scaled up to all")
    print(f"{'':10}{'lockstep s':>12}{'alone s':>10}{'ms/step':>9}{'ratio':>9}{'of float32':>12}{'moved':>22}")
    for dtype in ("float64", "float32"):
        if dtype not in result:
            continue
        row = result[dtype]
        against = f"{result['float32']['alone'] / row['lockstep']:.1f}x" if "float32" in result else ""
        moved = f"{row['classes moved']}/{row['classes']} in {row['fits moved']} fits"
        print(f"{dtype:10}{row['lockstep']:12.1f}{row['alone']:10.1f}{row['ms a step']:9.3f}"
              f"{row['alone'] / row['lockstep']:8.1f}x{against:>12}{moved:>22}")


def main() -> None:
    """Read the options, run each task, print or dump."""
    shared = ROOT.parent / "shared"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=shared / "data")
    parser.add_argument("--model", default=str(shared / "models" / "minilm-l6-fp16"))
    parser.add_argument("--task", default="CR", choices=[*NESTED, "TREC", "MRPC"])
    parser.add_argument("--part", default="lockstep", choices=["lockstep", "exact"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--one-by-one", type=int, default=20, help="fits of the grid that are also run one after another")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--cpu-time", action="store_true", help="CPU seconds, for a machine with company")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    x, y, training = vectors(args.task, args.data_dir / "downstream", args.model)
    if args.part == "exact":
        from transfer_exact import measure

        result = measure(x, y, int(y.max()) + 1, train=training if training < len(y) else None)
        print(json.dumps(result, indent=1) if args.json else result)
        return
    result = lockstep(x, y, training, args)
    if args.json:
        print(json.dumps({"task": args.task, "threads": args.threads, **result}, indent=1))
    else:
        show(args.task, result, args.threads)


if __name__ == "__main__":
    main()
