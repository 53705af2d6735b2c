"""The result of `identify`: settings, nearest first, as text, in a notebook, as a data frame and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.display.table import Column, Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.wording import counted

from .observed import Observed
from .search import Match, Merged, SearchResult

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable

ABOUT = ("encoder", "text version")  # slots that are shown only if several encoders or text versions are compared
OPENING, FOLLOWING = ("protocol",), ("aggregation", "metric")  # slots whose choices are clear without the slot's name
FEW = 2  # so few numbers may be matched by chance among many settings
INDISTINGUISHABLE = "cannot be distinguished by these tasks"
UNIT = "Differences are measured minus published, in points (x 100)."
NOTHING = "Nothing could be checked: every setting lacks an observation."
SHOWN = 10  # the most settings of a table by default


def either(words: Sequence[str]) -> str:
    """Return 'a', 'a or b', 'a, b or c'."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def described(setting: Merged, about: bool) -> str:
    """Return a setting in words: 'sts: all, mean or wmean, Spearman; STS-B by cosine'. about: add encoder, text version."""
    text, before = "", ""
    for name, choices in setting:
        if name in ABOUT:
            continue
        phrase = either(choices) if name in (*OPENING, *FOLLOWING) else f"{name} {either(choices)}"
        text += (": " if before in OPENING else ", " if name in FOLLOWING else "; ") + phrase if text else phrase
        before = name
    context = [f"{name} {either(choices)}" for name, choices in setting if about and name in ABOUT]
    return f"{text} ({', '.join(context)})" if context else text


def match_text(match: Match, about: bool, link: str = ", which") -> str:
    """Return the settings of a match in words; if there are several, `link` and that these tasks do not distinguish them."""
    whose = {tuple(slot for slot in setting if slot[0] in ABOUT) for setting in match.settings}
    text = ", the same as ".join(described(setting, about and len(whose) > 1) for setting in match.settings)
    if about and len(whose) == 1:
        text += f" ({', '.join(f'{name} {either(choices)}' for name, choices in whose.pop())})"
    several = len(match.settings) > 1 or any(len(choices) > 1 for _, choices in match.settings[0])
    return f"{text}{link} {INDISTINGUISHABLE}" if several else text


def sentence(result: SearchResult, about: bool) -> str:
    """Return the result in words. about: name the encoder and text version of each setting, not only of the first."""
    if not result.matches:
        return NOTHING
    first, rivals, count = result.matches[0], result.rivals, len(result.numbers.items)
    tasks = counted(count, "task")
    agree = f"{first.exact} of {tasks} to the last digit"
    chance = ""
    if count <= FEW:
        settings = counted(len(result.matches), "distinct setting")
        chance = f" With {tasks} and {settings} compared, a match may be chance."
    if first.reproduced:
        figures = f"(mean absolute difference {first.mean:.2f}, {agree})"
        if not rivals:
            return f"These numbers are reproduced by {match_text(first, True)} {figures}.{chance}"
        lines = [(1, match_text(first, True)), *((at, match_text(match, about)) for at, match in enumerate(rivals, 2))]
        listed = "; ".join(f"({at}) {text}" for at, text in lines)
        agree = f"These numbers are reproduced by {len(lines)} settings, all within rounding: {listed}"
        return f"{agree}. They cannot be distinguished by these numbers.{chance}"
    task, worst = first.largest
    worst_of = f" on average and by {abs(worst):.2f} on {task}" if count > 1 else ""
    off = f"off by {first.mean:.2f}{worst_of}, {agree}"
    text = f"Nothing reproduces these numbers to the last digit: the nearest is {match_text(first, True)}, {off}."
    if rivals:
        alternatives = "; ".join(f"{match_text(match, about)}, off by {match.mean:.2f}" for match in rivals)
        if len(rivals) > FEW:
            alternatives = f"{len(rivals)} other settings, off by up to {rivals[-1].mean:.2f}"
        return f"{text} It cannot be distinguished from {alternatives}: its lead is no larger than its own difference."
    if len(result.matches) > 1:
        text += f" The next, {match_text(result.matches[1], about)}, is off by {result.matches[1].mean:.2f}."
    return text + chance


def heading(result: SearchResult, observations: Sequence[Observed]) -> list[str]:
    """Return lines on what was compared: the numbers, the observations, and warnings about both."""
    numbers = result.numbers
    cells = ", ".join(f"{task} {number.printed:.{number.digits}f}" for task, number in numbers.items.items())
    lines = [f"numbers: {cells}"]
    if numbers.absent:
        lines.append(f"Not printed, so left out of the comparison: {', '.join(numbers.absent)}.")
    if numbers.share:
        lines.append("All lie between -1 and 1: read as shares and compared x 100.")
    if remark := numbers.average_remark():
        lines.append(f"Note: {remark}.")
    lines += [f"observations: {observed.encoder}; text version {observed.text_version}" for observed in observations]
    unknown = sorted({id for observed in observations for id in observed.unknown if observed.text_version != "own"})
    if unknown:
        lines.append(f"Data differ from the catalog: {', '.join(unknown)}. Not comparable with other results.")
    if any(observed.text_version == "sample" for observed in observations):
        lines.append("sample data: not comparable with published numbers")
    return lines


