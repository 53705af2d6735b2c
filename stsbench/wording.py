"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """"1 row", "1,234 rows": a number of things whose plural ends in s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
