"""Parsing of the numbers for `stsbench identify`: typed, pasted, from a file or a published row, with their digits."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stsbench.errors import StsbenchError
from stsbench.parsing import compose_yaml, parse_json
from stsbench.registry import did_you_mean

HOW = (
    "separate the numbers by commas, spaces, tabs, & or | (in quotes, for the shell's sake), with - for a cell that is not "
    "printed"
)
ABSENT = ("", "-")  # cells without a number
_DASHES = ("-", "--", "---", "\N{EN DASH}", "\N{EM DASH}")
_SEPARATORS = ("&", "|", ",", "\t")  # the first that occurs separates cells; white space if none does
_COMMA = r"[-+]?\d+,\d+"
_CELL = rf"(?:{_COMMA}|[-\u2013\u2014]+|)"
_COMMAS = re.compile(rf"{_CELL}(?:[,;&| ]{_CELL})*")
ORDER = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
AVERAGE = "Avg"
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)")
_ROW = re.compile(r"[\w.+-]+:[\w./-]+:\d+")
_LARGEST = 100  # the largest correlation, accuracy or recall, in points
_FORMS = (
    f"write seven numbers ({' '.join(ORDER)}), TASK=NUMBER pairs, the id of a published row, or a .json, .csv or .yaml file"
)


def cells(text: str) -> list[str]:
    """Return the cells of a row, stripped, with any dash as "-". LaTeX's end of a row and Markdown's borders are left
    out."""
    text = _row(text)
    separator = next((candidate for candidate in _SEPARATORS if candidate in text), None)
    if separator == "|" and len(text) > 1 and text[0] == text[-1] == "|":
        text = text[1:-1]
    return [_cell(word) for word in text.split(separator)]


def pairs(text: str) -> list[tuple[str | None, str]]:
    """Return (name, value) of 'TASK=NUMBER' words, each stripped; the name is None where a word has no =."""
    text = _row(text)
    if any(separator in text for separator in _SEPARATORS):
        words = [cell for cell in cells(text) if cell]
    else:
        words = re.findall(r"[^=]*=\s*\S*|\S+", text)  # a name may hold spaces, a value none
    parts = [word.rpartition("=") for word in words]
    return [(name.strip() if sign else None, _cell(value)) for name, sign, value in parts]


def decimal_commas(text: str) -> list[str]:
    """Return the scores, as text, if the commas in `text` are decimal commas, as in 72,37; [] if that is not plausible.

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


@dataclass(frozen=True)
class Number:
    """A printed score, with `digits` decimals."""

    printed: float
    digits: int

    @classmethod
    def parse(cls, text: str, where: str) -> Number:
        """Return the number in `text`. Raises StsbenchError, naming `where`, if it is not a plain decimal number."""
        if not _NUMBER.fullmatch(text.strip()):
            raise StsbenchError(f"{where}: '{text.strip()}' is not a number such as 72.37")
        return cls(float(text), len(text.strip().partition(".")[2]))


@dataclass(frozen=True)
class Numbers:
    """Published numbers. items: task -> number; share: whether all lie in [-1, 1], and are compared x 100 as shares.

    absent: tasks whose cell holds no number.
    """

    items: Mapping[str, Number]
    absent: tuple[str, ...] = ()

    @property
    def share(self) -> bool:
        return all(abs(number.printed) <= 1 for number in self.items.values())

    @property
    def scale(self) -> int:
        """Return the factor from printed numbers to points, the unit of all differences."""
        return 100 if self.share else 1

    def points(self, task: str) -> float:
        """Return the number of `task`, in points."""
        return self.scale * self.items[task].printed

    def unit(self, task: str) -> float:
        """Return one unit of the last printed digit of `task`, in points."""
        return float(self.scale * 10.0 ** -self.items[task].digits)

    @property
    def beyond(self) -> tuple[str, ...]:
        """Return the tasks whose number is above 100 or below -100."""
        return tuple(task for task, number in self.items.items() if abs(number.printed) > _LARGEST)

    def average_remark(self) -> str:
        """Return a remark if the given average is not the mean of the seven STS tasks' numbers within rounding, else ""."""
        if AVERAGE not in self.items or not set(ORDER) <= self.items.keys():
            return ""
        mean = sum(self.points(task) for task in ORDER) / len(ORDER)
        rounding = (self.unit(AVERAGE) + max(self.unit(task) for task in ORDER)) / 2
        if abs(mean - self.points(AVERAGE)) <= rounding + 1e-9:
            return ""
        return f"the average given, {self.points(AVERAGE):.2f}, is not the mean of the seven numbers, {mean:.2f}"


def read_numbers(text: str) -> Numbers:
    """Return the numbers of the command's argument NUMBERS. Raises StsbenchError for text that is not understood."""
    path = Path(text.strip())
    if path.suffix in (".json", ".csv", ".yaml", ".yml"):
        return Numbers(_from_file(path))
    if _ROW.fullmatch(text.strip()):
        return Numbers(_published(text.strip()))
    if "=" in text:
        return _read_pairs(text)
    if scores := decimal_commas(text):
        raise StsbenchError(
            f"'{text}' may be {', '.join(scores)} with decimal commas: write 72.37, with a point (a whole number as 72., or "
            "with its name, STS12=72)"
        )
    parts = cells(text)
    if not any(_NUMBER.fullmatch(part) for part in parts):
        raise StsbenchError(f"'{text}' is not understood: {_FORMS}; {HOW}")
    for part in parts:
        if part not in ABSENT and not _NUMBER.fullmatch(part):
            raise StsbenchError(f"'{part}' is not a number such as 72.37: {HOW}")
    numbers = _in_order(parts)
    refuse_impossible(numbers)
    return numbers


