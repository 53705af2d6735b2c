"""The states of every layer of a backbone's passes, which are read again as if a layer were the last."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


class LayerStates:
    """What the passes of one forward call gave: first they run and are kept, then `replay` reads them again.

    vectors: what they were pooled to since, (n, d) each.
    """

    def __init__(self, layers: int) -> None:
        """layers: of the model, L; state 0 is the embeddings, -1 the last layer."""
        self.layers = layers
        self.vectors: list[Tensor] = []
        self._passes: list[list[Tensor]] = []
        self._layer: int | None = None  # the one that stands for the last; None: the passes run
        self._next = 0

    def replay(self, layer: int) -> None:
        """Let the passes that follow be those that ran, in their order, with state `layer` as the last."""
        self._layer, self._next, self.vectors = layer, 0, []

    def read(self, run: Callable[[tuple[int, ...]], list[Tensor]], numbers: tuple[int, ...]) -> list[Tensor]:
        """Return the states of these numbers, each (n, L, d), of a pass that `run` makes for some numbers."""
        if self._layer is None:
            self._passes.append(run((*range(self.layers), -1)))
            states, last = self._passes[-1], self.layers
        else:
            states, last = self._passes[self._next], self._layer
            self._next += 1
        return [states[last if number in (-1, self.layers) else number] for number in numbers]
