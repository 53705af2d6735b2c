"""What `identify` found, in words: settings, a table, JSON, and the sentence at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stsbench.leaderboard.identify.observed import Observed
from stsbench.leaderboard.identify.search import Line, Merged, Search

ABOUT = ("encoder", "text version")  # slots that a row needs only where there are several
OPENING, FOLLOWING = ("protocol",), ("aggregation", "metric")  # slots whose choice says itself what it is
FEW = 2  # numbers that any of many settings may meet by chance
UNTOLD = "cannot be told apart by these tasks"
NOTHING = "Nothing could be checked: every setting lacks an observation."


def either(words: Sequence[str]) -> str:
    """'a', 'a or b', 'a, b or c'."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def described(setting: Merged, about: bool) -> str:
    """'sts: all, mean or wmean, Spearman; STS-B by cosine'; with `about`, then the encoder and the text version."""
    text, before = "", ""
    for name, choices in setting:
        if name in ABOUT:
            continue
        said = either(choices) if name in (*OPENING, *FOLLOWING) else f"{name} {either(choices)}"
        text += (": " if before in OPENING else ", " if name in FOLLOWING else "; ") + said if text else said
        before = name
    told = [f"{name} {either(choices)}" for name, choices in setting if about and name in ABOUT]
    return f"{text} ({', '.join(told)})" if told else text


def named(line: Line, about: bool, link: str = ", which") -> str:
    """All settings of a line, and after `link` that these tasks do not tell them apart where there are several."""
    whose = {tuple(slot for slot in setting if slot[0] in ABOUT) for setting in line.settings}
    text = ", the same as ".join(described(setting, about and len(whose) > 1) for setting in line.settings)
    if about and len(whose) == 1:
        text += f" ({', '.join(f'{name} {either(choices)}' for name, choices in whose.pop())})"
    several = len(line.settings) > 1 or any(len(choices) > 1 for _, choices in line.settings[0])
    return f"{text}{link} {UNTOLD}" if several else text


def sentence(found: Search, about: bool) -> str:
    """The outcome in plain words; with `about`, each setting with its encoder and text version, else the first one only."""
    if not found.lines:
        return NOTHING
    first, rivals, count = found.lines[0], found.rivals, len(found.numbers.items)
    tasks = f"{count} task{'' if count == 1 else 's'}"
    agree = f"{first.exact} of {tasks} to the last digit"
    chance = ""
    if count <= FEW:
        settings = f"{len(found.lines)} distinct setting{'' if len(found.lines) == 1 else 's'}"
        chance = f" With {tasks} and {settings} compared, a match may be chance."
    if first.reproduced:
        figures = f"(mean absolute difference {first.mean:.2f}, {agree})"
        if not rivals:
            return f"These numbers are reproduced by {named(first, True)} {figures}.{chance}"
        lines = [(1, named(first, True)), *((at, named(line, about)) for at, line in enumerate(rivals, 2))]
        each = "; ".join(f"({at}) {text}" for at, text in lines)
        agree = f"These numbers are reproduced by {len(lines)} settings, all within rounding: {each}"
        return f"{agree}. They cannot be told apart by these numbers.{chance}"
    task, worst = first.largest
    worst_of = f" on average and by {abs(worst):.2f} on {task}" if count > 1 else ""
    off = f"off by {first.mean:.2f}{worst_of}, {agree}"
    text = f"Nothing reproduces these numbers to the last digit: the nearest is {named(first, True)}, {off}."
    if rivals:
        others = "; ".join(f"{named(line, about)}, off by {line.mean:.2f}" for line in rivals)
        if len(rivals) > FEW:
            others = f"{len(rivals)} other settings, off by up to {rivals[-1].mean:.2f}"
        return f"{text} It cannot be told apart from {others}: its lead is no larger than its own difference."
    if len(found.lines) > 1:
        text += f" The next, {named(found.lines[1], about)}, is off by {found.lines[1].mean:.2f}."
    return text + chance


def heading(found: Search, seen: Sequence[Observed]) -> list[str]:
    """What was compared: the numbers, whose observations, and what must be known of both."""
    numbers = found.numbers
    cells = ", ".join(f"{task} {number.printed:.{number.digits}f}" for task, number in numbers.items.items())
    lines = [f"numbers: {cells}"]
    if numbers.absent:
        lines.append(f"Not printed, so left out of the comparison: {', '.join(numbers.absent)}.")
    if numbers.share:
        lines.append("All lie between -1 and 1: read as shares and compared x 100.")
    if remark := numbers.average_remark():
        lines.append(f"Note: {remark}.")
    lines += [f"observations: {each.encoder}; text version {each.text_version}" for each in seen]
    unknown = sorted({id for each in seen for id in each.unknown if each.text_version != "own"})
    if unknown:
        lines.append(f"Data differ from the catalog: {', '.join(unknown)}. Not comparable with other results.")
    if any(each.text_version == "sample" for each in seen):
        lines.append("sample data: not comparable with published numbers")
    return lines


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign, but zero without."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def further(count: int, all_of_them: int) -> str:
    """The line below a table that leaves `count` settings out."""
    several = "s are" if count > 1 else " is"
    return f"{count} more setting{several} further off (--top {all_of_them} lists {'them' if count > 1 else 'it'})."


def unchecked(found: Search, about: bool) -> list[str]:
    """One line for each setting that could not be compared."""
    return [f"cannot be checked: {described(setting, about)}: no {either(missing)}" for setting, missing in found.unchecked]


def as_json(found: Search, about: bool) -> dict[str, Any]:
    """Everything, for programs; differences and scores in points (x 100)."""
    numbers = found.numbers
    return {
        "numbers": {task: number.printed for task, number in numbers.items.items()},
        "not_printed": list(numbers.absent),
        "share": numbers.share,
        "verdict": found.verdict,
        "sentence": sentence(found, about),
        "not_told_apart": len(found.rivals) + 1 if found.lines else 0,
        "settings": [
            {
                "place": line.place, "setting": [described(setting, True) for setting in line.settings],
                "choices": [[[name, list(choices)] for name, choices in setting] for setting in line.settings],
                "mean_absolute_difference": line.mean, "largest_difference": line.largest[1],
                "largest_task": line.largest[0], "to_the_last_digit": line.exact, "tasks": len(line.differences),
                "differences": dict(line.differences),
                "scores": {task: numbers.points(task) + value for task, value in line.differences.items()},
                "papers": list(line.papers),
            }
            for line in found.lines
        ],
        "unchecked": [{"setting": described(each, True), "missing": list(missing)} for each, missing in found.unchecked],
    }  # fmt: skip
