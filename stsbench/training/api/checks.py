"""Checks of a method that somebody else wrote: its class, views and loss. Each error is one line that names class, file and
line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import FunctionType
from typing import Any, get_args

import numpy as np
import torch

from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.prompt.tokenizer import table_size
from stsbench.errors import StsbenchError
from stsbench.registry import calling, where
from stsbench.training.api.batch import IGNORED, Ragged, Term, Views
from stsbench.training.api.method import Inference, LabelledUse, Method, Needs
from stsbench.training.api.options import Options
from stsbench.training.modules.backbone import Backbone

_OF_THE_CLASS = ("stages_for", "needs")  # class methods, as they are called before there is an instance


def check_class(kind: Any, label: str) -> type[Method]:
    """Return `kind`, a complete subclass of Method; else raise StsbenchError. label: the user's name for it."""
    if not (isinstance(kind, type) and issubclass(kind, Method)) or kind is Method:
        raise StsbenchError(f"{label} is not a method: derive a class from stsbench.training.api.Method")
    if kind.forward is Method.forward:
        raise StsbenchError(f"{label} has no forward(self, batch): it gives the terms of the loss")
    if not (isinstance(kind.Options, type) and issubclass(kind.Options, Options)):
        raise StsbenchError(f"{label}: {kind.__name__}.Options must derive from stsbench.training.api.Options")
    stages, recipe = kind.Options.stages, kind.Options.default_recipe
    if isinstance(stages, str) or not stages:
        raise StsbenchError(f"{label}: stages must be a tuple of names, not {stages!r}")
    if recipe is not None and not isinstance(recipe, str):
        raise StsbenchError(f"{label}: default_recipe must be the name of a recipe, not {recipe!r}")
    if moved := [name for name in ("stages", "default_recipe") if name in vars(kind)]:
        raise StsbenchError(f"{label}: {moved[0]} belongs to the class's Options, {kind.__name__}.Options.{moved[0]}")
    for name in _OF_THE_CLASS:
        if isinstance(inspect.getattr_static(kind, name), FunctionType):
            raise StsbenchError(f"{where(kind, name)} must be a class method: write @classmethod above it")
    if stray := [field.name for field in fields(Needs) if hasattr(kind, field.name)]:
        told = f"let needs(cls, options) give Needs({stray[0]}=...)"
        raise StsbenchError(f"{where(kind, stray[0])} is not read from the class: {told}")
    return kind


def check_needs(kind: type[Method], needs: Any) -> Needs:
    """Return the result of `Method.needs`. Raises StsbenchError unless it is a Needs, without stages the class lacks."""
    if not isinstance(needs, Needs):
        raise StsbenchError(f"{where(kind, 'needs')} must give a Needs, not {type_words(needs)}")
    uses = {} if isinstance(needs.labelled, str) else needs.labelled
    if stray := [stage for stage in uses if stage not in kind.Options.stages]:
        stages = ", ".join(kind.Options.stages)
        raise StsbenchError(f"{where(kind, 'needs')}: labelled names the stage {stray[0]!r}, and there are {stages}")
    return needs


def check_stages_for(kind: type[Method], stages: Any) -> tuple[str, ...]:
    """Return the result of `Method.stages_for`. Raises StsbenchError unless it is some of the stages, in their order."""
    if not stages or stages != tuple(stage for stage in kind.Options.stages if stage in stages):
        must = f"must give a tuple of stages ({', '.join(kind.Options.stages)}) in that order"
        raise StsbenchError(f"{where(kind, 'stages_for')} {must}, not {stages!r}")
    return tuple(stages)


def check_stages(kind: type[Method], uses: Mapping[str, str]) -> None:
    """Check that the method can make batches for its stages. uses: stage -> its use of labelled rows (`Needs.labelled`)."""
    for stage, use in uses.items():
        if use not in get_args(LabelledUse):
            words = " or ".join(map(repr, get_args(LabelledUse)))
            raise StsbenchError(f"{where(kind, 'needs')}: labelled must be {words}, not {use!r}, for stage {stage}")
        if use != "only" and kind.views is Method.views:
            raise StsbenchError(
                f"{where(kind)}: stage {stage} trains on the recipe's data and the class has no views(self, rows, rng): "
                "write it, or let needs() give Needs(labelled='only')"
            )


def check_instance(method: Method, backbone: Any) -> Method:
    """Return `method`. Raises StsbenchError if its `__init__` did not call that of Method."""
    if getattr(method, "backbone", None) is not backbone:  # an AttributeError without nn.Module's __init__
        raise StsbenchError(f"{where(type(method), '__init__')} must call super().__init__(backbone, options)")
    return method


def check_inference(method: Method) -> None:
    """Check, before training, that `inference` and `dev_inference` return an Inference."""
    for name in ("inference", "dev_inference"):
        inference = calling(type(method), name, getattr(method, name))
        if not isinstance(inference, Inference):
            must = "must give an Inference(model, tokenizer, pooler)"
            raise StsbenchError(f"{where(type(method), name)} {must}, not {type_words(inference)}")


def check_candidates(method: Method, selected_by: str, absent: bool = False) -> None:
    """Check, before training, that candidates are encoders and that there are development data to choose among them.
    selected_by: selection.by; absent: whether its data are missing on this machine."""
    candidates = calling(type(method), "candidates", method.candidates)
    if any(not isinstance(candidate, Inference) for candidate in candidates.values()):
        raise StsbenchError(f"{where(type(method), 'candidates')} must give name -> Inference(model, tokenizer, pooler)")
    if candidates and absent:
        raise StsbenchError(
            f"{method.name} chooses among {', '.join(candidates)} by development scores, and there are no development data "
            "on this machine: fetch them (`stsbench data fetch`), or let the method's options name the encoder"
        )
    if candidates and selected_by in ("none", "held-out"):
        raise StsbenchError(
            f"{method.name} chooses among {', '.join(candidates)} by development scores, and selection.by is {selected_by}: "
            "set it to sts-b dev, or let the method's options name the encoder"
        )


