"""SentEval's PyTorch logistic regression, with all fits of a call trained in parallel instead of one after another.

Every fit has the start, the permutations and the stopping rule that it would have alone, so it predicts the same classes.

A stack is a set of classifiers trained on the same batches (they differ only in their L2 strength), so that a batch is
gathered once for all of them. g stacks of r classifiers with c classes over d features have a weight (g, r, c, d + 1); the
bias is the weight of a last feature that is 1, and decays like the others, as with torch's `weight_decay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import ScoreError, StsbenchError
from stsbench.probes.schemes import Fit, Rows, Solver

_CACHE = 2 << 20  # bytes that a step uses in each thread, so that they stay in a core's cache
_MEMORY = 1 << 30  # bytes that a step uses on an accelerator, where larger steps are always faster
Tensor = Any
_PREDICTED = 4096  # rows that are predicted in a block
_ADAM: dict[str, Any] = {
    "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False,
}
_RMSPROP = {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8}


@dataclass(frozen=True)
class _Stack:
    """Fits with the same rows. fits: their positions in the call; regs: their L2 strengths."""

    train: Rows
    stop: Rows
    drawn: int  # length of the permutation that the stream drew before the first epoch, 0 without one
    fits: list[int]
    regs: list[float]


def lockstep_solver(
    x: NDArray[np.floating[Any]],
    y: Rows,
    classes: int,
    *,
    seed: int = 1111,
    optimizer: str = "adam",
    batch: int = 64,
    tenacity: int = 5,
    epoch_size: int = 4,
    max_epoch: int = 200,
    validation: float = 0.05,
    dtype: str = "float64",
    device: str | None = None,
    counts: dict[str, int] | None = None,
) -> Solver:
    """Return a solver that fits SentEval's softmax regressions (`MLP` with nhid 0; Conneau & Kiela 2018) on x (n, d), y
    (n,).

    y: classes 0 to `classes` - 1. Each fit starts as torch.nn.Linear does under `seed`, and minimises mean cross entropy
    with Adam (learning rate 1e-3) or RMSprop (1e-2), with weight decay `Fit.reg` of weights and bias. After every
    `epoch_size` epochs, until more than `max_epoch` are done, it is scored on `Fit.stop`; the best weights so far are kept,
    and it ends when it has failed `tenacity` + 1 times in all to improve on them. Without `Fit.stop`, the share `validation`
    of the items of `Fit.train` is drawn for it. Each call of the solver adds its number of fits to `counts["fits"]`.

    dtype: in float64, rounding is too small to change a predicted class, so that results do not depend on the device or on
    the number of fits trained in parallel; in float32, which SentEval uses, they do. Raises ScoreError for vectors that
    cannot be fitted, StsbenchError for an unknown option.
    """
    import torch

    if optimizer not in ("adam", "rmsprop"):
        raise StsbenchError(f"unknown optimizer '{optimizer}'; known: adam, rmsprop")
    if dtype not in ("float32", "float64"):
        raise StsbenchError(f"unknown dtype '{dtype}' of the probe; known: float32, float64")
    bad = int((~np.isfinite(x)).any(axis=1).sum())
    if bad:
        raise ScoreError(f"{bad} of {len(x)} items have features that are NaN or infinite")
    if len(x) != len(y):
        raise ScoreError(f"{len(x)} vectors for {len(y)} labels")
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise ScoreError(f"labels run from {y.min()} to {y.max()}, not from 0 to {classes - 1}")
    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch_device = torch.device(name)
        table = FeatureTable(x, y, classes, getattr(torch, dtype), torch_device)
    except (TypeError, RuntimeError, AssertionError) as error:  # no such device, or one without float64 (Apple's)
        raise StsbenchError(f"the probe cannot compute in {dtype} on device {name}: use the cpu") from error
    start = initial_weight(x.shape[1], classes, seed)
    most = _CACHE * torch.get_num_threads() if torch_device.type == "cpu" else _MEMORY

    def solve(fits: Sequence[Fit]) -> list[Rows]:
        if counts is not None:
            counts["fits"] += len(fits)
        predicted: list[Rows] = [fit.predict for fit in fits]
        by_size: dict[tuple[int, int], list[_Stack]] = {}
        for stack in _stacks(fits, seed, validation):
            by_size.setdefault((ceil(len(stack.train) / batch), len(stack.fits)), []).append(stack)
        for (_, fit_count), stacks in by_size.items():
            # A step uses the batches, the weights, gradients and moments of all its stacks.
            touched = start.shape[1] * (batch + 4 * fit_count * classes) * table.features.element_size()
            size = max(1, most // touched)
            for first in range(0, len(stacks), size):
                run = _Run(table, stacks[first : first + size], start, optimizer, batch, seed)
                with torch.inference_mode():
                    for position, weight in run.train(epoch_size, max_epoch, tenacity):
                        rows = table.to_device(fits[position].predict)
                        predicted[position] = table.classify(weight, rows)[0].cpu().numpy()
        return predicted

    return solve


def _stacks(fits: Sequence[Fit], seed: int, validation: float) -> list[_Stack]:
    stacks: dict[tuple[bytes, bytes | None], _Stack] = {}
    for position, fit in enumerate(fits):
        key = fit.train.tobytes(), None if fit.stop is None else fit.stop.tobytes()
        if key not in stacks:
            train, stop, drawn = fit.train, fit.stop, 0
            if stop is None:
                # SentEval's split uses the stream's first permutation, and its epochs the following ones.
                drawn = len(train)
                shuffled = train[np.random.RandomState(seed).permutation(drawn)]
                item = shuffled if fit.item is None else fit.item[shuffled]
                _, first, at = np.unique(item, return_index=True, return_inverse=True)
                held_out = (first.argsort().argsort() < int(validation * len(first)))[at]  # the first shuffled items
                train, stop = shuffled[~held_out], shuffled[held_out]
            if not len(train) or not len(stop):
                few = f"{len(train)} to train on, {len(stop)} to stop early on"
                raise ScoreError(f"too few items for the probe: {few}")
            stacks[key] = _Stack(train, stop, drawn, [], [])
        stacks[key].fits.append(position)
        stacks[key].regs.append(fit.reg)
    return list(stacks.values())


class _Run:
    """Training of stacks with equally many batches per epoch and equally many fits, until all fits have stopped."""

    def __init__(self, table: FeatureTable, stacks: list[_Stack], start: Any, optimizer: str, batch: int, seed: int) -> None:
        self.table, self.stacks, self.batch = table, stacks, batch
        self.model = Model(table, start, [stack.regs for stack in stacks], optimizer)
        self.streams = {(len(stack.train), stack.drawn): np.random.RandomState(seed) for stack in stacks}
        for (_, drawn), stream in self.streams.items():
            if drawn:
                stream.permutation(drawn)
        self.stops = [table.to_device(stack.stop) for stack in stacks]

    def train(self, epoch_size: int, max_epoch: int, tenacity: int) -> Iterator[tuple[int, Any]]:
        """Yield each fit's position in the call with its best weights (1, c, d + 1), as it ends."""
        position = np.array([stack.fits for stack in self.stacks])
        shape: tuple[int, ...] = position.shape
        best, failures, going = np.full(shape, -1), np.zeros(shape, dtype=int), np.ones(shape, dtype=bool)
        kept = self.model.weight.clone()
        epoch = 0
        while True:
            for _ in range(epoch_size):
                self._epoch()
            epoch += epoch_size
            hits = self._hits()
            better = going & (hits > best)
            best[better] = hits[better]
            mask = self.table.to_device(better)
            kept[mask] = self.model.weight[mask]
            failed = going & ~better
            ended = failed & (failures >= tenacity) if epoch <= max_epoch else going
            failures += failed
            going = going & ~ended
            for stack, fit in np.argwhere(ended).tolist():
                yield int(position[stack, fit]), kept[stack, fit : fit + 1]
            live, most = np.flatnonzero(going.any(axis=1)), int(going.sum(axis=1).max())
            if not most:
                return
            if (len(live), most) != going.shape:
                # Fits that continue are put first; a stack with fewer of them than another keeps some ended ones.
                at = live[:, None], np.argsort(~going[live], axis=1, kind="stable")[:, :most]
                best, failures, going, position = best[at], failures[at], going[at], position[at]
                self.stacks, self.stops = [self.stacks[i] for i in live], [self.stops[i] for i in live]
                chosen = self.table.to_device(at[0]), self.table.to_device(at[1])
                kept = kept[chosen]
                self.model.keep(chosen)

    def _epoch(self) -> None:
        """Train every stack on its batches once."""
        orders = {key: stream.permutation(key[0]) for key, stream in self.streams.items()}
        sizes = np.array([len(stack.train) for stack in self.stacks])
        rows = np.zeros((len(sizes), sizes.max()), dtype=np.int64)
        for row, stack in zip(rows, self.stacks, strict=True):
            row[: len(stack.train)] = stack.train[orders[len(stack.train), stack.drawn]]
        order = self.table.to_device(rows)
        whole = (sizes.max() - 1) // self.batch * self.batch  # the start of the last batch, which may be smaller
        for first in range(0, whole, self.batch):
            self.model.step(order[:, first : first + self.batch], 1 / self.batch)
        there = np.arange(whole, sizes.max()) < sizes[:, None]
        scale = there / (sizes[:, None] - whole)
        self.model.step(order[:, whole:], self.table.to_device(scale[:, None, None]).to(self.table.features.dtype))

    def _hits(self) -> NDArray[np.int64]:
        """Return int64 (g, r): the number of `stop` rows that each fit classifies correctly."""
        import torch

        hits = []
        for weight, rows in zip(self.model.weight, self.stops, strict=True):
            hits.append((self.table.classify(weight, rows) == self.table.labels[rows]).sum(1))
        return np.asarray(torch.stack(hits).cpu().numpy())


