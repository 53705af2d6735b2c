"""Comparing a data folder with the catalog, set by set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stsbench.data.fetch.sources import check, missing, read
from stsbench.data.sets.catalog import Entry, entries
from stsbench.errors import DataError


@dataclass(frozen=True)
class SetState:
    """One set in one folder. `state`: "ok", "changed" (files differ), "unreadable", "missing" (not all files there)."""

    id: str
    text_version: str
    state: str
    pairs: int | None  # items as read (pairs, or labelled texts); None for a set that is missing or unreadable
    digest: str
    notes: tuple[str, ...] = ()


def verify(root: Path, ids: Sequence[str] = ()) -> list[SetState]:
    """The state of every catalog set (or of `ids`, in every text version) below `root`. Wrong data raise nothing."""
    return [_state(item, root) for item in entries() if not ids or item.id in ids]


def _state(item: Entry, root: Path) -> SetState:
    absent = missing(item, root)
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        return SetState(item.id, item.text_version, "missing", None, "", (f"{root / absent[0]}{more}",))
    differing = tuple(check(item, root))
    try:
        data = read(item, root)
    except DataError as error:
        return SetState(item.id, item.text_version, "unreadable", None, "", (str(error),))
    digest = data.digest
    if item.digest and digest != item.digest and not differing:
        differing = (f"{item.id} reads with digest {digest[:12]}…, the catalog says {item.digest[:12]}…",)
    return SetState(item.id, item.text_version, "changed" if differing else "ok", len(data), digest, differing)
