"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """"1 row", "1,234 rows": a number of things whose plural ends in s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sized(count: int) -> str:
    """"812 bytes", "3.4 kB", "17 MB", "1.9 GB": bytes in decimal units."""
    size, unit = float(count), ""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.1f} {unit}" if unit != "bytes" and size < 9.95 else f"{size:,.0f} {unit}"
