"""A comparison on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from stsbench.cli.output.grid import Column, console_of, print_columns, print_text
from stsbench.comparison.comparison import SAME, Comparison
from stsbench.comparison.differences import ComparisonTable
from stsbench.comparison.wording import notes, pairing, title
from stsbench.evaluation.tables import encoder_in_words
from stsbench.wording import counted


def print_who(comparison: Comparison, a: Sequence[Path], b: Sequence[Path], stream: TextIO) -> None:
    """Two lines: which runs are A, which are B; of several seeds one on how they are paired; one where A and B are one
    encoder."""
    console = console_of(stream)
    for letter, paths, record in zip("AB", (a, b), comparison.runs, strict=True):
        several = f"mean of {counted(len(paths), 'run')}: " if len(paths) > 1 else ""
        print_text(console, f"{letter}: {several}{', '.join(map(str, paths))} ({encoder_in_words(record)})")
    if line := pairing(comparison.seeds, comparison.by_seed):
        print_text(console, line)
    if comparison.same:
        print_text(console, f"{SAME}.")


def print_table(table: ComparisonTable, stream: TextIO) -> None:
    """Its title, its rows and its sentence."""
    console = console_of(stream)
    header, *cells = table.lines()
    print_text(console, title(table))
    columns = [Column(name, its, left=name in ("task", "verdict"))
               for name, its in zip(header, zip(*cells, strict=True), strict=True)]
    print_columns(console, columns, lines_above=[len(table.rows)] if table.average else [])
    for line in notes(table):
        print_text(console, line)
    console.print()
