"""Natural language inference (NLI) as training data: roles, views, a classifier of pairs of sentence vectors, and scores
for the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.errors import StsbenchError
from stsbench.losses.choices import SBERT_FEATURES, Feature
from stsbench.losses.labelled import sbert_nli
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views


class _Reader(Protocol):  # a Method
    def read(self, rows: Examples, role: str) -> Ragged: ...


TRIPLET = ("anchor", "positive", "negative")  # a premise, an entailed and a contradicting hypothesis
PAIR = ("premise", "hypothesis", "label")
_OF_TRIPLETS = 2  # the number of classes of triplets: 1 entailment, 0 contradiction
ClassifierInit = Literal["normal", "truncated_normal", "torch"]
_TRUNCATED_AT = 2  # standard deviations, as TensorFlow's truncated_normal


def nli_roles(roles: tuple[str, ...], method: str, pairs: bool = True, triplets: bool = True) -> tuple[str, ...]:
    """Return TRIPLET or PAIR, whichever the labelled rows have. Raises StsbenchError, one line, for neither and for both.

    method: its name, for messages; pairs, triplets: whether the method takes labelled pairs, and triplets.
    """
    triplet, pair = triplets and set(TRIPLET) <= set(roles), pairs and set(PAIR) <= set(roles)
    if triplet and pair:
        raise StsbenchError(
            f"{method}: the labelled rows give both anchor and premise: name one or the other in labelled.columns"
        )
    if not triplet and not pair:
        wanted = [TRIPLET] * triplets + [PAIR] * pairs
        choices = ", or of ".join(f"{first}, {second} and {third}" for first, second, third in wanted)
        if set(TRIPLET) <= set(roles):
            raise StsbenchError(f"{method} needs labelled rows of {choices}, and these give {', '.join(roles)}: supervised "
                                "recipes of other methods take those, by --data (`stsbench list recipes`)")
        raise StsbenchError(
            f"{method} needs labelled rows of {choices} (these give {', '.join(roles) or 'no column'}): name the others' "
            f"columns, as in --set 'labelled.columns={{{next(role for role in wanted[-1] if role not in roles)}: COLUMN}}'"
        )
    return TRIPLET if triplet else PAIR


def nli_views(method: _Reader, rows: Examples) -> Views:
    """Return a view for each text of rows with the roles of `nli_roles`, tokenised by `Method.read`; with labels for
    pairs."""
    if tuple(rows.roles) == TRIPLET:
        return Views([method.read(rows, role) for role in TRIPLET])
    return Views([method.read(rows, role) for role in PAIR[:2]], labels=rows.labels())


class NLIClassifier(nn.Module):
    """Classifier of sentence pairs: softmax(W [u; v; |u - v|] + b), W (c, k d) for k blocks of features.

    Initialisation, by torch's global generator: W from N(0, std^2) (normal), or without values beyond 2 std
    (truncated_normal), with b = 0; or W and b uniform on +-1 / sqrt(k d), as in torch's Linear (torch).
    Sources: Reimers and Gurevych (2019), Sentence-BERT, section 3; with two classes Wang and Lu (2022), DiffAug, Eq. 4.
    """

    def __init__(
        self, width: int | None = None, classes: int | None = None, std: float = 0.02, *,
        features: tuple[Feature, ...] = SBERT_FEATURES, bias: bool = True, init: ClassifierInit = "normal",
    ) -> None:
        """Make the weights, unless width, d, or classes, c, is None: then call `set_shape` or load a state later.

        features: the blocks, whose names losses/choices.py explains; bias: whether there is b.
        """
        super().__init__()
        self.std, self.features, self.bias, self.init = std, features, bias, init
        self.linear: nn.Linear | None = None
        if width is not None and classes is not None:
            self.set_shape(width, classes)

    def set_shape(self, width: int, classes: int) -> None:
        """Create the weights for vectors of `width` and so many classes. Raises StsbenchError for fewer than two classes."""
        if classes < 2:
            raise StsbenchError(f"the labelled rows have {classes} label: a classifier needs two at least")
        self.linear = nn.Linear(len(self.features) * width, classes, bias=self.bias)
        if self.init == "torch":
            return
        if self.init == "normal":
            nn.init.normal_(self.linear.weight, std=self.std)
        else:
            edge = _TRUNCATED_AT * self.std
            nn.init.trunc_normal_(self.linear.weight, std=self.std, a=-edge, b=edge)
        if self.bias:
            nn.init.zeros_(self.linear.bias)

    def term(self, vectors: Tensor, batch: Batch) -> Term:
        """Return the mean cross-entropy. vectors: (v * n, d) of the batch's rows, view after view; v is 2 with labels, 3 for
        triplets.

        A triplet counts as two items, (z1, z2) of class 1 and (z1, z3) of class 0, a labelled pair as one.
        A batch without rows gives 0, with a gradient, so that the backward pass runs on every process.
        """
        if self.linear is None:
            raise RuntimeError("NLIClassifier has no weights before set_shape")
        n = len(batch)
        if batch.labels is None:
            premises, entailed, contradicted = vectors.split(n) if n else [vectors] * 3
            first, second = torch.cat([premises, premises]), torch.cat([entailed, contradicted])
            labels = torch.arange(_OF_TRIPLETS - 1, -1, -1, device=vectors.device).repeat_interleave(n)
        else:
            first, second = vectors.split(n) if n else [vectors] * 2
            labels = batch.labels
        weight, bias = self.linear.weight, self.linear.bias
        value = sbert_nli(first, second, labels, weight, bias, features=self.features)
        return Term(value, len(labels))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *more: Any) -> None:
        """Load the state; a classifier without weights takes its shape from the checkpoint."""
        stored = state_dict.get(f"{prefix}linear.weight")
        if self.linear is None and stored is not None:
            self.set_shape(stored.shape[1] // len(self.features), len(stored))
        super()._load_from_state_dict(state_dict, prefix, *more)


def count_classes(rows: Any) -> int:
    """Return the number of classes of labelled rows (a data.examples.Rows): two for triplets, for pairs the number of
    label names."""
    return _OF_TRIPLETS if tuple(rows.roles) == TRIPLET else len(rows.store.label_names)


class LabelScores:
    """Scores for the classes of labelled pairs, for losses that need an order: contradiction 0, neutral 1, entailment 2."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """Set the scores: the name of a class -> its score. Pairs of classes without a score are left out."""
        self.scores = dict(scores)
        self._of_class: tuple[float | None, ...] = ()

    def usable(self, rows: Any) -> NDArray[np.bool_]:
        """Return bool (n,), true for those of n labelled rows (a data.examples.Rows) whose class has a score.

        Raises StsbenchError, one line, for a score of a class that the rows do not have.
        """
        of_class = self._classes(rows.store.label_names)
        named = np.array([score is not None for score in of_class], np.bool_)
        return named[np.asarray(rows.labels(), np.int64)]

    def prepare(self, rows: Any) -> None:
        """Look up the score of each class of the labelled rows. Call it before `views`."""
        self._of_class = self._classes(rows.store.label_names)

    def views(self, method: _Reader, rows: Examples) -> Views:
        """Return both texts of each pair as views, with the score of the pair's class."""
        scores = [self._of_class[label] for label in rows.labels()]
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            raise StsbenchError(f"a labelled row is of no class that options.label_scores names ({', '.join(self.scores)})")
        return Views([method.read(rows, role) for role in PAIR[:2]], scores=known)

    def _classes(self, names: Any) -> tuple[float | None, ...]:
        there = [str(name) for name in names]
        if stray := next((name for name in self.scores if name not in there), None):
            raise StsbenchError(
                f"options.label_scores names {stray}, and the labelled rows have the classes {', '.join(there)}: name "
                f"them, as in --set 'options.label_scores={{{there[0]}: 0, {there[-1]}: 1}}'"
            )
        return tuple(self.scores.get(name) for name in there)


def unordered(scores: NDArray[np.float64]) -> tuple[int, str] | None:
    """Return (0, why) if all (n,) scores are equal, else None: `Needs.wrong_score` of a method that learns their order."""
    if len(scores) and (scores == scores[0]).all():
        return 0, f"every row has the score {scores[0]:g}: there is no order to learn"
    return None
