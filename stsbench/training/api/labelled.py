"""Natural language inference as training data: its roles, its views, and a classifier on pairs of sentence vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.losses.nli import nli_cross_entropy
from stsbench.training.losses.pair_features import SBERT_FEATURES, Feature


class _Reader(Protocol):  # a Method
    def read(self, rows: Examples, role: str) -> Ragged: ...


TRIPLET = ("anchor", "positive", "negative")  # premise, what it entails, what contradicts it
PAIR = ("premise", "hypothesis", "label")
_OF_TRIPLETS = 2  # classes of triplets: 1 entailed, 0 contradicted
ClassifierInit = Literal["normal", "truncated_normal", "torch"]
_TRUNCATED_AT = 2  # standard deviations, as TensorFlow's truncated_normal


def nli_roles(roles: tuple[str, ...], who: str, pairs: bool = True, triplets: bool = True) -> tuple[str, ...]:
    """TRIPLET or PAIR, whichever the labelled rows have. Raises StsbenchError, one line, for neither and for both.

    who: what needs them, for the message; pairs, triplets: whether it takes labelled pairs, and triplets.
    """
    triplet, pair = triplets and set(TRIPLET) <= set(roles), pairs and set(PAIR) <= set(roles)
    if triplet and pair:
        raise StsbenchError(
            f"{who}: the labelled rows give both anchor and premise: name one or the other in labelled.columns"
        )
    if not triplet and not pair:
        wanted = [TRIPLET] * triplets + [PAIR] * pairs
        choices = ", or of ".join(f"{first}, {second} and {third}" for first, second, third in wanted)
        raise StsbenchError(
            f"{who} needs labelled rows of {choices} (these give {', '.join(roles) or 'no column'}): name the others' "
            f"columns, as in --set 'labelled.columns={{{next(role for role in wanted[-1] if role not in roles)}: COLUMN}}'"
        )
    return TRIPLET if triplet else PAIR


def nli_views(method: _Reader, rows: Examples) -> Views:
    """The views of rows with the roles of `nli_roles`, each text as `Method.read` gives it; pairs bring their labels."""
    if tuple(rows.roles) == TRIPLET:
        return Views([method.read(rows, role) for role in TRIPLET])
    return Views([method.read(rows, role) for role in PAIR[:2]], labels=rows.labels())


class NLIClassifier(nn.Module):
    """softmax(W [u; v; |u - v|] + b), W of (c, k d) for k blocks of features, by torch's global generator.

    W starts from N(0, std^2) (normal), from the same without values beyond 2 std (truncated_normal), or as torch's Linear
    does (torch: W and b uniform on +-1 / sqrt(k d)); but for that b = 0.
    Sources: Reimers and Gurevych (2019), Sentence-BERT, section 3; with two classes Wang and Lu (2022), DiffAug, Eq. 4.
    """

    def __init__(
        self, width: int | None = None, classes: int | None = None, std: float = 0.02, *,
        features: tuple[Feature, ...] = SBERT_FEATURES, bias: bool = True, init: ClassifierInit = "normal",
    ) -> None:
        """width: d; classes: c. None where only the data or a checkpoint tells: then `set_shape`, or load a state.

        features: the blocks, whose names training/losses/pair_features.py explains; bias: whether there is b.
        """
        super().__init__()
        self.std, self.features, self.bias, self.init = std, features, bias, init
        self.linear: nn.Linear | None = None
        if width is not None and classes is not None:
            self.set_shape(width, classes)

    def set_shape(self, width: int, classes: int) -> None:
        """Make the weights. Raises StsbenchError for fewer than two classes."""
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
        """The mean cross-entropy. vectors: (v * n, d) of the batch's rows, view after view, v = 3 without labels, else 2.

        A triplet is two items, (z1, z2) of class 1 and (z1, z3) of class 0; a labelled pair is one.
        No row gives 0, with a gradient, so that a process without any can take part.
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
        value = nli_cross_entropy(first, second, weight, bias, labels=labels, features=self.features)
        return Term(value, len(labels))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *more: Any) -> None:
        """Without weights as yet, the shape is that of the checkpoint's."""
        stored = state_dict.get(f"{prefix}linear.weight")
        if self.linear is None and stored is not None:
            self.set_shape(stored.shape[1] // len(self.features), len(stored))
        super()._load_from_state_dict(state_dict, prefix, *more)


def classes_of(rows: Any) -> int:
    """How many classes labelled rows (a data.examples.Rows) have: of triplets two, of pairs as many as label names."""
    return _OF_TRIPLETS if tuple(rows.roles) == TRIPLET else len(rows.store.label_names)