class FeatureTable:
    """Features with a last column of ones, (n, d + 1), and the labels as classes (n,) and one-hot (n, c), on the device."""

    def __init__(self, x: NDArray[np.floating[Any]], y: Rows, classes: int, dtype: Any, device: Any) -> None:
        import torch

        self.features = torch.ones(len(x), x.shape[1] + 1, dtype=dtype, device=device)
        self.features[:, :-1] = torch.from_numpy(np.ascontiguousarray(x))
        self.classes = classes
        self.labels = torch.tensor(y, dtype=torch.int64, device=device)
        self.hot = torch.nn.functional.one_hot(self.labels, classes).to(dtype)

    def to_device(self, rows: NDArray[Any]) -> Tensor:
        """Return a numpy array as a tensor on the device of the features."""
        import torch

        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.features.device)

    def classify(self, weight: Tensor, rows: Tensor) -> Tensor:
        """Return int64 (r, m), the classes of m rows as predicted by each classifier of one stack. weight: (r, c, d + 1)."""
        import torch

        r, c, width = weight.shape
        parts = [
            (weight.view(r * c, width) @ self.features[some].T).view(r, c, -1).argmax(1) for some in rows.split(_PREDICTED)
        ]
        return torch.cat(parts, dim=1)


def initial_weight(width: int, classes: int, seed: int) -> Tensor:
    """Return float32 (classes, width + 1), initial weights of torch.nn.Linear(width, classes) under `seed`, bias last."""
    import torch

    from stsbench.torch_random import Generators, drawing

    with drawing(Generators(seed)):
        layer = torch.nn.Linear(width, classes)
    return torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)


