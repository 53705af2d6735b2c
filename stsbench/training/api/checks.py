"""What a method's author may get wrong, each mistake one line that names the class and its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch

from stsbench.errors import StsbenchError
from stsbench.plugins import where
from stsbench.training.api.batch import Term
from stsbench.training.api.method import LabelledUse, Method
from stsbench.training.api.options import Options


def check_class(kind: Any, said: str) -> type[Method]:
    """`kind`, if it is a whole method. said: what a user named it."""
    if not (isinstance(kind, type) and issubclass(kind, Method)) or kind is Method:
        raise StsbenchError(f"{said} is not a method: derive a class from stsbench.training.api.Method")
    if kind.forward is Method.forward:
        raise StsbenchError(f"{said} has no forward(self, batch): it gives the terms of the loss")
    if not (isinstance(kind.Options, type) and issubclass(kind.Options, Options)):
        raise StsbenchError(f"{said}: {kind.__name__}.Options must derive from stsbench.training.api.Options")
    if isinstance(kind.stages, str) or not kind.stages:
        raise StsbenchError(f"{said}: stages must be a tuple of names, not {kind.stages!r}")
    return kind


def check_stages(kind: type[Method], uses: Mapping[str, str]) -> None:
    """That the method can make batches for its stages. uses: stage -> what `Method.labelled` says."""
    for stage, use in uses.items():
        if use not in get_args(LabelledUse):
            words = " or ".join(map(repr, get_args(LabelledUse)))
            raise StsbenchError(f"{where(kind)}: labelled() must give {words}, not {use!r}, for stage {stage}")
        if use != "only" and kind.views is Method.views:
            raise StsbenchError(
                f"{where(kind)}: stage {stage} trains on the recipe's data and the class has no views(self, rows, rng): "
                "write it, or let labelled() give 'only'"
            )


def check_terms(method: Method, terms: Any) -> dict[str, Term]:
    """The terms that `forward` gave, if they are such: name -> Term, whose value is a scalar tensor."""
    who = where(type(method))
    if not isinstance(terms, dict) or not terms:
        raise StsbenchError(f"{who}: forward must give a dict of terms, name -> Term(value, count), not {_kind(terms)}")
    for name, term in terms.items():
        if not isinstance(term, Term):
            raise StsbenchError(f"{who}: the term '{name}' must be a Term(value, count), not {_kind(term)}")
        if not isinstance(term.value, torch.Tensor) or term.value.ndim:
            raise StsbenchError(f"{who}: the value of the term '{name}' must be a scalar tensor, not {_kind(term.value)}")
    return terms


def check_views(method: Method, views: Any, rows: Sequence[int], name: str) -> None:
    """The views that `name` gave, if there is one text for each of the rows in each of them."""
    who = where(type(method))
    for number, view in enumerate(views.tokens):
        if len(view) != len(rows):
            raise StsbenchError(f"{who}: view {number} of {name} has {len(view)} texts for {len(rows)} rows")
    if views.labels is not None and len(views.labels) != len(rows):
        raise StsbenchError(f"{who}: {name} gave {len(views.labels)} labels for {len(rows)} rows")


def _kind(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
