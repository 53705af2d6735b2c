"""Glow over vectors: what BERT-flow maps a sentence vector through (Li et al. 2020; Kingma and Dhariwal 2018).

A vector is an image of one pixel and d channels. Nothing here is conditional, and couplings are additive, so the
log-determinant of the map is that of its actnorms alone, the same for every vector.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

_RATE = 3.0  # Glow's log-scales are stored divided by it, so that they learn three times as fast
_SMALLEST = 1e-6  # standard deviation of a channel, added before dividing by it


class ActNorm(nn.Module):
    """y = (x + b) * exp(3 s), channel by channel; b and s start so that the first batch has mean 0 and variance 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(n, c) -> (n, c)."""
        return (x + self.shift) * (_RATE * self.log_scale).exp()

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        """Set b and s by a batch (n, c), and map it."""
        self.shift.copy_(-x.mean(0))
        deviation = (x + self.shift).square().mean(0).sqrt()
        self.log_scale.copy_(-(deviation + _SMALLEST).log() / _RATE)
        return self.forward(x)

    def log_determinant(self) -> Tensor:
        """log |dy/dx|, a scalar."""
        return _RATE * self.log_scale.sum()


class CouplingNetwork(nn.Module):
    """What an additive coupling adds: three linear layers, actnorm and ReLU between them; 0 before any training.

    residual: the second hidden layer adds to the first (the paper's "residual connection"; the authors' code has none).
    """

    def __init__(self, channels: int, width: int, residual: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.first = nn.Linear(channels, width, bias=False)
        self.first_norm = ActNorm(width)
        self.second = nn.Linear(width, width, bias=False)
        self.second_norm = ActNorm(width)
        self.last = nn.Linear(width, channels)
        self.log_scale = nn.Parameter(torch.zeros(channels))
        self.residual = residual
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight, std=0.05, generator=generator)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(n, c) -> (n, c)."""
        hidden = functional.relu(self.first_norm(self.first(x)))
        deeper = functional.relu(self.second_norm(self.second(hidden)))
        result: Tensor = self.last(hidden + deeper if self.residual else deeper)
        return result * (_RATE * self.log_scale).exp()

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Set the actnorms by a batch (n, c). Their log-determinants do not count: what they do is only added."""
        hidden = functional.relu(self.first_norm.initialise(self.first(x)))
        self.second_norm.initialise(self.second(hidden))


class Step(nn.Module):
    """Actnorm, a fixed permutation of the channels, and an additive coupling: [x1; x2] -> [x1; x2 + network(x1)]."""

    order: Tensor

    def __init__(self, channels: int, width: int, permutation: str, residual: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        order = torch.randperm(channels, generator=generator) if permutation == "random" else torch.arange(channels).flip(0)
        self.register_buffer("order", order)
        self.network = CouplingNetwork(channels // 2, width, residual, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(n, c) -> (n, c)."""
        return self._couple(self.norm(x)[:, self.order])

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        """Set the actnorms by a batch (n, c), and map it."""
        permuted = self.norm.initialise(x)[:, self.order]
        self.network.initialise(permuted.chunk(2, dim=1)[0])
        return self._couple(permuted)

    def _couple(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=1)
        return torch.cat([first, second + self.network(first)], dim=1)


class Glow(nn.Module):
    """(n, d) -> (n, d). Each level maps `depth` steps and, but for the last, gives away the second half of its channels."""

    def __init__(
        self, channels: int, levels: int, depth: int, width: int, permutation: str, residual: bool,
        generator: torch.Generator,
    ) -> None:
        """channels: d, a multiple of 2^levels; generator: draws the networks' weights and the random permutations."""
        super().__init__()
        if channels % 2**levels:
            raise ValueError(f"{levels} levels halve {channels} channels {levels} times")
        self.channels = channels
        self.levels = nn.ModuleList(
            nn.ModuleList(Step(channels >> level, width, permutation, residual, generator) for _ in range(depth))
            for level in range(levels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """z (n, d) of x (n, d): what the first level gives away, then the second, ..., then what is left."""
        return self._mapped(x, False)

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        """Set every actnorm by a batch (n, d), each by what the ones before it make of the batch; and map it."""
        return self._mapped(x, True)

    def log_determinant(self) -> Tensor:
        """log |dz/dx|, a scalar."""
        every = [step.norm.log_determinant() for level in range(len(self.levels)) for step in self._steps(level)]
        return torch.stack(every).sum()

    def bits_per_dimension(self, x: Tensor) -> Tensor:
        """(n,) -log2 p(x) / d, with log p(x) = log N(z; 0, I) + log |dz/dx| (Li et al. 2020, section 3.2)."""
        z = self(x)
        log_prob = -z.square().sum(1) / 2 - self.channels * math.log(2 * math.pi) / 2 + self.log_determinant()
        bits: Tensor = -log_prob / (self.channels * math.log(2))
        return bits

    def _steps(self, level: int) -> list[Step]:
        return [cast(Step, step) for step in cast(nn.ModuleList, self.levels[level])]

    def _mapped(self, x: Tensor, initialise: bool) -> Tensor:
        split_off = []
        for level in range(len(self.levels)):
            for step in self._steps(level):
                x = step.initialise(x) if initialise else step(x)
            if level < len(self.levels) - 1:
                x, half = x.chunk(2, dim=1)
                split_off.append(half)
        return torch.cat([*split_off, x], dim=1)
