"""Figures that a later paper or a list prints of others' methods: read, checked, and set beside first-hand ones."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, Field

from stsbench.config import parse_yaml
from stsbench.errors import StsbenchError
from stsbench.parsing import MOST_YAML, read_text

from .load import _checked
from .model import EPSILON, STS, Publication, PublishedModel, Text

FOLDER = "second_hand"  # of a board
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
COLUMNS = ("method", "backbone", "protocol", "source", "measured_by", *TASKS, "Avg", "note")
MEASURED_BY = ("its authors", "not said")


@dataclass(frozen=True)
class Printed:
    """Seven scores of STS and their mean as printed (Spearman, pooled), and who printed and who measured them."""

    method: str
    backbone: str
    source: str  # a repository at a commit, or the id of a published row
    measured_by: str
    scores: tuple[float | None, ...]
    average: float
    note: str = ""

    @property
    def mean(self) -> float | None:
        """Of the scores; None where one is missing."""
        scores = [score for score in self.scores if score is not None]
        return sum(scores) / len(TASKS) if len(scores) == len(TASKS) else None

    def agrees(self, other: Printed) -> bool:
        """Whether no figure that both print is another one."""
        pairs = [(self.average, other.average), *zip(self.scores, other.scores, strict=True)]
        return all(one == two for one, two in pairs if one is not None and two is not None)

    @property
    def baseline(self) -> tuple[str, str]:
        """What it has in common with other sources' rows of one method and backbone, however they spell it."""
        name = re.sub(r"\((nli|avg\.?|reproduced|our reproduction)\)", " ", self.method.casefold())
        name = re.sub(r"\b(unsup|unsupervised|avg)\b", " ", name).replace("roberta", "bert")
        name = re.sub(r"^bert (?=first)", "", name.strip())
        return re.sub(r"[^a-z0-9=+()&]", "", name), re.sub(r" \(.*", "", self.backbone).casefold()


class Reproduction(PublishedModel):
    """Figures on other tasks by which several sources disagree with what a method's own row leads one to expect.

    scores: task -> as printed; others: task -> what the same sources print of other methods; protocol: of the figures.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    method: Text
    sources: tuple[Text, ...] = Field(min_length=1)
    scores: dict[str, float]
    others: dict[str, Text] = Field(default={})
    explanation: Text


class Explained(PublishedModel):
    """What explains that sources print different figures of one method and backbone."""

    method: Text
    backbone: Text
    explanation: Text


@dataclass(frozen=True)
class SecondHand:
    """All that a board has at second hand."""

    rows: tuple[Printed, ...] = ()
    explained: tuple[Explained, ...] = ()
    reproductions: tuple[Reproduction, ...] = ()


@dataclass(frozen=True)
class Conflict:
    """Rows of one method and backbone whose figures are not all equal, first-hand ones first, copies behind what they
    copy. also: of each row the further sources that print the same."""

    rows: tuple[Printed, ...]
    also: tuple[tuple[str, ...], ...]
    explanation: str | None

    @property
    def low(self) -> float:
        """The least of the printed means."""
        return min(row.average for row in self.rows)

    @property
    def high(self) -> float:
        """The greatest of them."""
        return max(row.average for row in self.rows)


def load_second_hand(board: Path) -> SecondHand:
    """What lies in the folder second_hand/ of a board: rows.tsv and explained.yaml; nothing where there is none.

    Raises StsbenchError, one line, that names file, row and column.
    """
    folder = board / FOLDER
    if not (folder / "rows.tsv").is_file():
        return SecondHand()
    rows, path = _rows(folder / "rows.tsv"), folder / "explained.yaml"
    raw = parse_yaml(read_text(path, MOST_YAML), str(path)) if path.is_file() else {}
    if not isinstance(raw, dict) or not {*raw} <= {"explained", "reproductions"}:
        raise StsbenchError(f"{path}: needs 'explained' and 'reproductions', and nothing else")
    explained = [_checked(Explained, one, {}, f"{path}: explained {at}")
                 for at, one in enumerate(raw.get("explained", []), 1)]
    others = [_checked(Reproduction, one, {}, f"{path}: reproductions {at}")
              for at, one in enumerate(raw.get("reproductions", []), 1)]
    return SecondHand(rows, tuple(explained), tuple(others))


def conflicts(second_hand: SecondHand, publications: Iterable[Publication]) -> list[Conflict]:
    """Of each method and backbone that several sources print with different figures what they print, widest range first.

    Only rows of the seven tasks by Spearman's correlation over all pairs of a year are set side by side.
    """
    grouped: dict[tuple[str, str], list[tuple[Printed, list[str]]]] = defaultdict(list)
    first_hand = sorted(_first_hand(publications), key=_firsthandness)
    for row in [*first_hand, *second_hand.rows]:
        variants = grouped[row.baseline]
        same = next((also for known, also in variants if known.agrees(row)), None)
        if same is None:
            variants.append((row, []))
        else:
            same.append(row.source)
    reasons = {Printed(one.method, one.backbone, "", "", (), 0.0).baseline: one.explanation for one in second_hand.explained}
    several = [
        Conflict(tuple(row for row, _ in variants), tuple(tuple(also) for _, also in variants), reasons.get(key))
        for key, variants in grouped.items() if len(variants) > 1
    ]
    return sorted(several, key=lambda conflict: (round(conflict.low - conflict.high, 9), conflict.rows[0].method))


def _firsthandness(row: Printed) -> tuple[bool, bool, bool]:
    """The authors' whole rows first, then re-runs and copies."""
    return row.measured_by.startswith("copied"), row.measured_by != "its authors", None in row.scores