def table(result: SearchResult, about: bool, top: int) -> Table:
    """Return a table with a row for each of the nearest `top` settings."""
    items, matches = result.numbers.items, result.matches[:top]
    ranks = [match.rank for match in result.matches]
    return Table(UNIT, [
        Column("place", [f"{match.rank}{'=' if ranks.count(match.rank) > 1 else ''}" for match in matches], words=False),
        Column("setting", [match_text(match, about, ":") for match in matches], words=True),
        Column("mean |diff|", [match.mean for match in matches], detail=1),
        Column("largest |diff|", [abs(match.largest[1]) for match in matches], detail=1),
        Column("to the last digit", [f"{match.exact} of {len(items)}" for match in matches], detail=1),
        *(Column(task, [signed(match.differences[task]) for match in matches], detail=1) for task in items),
        Column("papers' presets", [", ".join(match.papers) for match in matches], words=True),
    ])


def first(lines: list[str], top: int) -> list[str]:
    """Return the first `top` lines, and a line with the number of further ones, if any."""
    return [*lines[:top], *([f"and {len(lines) - top} more"] if len(lines) > top else [])]


def signed(value: float, digits: int = 2) -> str:
    """Return a difference with its sign, and zero without one."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def further(count: int, all_of_them: int) -> str:
    """Return the line below a table that leaves `count` settings out."""
    several = "s are" if count > 1 else " is"
    return f"{count} more setting{several} further off (--top {all_of_them} lists {'them' if count > 1 else 'it'})."


def unchecked(result: SearchResult, about: bool) -> list[str]:
    """Return one line for each setting that could not be compared."""
    return [f"cannot be checked: {described(setting, about)}: no {either(missing)}" for setting, missing in result.unchecked]


def as_json(result: SearchResult, about: bool) -> dict[str, Any]:
    """Return the whole result as plain data, with differences and scores in points (x 100)."""
    numbers = result.numbers
    return {
        "numbers": {task: number.printed for task, number in numbers.items.items()},
        "not_printed": list(numbers.absent),
        "share": numbers.share,
        "verdict": result.verdict,
        "sentence": sentence(result, about),
        "indistinguishable": len(result.rivals) + 1 if result.matches else 0,
        "settings": [
            {
                "place": match.rank, "setting": [described(setting, True) for setting in match.settings],
                "choices": [[[name, list(choices)] for name, choices in setting] for setting in match.settings],
                "mean_absolute_difference": match.mean, "largest_difference": match.largest[1],
                "largest_task": match.largest[0], "to_the_last_digit": match.exact, "tasks": len(match.differences),
                "differences": dict(match.differences),
                "scores": {task: numbers.points(task) + value for task, value in match.differences.items()},
                "papers": list(match.papers),
            }
            for match in result.matches
        ],
        "unchecked": [{"setting": described(slots, True), "missing": list(missing)} for slots, missing in result.unchecked],
    }


@dataclass(frozen=True, repr=False)
class Identification(Tabular):
    """The settings under which a model's observations give the published numbers, or come nearest to them."""

    result: SearchResult
    observations: tuple[Observed, ...]
    top: int = SHOWN  # settings that are printed

    @property
    def candidates(self) -> tuple[Match, ...]:
        """Return the settings, nearest first, those of equal scores together: differences by task in points, and the papers
        whose preset they are."""
        return self.result.matches

    @property
    def verdict(self) -> str:
        """Return "reproduced", "nearest" or "nothing checked"."""
        return self.result.verdict

    @property
    def sentence(self) -> str:
        """Return the result in words."""
        return sentence(self.result, self.several)

    @property
    def several(self) -> bool:
        """Return whether observations of several encoders or text versions were compared."""
        return len(self.observations) > 1

    def __repr__(self) -> str:
        return f"<Identification: {self.verdict}, {counted(len(self.candidates), 'setting')} compared; print it for them>"

    def document(self) -> Document:
        """Return what was compared, the nearest settings, and the result in words."""
        tables = [table(self.result, self.several, self.top)] if self.candidates else []
        rest = len(self.candidates) - self.top
        below = [*([further(rest, len(self.candidates))] if rest > 0 else []),
                 *first(unchecked(self.result, self.several), self.top), self.sentence]
        return Document(tables, heading(self.result, self.observations), below)

    def to_arrow(self) -> ArrowTable:
        """Return a table with a row for each setting: its place (shared by all that reproduce the numbers), the setting in
        words, mean and largest absolute difference in points, tasks that agree to the last digit, the papers whose preset it
        is, and the difference of each task, measured minus published."""
        return arrow_table([
            {
                "place": match.rank, "setting": ", or ".join(described(setting, True) for setting in match.settings),
                "mean_difference": match.mean, "largest_difference": abs(match.largest[1]), "largest_task": match.largest[0],
                "to_the_last_digit": match.exact, "papers": ", ".join(match.papers), **match.differences,
            }
            for match in self.candidates
        ])

    def as_json(self) -> dict[str, Any]:
        """Return what --json writes, as plain data."""
        return as_json(self.result, self.several)
