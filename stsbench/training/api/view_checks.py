"""What a method's author may get wrong in views, each mistake one line that names class, file and line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stsbench.encoders.forward.checkpoint import position_limit
from stsbench.encoders.prompt.tokenizer import table_size
from stsbench.errors import StsbenchError
from stsbench.registry import where
from stsbench.training.api.batch import IGNORED, Ragged, Views
from stsbench.training.api.checks import kind_of
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone


def check_views(method: Method, views: Any, rows: Sequence[int], name: str) -> Views:
    """The views that `name` gave of these rows, if they are such: in each view the token ids of one text a row, unpadded.

    Of groups of rows (`Needs.group_size`) there may be any number of texts, the same in each view.
    """
    who = where(type(method), name)
    if not isinstance(views, Views):
        raise StsbenchError(f"{who} must return Views, not {kind_of(views)}")
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
    _check_labels(who, views.labels, count)
    if views.scores is not None and len(views.scores) != count:
        raise StsbenchError(f"{who} gave {len(views.scores)} scores for {count} rows")
    return views


def _problem(view: Ragged, backbone: Backbone) -> str | None:
    """What is wrong with the token ids of a view."""
    tokenizer = backbone.tokenizer
    ends = (tokenizer.cls_token_id, tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.eos_token_id)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id not in ends else None
    known, limit = table_size(backbone.model), position_limit(backbone.model, tokenizer)
    arrays = [np.asarray(row) for row in view]
    for row, ids in zip(view, arrays, strict=True):
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            return f"has a text that is not a list of token ids but {_described(row)}"
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


def _described(row: Any) -> str:
    return "an empty list" if np.shape(row) == (0,) else kind_of(row)


def _check_labels(who: str, labels: Sequence[int] | None, count: int) -> None:
    if labels is None:
        return
    if len(labels) != count:
        raise StsbenchError(f"{who} gave {len(labels)} labels for {count} rows")
    if stray := [int(label) for label in labels if label < 0 and label != IGNORED]:
        raise StsbenchError(f"{who} gave the label {stray[0]}: labels are class numbers from 0")
