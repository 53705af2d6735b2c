"""The post-processing `flow`: BERT-flow."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field

from stsbench.encoders.fitted import shortened
from stsbench.encoders.post.base import Post, PostOptions, State, Vectors, VectorSource
from stsbench.errors import StsbenchError
from stsbench.extensions.flow.fitting import batches_of, fit_glow, steps_of
from stsbench.extensions.flow.glow import Glow
from stsbench.settings import setting
from stsbench.torch_random import seeded
from stsbench.wording import counted

_CHUNK = 8192  # vectors mapped at a time
Positive = Annotated[int, Field(ge=1)]
AboveZero = Annotated[float, Field(gt=0)]


class FlowOptions(PostOptions):
    """Defaults: the authors' code, fitted on the tested texts ("target")."""

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
        """This object, fitted on `source`. StsbenchError: too few vectors, of a width that cannot be halved so often."""
        chosen = self.options
        steps = steps_of(len(source) // source.sides, chosen.batch_size, chosen.epochs)
        read = source.with_dropout(chosen.seed) if chosen.dropout else source
        batches = batches_of(read, chosen.batch_size, steps, np.random.default_rng(chosen.seed))
        first = next(batches)
        glow = self._new(first.shape[2])
        bits = fit_glow(glow, chain([first], batches), rate=chosen.learning_rate, name=shortened(source.name))
        done = f"{counted(steps, 'update')} on {shortened(source.name)}"
        self.notes = (f"flow: {done}, {bits:.3f} bits per dimension in the last batch",)
        self._glow = glow.eval().requires_grad_(False)
        return self

    @torch.no_grad()
    def transform(self, vectors: Vectors) -> Vectors:
        """z, float32 (n, d) of (n, d)."""
        glow = self._fitted()
        result = np.empty(vectors.shape, np.float32)
        for start in range(0, len(vectors), _CHUNK):
            part = torch.from_numpy(np.array(vectors[start : start + _CHUNK], np.float32))
            result[start : start + _CHUNK] = glow(part).numpy()
        return result

    def dimension(self, d: int) -> int:
        """d. StsbenchError: it cannot be halved `levels` times."""
        if d % 2**self.options.levels:
            raise StsbenchError(
                f"flow: {self.options.levels} levels need vectors whose width is a multiple of "
                f"{2**self.options.levels}, and these have {d} numbers: set levels"
            )
        return d

    def state(self) -> State:
        """Every parameter and permutation, by its name in the network."""
        return {name: tensor.numpy().copy() for name, tensor in self._fitted().state_dict().items()}

    def restore(self, state: State) -> Self:
        """This object with such a state. StsbenchError: it is another network's."""
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
