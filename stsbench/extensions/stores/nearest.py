"""The texts of a store nearest to some vectors."""

from __future__ import annotations

from dataclasses import dataclass

from stsbench.encoders.base import Encoder
from stsbench.errors import EncoderError
from stsbench.extensions.stores.numbers import Floats
from stsbench.extensions.stores.search import nearest
from stsbench.extensions.stores.vectors import VectorStore

_MORE = 4  # times as many rows are looked for where copies of one text fill the places


@dataclass(frozen=True)
class Neighbour:
    """One text. row: its first one, from 0; copies: how many rows have it."""

    row: int
    cosine: float
    copies: int
    text: str


def neighbours_in(
    store: VectorStore, queries: Floats, top: int, *, backend: str = "exact"
) -> list[list[Neighbour]]:
    """For each of q vectors (q, d) the `top` most similar distinct texts by cosine, best first, but for empty ones.

    Memory as `search.nearest` needs it. ScoreError and StsbenchError as it raises them.
    """
    many = top
    while True:
        many = min(many, len(store))
        scores, indices = nearest(queries, store.blocks(), many, cosine=True, backend=backend)
        texts = store.texts(indices.ravel())
        rows = [texts[i * many : (i + 1) * many] for i in range(len(queries))]
        if many == len(store) or all(len(set(row) - {""}) >= top for row in rows):
            break
        many *= _MORE
    distinct = list(dict.fromkeys(texts))
    index = {text: i for i, text in enumerate(distinct)}
    first, copies = store.copies(distinct)
    lists = []
    for row, cosines in zip(rows, scores, strict=True):
        best = {text: float(cosine) for text, cosine in reversed(list(zip(row, cosines, strict=True)))}
        names = [text for text in dict.fromkeys(row) if text][:top]
        lists.append([Neighbour(int(first[index[text]]), best[text], int(copies[index[text]]), text) for text in names])
    return lists


def check_same_encoder(store: VectorStore, encoder: Encoder) -> None:
    """EncoderError unless `encoder` made the store, or differs from what made it in the prompt before a text alone: queries
    may have another one than documents."""
    stored, current = vars(store.encoder), vars(encoder.spec)
    differ = [key for key in current if key not in ("name", "prefix", "options") and current[key] != stored[key]]
    roles = [{key: value for key, value in spec["options"].items() if key != "role"} for spec in (stored, current)]
    differ += ["options"] if roles[0] != roles[1] else []
    if differ:
        raise EncoderError(
            f"{store.folder} was made by another encoder ({store.encoder.name}; other {', '.join(differ)}) than "
            f"{encoder.spec.name}: their vectors cannot be compared"
        )
