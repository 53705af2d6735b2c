"""Texts in which some sub-words or words stand twice: a view of the same meaning and another length.

Source: Wu et al. (2022), ESimCSE, and train.py of the authors' code (caskcsg/sentemb).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.forward.checkpoint import position_limit
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Examples, Ragged
from stsbench.training.api.options import Repetition
from stsbench.training.modules.backbone import Backbone

_MOST = 10  # the released code repeats fewer than so many


class Repeater:
    """The token ids of a role's texts with repetitions, drawn anew for each batch."""

    def __init__(self, backbone: Backbone, options: Repetition) -> None:
        """Raises StsbenchError, one line, where repeated texts can be longer than the model has positions."""
        self.backbone, self.options = backbone, options
        limit, longest = position_limit(backbone.model, backbone.tokenizer), backbone.max_length
        if options.unit == "subword":
            longest += most_repeated(longest, options)
        if limit is not None and longest > limit:
            raise StsbenchError(
                f"options.repeat makes texts of up to {longest} tokens of backbone.max_length {backbone.max_length}, and "
                f"{backbone.name} has {limit} positions: lower backbone.max_length"
            )

    def __call__(self, rows: Examples, role: str, rng: np.random.Generator) -> Ragged:
        """`[row]` -> token ids. Sub-words are repeated in what is cut at max_length and not cut again; words before that."""
        if self.options.unit == "subword":
            return [self._repeat(np.asarray(ids), rng) for ids in rows.ids(role)]
        split = [np.array(text.split(" "), object) for text in rows.texts(role)]
        return self.backbone.tokenise([" ".join(self._repeat(words, rng)) for words in split])

    def _repeat(self, items: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        indices = repeated(len(items), self.options, rng)
        return np.insert(items, indices, items[indices])


def most_repeated(count: int, options: Repetition) -> int:
    """Of a text of `count` items (tokens, special ones included, or words) the most that `repeated` repeats."""
    if options.count == "paper":
        candidates = max(count - 2, 0) if options.unit == "subword" else count
        return min(max(2, int(options.rate * candidates)), candidates)
    share = int(options.rate * count)
    bound = min(_MOST, share) if options.unit == "subword" else min(_MOST, count, max(2, share))
    return max(bound - 1, 0)


def repeated(count: int, options: Repetition, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which of `count` items are repeated, in increasing order: k of the candidates without replacement, k uniform from 0.

    Candidates are the tokens but the first and the last, which are special. Of N tokens, those two included, the released
    code repeats min(10, int(rate N)) - 1 at most; of n words min(10, n, max(2, int(rate n))) - 1 and never the last word.
    The paper: max(2, int(rate n)) of all n, here without the special tokens.
    """
    first, last = (1, count - 1) if options.unit == "subword" else (0, count - (options.count == "released"))
    drawn = int(rng.integers(most_repeated(count, options) + 1))
    return np.sort(first + rng.choice(max(last - first, 0), drawn, replace=False)) if drawn else np.zeros(0, np.int64)
