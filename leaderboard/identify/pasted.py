"""Numbers as typed, or pasted from a paper: what separates them, and which commas are meant as decimal points."""

from __future__ import annotations

import re

HOW = (
    "separate the numbers by commas, spaces, tabs, & or | (in quotes, for the shell's sake), with - for a cell that is not "
    "printed"
)
ABSENT = ("", "-")  # cells without a number
_DASHES = ("-", "--", "---", "\N{EN DASH}", "\N{EM DASH}")
_SEPARATORS = ("&", "|", ",", "\t")  # the first of them that occurs; white space where none does
_COMMA = r"[-+]?\d+,\d+"
_CELL = rf"(?:{_COMMA}|[-\u2013\u2014]+|)"
_COMMAS = re.compile(rf"{_CELL}(?:[,;&| ]{_CELL})*")


def cells(text: str) -> list[str]:
    """The cells of a row, stripped; any dash is "-". LaTeX's end of a row and Markdown's borders belong to no cell."""
    text = _row(text)
    separator = next((candidate for candidate in _SEPARATORS if candidate in text), None)
    if separator == "|" and len(text) > 1 and text[0] == text[-1] == "|":
        text = text[1:-1]
    return [_cell(word) for word in text.split(separator)]


def pairs(text: str) -> list[tuple[str | None, str]]:
    """(name, value) of 'TASK=NUMBER' words, each stripped; the name is None where a word has no =."""
    text = _row(text)
    if any(separator in text for separator in _SEPARATORS):
        words = [cell for cell in cells(text) if cell]
    else:
        words = re.findall(r"[^=]*=\s*\S*|\S+", text)  # a name may hold spaces, a value none
    parts = [word.rpartition("=") for word in words]
    return [(name.strip() if sign else None, _cell(value)) for name, sign, value in parts]


def decimal_commas(text: str) -> list[str]:
    """The scores that `text` gives if its commas are decimal ones, as in 72,37; none where that is not plausible.

    An even count of numbers without a point is plausible if each pair makes a score of at most 100.
    """
    line = re.sub(r" ?([,;&|]) ?", r"\1", " ".join(_row(text).split()))
    if not _COMMAS.fullmatch(line):
        return []
    scores = [word.replace(",", ".") for word in re.findall(_COMMA, line)]
    return scores if all(abs(float(word)) <= 100 for word in scores) else []


def _row(text: str) -> str:
    return re.sub(r"\s*\\+\s*$", "", text).strip(" \r\n\u00a0")  # a tab at the edge ends an empty cell


def _cell(word: str) -> str:
    return "-" if word.strip() in _DASHES else word.strip()
