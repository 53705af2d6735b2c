"""What SARCSE makes of a row: the same sentence twice, under two dropout masks, or the texts that the data bring."""

from __future__ import annotations

from stsbench.training.api.batch import Examples, Views


def views_of(rows: Examples) -> Views:
    """The sentence and the sentence; or a view a role, in the order of `rows.roles`."""
    if rows.roles == ("sentence",):
        plain = rows.ids("sentence")
        return Views([plain, plain])
    return Views([rows.ids(role) for role in rows.roles])
