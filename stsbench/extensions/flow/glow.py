"""Glow over vectors, the normalising flow of BERT-flow (Li et al. 2020; Kingma and Dhariwal 2018).

A vector is an image of one pixel and d channels, and the flow is unconditional. With additive couplings the log-determinant
is that of the actnorms and learned matrices, the same for every vector; with affine ones it depends on the vector.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

_RATE = 3.0  # Glow's log-scales are stored divided by it, so that they learn three times as fast
_SMALLEST = 1e-6  # added to a channel's standard deviation before dividing by it


class ActNorm(nn.Module):
    """y = (x + b) * exp(3 s), channel by channel; b and s start so that the first batch has mean 0 and variance 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, c) -> (n, c)."""
        return (x + self.shift) * (_RATE * self.log_scale).exp()

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        """Set b and s from a batch (n, c), and return the mapped batch (n, c)."""
        self.shift.copy_(-x.mean(0))
        deviation = (x + self.shift).square().mean(0).sqrt()
        self.log_scale.copy_(-(deviation + _SMALLEST).log() / _RATE)
        return self.forward(x)

    def log_determinant(self) -> Tensor:
        """Return log |dy/dx|, a scalar."""
        return _RATE * self.log_scale.sum()


class Mixing(nn.Module):
    """y = x W for a learned W = P L (U + diag(sign * exp(s))), a random rotation before any training.

    P and the signs stay; L is lower triangular with ones on its diagonal, U upper triangular with zeros on it.
    Source: Kingma and Dhariwal (2018), Glow, section 3.2.
    """

    order: Tensor
    sign: Tensor

    def __init__(self, channels: int, generator: torch.Generator) -> None:
        super().__init__()
        drawn = torch.rand(channels, channels, generator=generator, dtype=torch.float64)
        permutation, lower, upper = torch.linalg.lu(torch.linalg.qr(drawn)[0])
        self.register_buffer("order", permutation.argmax(1))  # row i of P L U is row order[i] of L U
        self.register_buffer("sign", upper.diagonal().sign().float())
        self.lower, self.upper = nn.Parameter(lower.tril(-1).float()), nn.Parameter(upper.triu(1).float())
        self.log_scale = nn.Parameter(upper.diagonal().abs().log().float())

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, c) -> (n, c)."""
        lower = self.lower.tril(-1) + torch.eye(len(self.lower), dtype=x.dtype)
        upper = self.upper.triu(1) + (self.sign * self.log_scale.exp()).diag()
        return x @ (lower @ upper)[self.order]

    def log_determinant(self) -> Tensor:
        """Return log |det W|, a scalar."""
        return self.log_scale.sum()


class CouplingNetwork(nn.Module):
    """The network of a coupling: three linear layers with actnorm and ReLU in between; its output is 0 before training.

    residual: the second hidden layer adds to the first (the paper's "residual connection"; the authors' code has none).
    activation: "relu", or "gatu", by which the second hidden layer is tanh(norm(V h)) * sigmoid(norm'(G h)).
    """

    def __init__(
        self, channels: int, width: int, residual: bool, generator: torch.Generator, *, out: int, activation: str
    ) -> None:
        super().__init__()
        self.gate, self.gate_norm = None, None
        self.first = nn.Linear(channels, width, bias=False)
        self.first_norm = ActNorm(width)
        self.second = nn.Linear(width, width, bias=False)
        self.second_norm = ActNorm(width)
        self.last = nn.Linear(width, out)
        self.log_scale = nn.Parameter(torch.zeros(out))
        self.residual = residual
        if activation == "gatu":
            self.gate, self.gate_norm = nn.Linear(width, width, bias=False), ActNorm(width)
        for layer in (self.first, self.second, *([] if self.gate is None else [self.gate])):
            nn.init.normal_(layer.weight, std=0.05, generator=generator)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, c) -> (n, out)."""
        hidden = functional.relu(self.first_norm(self.first(x)))
        deeper = self.second_norm(self.second(hidden))
        if self.gate is None or self.gate_norm is None:
            deeper = functional.relu(deeper)
        else:
            deeper = deeper.tanh() * self.gate_norm(self.gate(hidden)).sigmoid()
        result: Tensor = self.last(hidden + deeper if self.residual else deeper)
        return result * (_RATE * self.log_scale).exp()

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Set the actnorms from a batch (n, c). Their log-determinants are not part of the flow's."""
        hidden = functional.relu(self.first_norm.initialise(self.first(x)))
        self.second_norm.initialise(self.second(hidden))
        if self.gate is not None and self.gate_norm is not None:
            self.gate_norm.initialise(self.gate(hidden))


