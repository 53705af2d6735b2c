"""What a loss does with its arguments first: checks, for torch would stretch one row over the others and compare with NaN,
and the precision to compute in."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def check_rows(**vectors: Tensor) -> None:
    """Raise ValueError unless all are (n, d) with the same n and d."""
    shapes = {name: tuple(tensor.shape) for name, tensor in vectors.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"all must be (n, d), of the same n and d: {listed}")


def check_numbers(numbers: Tensor, rows: int, name: str) -> None:
    """Raise ValueError unless there is one number for each row, (n,), all of them finite (`nan_unless_finite`)."""
    if tuple(numbers.shape) != (rows,):
        raise ValueError(f"{name} must be ({rows},), one for each row: it is {tuple(numbers.shape)}")
    nan_unless_finite(**{name: numbers})


def check_positive(**numbers: float | Tensor) -> None:
    """Raise ValueError unless all are finite and above 0. A tensor, which may be learned, is not looked at."""
    for name, number in numbers.items():
        if not isinstance(number, Tensor) and not (math.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a finite number above 0, not {number}")


def check_weights(**numbers: float) -> None:
    """Raise ValueError unless all are finite and 0 at least."""
    for name, number in numbers.items():
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"{name} must be a finite number, 0 or more, not {number}")


def nan_unless_finite(**numbers: Tensor) -> Tensor:
    """Return 0 to be added to a loss that compares `numbers` and does not add them, NaN where one is NaN or infinite: no
    comparison with NaN holds. On a CPU raises ValueError instead; a GPU is not waited for."""
    for name, tensor in numbers.items():
        if tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must be finite: there is NaN or infinity among the numbers")
    return torch.stack([(tensor - tensor).sum().to(torch.float32) for tensor in numbers.values()]).sum()


def wide(numbers: Tensor) -> Tensor:
    """Return the numbers in float32 or better."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def unit(vectors: Tensor, eps: float = 1e-8) -> Tensor:
    """Return the vectors, (..., d), in float32 or better and of norm 1. eps: the smallest norm that is divided by; 1e-8 as
    in torch.nn.CosineSimilarity."""
    return functional.normalize(wide(vectors), dim=-1, eps=eps)
