"""How BERT-flow learns its network: the objective, the optimiser and the batches of the authors' code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.encoders.fitted import shortened
from stsbench.encoders.post.base import VectorSource
from stsbench.errors import StsbenchError
from stsbench.extensions.flow.glow import Glow

_DECAY, _CLIP = 0.01, 1.0


class BertAdam:
    """Adam without bias correction, epsilon outside the root, decoupled weight decay on every parameter, a constant rate.

    Source: BERT's own optimiser (Devlin et al. 2019), as BERT-flow applies it to the flow.
    """

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        self.parameters, self.rate = parameters, rate
        self._first = [torch.zeros_like(parameter) for parameter in parameters]
        self._second = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self) -> None:
        """One update by the gradients, which are scaled down to a common norm of at most 1 and cleared."""
        gradients = [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in self.parameters]
        norm = torch.stack([tensor.norm() for tensor in gradients]).norm()
        scale = _CLIP / norm.clamp(min=_CLIP)
        for parameter, gradient, first, second in zip(self.parameters, gradients, self._first, self._second, strict=True):
            gradient = gradient * scale
            first.mul_(0.9).add_(gradient, alpha=0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            parameter.sub_(self.rate * (first / (second.sqrt() + 1e-6) + _DECAY * parameter))
            parameter.grad = None


def objective(glow: Glow, batch: Tensor) -> Tensor:
    """Bits per dimension of a batch (m, sides, d): the mean over each side, added up over the sides."""
    return torch.stack([glow.bits_per_dimension(side).mean() for side in batch.unbind(1)]).sum()


def steps_of(items: int, batch_size: int, epochs: float) -> int:
    """How many updates `epochs` passes over so many items are: whole batches, at least one."""
    return max(1, int(items / batch_size * epochs))


def fit_glow(glow: Glow, batches: Iterable[NDArray[np.float32]], *, rate: float, name: str) -> float:
    """Fit `glow` in place, an update a batch (m, sides, d); returns the last batch's bits per dimension and side.

    The actnorms are set by the first sides of the first batch, once more mapped before the first update, as in the
    authors' code. StsbenchError, one line beginning with `name`: a loss that is no finite number.
    """
    optimiser, last = BertAdam(list(glow.parameters()), rate), float("nan")
    for step, vectors in enumerate(batches):
        batch = torch.from_numpy(np.ascontiguousarray(vectors, np.float32))
        if step == 0:
            glow.initialise(batch[:, 0])
        loss = objective(glow, batch)
        if not torch.isfinite(loss):
            raise StsbenchError(f"{name}: the flow's loss is not finite at step {step + 1}: lower learning_rate")
        loss.backward()
        optimiser.step()
        last = loss.item() / batch.shape[1]
    return last


def batches_of(
    source: VectorSource, batch_size: int, steps: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float32]]:
    """`steps` batches (m, sides, d), pass after pass, without the smaller one at the end of a pass that has others.
    StsbenchError, one line: fewer than two texts."""
    done = 0
    while done < steps:
        before = done
        for vectors in source.shuffled(batch_size, rng):
            if len(vectors) < batch_size and done > before:
                break
            if len(vectors) < 2:
                raise StsbenchError(f"{shortened(source.name)}: a flow needs two texts at least")
            yield vectors
            done += 1
            if done == steps:
                return
        if done == before:
            raise StsbenchError(f"{shortened(source.name)}: a flow needs two texts at least")
