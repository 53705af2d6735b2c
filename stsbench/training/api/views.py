"""Views of contrastive methods: the roles of a row's texts (a plain sentence, or an anchor, its positive and hard negatives)
and ESimCSE's word repetition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.forward.model import position_limit
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Examples, Ragged, Views
from stsbench.training.api.options import Repetition
from stsbench.training.modules.backbone import Backbone

if TYPE_CHECKING:
    from stsbench.training.api.method import Method

PAIRS = ("anchor", "positive", "negative", "negative2")
SCORED = ("sentence1", "sentence2", "score")
_MOST = 10  # the released code repeats at most 9 items


def pairs_or_sentence(
    roles: tuple[str, ...], method: str, view: str, *, unsupervised: str | None = None, supervised: str | None = None
) -> tuple[str, ...]:
    """Return ("sentence",) for plain text, else the roles of PAIRS that are among `roles`, in the order of PAIRS.

    method: its name, for messages; view: the method's options.view: "given" takes the positive from the data, any other view
    makes it from a plain sentence; unsupervised, supervised: recipes that an error recommends, if any.
    Raises StsbenchError, one line, for roles that are missing or contradict the view.
    """
    pairs = tuple(role for role in PAIRS if role in roles)
    if "sentence" in roles and pairs:
        raise StsbenchError(f"the data give both sentence and {pairs[0]}: name one or the other in data.columns")
    if not pairs:
        if "sentence" not in roles:
            raise StsbenchError(
                f"{method} needs the column sentence, or anchor and positive (the data give "
                f"{', '.join(roles) or 'no column'}): name them in data.columns"
            )
        if view == "given":
            raise StsbenchError(
                "options.view given takes anchor and positive from the data, and these give plain sentences: "
                f"{_take('an unsupervised', unsupervised)}set options.view dropout"
            )
        return ("sentence",)
    missing = next((role for role in ("anchor", "positive") if role not in pairs), None)
    if missing is not None:
        raise StsbenchError(f"{method} needs the column {missing} beside {pairs[0]}: name it in data.columns")
    if "negative2" in pairs and "negative" not in pairs:
        raise StsbenchError("data.columns names negative2 without negative: call a single hard negative negative")
    if view != "given":
        raise StsbenchError(
            f"options.view {view} makes positives of plain sentences, and the data give {', '.join(pairs)}: "
            f"{_take('a supervised', supervised)}set options.view given"
        )
    return pairs


def require_roles(roles: tuple[str, ...], option: str, available: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return `roles`, those that an option needs ("options.format triplets", say). Raises StsbenchError, one line, for roles
    that are not `available`."""
    if not set(roles) <= set(available):
        raise StsbenchError(
            f"{method} with {option} needs the columns {', '.join(roles[:-1])} and {roles[-1]} (the data give "
            f"{', '.join(available) or 'no column'}): name them in data.columns"
        )
    return roles


def scored_pairs(roles: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return SCORED, the roles of pairs with scores. method: its name, for messages. Raises StsbenchError, one line, if one
    of SCORED is missing, as for plain text."""
    if not set(SCORED) <= set(roles):
        raise StsbenchError(
            f"{method} learns from pairs with scores, the columns sentence1, sentence2 and score (the data give "
            f"{', '.join(roles) or 'no column'}): name them in data.columns; for classes give --labelled and set "
            "options.format labelled"
        )
    return SCORED


def role_views(method: Method, rows: Examples) -> Views:
    """Return the sentence as two views, or a view for each role of the rows, tokenised by `Method.read`."""
    if rows.roles == ("sentence",):
        return Views([method.read(rows, "sentence")] * 2)
    return Views([method.read(rows, role) for role in rows.roles])


def _take(kind: str, recipe: str | None) -> str:
    return f"take {kind} recipe, e.g. {recipe}, or " if recipe is not None else ""


class Repeater:
    """Word repetition: token ids of texts with repeated words or sub-words, drawn anew for each batch, as a view of the same
    meaning and another length. Source: Wu et al. (2022), ESimCSE, and train.py of the authors' code (caskcsg/sentemb)."""

    def __init__(self, backbone: Backbone, options: Repetition) -> None:
        """Raise StsbenchError, one line, if texts with repetitions can have more tokens than the model has positions."""
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
        """Return `[row]` -> token ids. Sub-words are repeated after the text is cut at max_length, which may then be
        exceeded; words are repeated before."""
        if self.options.unit == "subword":
            return [self._repeat(np.asarray(ids), rng) for ids in rows.ids(role)]
        split = [np.array(text.split(" "), object) for text in rows.texts(role)]
        return self.backbone.tokenise([" ".join(self._repeat(words, rng)) for words in split])

    def _repeat(self, items: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        indices = repeated(len(items), self.options, rng)
        return np.insert(items, indices, items[indices])


def most_repeated(count: int, options: Repetition) -> int:
    """Return how many of `count` items (tokens, special tokens included, or words) `repeated` repeats at most."""
    if options.count == "paper":
        candidates = max(count - 2, 0) if options.unit == "subword" else count
        return min(max(2, int(options.rate * candidates)), candidates)
    share = int(options.rate * count)
    bound = min(_MOST, share) if options.unit == "subword" else min(_MOST, count, max(2, share))
    return max(bound - 1, 0)


def repeated(count: int, options: Repetition, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the indices of repeated items among `count`, (k,), increasing: k uniform from 0 to `most_repeated`, drawn
    without replacement.

    Among tokens the first and the last, which are special, are never repeated. Of N tokens, with these two, the released
    code repeats min(10, int(rate N)) - 1 at most; of n words min(10, n, max(2, int(rate n))) - 1, and never the last word.
    The paper repeats at most max(2, int(rate n)) of all n, here without the special tokens.
    """
    first, last = (1, count - 1) if options.unit == "subword" else (0, count - (options.count == "released"))
    drawn = int(rng.integers(most_repeated(count, options) + 1))
    return np.sort(first + rng.choice(max(last - first, 0), drawn, replace=False)) if drawn else np.zeros(0, np.int64)
