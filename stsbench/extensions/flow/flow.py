"""The post-processing `flow`, BERT-flow: its options, its objective and its training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from stsbench.encoders.post.base import Post, PostOptions, State, Vectors, VectorSource
from stsbench.encoders.traits import shortened
from stsbench.errors import StsbenchError
from stsbench.extensions.flow.glow import Glow
from stsbench.settings import setting
from stsbench.torch_random import seeded
from stsbench.wording import counted

_DECAY, _CLIP = 0.01, 1.0
_CHUNK = 8192  # vectors mapped at a time
Positive = Annotated[int, Field(ge=1)]
AboveZero = Annotated[float, Field(gt=0)]


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
        """Update the parameters by their gradients, clipped to a global norm of at most 1, and clear these."""
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
    """Return bits per dimension of a batch (m, sides, d), a scalar: the mean over each side, summed over the sides."""
    return torch.stack([glow.bits_per_dimension(side).mean() for side in batch.unbind(1)]).sum()


def count_steps(items: int, batch_size: int, epochs: float) -> int:
    """Return the number of updates in `epochs` passes over `items` items: whole batches, at least one."""
    return max(1, int(items / batch_size * epochs))


def fit_glow(glow: Glow, batches: Iterable[NDArray[np.float32]], *, rate: float, name: str) -> float:
    """Fit `glow` in place, with one update per batch (m, sides, d); return the last batch's bits per dimension and side.

    The actnorms are initialised from the first sides of the first batch, which is mapped again before the first update, as
    in the authors' code. Raises StsbenchError, one line beginning with `name`, for a loss that is NaN or infinite.
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


def draw_batches(
    source: VectorSource, batch_size: int, steps: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float32]]:
    """Yield `steps` batches (m, sides, d), pass after pass; a smaller last batch of a pass is dropped unless it is the only
    one. Raises StsbenchError, one line, for fewer than two texts."""
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


class FlowOptions(PostOptions):
    """The settings of `flow`; defaults are those of the authors' code, fitted on the tested texts ("target")."""

    later = ("coupling", "activation")
    levels: Positive = setting(3, "how often the channels are halved; the vectors' width is a multiple of 2^levels",
                               "code: 3; Table 7 of the paper: 2")
    depth: Positive = setting(3, "steps of each level", "Table 7")
    width: Positive = setting(32, "hidden units of the coupling networks", "Table 7")
    permutation: Literal["reverse", "random", "plu"] = setting(
        "reverse", "how a step rearranges the channels; plu: by a learned matrix, as Glow's 1 x 1 convolution",
        "code: reverse, or with its permutation off plu; section 3.2 of the paper: random",
    )
    coupling: Literal["additive", "affine"] = setting(
        "additive", "what a coupling does to a half of the channels by the other: add, or add and scale",
        "code: additive, or affine",
    )
    activation: Literal["relu", "gatu"] = setting(
        "relu", "behind the second layer of the coupling networks; gatu: tanh times the sigmoid of a gate",
        "code: relu, or gatu",
    )
    residual: bool = setting(False, "a residual connection in the coupling networks",
                             "code: none; Table 7 of the paper: with one")
    learning_rate: AboveZero = setting(1e-3, "constant learning rate", "code: 1e-3; the paper, fitted on NLI: 2e-5")
    epochs: AboveZero = setting(1.0, "passes over the texts", "Table 7: 1 (target), 0.15 (NLI)")
    batch_size: Positive = setting(32, "pairs of texts in a batch, or texts where they are no pairs", "code")
    dropout: bool = setting(True, "whether the encoder's own dropout is on while the flow is fitted", "code: on")
    seed: Annotated[int, Field(ge=0)] = setting(1234, "draws the networks' weights and the batches", "code")


class Flow(Post):
    """An invertible map to a standard normal distribution (Li et al. 2020, arXiv 2011.05864)."""

    name: ClassVar[str] = "flow"
    Options = FlowOptions
    source: ClassVar[str] = "Li et al. 2020 (BERT-flow)"
    options: FlowOptions
    _glow: Glow | None = None

    def fit(self, source: VectorSource) -> Self:
        """Fit the flow on `source`, and return it. Raises StsbenchError for too few vectors, or of a dimension that cannot
        be halved `levels` times."""
        chosen = self.options
        steps = count_steps(len(source) // source.sides, chosen.batch_size, chosen.epochs)
        read = source.with_dropout(chosen.seed) if chosen.dropout else source
        batches = draw_batches(read, chosen.batch_size, steps, np.random.default_rng(chosen.seed))
        first = next(batches)
        glow = self._new(first.shape[2])
        bits = fit_glow(glow, chain([first], batches), rate=chosen.learning_rate, name=shortened(source.name))
        done = f"{counted(steps, 'update')} on {shortened(source.name)}"
        self.notes = (f"flow: {done}, {bits:.3f} bits per dimension in the last batch",)
        self._glow = glow.eval().requires_grad_(False)
        return self

    @torch.no_grad()
    def transform(self, vectors: Vectors) -> Vectors:
        """Return the latent vectors z, float32 (n, d), of vectors (n, d)."""
        glow = self._fitted()
        result = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), _CHUNK):
            part = torch.from_numpy(np.array(vectors[start : start + _CHUNK], np.float32))
            result[start : start + _CHUNK] = glow(part).numpy()
        return result

    def dimension(self, d: int) -> int:
        """Return d, as the flow keeps the dimension. Raises StsbenchError if it cannot be halved `levels` times."""
        if d % 2**self.options.levels:
            raise StsbenchError(
                f"flow: {self.options.levels} levels need vectors whose width is a multiple of "
                f"{2**self.options.levels}, and these have {d} numbers: set levels"
            )
        return d

    def state(self) -> State:
        """Return name in the network -> parameter or permutation."""
        return {name: tensor.numpy().copy() for name, tensor in self._fitted().state_dict().items()}

    def restore(self, state: State) -> Self:
        """Load a state made by `state`, and return the flow. Raises StsbenchError for another network's state."""
        glow = self._new(len(state["levels.0.0.norm.shift"]) if "levels.0.0.norm.shift" in state else 0)
        try:
            glow.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
        except RuntimeError as error:
            raise StsbenchError(f"flow: the stored state is of another network: {str(error).splitlines()[0]}") from error
        self._glow = glow.eval().requires_grad_(False)
        return self

    def _new(self, d: int) -> Glow:
        self.dimension(d)
        chosen = self.options
        generator = torch.Generator().manual_seed(chosen.seed)
        with seeded():  # torch's own first weights, which are drawn again
            return Glow(
                d, chosen.levels, chosen.depth, chosen.width, chosen.permutation, chosen.residual, generator,
                coupling=chosen.coupling, activation=chosen.activation,
            )

    def _fitted(self) -> Glow:
        if self._glow is None:
            raise StsbenchError("flow has not been fitted")
        return self._glow
