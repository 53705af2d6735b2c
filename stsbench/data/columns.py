"""Which column of a file plays which role in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stsbench.errors import DataError

ROLES = ("sentence", "anchor", "positive", "negative", "negative2", "premise", "hypothesis", "label")  # in their order
LABEL = "label"  # the one role whose texts are names of classes

# Headers that need no data.columns: role -> column, first those that must be there, then those that may.
_KNOWN: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({"anchor": "sent0", "positive": "sent1"}, {"negative": "hard_neg"}),
    ({"anchor": "anchor", "positive": "positive"}, {"negative": "negative", "negative2": "negative2"}),
    ({"premise": "premise", "hypothesis": "hypothesis"}, {"label": "label"}),
    ({"sentence": "sentence"}, {}),
    ({"sentence": "text"}, {}),
)


def roles_of(given: Sequence[str], columns: Mapping[str, str], where: Mapping[str, str], place: str) -> dict[str, str]:
    """Role -> column, in the order of ROLES, other roles after them by name.

    given: the file's columns; columns: the user's choice, or empty for a header known here; where: columns that must be
    there too; place: `file:line` of the header. Raises DataError for a column that lacks or occurs twice, and for a header
    that is not known.
    """
    found = dict(columns) or _known(given, place)
    for column in (*found.values(), *where):
        if given.count(column) != 1:
            fault = "occurs twice" if column in given else f"is missing (there are {', '.join(given)})"
            raise DataError(f"{place}: the column {column!r} {fault}; see data.columns and data.where")
    if set(found) <= {LABEL}:
        raise DataError(f"{place}: data.columns names no text")
    return dict(sorted(found.items(), key=lambda item: (_rank(item[0]), item[0])))


def optional_columns(found: Mapping[str, str]) -> set[str]:
    """Columns of a known header that were not there, but would have a role if they were."""
    return {
        column for must, may in _KNOWN if must.items() <= found.items()
        for role, column in may.items() if role not in found
    }  # fmt: skip


def _known(given: Sequence[str], place: str) -> dict[str, str]:
    fitting = [{**must, **may} for must, may in _KNOWN if set(must.values()) <= set(given)]
    if len(fitting) != 1:
        which = "more than one known header fits" if fitting else "no known header"
        raise DataError(f"{place}: {which}; say with data.columns which of the columns is what: {', '.join(given)}")
    return {role: column for role, column in fitting[0].items() if column in given}


def _rank(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)
