"""Many linear classifiers as one tensor: a training step of all of them, and the classes they give.

A stack is a set of classifiers trained on the same batches (they differ in their L2 strength only), so that a batch is
gathered once for all of them. g stacks of r classifiers with c classes over d features are a weight (g, r, c, d + 1); the
bias is the weight of a last feature that is 1, and decays like the rest, as torch's `weight_decay` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.probes.schemes import Rows

Tensor = Any
_PREDICTED = 4096  # rows predicted at a time
_ADAM: dict[str, Any] = {
    "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False,
}
_RMSPROP = {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8}


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
        """A numpy array as a tensor beside the features."""
        import torch

        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.features.device)

    def classify(self, weight: Tensor, rows: Tensor) -> Tensor:
        """int64 (r, m): the class that each classifier of one stack's (r, c, d + 1) weight gives to each of m rows."""
        import torch

        r, c, width = weight.shape
        parts = [
            (weight.view(r * c, width) @ self.features[some].T).view(r, c, -1).argmax(1) for some in rows.split(_PREDICTED)
        ]
        return torch.cat(parts, dim=1)


def initial_weight(width: int, classes: int, seed: int) -> Tensor:
    """float32 (classes, width + 1): what torch.nn.Linear(width, classes) starts from under `seed`, bias last."""
    import torch

    from stsbench.torch_random import Generators, drawing

    with drawing(Generators(seed)):
        layer = torch.nn.Linear(width, classes)
    return torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)


class Model:
    """Weights of g stacks in training, and their optimiser's state."""

    def __init__(self, table: FeatureTable, start: Tensor, regs: Sequence[Sequence[float]], optimizer: str) -> None:
        import torch

        self.table = table
        like: dict[str, Any] = {"dtype": table.features.dtype, "device": table.features.device}
        self.regs = torch.tensor(regs, **like)[:, :, None, None]
        self.weight = start.to(**like).expand(*self.regs.shape[:2], *start.shape).clone()
        self.moments = [torch.zeros_like(self.weight) for _ in range(2 if optimizer == "adam" else 1)]
        self._gradient = torch.empty_like(self.weight)
        self._update = self._adam if optimizer == "adam" else self._rmsprop
        self._steps = torch.zeros((), device=table.features.device)  # what torch counts its steps in

    def step(self, rows: Tensor, scale: Any) -> None:
        """One step of every stack on its own batch: rows int64 (g, b); scale: a row's share in the mean, 1 / b.

        Batches of unequal sizes are filled up with any row; `scale` is then (g, 1, 1, b), with 0 for a filler.
        """
        import torch

        (g, r, c, width), b = self.weight.shape, rows.shape[1]
        batch = self.table.features.index_select(0, rows.reshape(-1)).view(g, b, width)
        hot = self.table.hot.index_select(0, rows.reshape(-1)).view(g, 1, b, c).transpose(2, 3)
        # Only differences of logits matter: the last class is the reference, at 0, and costs no product.
        relative = (self.weight[:, :, :-1] - self.weight[:, :, -1:]).view(g, -1, width)
        logits = torch.bmm(relative, batch.transpose(1, 2)).view(g, r, c - 1, b)
        # The gradient of mean cross entropy by the logits is probability less target, over the batch size.
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
        """Go on with these classifiers only: int64 positions of stacks (g, 1) and of each one's classifiers (g, r)."""
        import torch

        self.weight, self.regs = self.weight[chosen], self.regs[chosen]
        self.moments = [moment[chosen] for moment in self.moments]
        self._gradient = torch.empty_like(self.weight)
