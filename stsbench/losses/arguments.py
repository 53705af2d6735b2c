"""Checks and conversions of the arguments of losses: shapes, as torch would broadcast a single row, finite numbers, as
comparisons with NaN raise nothing, and the precision to compute in."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def check_rows(**vectors: Tensor) -> None:
    """Raise ValueError unless all tensors are (n, d) with the same n and d."""
    shapes = {name: tuple(tensor.shape) for name, tensor in vectors.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"all must be (n, d), of the same n and d: {listed}")


def check_numbers(numbers: Tensor, rows: int, name: str) -> None:
    """Raise ValueError unless `numbers` is (rows,) and, on a CPU, finite (`nan_unless_finite`)."""
    if tuple(numbers.shape) != (rows,):
        raise ValueError(f"{name} must be ({rows},), one for each row: it is {tuple(numbers.shape)}")
    nan_unless_finite(**{name: numbers})


def check_positive(**numbers: float | Tensor) -> None:
    """Raise ValueError unless all numbers are finite and above 0. Tensors, which may be learned, are not checked."""
    for name, number in numbers.items():
        if not isinstance(number, Tensor) and not (math.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a finite number above 0, not {number}")


def check_weights(**numbers: float) -> None:
    """Raise ValueError unless all numbers are finite and 0 or more."""
    for name, number in numbers.items():
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"{name} must be a finite number, 0 or more, not {number}")


def nan_unless_finite(**numbers: Tensor) -> Tensor:
    """Return 0, or NaN where one of `numbers` is NaN or infinite, to be added to a loss that only compares them: comparing
    would hide a NaN. On a CPU raises ValueError instead of returning NaN, as that needs no waiting for a device."""
    for name, tensor in numbers.items():
        if tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must be finite: there is NaN or infinity among the numbers")
    return torch.stack([(tensor - tensor).sum().to(torch.float32) for tensor in numbers.values()]).sum()


def wide(numbers: Tensor) -> Tensor:
    """Return the numbers in float32, or in their own type where it is wider."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def unit(vectors: Tensor, eps: float = 1e-8) -> Tensor:
    """Return the vectors, (..., d), with norm 1, in float32 at least. eps: smaller norms count as this; 1e-8 as in
    torch.nn.CosineSimilarity."""
    return functional.normalize(wide(vectors), dim=-1, eps=eps)
