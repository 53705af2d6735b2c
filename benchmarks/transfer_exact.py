"""Exact logistic regression against scikit-learn's sequence of fits: the same folds, grid and objective, one thread.

    python benchmarks/transfer_exact.py --data-dir ../shared/data --tasks CR,MR,TREC

The nested 10-fold scheme (610 fits; TREC: 10-fold, 71 fits) on an encoder's vectors. Two sequences of the library:
(a) `same`: to our tolerance. Ours is the size T of the gradient of C * losses + |w|^2 / 2; lbfgs gets tol = T / (C n), the
    same gradient in its own units (a mean over n rows, divided by C), its largest element instead of its length, which
    is looser; vectors in float64, because float32 gradients do not get there. The gradients reached are reported.
(b) `default`: tol = 1e-4 (in its units), 100 iterations, float32 vectors: the scikit-learn mode.
Only a sample of the library's fits is run, spread over the grid, and scaled up by number; ours runs whole.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LABELS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


def read_task(downstream: Path, name: str) -> tuple[list[str], list[int], int]:
    """Texts, labels and the number of training texts (all of them but for TREC), as SentEval sorts them."""
    if name == "TREC":
        parts = []
        for file in ("train_5500.label", "TREC_10.label"):
            lines = (downstream / "TREC" / file).read_text(encoding="latin-1").split("\n")
            cells = [line.strip().split(" ", 1) for line in lines if line.strip()]
            parts.append(sorted(((text, LABELS.index(kind.split(":")[0])) for kind, text in cells), key=_order))
        items = parts[0] + parts[1]
        return [text for text, _ in items], [label for _, label in items], len(parts[0])
    stem = {"CR": "CR/custrev", "MR": "MR/rt-polarity"}[name]
    items = []
    for label, kind in enumerate(("neg", "pos")):
        lines = (downstream / f"{stem}.{kind}").read_text(encoding="latin-1").removesuffix("\n").split("\n")
        items += [(line.strip() or ".", label) for line in lines]
    items.sort(key=_order)
    return [text for text, _ in items], [label for _, label in items], len(items)


def _order(item: tuple[str, int]) -> tuple[int, int]:
    return len(item[0].split()), item[1]


def _gradient(x: Any, y: Any, coef: Any, intercept: Any, reg: float) -> float:
    """Largest element of the gradient by the weights and the intercept, in the units of T."""
    margin = x @ coef.T + intercept
    if len(coef) == 1:
        rest = 1 / (1 + np.exp(-margin)) - (y == y.max())[:, None]
    else:
        shifted = np.exp(margin - margin.max(axis=1, keepdims=True))
        rest = shifted / shifted.sum(axis=1, keepdims=True) - (y[:, None] == np.unique(y))
    return float(max(np.abs(reg * rest.T @ x + coef).max(), np.abs(reg * rest.sum(axis=0)).max()))


def measure(
    x: Any, y: Any, classes: int, *, train: int | None = None, tolerance: float = 1e-5, sample: int = 24, k: int = 10
) -> dict[str, Any]:
    """CPU seconds of ours and of the library's two sequences, agreement of predictions, gradients reached.

    x: float32 (n, d); y: (n,); train: the first rows are the training split, the others the test; None: nested folds.
    """
    import sklearn.linear_model
    import torch
    from threadpoolctl import threadpool_limits

    from stsbench.probes.exact import Exact
    from stsbench.probes.schemes import GRID_KFOLD, GRID_NESTED_SPLIT, Fit, cross_validated, nested

    torch.set_num_threads(1)
    y = np.asarray(y, dtype=np.int64)
    some = np.arange(0, len(y), 20)
    Exact(x, y, classes, tolerance, None, "cpu")([Fit(some, None, some, 1.0)])  # imports, first calls
    kept: list[Fit] = []

    def run(solver: Any) -> Any:
        if train is None:
            return nested(y, k, 1111, GRID_NESTED_SPLIT, solver)
        return cross_validated(y, np.arange(train), np.arange(train, len(y)), k, 1111, GRID_KFOLD, solver)

    def remember(fits: Sequence[Fit]) -> list[Any]:
        kept.extend(fits)
        return [y[fit.predict] for fit in fits]

    run(remember)
    counts: dict[str, int] = {}
    classifiers = []

    def run_exact(fits: Sequence[Fit]) -> list[Any]:
        fitted = exact.fitted(fits)
        classifiers.extend(fitted)
        return [one.predicted for one in fitted]

    start = time.process_time()
    exact = Exact(x, y, classes, tolerance, counts, "cpu")
    run(run_exact)
    seconds = {"ours": time.process_time() - start}
    # The grid's fits are the same for all; the last ones depend on what was chosen, so they are not compared.
    grid = [i for i, fit in enumerate(kept) if fit.stop is not None]
    chosen = [grid[i] for i in np.linspace(0, len(grid) - 1, min(sample, len(grid))).round().astype(int)]
    result: dict[str, Any] = {"fits": len(kept), "sampled": len(chosen), "counts": counts, "tolerance": tolerance}
    wide = x.astype(np.float64)
    for name, vectors in (("same", wide), ("default", x)):
        taken, unequal, tested, reached, missed = 0.0, 0, 0, 0.0, 0
        for number in chosen:
            fit, classifier = kept[number], classifiers[number]
            extra = {"tol": tolerance / (fit.reg * len(fit.train)), "max_iter": 100_000} if name == "same" else {}
            model = sklearn.linear_model.LogisticRegression(C=fit.reg, random_state=1111, **extra)
            with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
                warnings.simplefilter("always")
                start = time.process_time()
                predicted = model.fit(vectors[fit.train], y[fit.train]).predict(vectors[fit.predict])
                taken += time.process_time() - start
            missed += bool(caught)
            unequal, tested = unequal + int((predicted != classifier.predicted).sum()), tested + len(predicted)
            rows = wide[fit.train]
            reached = max(reached, _gradient(rows, y[fit.train], model.coef_.astype(float), model.intercept_, fit.reg))
        seconds[name] = taken * len(kept) / len(chosen)
        result[name] = {"unequal": unequal, "tested": tested, "worst_gradient": reached, "warned": missed}
    result["ours"] = max(
        _gradient(wide[fit.train], y[fit.train], classifier.coef, classifier.intercept, fit.reg)
        for fit, classifier in ((kept[i], classifiers[i]) for i in chosen)
    )
    result["seconds"] = seconds
    result["ratio"] = {name: seconds[name] / seconds["ours"] for name in ("same", "default")}
    return result


def main() -> None:
    """Read the options, encode, measure each task, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(__file__).resolve().parents[2] / "shared"
    parser.add_argument("--data-dir", type=Path, default=shared / "data")
    parser.add_argument("--encoder", default=str(shared / "models" / "minilm-l6-fp16"))
    parser.add_argument("--tasks", default="CR,MR,TREC")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--sample", type=int, default=24, help="fits of the library to time")
    parser.add_argument("--vectors", type=Path, help="a folder to keep the vectors in, NAME.npy each")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in args.tasks.split(","):
        texts, labels, train = read_task(args.data_dir / "downstream", name)
        kept = args.vectors / f"{name}.npy" if args.vectors else None
        if kept and kept.is_file():
            x = np.load(kept)
        else:
            from stsbench.encoders.cache.embed import Embed
            from stsbench.encoders.load import load_encoder

            x = Embed(load_encoder(args.encoder))(texts)
            if kept:
                np.save(kept, x)
        size = train if train < len(texts) else None
        result = measure(x, labels, max(labels) + 1, train=size, tolerance=args.tolerance, sample=args.sample)
        print(name, x.shape, json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