def check_rates(method: Method) -> dict[str, float]:
    """Return the result of `Method.rates`. Raises StsbenchError for a prefix with which no parameter's name begins."""
    rates = calling(type(method), "rates", method.rates)
    names = [name for name, _ in method.named_parameters()]
    for prefix in rates:
        if not any(name.startswith(prefix) for name in names):
            raise StsbenchError(f"{where(type(method), 'rates')}: no parameter's name begins with '{prefix}'")
    return rates


def check_terms(method: Method, terms: Any) -> dict[str, Term]:
    """Return the terms that `forward` gave. Raises StsbenchError unless they are a dict of Terms with scalar values, one of
    them with a gradient."""
    who = where(type(method), "forward")
    if not isinstance(terms, dict):
        raise StsbenchError(f"{who} must give a dict of terms, name -> Term(value, count), not {type_words(terms)}")
    if not terms:
        raise StsbenchError(f"{who} gave no term: it must give a dict of terms, name -> Term(value, count)")
    for name, term in terms.items():
        if not isinstance(term, Term):
            raise StsbenchError(f"{who}: the term '{name}' must be a Term(value, count), not {type_words(term)}")
        if not isinstance(term.value, torch.Tensor) or term.value.ndim:
            kind = type_words(term.value)
            raise StsbenchError(f"{who}: the value of the term '{name}' must be a scalar tensor, not {kind}")
        if term.count < 0 or (term.count == 0 and float(term.value.detach()) != 0):
            raise StsbenchError(
                f"{who}: the term '{name}' has count {term.count} and a value that is not 0: count is how many items the "
                "value is the mean of"
            )
    if torch.is_grad_enabled() and not any(term.value.requires_grad for term in terms.values()):
        raise StsbenchError(f"{who}: the loss has no gradient: no trained weight is part of it, or it was detached")
    return terms


def type_words(value: Any) -> str:
    """Return a description of a value's type, or of a tensor's shape, for messages."""
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def check_views(method: Method, views: Any, rows: Sequence[int], name: str) -> Views:
    """Return the views of `rows` that the function `name` gave. Raises StsbenchError unless each view holds the unpadded
    token ids of one text a row.

    With groups of rows (`Needs.group_size`) the views may have any number of texts, the same in each.
    """
    who = where(type(method), name)
    if not isinstance(views, Views):
        raise StsbenchError(f"{who} must return Views, not {type_words(views)}")
    if not views.tokens:
        raise StsbenchError(f"{who} gave no view")
    lengths, count = [], len(rows)
    if name == "views" and method.needs(method.options).group_size > 1:
        count = len(views.tokens[0])
    for number, view in enumerate(views.tokens):
        if len(view) != count or not count:
            raise StsbenchError(f"{who}: view {number} has {len(view)} texts for {count or len(rows)} rows")
        if problem := _problem(view, method.backbone):
            raise StsbenchError(f"{who}: view {number} {problem}")
        lengths.append([len(row) for row in view])
    for extra, aligned in views.extra.items():
        if any([len(row) for row in view] not in lengths for view in aligned):
            raise StsbenchError(f"{who}: extra '{extra}' is not aligned with a view: it needs one integer for each token")
    for key, parts in views.by_row.items():
        if stray := [len(part) for part in parts if len(part) != count]:
            raise StsbenchError(f"{who}: by_row '{key}' has numbers of {stray[0]} rows for {count} rows")
    if views.labels is not None and len(views.labels) != count:
        raise StsbenchError(f"{who} gave {len(views.labels)} labels for {count} rows")
    if stray := [int(label) for label in views.labels or () if label < 0 and label != IGNORED]:
        raise StsbenchError(f"{who} gave the label {stray[0]}: labels are class numbers from 0")
    if views.scores is not None and len(views.scores) != count:
        raise StsbenchError(f"{who} gave {len(views.scores)} scores for {count} rows")
    return views


def _problem(view: Ragged, backbone: Backbone) -> str | None:
    """Return what is wrong with the token ids of a view, None if nothing is."""
    tokenizer = backbone.tokenizer
    ends = (tokenizer.cls_token_id, tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.eos_token_id)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id not in ends else None
    known, limit = table_size(backbone.model), position_limit(backbone.model, tokenizer)
    arrays = [np.asarray(row) for row in view]
    for row, ids in zip(view, arrays, strict=True):
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            kind = "an empty list" if np.shape(row) == (0,) else type_words(row)
            return f"has a text that is not a list of token ids but {kind}"
    lengths = np.array([len(ids) for ids in arrays])
    if not lengths.all():
        return "has a text without a token"
    ids = np.concatenate(arrays)
    last = lengths.cumsum() - 1
    if pad is not None and pad in (*ids[last].tolist(), *ids[last - lengths + 1].tolist()):
        return "is padded: give each text's own token ids, as Backbone.tokenise does"
    most = np.inf if known is None else known - 1
    if ids.min() < 0 or ids.max() > most:
        return f"has the token id {ids.min() if ids.min() < 0 else ids.max()}, and the model knows 0 to {most}"
    if limit is not None and lengths.max() > limit:
        return f"has a text of {lengths.max()} tokens, and the model has {limit} positions"
    return None
