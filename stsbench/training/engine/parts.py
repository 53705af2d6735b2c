"""The forward passes of a step with training.accumulate: what each of them counts, so that they have one pass's gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from stsbench.errors import StsbenchError
from stsbench.registry import calling, where
from stsbench.training.api.batch import Batch, Term
from stsbench.training.api.method import Method
from stsbench.training.engine.ranked import Objective

ROWS = ""  # the key of the terms whose count goes with the rows


def part_counts(method: Method, objective: Objective, batches: Sequence[Batch]) -> list[dict[str, int]]:
    """For each forward pass, under a term's name, what `Method.counts` says; under ROWS its rows, of this process."""
    counted = [calling(type(method), "counts", partial(objective.counts, batch)) for batch in batches]
    return [{**known, ROWS: len(batch)} for known, batch in zip(counted, batches, strict=True)]


def part_shares(
    counts: Sequence[Mapping[str, int]], reduce: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> list[dict[str, float]]:
    """For each forward pass, under the same names, its count over the mean count of the passes that have the name.

    A term's mean over all items of a step is the mean of its values times these. Equal counts give exactly 1. reduce: the
    sum over all processes, where there are several.
    """
    names = sorted({name for counted in counts for name in counted})
    table = torch.tensor([[float(counted.get(name, 0)) for name in names] for counted in counts])
    totals = (table if reduce is None else reduce(table)).tolist()
    shares: list[dict[str, float]] = [{} for _ in counts]
    for column, name in enumerate(names):
        passes = [number for number, counted in enumerate(counts) if name in counted]
        total = sum(totals[number][column] for number in passes)
        for number in passes:
            shares[number][name] = len(passes) * totals[number][column] / total if total else 1.0
    return shares


class CountCheck:
    """Notices a term whose count is another than was known before the pass: weights by it would be wrong."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self._first: dict[str, tuple[int, tuple[int, ...]]] = {}  # term -> its count, what was known of it

    def __call__(self, terms: Mapping[str, Term], counts: Mapping[str, int], batch: Batch) -> None:
        """For each pass. Raises StsbenchError where the counts of a term do not go with what was known of them."""
        for name, term in terms.items():
            # with training.gather simcse a process has the loss of all rows
            known = (counts[name],) if name in counts else (len(batch), batch.shares.total)
            first, first_known = self._first.setdefault(name, (term.count, known))
            if not any(term.count * before == first * now for before, now in zip(first_known, known, strict=False)):
                known_as = f"and counts(batch), or the rows, {first_known[0]} and {known[0]}"
                raise StsbenchError(
                    f"{where(type(self.method), 'counts')}: in two forward passes the term '{name}' counts {first} and "
                    f"{term.count} items, {known_as}: correct it, or set training.accumulate to 1"
                )