class Model:
    """Weights of g stacks in training, and the state of their optimizer."""

    def __init__(self, table: FeatureTable, start: Tensor, regs: Sequence[Sequence[float]], optimizer: str) -> None:
        import torch

        self.table = table
        like: dict[str, Any] = {"dtype": table.features.dtype, "device": table.features.device}
        self.regs = torch.tensor(regs, **like)[:, :, None, None]
        self.weight = start.to(**like).expand(*self.regs.shape[:2], *start.shape).clone()
        self.moments = [torch.zeros_like(self.weight) for _ in range(2 if optimizer == "adam" else 1)]
        self._gradient = torch.empty_like(self.weight)
        self._update = self._adam if optimizer == "adam" else self._rmsprop
        self._steps = torch.zeros((), device=table.features.device)  # Adam's step count, which torch keeps in a tensor

    def step(self, rows: Tensor, scale: Any) -> None:
        """Take a step of every stack on its own batch. rows: int64 (g, b); scale: the weight of a row in the mean, 1 / b.

        Batches of unequal sizes are padded with any row; `scale` is then (g, 1, 1, b), with 0 for padding.
        """
        import torch

        (g, r, c, width), b = self.weight.shape, rows.shape[1]
        batch = self.table.features.index_select(0, rows.reshape(-1)).view(g, b, width)
        hot = self.table.hot.index_select(0, rows.reshape(-1)).view(g, 1, b, c).transpose(2, 3)
        # Only differences of logits matter, so the last class has the logit 0, which saves its product.
        relative = (self.weight[:, :, :-1] - self.weight[:, :, -1:]).view(g, -1, width)
        logits = torch.bmm(relative, batch.transpose(1, 2)).view(g, r, c - 1, b)
        # The gradient of mean cross entropy by the logits is (probability - target) / batch size.
        excess = torch.nn.functional.pad(logits, (0, 0, 0, 1)).softmax(2)[:, :, :-1] - hot[:, :, :-1]
        excess *= scale
        inner = torch.bmm(excess.view(g, -1, b), batch).view(g, r, c - 1, width)
        self._gradient[:, :, :-1] = inner
        torch.sum(inner, dim=2, out=self._gradient[:, :, -1]).neg_()
        self._gradient.addcmul_(self.weight, self.regs)
        self._update()

    def _adam(self) -> None:
        from torch.optim.adam import adam

        first, second = self.moments
        adam([self.weight], [self._gradient], [first], [second], [], [self._steps], fused=True, **_ADAM)

    def _rmsprop(self) -> None:
        (square,) = self.moments
        square.mul_(_RMSPROP["alpha"]).addcmul_(self._gradient, self._gradient, value=1 - _RMSPROP["alpha"])
        self.weight.addcdiv_(self._gradient, square.sqrt().add_(_RMSPROP["eps"]), value=-_RMSPROP["lr"])

    def keep(self, chosen: tuple[Tensor, Tensor]) -> None:
        """Keep only these classifiers. chosen: int64 indices of stacks (g, 1), and of classifiers in each stack (g, r)."""
        import torch

        self.weight, self.regs = self.weight[chosen], self.regs[chosen]
        self.moments = [moment[chosen] for moment in self.moments]
        self._gradient = torch.empty_like(self.weight)
