"""The board as one HTML file that asks for nothing else: no server, no network, no second file."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from markupsafe import Markup

from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import FLAGS, Board, Cell, Row, Sensitivity, Tab
from stsbench.leaderboard.ranks.wording import GROUPS
from stsbench.leaderboard.records.paths import TEMPLATES

_SETTINGS = {
    "unsup": "no labels", "semi": "labels of natural language inference, by classification",
    "sup": "labels used otherwise, or what a paper itself calls supervised",
}  # fmt: skip
_SWAPS_SHOWN = 30  # pairs listed for two settings; the rest are counted
# http, https, or a path beside the page: a colon elsewhere could begin another scheme (javascript:).
_LINK = re.compile(r"https?://[^\x00-\x20\x7f\\]+|[^\x00-\x20\x7f\\:]+", re.IGNORECASE)
_FORBIDDEN_IN_PICTURE = re.compile(r"<style|<script|\sstyle\s*=|\son\w+\s*=", re.IGNORECASE)


@dataclass(frozen=True)
class _Group:
    id: str
    title: str
    tabs: tuple[Tab, ...]


def render(board: Board, picture: Markup | None = None) -> str:
    """The page. The same board gives the same bytes; a plain string as `picture` (an inline SVG) would be escaped.

    Raises StsbenchError where two tabs share an id, a score is not finite or the picture holds style or script, which
    the page's security policy would refuse.
    """
    _check(board, picture)
    entries = {key: f"entry-{i}" for i, key in enumerate(sorted(board.entries))}
    shared = _shared_parts(board)
    style, script = ((TEMPLATES / name).read_text("utf-8") for name in ("style.css", "board.js"))
    return str(_environment().get_template("index.html.j2").render(
        groups=_groups(board), sensitivity=_sensitivity(board.sensitivity), picture=picture, style=Markup(style),
        script=Markup(script), policy=_policy(style, script), entries=board.entries, entry_ids=entries,
        part_ids=shared, first_parts=set({block: name for name, block in reversed(shared.items())}.values()),
        backbones=sorted({row.backbone for row in _rows(board)}), used_flags=_used_flags(board),
    ))  # fmt: skip


def _shared_parts(board: Board) -> dict[tuple[str, str], str]:
    """(tab, row) -> the id of the table of its tasks' parts: tabs of one metric show the same parts, which stand once."""
    shared: dict[tuple[str, str], str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for tab in board.tabs:
        for row in (*tab.measured, *tab.published):
            if row.subsets:
                key = (row.id, tab.metric, tab.digits, *sorted(row.subsets.items()))
                shared[tab.id, row.id] = seen.setdefault(key, f"parts-{len(seen)}")
    return shared


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    env = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    env.globals.update(
        number=number, span=span, link=safe_link, flags=FLAGS, words=_SETTINGS, columns=columns, raw=raw, facts=facts,
        parts=parts, rank_words=rank_words, short_title=short_title,
    )  # fmt: skip
    return env


def number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def raw(value: float, digits: int) -> str:
    """What the page sorts by where the printed number says less than is known, else ""."""
    return "" if float(number(value, digits)) == value else repr(float(value))


def span(low: float, high: float, digits: int) -> str:
    """"75.10–77.32"; with "to" where a minus sign would meet the dash."""
    return f"{low:.{digits}f}{' to ' if min(low, high) < 0 else '–'}{high:.{digits}f}"


def safe_link(link: str) -> str:
    """`link` where it is http, https or relative, else ""."""
    return link if _LINK.fullmatch(link) else ""


def columns(tab: Tab) -> list[str]:
    """The columns as shown: an average first, so that it is in sight on a phone; else in the tab's order."""
    first = [column for column in tab.columns if column == tab.lead == "Avg"]
    return [*first, *(column for column in tab.columns if column not in first)]


def short_title(tab: Tab) -> str:
    """A tab's title without the word that a sign beside it says."""
    return ", ".join(part for part in tab.title.split(", ") if part != "sample") if tab.sample else tab.title


def parts(tab: Tab, row: Row) -> list[tuple[str, str, Cell]]:
    """(task, subset, cell) of the parts of the row's tasks, by task as the table has them, then by name."""
    place = {column: i for i, column in enumerate(tab.columns)}
    keys = sorted(row.subsets, key=lambda key: (place.get(key[0], len(place)), key))
    return [(task, subset, row.subsets[task, subset]) for task, subset in keys]


def rank_words(tab: Tab, row: Row) -> str:
    if row.best_of:
        return row.unranked or f"not ranked: the best of {row.best_of} seeds"
    if row.rank is None:
        return row.unranked or "not ranked"
    ranked = sum(other.rank is not None for other in tab.measured)
    interval = f"{row.rank.first} to {row.rank.last}" if row.rank.first != row.rank.last else str(row.rank.first)
    ties = f"; letters {row.rank.ties}: rows that share one do not differ significantly" if row.rank.ties else ""
    return f"{row.rank.place} of {ranked}, 95 % interval {interval}{ties}"


def facts(values: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """(name, lines of text) of plain data of any shape, sorted by name; what is empty is left out."""
    return [(name, _lines(values[name])) for name in sorted(values) if values[name] not in (None, "", [], (), {})]


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [", ".join(f"{name} {_text(value[name])}" for name in sorted(value))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [shlex.join(value)] if value[0] == "stsbench" else [_text(part) for part in value]  # a command, to be copied
    return [_text(value)]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} {_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)


def _check(board: Board, picture: Markup | None) -> None:
    taken = {"sensitivity", "filters", "provenance", "theme"}
    for tab in board.tabs:
        if tab.id in taken or not re.fullmatch(r"[A-Za-z][\w.-]*", tab.id) or re.match(r"(group|entry|row|tab)-\d", tab.id):
            raise StsbenchError(f"tab '{tab.id}' ({tab.title}): its id is taken or unfit for a link; give it another")
        taken.add(tab.id)
        if tab.lead not in tab.columns:
            raise StsbenchError(f"tab '{tab.id}': its lead '{tab.lead}' is not one of its columns")
        for row in (*tab.measured, *tab.published):
            for name, cell in (*row.cells.items(), *row.subsets.items()):
                if not all(math.isfinite(x) for x in (cell.value, cell.low, cell.high, cell.sd) if x is not None):
                    raise StsbenchError(f"tab '{tab.id}', row '{row.id}', {name}: not a finite number")
            if row.entry and row.entry not in board.entries:
                raise StsbenchError(f"tab '{tab.id}', row '{row.id}': no entry '{row.entry}' stands behind it")
    if picture and (forbidden := _FORBIDDEN_IN_PICTURE.search(picture)):
        raise StsbenchError(f"the picture holds {forbidden[0].strip()!r}, which the page's policy refuses: use attributes")


def _groups(board: Board) -> list[_Group]:
    names = list(dict.fromkeys(tab.group for tab in board.tabs))
    return [
        _Group(f"group-{i}", GROUPS.get(name, name), tuple(tab for tab in board.tabs if tab.group == name))
        for i, name in enumerate(names, start=1)
    ]


def _rows(board: Board) -> Iterator[Row]:
    for tab in board.tabs:
        yield from (*tab.measured, *tab.published)


def _used_flags(board: Board) -> list[str]:
    used = {flag for row in _rows(board) for flag in row.flags}
    return [*(flag for flag in FLAGS if flag in used), *sorted(used - set(FLAGS))]


def _policy(style: str, script: str) -> str:
    """Everything is forbidden but this very style, this very script and pictures that stand in the page."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _sensitivity(sensitivity: Sensitivity | None) -> dict[str, Any] | None:
    """What the template shows: the swapped pairs in words, and how many more there are."""
    if sensitivity is None:
        return None
    swaps = []
    for one, other in combinations(sensitivity.settings, 2):
        pairs = sensitivity.swaps.get((one, other), ())
        lines = [(a, b, _noise(sensitivity, one, other, a, b)) for a, b in pairs[:_SWAPS_SHOWN]]
        swapped = [(task, each) for (task, *both), each in sensitivity.task_swaps.items() if both == [one, other]]
        tasks = [(task, *pair) for task, each in swapped for pair in each]
        swaps.append((one, other, len(pairs), lines, len(tasks), sorted(tasks)[:_SWAPS_SHOWN]))
    tau = {**{(b, a): t for (a, b), t in sensitivity.tau.items()}, **sensitivity.tau}
    return {"all": sensitivity, "tau": tau, "swaps": swaps}


def _noise(sensitivity: Sensitivity, one: str, other: str, a: str, b: str) -> str:
    """What the noise says about rows a and b, "" where nothing is known."""
    known = sensitivity.significant
    verdicts = [known.get((name, a, b), known.get((name, b, a))) for name in (one, other)]
    if None in verdicts:
        return ""
    words = {
        (True, True): "significantly different under both", (True, False): f"significantly different under {one} only",
        (False, True): f"significantly different under {other} only", (False, False): "within the noise under both",
    }  # fmt: skip
    return words[bool(verdicts[0]), bool(verdicts[1])]
