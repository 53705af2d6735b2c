"""What a function of rows checks, where torch would stretch one row, or one column, over the others."""

from __future__ import annotations

from torch import Tensor


def check_rows(**vectors: Tensor) -> None:
    """Raises ValueError unless all are (n, d) with the same n and d."""
    shapes = {name: tuple(tensor.shape) for name, tensor in vectors.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"all must be (n, d), of the same n and d: {listed}")


def check_numbers(numbers: Tensor, rows: int, name: str) -> None:
    """Raises ValueError unless there is one number for each row, (n,)."""
    if tuple(numbers.shape) != (rows,):
        raise ValueError(f"{name} must be ({rows},), one for each row: it is {tuple(numbers.shape)}")
