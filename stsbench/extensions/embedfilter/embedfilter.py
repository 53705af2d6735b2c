"""EmbedFilter: remove from vectors the first and last right singular vectors of the model's output embedding."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from stsbench.encoders.base import TokenTable
from stsbench.encoders.post.affine import principal
from stsbench.encoders.post.base import FromWeights, Map, PostOptions, State, Vectors, unit
from stsbench.errors import StsbenchError
from stsbench.settings import setting

_ROWS = 8192  # rows of the table that are converted to float64 at a time
_EQUAL = 1e-6  # relative to the largest singular value: smaller differences are noise of a float32 table


class EmbedFilterOptions(PostOptions):
    """The settings of `embedfilter`."""

    table: Literal["output", "input"] = setting(
        "output", "output: the embedding by which the model decodes, its own or the tied one; input: that of its tokens",
        "Wu et al. 2026: lm_head.weight",
    )
    tau: Annotated[int, Field(ge=1)] = setting(
        2, "one of tau directions is kept, n = d // tau; 1: all of them", "Wu et al. 2026: 2, and 4 and 8 in comparisons",
    )
    drop: Literal["edge", "mid", "tail", "head", "random"] = setting(
        "edge", "what is taken out of the directions, singular values descending: both ends, the middle, the last, the "
        "first, or any", "Wu et al. 2026: edge; the others are its comparisons",
    )
    start: Annotated[int, Field(ge=0)] | None = setting(
        None, "the first direction that drop=edge keeps, counted from 0; null: (d - n) // 2, the middle",
        "paper, and released code for Qwen and Llama: the middle; released code for Mistral: 128 at any tau",
    )
    directions: tuple[Annotated[int, Field(ge=0)], ...] | None = setting(
        None, "the directions that are kept, by number from 0, in the place of tau, drop and start",
        "released code, `ideal`: a list for Qwen2.5-0.5B",
    )
    seed: Annotated[int, Field(ge=0)] = setting(0, "of drop=random, by numpy's generator", "the released code has no seed")
    form: Literal["coordinates", "projection"] = setting(
        "coordinates", "coordinates: n numbers, one a direction; projection: d numbers; the cosines are the same",
        "paper: projection, and coordinates as its equal; released code: coordinates",
    )
    rounded: Literal["bfloat16", "float16"] | None = setting(
        None, "what the directions are rounded to; null: not", "released code: the model's, bfloat16 (Qwen) or float16",
    )
    normalise_after: bool = setting(
        False, "bring each vector to length 1 at the end; no cosine depends on it, dot products do",
        "released code: true, but for classification",
    )


class EmbedFilter(FromWeights):
    """x @ K (coordinates) or x @ K K' (projection), where K holds the kept right singular vectors of the embedding.

    After fitting, `kernel` is float64 (d, n) or (d, d).
    """

    name = "embedfilter"
    Options: ClassVar[type[PostOptions]] = EmbedFilterOptions
    source = "Wu et al. 2026, arXiv 2606.07502 (EmbedFilter)"
    kernel: NDArray[np.float64]

    def fit_table(self, table: TokenTable) -> Self:
        rows, d = table.values.shape
        kept = self.kept(d)
        if rows < d:
            raise StsbenchError(f"embedfilter: {table.name} has {rows} rows, fewer than the {d} directions of its vectors")
        if not np.isfinite(table.values).all():
            raise StsbenchError(f"embedfilter: {table.name} holds NaN or infinity")
        values, vectors = singular(table.values)
        directions = _rounded(vectors[:, kept], self.options.rounded)
        self.kernel = directions if self.options.form == "coordinates" else directions @ directions.T
        self.notes = (*table.notes, *_doubts(table.name, values, kept))
        return self

    def kept(self, d: int) -> list[int]:
        """Return the indices of the directions that are kept for vectors of dimension d. Raises StsbenchError where the
        options keep none, or more than there are."""
        options = self.options
        if options.directions is not None:
            kept = sorted(set(options.directions))
            if not kept or len(kept) < len(options.directions) or kept[-1] >= d:
                raise StsbenchError(f"embedfilter: directions must be different numbers from 0 to {d - 1}, at least one")
            return kept
        if options.tau > d:
            raise StsbenchError(f"embedfilter: tau={options.tau} keeps nothing of vectors of width {d}")
        n = d // options.tau
        start = (d - n) // 2 if options.start is None else options.start
        if options.start is not None and (options.drop != "edge" or start + n > d):
            raise StsbenchError(f"embedfilter: start={start} goes with drop=edge, and {n} of {d} directions from it on")
        if options.drop == "random":
            return sorted(np.random.default_rng(options.seed).choice(d, n, replace=False).tolist())
        if options.drop == "mid":  # n - 1 directions for odd n, as in the released code
            return [*range(n // 2), *range(d - n // 2, d)]
        return list(range(*{"edge": (start, start + n), "tail": (0, n), "head": (d - n, d)}[options.drop]))

    def affine(self) -> Map | None:
        return None if self.options.normalise_after else (np.zeros(len(self.kernel)), self.kernel)

    def transform(self, vectors: Vectors) -> Vectors:
        rows = np.asarray(vectors, dtype=np.float64)
        if rows.shape[1] != len(self.kernel):
            raise StsbenchError(f"embedfilter was made for vectors of width {len(self.kernel)}, not {rows.shape[1]}")
        return unit(rows @ self.kernel) if self.options.normalise_after else rows @ self.kernel

    def dimension(self, d: int) -> int:
        kept = len(self.kept(d))
        return kept if self.options.form == "coordinates" else d

    def state(self) -> State:
        return {"kernel": self.kernel}

    def restore(self, state: State) -> Self:
        self.kernel = np.asarray(state["kernel"], dtype=np.float64)
        return self


def singular(table: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return singular values (d,) of a (V, d) table, descending, and its right singular vectors, the columns of (d, d).

    The table is not centred. The vectors are eigenvectors of W'W, in float64, so that no (V, d) array of left singular
    vectors is needed.
    """
    gram = np.zeros((table.shape[1], table.shape[1]))
    for start in range(0, len(table), _ROWS):
        rows = np.asarray(table[start : start + _ROWS], dtype=np.float64)
        gram += rows.T @ rows
    squares, vectors = principal(gram)
    return np.sqrt(np.clip(squares, 0, None)), vectors


def _rounded(directions: NDArray[np.float64], dtype: str | None) -> NDArray[np.float64]:
    if dtype is None:
        return directions
    import torch

    rounded: NDArray[np.float64] = torch.from_numpy(directions).float().to(getattr(torch, dtype)).double().numpy()
    return rounded


def _doubts(name: str, values: NDArray[np.float64], indices: list[int]) -> list[str]:
    """Return a line for each kept direction whose singular value equals that of one not kept: the choice is arbitrary."""
    inside = np.zeros(len(values), dtype=bool)
    inside[indices] = True
    cuts = np.flatnonzero(inside[1:] != inside[:-1])
    equal = [cut for cut in cuts if values[cut] - values[cut + 1] <= _EQUAL * values[0]]
    return [f"embedfilter: the singular values {cut} and {cut + 1} of {name} are equal, and only one is kept: the choice "
            "between their directions is arbitrary" for cut in equal]
