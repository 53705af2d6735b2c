"""Glow over vectors in float64, number by number: the map, its inverse and its density, from a state by names."""

import math

import numpy as np


def _norm(x, state, name):
    b, s = state[f"{name}.shift"], state[f"{name}.log_scale"]
    return np.array([(x[i] + b[i]) * math.exp(3 * s[i]) for i in range(len(x))])


def _linear(weight, x):
    return np.array([sum(weight[o][i] * x[i] for i in range(len(x))) for o in range(len(weight))])


def _network(x, state, name, residual):
    first = np.maximum(_norm(_linear(state[f"{name}.first.weight"], x), state, f"{name}.first_norm"), 0)
    second = _norm(_linear(state[f"{name}.second.weight"], first), state, f"{name}.second_norm")
    if f"{name}.gate.weight" in state:
        gate = _norm(_linear(state[f"{name}.gate.weight"], first), state, f"{name}.gate_norm")
        second = np.array([math.tanh(a) / (1 + math.exp(-b)) for a, b in zip(second, gate, strict=True)])
    else:
        second = np.maximum(second, 0)
    if residual:
        second = second + first
    last = _linear(state[f"{name}.last.weight"], second) + state[f"{name}.last.bias"]
    return last * np.exp(3 * state[f"{name}.log_scale"])


def _matrix(state, name):
    """W of a learned rearrangement, y = x W, by its parts."""
    lower, upper, c = state[f"{name}.lower"], state[f"{name}.upper"], len(state[f"{name}.log_scale"])
    diagonal = state[f"{name}.sign"] * np.exp(state[f"{name}.log_scale"])
    lower = np.array([[lower[i][j] if j < i else float(i == j) for j in range(c)] for i in range(c)])
    upper = np.array([[upper[i][j] if j > i else diagonal[i] * (i == j) for j in range(c)] for i in range(c)])
    permutation = np.zeros((c, c))
    permutation[range(c), state[f"{name}.order"]] = 1
    return permutation @ lower @ upper


def _rearranged(x, state, name):
    """The channels in their new order, or mixed; what that adds to the log-determinant."""
    if f"{name}.order" in state:
        return np.array([x[i] for i in state[f"{name}.order"]]), 0.0
    w = _matrix(state, f"{name}.mixing")
    return np.array([sum(x[i] * w[i][o] for i in range(len(x))) for o in range(len(x))]), math.log(abs(np.linalg.det(w)))


def _coupled(x, state, name, residual):
    """What a coupling scales the second half by, and what it adds before."""
    half = len(x) // 2
    output = _network(x[:half], state, f"{name}.network", residual)
    if len(output) == half:
        return np.ones(half), output
    return np.array([1 / (1 + math.exp(-value - 2)) for value in output[1::2]]), output[::2]


def mapped(vector, state, levels, depth, residual=False):
    """z of one vector (d,), and log |dz/dx|."""
    given, x, log_determinant = [], np.array(vector, np.float64), 0.0
    for level in range(levels):
        for step in range(depth):
            name = f"levels.{level}.{step}"
            x = _norm(x, state, f"{name}.norm")
            log_determinant += 3 * state[f"{name}.norm.log_scale"].sum()
            x, more = _rearranged(x, state, name)
            half, (scale, shift) = len(x) // 2, _coupled(x, state, name, residual)
            log_determinant += more + sum(map(math.log, scale))
            x = np.concatenate([x[:half], (x[half:] + shift) * scale])
        if level < levels - 1:
            given.append(x[len(x) // 2 :])
            x = x[: len(x) // 2]
    return np.concatenate([*given, x]), log_determinant


def unmapped(z, state, levels, depth, residual=False):
    """The vector (d,) that `mapped` maps to z."""
    d = len(z)
    widths = [d >> level for level in range(1, levels)]
    given, start = [], 0
    for width in widths:
        given.append(z[start : start + width])
        start += width
    x = z[start:]
    for level in reversed(range(levels)):
        if level < levels - 1:
            x = np.concatenate([x, given[level]])
        for step in reversed(range(depth)):
            name, half = f"levels.{level}.{step}", len(x) // 2
            scale, shift = _coupled(x, state, name, residual)
            x = np.concatenate([x[:half], x[half:] / scale - shift])
            before = np.zeros(len(x))
            if f"{name}.order" in state:
                before[state[f"{name}.order"]] = x
            else:
                before = x @ np.linalg.inv(_matrix(state, f"{name}.mixing"))
            x = before / np.exp(3 * state[f"{name}.norm.log_scale"]) - state[f"{name}.norm.shift"]
    return x


def bits(vector, state, levels, depth, residual=False):
    """-log2 p(x) / d under N(z; 0, I) and the change of variables."""
    z, log_determinant = mapped(vector, state, levels, depth, residual)
    log_p = sum(-value * value / 2 - math.log(2 * math.pi) / 2 for value in z) + log_determinant
    return -log_p / (len(z) * math.log(2))
