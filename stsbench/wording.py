"""Numbers and foreign text in sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format, surrogate, line and paragraph separators
_IN_TEXT = "\n\t\u200c\u200d"  # the last two join or part letters and emoji; no terminal obeys them


def counted(number: int, noun: str) -> str:
    """"1 row", "1,234 rows": a number of things whose plural ends in s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counts_listed(counts: Mapping[str, int]) -> str:
    """"MSRpar 750, OnWN 750": names with their counts."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def sized(count: int) -> str:
    """"812 bytes", "3.4 kB", "17 MB", "1.9 GB": bytes in decimal units."""
    size, unit = float(count), ""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.1f} {unit}" if unit != "bytes" and size < 9.95 else f"{size:,.0f} {unit}"


def visible(text: str, kept: str = "") -> str:
    """One line: control characters, those that change the direction of writing and lone surrogates as escapes.

    The characters of `kept` stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in _INVISIBLE and c not in kept else c for c in text)


def printable(text: str) -> str:
    """The same of text for a terminal: its lines and tabs stay, and nothing in it moves a cursor or sets a colour."""
    return visible(text, _IN_TEXT)


def csv_cell(text: str) -> str:
    """The same in CSV: a spreadsheet would run what begins as a formula, also behind a semicolon, at which many split; a
    number stays one."""
    if re.fullmatch(r"-\d+(\.\d+)?(e[+-]?\d+)?", text, re.ASCII | re.IGNORECASE):
        return text
    return re.sub("(^|[;\n])(\\s*)(?=[=+@\uff0b\uff0d\uff1d\uff20-])", r"\1\2'", printable(text))