def refuse_impossible(numbers: Numbers) -> None:
    """Raise StsbenchError for a number above 100 or below -100."""
    for task in numbers.beyond:
        figure = f"{task}={numbers.items[task].printed:.{max(numbers.items[task].digits, 0)}f}"
        raise StsbenchError(f"{figure} is impossible: no correlation, accuracy or recall lies beyond {_LARGEST}")


def resolved(numbers: Numbers, tasks: Iterable[str]) -> Numbers:
    """Return the numbers under their names in `tasks`, matched regardless of case. Raises StsbenchError for unknown names,
    with a suggestion, and for a task that is given twice."""
    names = list(dict.fromkeys([*tasks, AVERAGE]))
    lower = {name.lower(): name for name in names}
    whole = [name for name in names if "/" not in name]
    by_name: dict[str, Number | None] = {}
    for task, number in [*numbers.items.items(), *((task, None) for task in numbers.absent)]:
        if task.lower() not in lower:
            raise StsbenchError(f"unknown task '{task}'{did_you_mean(task, names if '/' in task else whole)}")
        if lower[task.lower()] in by_name:
            raise StsbenchError(f"{lower[task.lower()]} is given twice")
        by_name[lower[task.lower()]] = number
    printed = {task: number for task, number in by_name.items() if number is not None}
    return Numbers(printed, tuple(task for task in by_name if task not in printed))


def _read_pairs(text: str) -> Numbers:
    named, absent = [], []
    for name, value in pairs(text):
        if name is None:
            raise StsbenchError(
                f"'{value}' has no name: write TASK=NUMBER for each, with a decimal point as in STS12=72.37; {HOW}"
            )
        if value == "-":
            absent.append(name)
        else:
            named.append((name, Number.parse(value, f"{name}={value}")))
    if not named:
        raise StsbenchError(f"'{text}' holds no number: {_FORMS}")
    return Numbers(_collected(named), tuple(absent))


def _in_order(parts: list[str]) -> Numbers:
    sizes = {5: ORDER[:5], 7: ORDER, 8: (*ORDER, AVERAGE)}
    if not parts[-1] and len(parts) - 1 in sizes:
        parts = parts[:-1]  # the row ends with a separator
    if not parts[0]:
        raise StsbenchError(
            f"nothing stands before the first separator: write - if {ORDER[0]} is not printed, else leave that separator out"
        )
    names = sizes.get(len(parts))
    if names is None:
        one = len(parts) == 1
        raise StsbenchError(
            f"{len(parts)} number{'' if one else 's'} without {'a name' if one else 'names'}: give seven in the order "
            f"{' '.join(ORDER)} (or the first five, or Avg as an eighth; - for one that is not printed), or name each, as "
            "in STS12=72.37,STS-B=82.03"
        )
    placed = list(zip(names, parts, strict=True))
    numbers = {name: Number.parse(part, name) for name, part in placed if part not in ABSENT}
    return Numbers(numbers, tuple(name for name, part in placed if part in ABSENT))


def _collected(pairs: Iterable[tuple[str, Number]]) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for name, number in pairs:
        if not name.strip():
            raise StsbenchError("a number has an empty name: write TASK=NUMBER")
        if name.strip() in numbers:
            raise StsbenchError(f"{name.strip()} is given twice")
        numbers[name.strip()] = number
    return numbers


def _published(text: str) -> dict[str, Number]:
    """Return task -> score of a row of the published results, without cells that are not printed or not readable."""
    from stsbench.leaderboard.records.publications import find_row

    row = find_row(text)
    heading = row.heading
    if heading.protocol not in ("sts", "transfer", "regression") or heading.task or heading.split != "test":
        raise StsbenchError(f"{text} holds no test scores of tasks ({heading.protocol}): there is no setting to look for")
    cells = zip(heading.columns, row.scores, strict=True)
    numbers = {task: Number(score, row.printed_decimals) for task, score in cells if score is not None}
    if not numbers:
        raise StsbenchError(f"{text} holds no score")
    return numbers


def _from_file(path: Path) -> dict[str, Number]:
    try:
        content = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise StsbenchError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    reader = {".json": _json, ".csv": _csv}.get(path.suffix, _yaml)
    try:
        numbers = _collected((name, Number.parse(value, f"{path}, {where}")) for name, value, where in reader(content))
    except (ValueError, csv.Error) as error:
        raise StsbenchError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    except StsbenchError as error:
        raise error if str(path) in str(error) else StsbenchError(f"{path}: {error}") from error
    if not numbers:
        raise StsbenchError(f"{path} holds no number")
    return numbers


# Each reader returns (name, number, position in the file), with numbers as text, since floats lose the zeros at their end.
_Cells = Iterable[tuple[str, str, str]]


def _json(content: str) -> _Cells:
    pairs = parse_json(content, object_pairs_hook=list, parse_float=str, parse_int=str)
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise ValueError('it must be one object, {"STS12": 72.37, ...}')
    return [(name, value if isinstance(value, str) else json.dumps(value), name) for name, value in pairs]


def _csv(content: str) -> _Cells:
    lines = [(at, line) for at, line in enumerate(csv.reader(content.splitlines()), 1) if any(map(str.strip, line))]
    for at, line in lines:
        if len(line) != 2:
            raise ValueError(f"line {at} has {len(line)} cells instead of name,value")
    if lines and not any(letter.isdigit() for letter in lines[0][1][1]):
        lines = lines[1:]  # the first line is a heading
    return [(name, value, f"line {at}") for at, (name, value) in lines]


def _yaml(content: str) -> _Cells:
    import yaml

    try:
        node, _ = compose_yaml(content, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("it must be one mapping, a line 'STS12: 72.37' a task")
    return [(str(name.value), str(value.value), f"line {name.start_mark.line + 1}") for name, value in node.value]
