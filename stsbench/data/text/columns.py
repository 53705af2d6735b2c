"""Which column of a file plays which role in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stsbench.errors import DataError

ROLES = (
    "sentence", "anchor", "positive", "negative", "negative2", "premise", "hypothesis", "sentence1", "sentence2", "label",
    "score",
)  # in their order
LABEL = "label"  # the role whose texts are names of classes
SCORE = "score"  # the role whose texts are numbers
VALUES = frozenset((LABEL, SCORE))  # roles that are said of a row's texts

# Headers that need no data.columns: role -> column, first those that must be there, then those that may.
_KNOWN: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({"anchor": "sent0", "positive": "sent1"}, {"negative": "hard_neg"}),
    ({"anchor": "anchor", "positive": "positive"}, {"negative": "negative", "negative2": "negative2"}),
    ({"premise": "premise", "hypothesis": "hypothesis"}, {"label": "label"}),
    ({"sentence1": "sentence1", "sentence2": "sentence2"}, {"score": "score"}),
    ({"sentence": "sentence"}, {}),
    ({"sentence": "text"}, {}),
)


def roles_of(header: Sequence[str], columns: Mapping[str, str], where: Mapping[str, str], location: str) -> dict[str, str]:
    """Role -> column, in the order of ROLES, other roles after them by name.

    header: the file's columns; columns: the user's choice, or empty for a known header; where: columns that must also be
    present; place: `file:line` of the header. Raises DataError, with what to set, for a column that is missing or occurs
    twice, and for a header that is not known.
    """
    roles = dict(columns) or _known(header, location)
    needed = dict.fromkeys((*roles.values(), *where))
    if twice := next((column for column in needed if header.count(column) > 1), None):
        raise DataError(f"{location}: the column {twice!r} occurs twice; see data.columns and data.where")
    if missing := [column for column in needed if column not in header]:
        which = f"column {missing[0]!r} is" if len(missing) == 1 else f"columns {', '.join(map(repr, missing))} are"
        remedy = _remedy(header, roles, where)
        raise DataError(f"{location}: the {which} missing (the file has {', '.join(header)}); give {remedy}")
    if set(roles) <= VALUES:
        raise DataError(f"{location}: data.columns names no text column")
    return dict(sorted(roles.items(), key=lambda item: (_rank(item[0]), item[0])))


def is_known_header(names: Sequence[str]) -> bool:
    """Whether a table with these columns needs no data.columns; one column alone is no table."""
    return len(names) > 1 and any(set(must.values()) <= set(names) for must, _ in _KNOWN)


def optional_columns(roles: Mapping[str, str]) -> set[str]:
    """Columns of a known header that were not there, but would have a role if they were."""
    return {
        column for must, may in _KNOWN if must.items() <= roles.items()
        for role, column in may.items() if role not in roles
    }


def _known(header: Sequence[str], location: str) -> dict[str, str]:
    fitting = [{**must, **may} for must, may in _KNOWN if set(must.values()) <= set(header)]
    if len(fitting) != 1:
        which = "more than one known header fits" if fitting else "no known header"
        raise DataError(
            f"{location}: {which}; say with --set 'data.columns={{sentence: ...}}' or --set 'data.columns={{anchor: ..., "
            f"positive: ...}}' which of the columns is what: {', '.join(header)}"
        )
    return {role: column for role, column in fitting[0].items() if column in header}


def _remedy(header: Sequence[str], columns: Mapping[str, str], where: Mapping[str, str]) -> str:
    """The --set that names what the file has for the roles of `columns`, known names filled in, "..." for the others."""
    words = []
    if not set(columns.values()) <= set(header):
        chosen = _suggested(header, columns)
        words.append(f"--set 'data.columns={{{', '.join(f'{role}: {column}' for role, column in chosen.items())}}}'")
        if "..." in chosen.values():
            words[0] += " (... being one of these columns; leave out a role that the file does not have)"
        if chosen.get("anchor") == "premise" and LABEL in header and LABEL not in where:
            return f"{words[0]} and --set 'data.where={{{LABEL}: ...}}' for the rows of one {LABEL} only"
    if not set(where) <= set(header):
        words.append("--set 'data.where={}' for all rows, or a column and its value in the braces")
    return " and ".join(words)


def _suggested(header: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Role -> column of the file, as far as a known header says, for roles that `columns` gives to missing columns."""
    for must, may in _KNOWN:
        if set(must) <= set(columns) and all(header.count(column) == 1 for column in must.values()):
            known = {role: column for role, column in {**must, **may}.items() if role in columns and column in header}
            break
    else:
        if {"anchor", "positive"} <= set(columns) and {"premise", "hypothesis"} <= set(header):
            return {"anchor": "premise", "positive": "hypothesis"}
        known = {role: column for role, column in columns.items() if column in header}
    spare = len(set(header) - set(known.values())) > 0
    return {**known, **{role: "..." for role in columns if role not in known and spare}}


def _rank(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)