class Step(nn.Module):
    """Actnorm, a rearrangement of the channels (a fixed order, or a learned matrix), and a coupling:

        additive: [x1; x2] -> [x1; x2 + network(x1)],   affine: [x1; x2] -> [x1; (x2 + shift) * sigmoid(scale + 2)]

    shift and scale are every other output of network(x1).
    """

    order: Tensor  # where the order is fixed

    def __init__(
        self, channels: int, width: int, permutation: str, residual: bool, generator: torch.Generator, *, coupling: str,
        activation: str,
    ) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.mixing = Mixing(channels, generator) if permutation == "plu" else None
        if self.mixing is None:
            drawn = permutation == "random"
            order = torch.randperm(channels, generator=generator) if drawn else torch.arange(channels).flip(0)
            self.register_buffer("order", order)
        self.affine = coupling == "affine"
        self.network = CouplingNetwork(
            channels // 2, width, residual, generator, out=channels // 2 * (2 if self.affine else 1), activation=activation
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (n, c) -> (n, c), and log |dy/dx|, a scalar or, of affine couplings, (n,)."""
        return self._couple(self._rearranged(self.norm(x)))

    @torch.no_grad()
    def initialise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Set the actnorms from a batch (n, c), and return the same as `forward`."""
        rearranged = self._rearranged(self.norm.initialise(x))
        self.network.initialise(rearranged.chunk(2, dim=1)[0])
        return self._couple(rearranged)

    def _rearranged(self, x: Tensor) -> Tensor:
        if self.mixing is not None:
            mixed: Tensor = self.mixing(x)
            return mixed
        return x[:, self.order]

    def _couple(self, x: Tensor) -> tuple[Tensor, Tensor]:
        determinant = self.norm.log_determinant()
        if self.mixing is not None:
            determinant = determinant + self.mixing.log_determinant()
        first, second = x.chunk(2, dim=1)
        output = self.network(first)
        if not self.affine:
            return torch.cat([first, second + output], dim=1), determinant
        scale = output[:, 1::2] + 2
        scaled = (second + output[:, ::2]) * scale.sigmoid()
        return torch.cat([first, scaled], dim=1), determinant + functional.logsigmoid(scale).sum(1)


class Glow(nn.Module):
    """The flow (n, d) -> (n, d): each level has `depth` steps and, except the last, outputs the second half of channels."""

    def __init__(
        self, channels: int, levels: int, depth: int, width: int, permutation: str, residual: bool,
        generator: torch.Generator, *, coupling: str = "additive", activation: str = "relu",
    ) -> None:
        """Make the flow. channels: d, a multiple of 2^levels; generator: draws weights, permutations and matrices."""
        super().__init__()
        if channels % 2**levels:
            raise ValueError(f"{levels} levels halve {channels} channels {levels} times")
        self.channels = channels
        self.levels = nn.ModuleList(
            nn.ModuleList(
                Step(channels >> level, width, permutation, residual, generator, coupling=coupling, activation=activation)
                for _ in range(depth)
            )
            for level in range(levels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return z (n, d) of x (n, d): the outputs of the first level, of the second, ..., and the remaining channels."""
        return self._mapped(x, False)[0]

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        """Set each actnorm from a batch (n, d) as mapped by the layers before it; return the mapped batch."""
        return self._mapped(x, True)[0]

    def log_determinant(self, x: Tensor) -> Tensor:
        """Return log |det dz/dx| at each x (n, d), (n,), or a scalar where it is the same for all."""
        return self._mapped(x, False)[1]

    def bits_per_dimension(self, x: Tensor) -> Tensor:
        """Return (n,) -log2 p(x) / d, with log p(x) = log N(z; 0, I) + log |dz/dx| (Li et al. 2020, section 3.2)."""
        z, determinant = self._mapped(x, False)
        log_prob = -z.square().sum(1) / 2 - self.channels * math.log(2 * math.pi) / 2 + determinant
        bits: Tensor = -log_prob / (self.channels * math.log(2))
        return bits

    def _mapped(self, x: Tensor, initialise: bool) -> tuple[Tensor, Tensor]:
        """Return z (n, d) and the result of `log_determinant`."""
        split_off, determinants = [], []
        for level in range(len(self.levels)):
            for step in cast(list[Step], self.levels[level]):
                x, determinant = step.initialise(x) if initialise else step(x)
                determinants.append(determinant)
            if level < len(self.levels) - 1:
                x, half = x.chunk(2, dim=1)
                split_off.append(half)
        return torch.cat([*split_off, x], dim=1), torch.stack(determinants).sum(0)
