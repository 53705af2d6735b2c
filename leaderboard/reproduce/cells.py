"""A reproduced table as cells of text: a published line, and below it each measurement and how much it differs."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.leaderboard.publications.model import PublishedRow

from .measured import AVERAGE, Mean, Reproduction, columns_of, printed
from .table import Line

FOOT = (
    "published: as printed, ± over the paper's runs; measured: here, ± over seeds (n - 1); difference: measured minus "
    "published. A changed recipe, other data and another protocol are no reproduction."
)


def grid(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the cells of rows that share a heading."""
    heading = lines[0].row.heading
    columns = list(dict.fromkeys(column for line in lines for column in columns_of(line.row)))
    header = ["row", "method", "what", *(heading.average if column == AVERAGE and heading.average else column
                                        for column in columns)]
    cells = []
    for line in lines:
        row = line.row
        method = row.method + (f", {row.backbone}" if row.backbone else "")
        cells.append([str(row.row), method, "published", *(_published(row, column) for column in columns)])
        for reproduction in line.measured:
            cells += _measured(row, reproduction, columns)
    return header, cells


def _published(row: PublishedRow, column: str) -> str:
    figure = printed(row, column)
    if figure is None:
        return ""
    columns = row.heading.columns
    sd = row.average_sd if column not in columns else row.sd[columns.index(column)] if row.sd else None
    return f"{figure:.{row.printed_decimals}f}" + ("" if sd is None else f" ± {sd:g}")


def _measured(row: PublishedRow, reproduction: Reproduction, columns: Sequence[str]) -> list[list[str]]:
    """The line of a measurement, and that of its differences."""
    seeds = max(mean.n for mean in reproduction.figures.values())
    what = "measured" if seeds == 1 else f"measured, {seeds} seeds"
    digits = max(2, row.printed_decimals)
    means = [reproduction.figures.get(column) for column in columns]
    differences = [_difference(row, column, mean, digits) for column, mean in zip(columns, means, strict=True)]
    return [
        ["", reproduction.name, what, *("" if mean is None else _shown(mean, digits) for mean in means)],
        ["", "", "difference", *differences],
    ]


def _shown(mean: Mean, digits: int) -> str:
    return f"{mean.mean:.{digits}f}" + (f" ± {mean.sd:.{digits}f}" if mean.sd is not None else "")


def _difference(row: PublishedRow, column: str, mean: Mean | None, digits: int) -> str:
    figure = printed(row, column)
    return "" if figure is None or mean is None else f"{mean.mean - figure:+.{digits}f}"
