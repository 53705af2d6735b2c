"""Which texts of a row a contrastive method uses: a plain sentence, or an anchor, its positive and hard negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Examples, Views

if TYPE_CHECKING:
    from stsbench.training.api.method import Method

PAIRS = ("anchor", "positive", "negative", "negative2")
SCORED = ("sentence1", "sentence2", "score")


def pairs_or_sentence(
    roles: tuple[str, ...], who: str, view: str, *, unsupervised: str | None = None, supervised: str | None = None
) -> tuple[str, ...]:
    """("sentence",) for plain text, else those of PAIRS among `roles`, in their order.

    who: the method, for messages; view: its options.view: "given" takes the positive from the data, anything else makes it
    of a plain sentence.
    unsupervised, supervised: recipes that an error recommends, if any. Raises StsbenchError, one line, for roles that lack
    or do not go with the view.
    """
    pairs = tuple(role for role in PAIRS if role in roles)
    if "sentence" in roles and pairs:
        raise StsbenchError(f"the data give both sentence and {pairs[0]}: name one or the other in data.columns")
    if not pairs:
        if "sentence" not in roles:
            raise StsbenchError(
                f"{who} needs the column sentence, or anchor and positive (the data give "
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
        raise StsbenchError(f"{who} needs the column {missing} beside {pairs[0]}: name it in data.columns")
    if "negative2" in pairs and "negative" not in pairs:
        raise StsbenchError("data.columns names negative2 without negative: call a single hard negative negative")
    if view != "given":
        raise StsbenchError(
            f"options.view {view} makes positives of plain sentences, and the data give {', '.join(pairs)}: "
            f"{_take('a supervised', supervised)}set options.view given"
        )
    return pairs


def scored_pairs(roles: tuple[str, ...], who: str) -> tuple[str, ...]:
    """SCORED. who: the method, for the message. Raises StsbenchError, one line, for roles that lack one of them, as plain
    text does."""
    if not set(SCORED) <= set(roles):
        raise StsbenchError(
            f"{who} learns from pairs with scores, the columns sentence1, sentence2 and score (the data give "
            f"{', '.join(roles) or 'no column'}): name them in data.columns; for classes give --labelled and set "
            "options.format labelled"
        )
    return SCORED


def role_views(method: Method, rows: Examples) -> Views:
    """The sentence twice, or a view for each role in the rows' order, every text as `Method.read` gives it."""
    if rows.roles == ("sentence",):
        return Views([method.read(rows, "sentence")] * 2)
    return Views([method.read(rows, role) for role in rows.roles])


def _take(kind: str, recipe: str | None) -> str:
    return f"take {kind} recipe, e.g. {recipe}, or " if recipe is not None else ""