def _first_hand(publications: Iterable[Publication]) -> Iterable[Printed]:
    for publication in publications:
        for row in publication.rows:
            heading = row.heading
            setting = heading.protocol, heading.metric, heading.aggregation, heading.split
            pooled = setting == ("sts", "spearman", "all", "test")
            if pooled and {*heading.columns} == STS and row.average is not None and row.setting in ("unsup", None):
                scores = dict(zip(heading.columns, row.scores, strict=True))
                measured = f"copied from {row.copied_from}" if row.copied_from else "its authors"
                measured = "re-run by the paper that prints it" if "reproduced" in row.method else measured
                ordered = tuple(scores[task] for task in TASKS)
                yield Printed(row.method, row.backbone or "not said", row.id, measured, ordered, row.average, row.note or "")


def _rows(path: Path) -> tuple[Printed, ...]:
    lines = csv.reader(read_text(path, MOST_YAML).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    table = list(lines)
    if not table or tuple(table[0]) != COLUMNS:
        raise StsbenchError(f"{path}: the columns must be {', '.join(COLUMNS)}")
    return tuple(_row(f"{path}: row {number}", line) for number, line in enumerate(table[1:], 2))


def _row(where: str, line: Sequence[str]) -> Printed:
    if len(line) != len(COLUMNS):
        raise StsbenchError(f"{where}: {len(line)} columns instead of {len(COLUMNS)}")
    values = dict(zip(COLUMNS, line, strict=True))
    if values["protocol"] != "spearman/all":
        raise StsbenchError(f"{where}: protocol must be spearman/all, not {values['protocol']!r}")
    if values["measured_by"] not in MEASURED_BY:
        raise StsbenchError(f"{where}: measured_by must be {' or '.join(MEASURED_BY)}, not {values['measured_by']!r}")
    if empty := [name for name in ("method", "backbone", "source") if not values[name]]:
        raise StsbenchError(f"{where}: {empty[0]} is empty")
    try:
        scores = tuple(float(values[task]) if values[task] else None for task in TASKS)
        average = float(values["Avg"])
    except ValueError as error:
        raise StsbenchError(f"{where}: {error}") from error
    if any(score is not None and not -100 <= score <= 100 for score in (*scores, average)):
        raise StsbenchError(f"{where}: a score is not between -100 and 100")
    printed = Printed(
        values["method"], values["backbone"], values["source"], values["measured_by"], scores, average, values["note"]
    )
    decimals = [max(len(values[name].partition(".")[2]) for name in names) for names in (TASKS, ("Avg",))]
    rounding = sum(10.0**-digits / 2 for digits in decimals)  # half a unit of the last digit, in the columns and in the mean
    strays = printed.mean is not None and abs(printed.mean - average) > rounding + EPSILON
    if strays and "printed Avg" not in printed.note:
        told = f"prints the mean {average}, and its columns give {printed.mean:.2f}"
        raise StsbenchError(f"{where}: {told}: say so in the note")
    return printed
