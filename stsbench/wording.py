"""Formatting of numbers, names and untrusted text for messages, terminals and CSV."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format, surrogate, line and paragraph separators
_IN_TEXT = "\n\t\u200c\u200d"  # the last two join or separate letters and emoji, and do not control a terminal
# Not broken, as users copy it: code in backquotes, an option with its quoted value, a command up to the next punctuation.
_COPIED = re.compile(r"`[^`]+`[^\s]*|--[\w-]+ '[^']+'[^\s]*|\bstsbench [a-z-]+(?: (?!-- )[^\s;:,)]+)*[^\s]*|\S+")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, whose plural ends in s: "1 row", "1,234 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def joined(names: Iterable[str]) -> str:
    """Return a list of names in words: "", "a", "a and b", "a, b and c"."""
    *before, last = [*names] or [""]
    return f"{', '.join(before)} and {last}" if before else last


def format_counts(counts: Mapping[str, int]) -> str:
    """Return names with their counts: "MSRpar 750, OnWN 750"."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def sized(count: int) -> str:
    """Return a number of bytes in decimal units: "812 bytes", "3.4 kB", "17 MB", "1.9 GB"."""
    size, unit = float(count), ""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.1f} {unit}" if unit != "bytes" and size < 9.95 else f"{size:,.0f} {unit}"


def visible(text: str, allowed: str = "") -> str:
    """Return text as one line, with control and formatting characters, line separators and lone surrogates escaped.

    allowed: characters that are not escaped.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in _INVISIBLE and c not in allowed else c for c in text)


def printable(text: str) -> str:
    """Return text for a terminal, as `visible`, but with line ends and tabs: nothing in it moves a cursor or sets a
    colour."""
    return visible(text, _IN_TEXT)


def display_width(text: str) -> int:
    """Return the width of a line in a terminal's columns: two for a Chinese character, none for a combining accent."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def break_lines(text: str, width: int) -> str:
    """Return `text` in lines of at most `width` columns, broken between words, but not within a command or a path, which
    users copy."""
    return "\n".join(line if display_width(line) <= width else _break_line(line, width) for line in text.split("\n"))


def _break_line(line: str, width: int) -> str:
    lines = [re.match(r"\s*", line)[0]]  # type: ignore[index]  # it matches always
    for gap, piece in re.findall(rf"(\s*)({_COPIED.pattern})", line.lstrip()):
        if lines[-1].strip() and display_width(lines[-1] + gap + piece) > width:
            lines.append(piece)
        else:
            lines[-1] += gap + piece
    return "\n".join(lines)


_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_FORMULA = re.compile("(^|[;\n])(\\s*)(?=[=+@\uff0b\uff0d\uff1d\uff20-])")


def csv_cell(text: str) -> str:
    """Return text for a cell of CSV, with an apostrophe before formulas, which spreadsheets would run, also after
    semicolons, at which many split cells. Numbers stay unchanged."""
    if _NUMBER.fullmatch(text):
        return text
    return _FORMULA.sub(r"\1\2'", printable(text))


_LOCAL = r"(?:file://)?(?:(?:~[^/\\?,]*|\.{1,2}|[A-Za-z]:)[/\\]|/|\\\\)[^?,]*"  # a local path


def without_paths(argument: str) -> str:
    """Return a command's argument without the folders of local paths: `words:/home/me/glove.txt` -> words:glove.txt."""

    def last(match: re.Match[str]) -> str:
        if match[1] == ":" and match[2].startswith("//"):
            return match[0]  # https://
        return match[1] + re.split(r"[/\\]", match[2].rstrip("/\\"))[-1]

    return re.sub(rf"(^|[=:,])({_LOCAL})", last, argument)
