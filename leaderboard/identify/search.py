"""Which setting reproduces published numbers: every candidate compared with them, equal ones together, the nearest first.

The detective work of Gao et al. 2021 (SimCSE), appendix B, table B.2, as a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .numbers import Numbers, refuse_impossible
from .observed import Observed
from .settings import Candidate, Slot, candidates

SAME = 0.01  # of the last printed digit: settings whose scores differ by less count as equal
RANK = "effective rank"  # the one score that may exceed 100
EPSILON = 1e-9  # what binary fractions leave of a decimal difference
_Scored = tuple[int, Candidate, dict[str, float]]  # its position, and its differences by task
Merged = tuple[tuple[str, tuple[str, ...]], ...]  # slots, with every choice that makes no difference


@dataclass(frozen=True)
class Match:
    """Settings that give the same numbers on the tasks in question, and how far those are from the published ones.

    differences: task -> score minus printed number, in points. rank 1 is shared by all that reproduce the numbers.
    """

    settings: tuple[Merged, ...]
    differences: Mapping[str, float]
    exact: int  # tasks that agree to the last printed digit
    papers: tuple[str, ...]
    rank: int = 0

    @property
    def mean(self) -> float:
        """The mean absolute difference, in points."""
        return sum(map(abs, self.differences.values())) / len(self.differences)

    @property
    def largest(self) -> tuple[str, float]:
        """The task with the largest absolute difference, and that difference."""
        return max(self.differences.items(), key=lambda item: abs(item[1]))

    @property
    def reproduced(self) -> bool:
        """Whether every task is within half a unit of the last printed digit: rounding explains what is left."""
        return self.exact == len(self.differences)


@dataclass(frozen=True)
class SearchResult:
    """matches: best first; unchecked: settings without an observation of some task -> those tasks."""

    numbers: Numbers
    matches: tuple[Match, ...]
    unchecked: tuple[tuple[Merged, tuple[str, ...]], ...]

    @property
    def verdict(self) -> str:
        """reproduced, nearest, or nothing checked."""
        return "nothing checked" if not self.matches else "reproduced" if self.matches[0].reproduced else "nearest"

    @property
    def rivals(self) -> tuple[Match, ...]:
        """The matches that cannot be distinguished from the first.

        All that reproduce the numbers; where none does, those whose mean absolute difference exceeds the first one's by
        no more than that itself: what nobody can explain about the first is then larger than the lead it has.
        """
        if not self.matches:
            return ()
        first, *rest = self.matches
        if first.reproduced:
            return tuple(match for match in rest if match.reproduced)
        return tuple(match for match in rest if match.mean <= 2 * first.mean)


def search(numbers: Numbers, observations: Sequence[Observed]) -> SearchResult:
    """Compare every candidate setting with `numbers`. A candidate that lacks a task is never ranked.

    A number beyond 100 is compared with what may be, and StsbenchError raised where no candidate has such a score.
    """
    compared = candidates(observations, list(numbers.items))
    if numbers.beyond:
        compared = [item for item in compared if all(_unbounded(item, task) for task in numbers.beyond)]
        if not compared:
            refuse_impossible(numbers)
    unchecked: dict[tuple[str, ...], list[tuple[Slot, ...]]] = {}
    scored: list[_Scored] = []
    for at, candidate in enumerate(compared):
        if candidate.missing:
            unchecked.setdefault(candidate.missing, []).append(candidate.slots)
        else:
            target = {task: numbers.points(task) for task in numbers.items}
            values = {task: candidate.points(task, numbers.share, near) for task, near in target.items()}
            scored.append((at, candidate, {task: value - target[task] for task, value in values.items()}))
    groups: list[list[_Scored]] = []
    for one in sorted(scored, key=lambda item: sum(map(abs, item[2].values()))):
        same = (group for group in groups if _same(group[0][2], one[2], numbers))
        if (group := next(same, None)) is not None:
            group.append(one)
        else:
            groups.append([one])
    matches = [_match(group, numbers) for group in groups]
    matches.sort(key=lambda match: (not match.reproduced, match.mean))
    first = sum(match.reproduced for match in matches)
    placed = (
        Match(match.settings, match.differences, match.exact, match.papers, 1 if match.reproduced else max(first, at) + 1)
        for at, match in enumerate(matches)
    )
    left = ((setting, missing) for missing, slots in unchecked.items() for setting in merged(slots))
    return SearchResult(numbers, tuple(placed), tuple(left))


def _unbounded(candidate: Candidate, task: str) -> bool:
    return task in candidate.cells and candidate.cells[task].metrics == (RANK,)


def _same(one: Mapping[str, float], other: Mapping[str, float], numbers: Numbers) -> bool:
    return all(abs(one[task] - other[task]) <= SAME * numbers.unit(task) for task in one)


def _match(group: Sequence[_Scored], numbers: Numbers) -> Match:
    differences = group[0][2]  # the nearest one's
    exact = sum(abs(value) <= numbers.unit(task) / 2 + EPSILON for task, value in differences.items())
    members = [candidate for _, candidate, _ in sorted(group, key=lambda item: item[0])]
    papers = dict.fromkeys(paper for member in members for paper in member.papers())
    return Match(tuple(merged(member.slots for member in members)), differences, exact, tuple(papers))


def merged(settings: Iterable[tuple[Slot, ...]]) -> list[Merged]:
    """Settings that differ in one choice become one with both choices, again and again: exactly the same settings."""
    left: list[Merged] = [tuple((name, (choice,)) for name, choice in slots) for slots in settings]
    while True:
        before = len(left)
        for at in range(max(map(len, left), default=0)):
            groups: dict[object, Merged] = {}
            for setting in left:
                if at >= len(setting):
                    groups[setting] = setting
                    continue
                name, choices = setting[at]
                key = (setting[:at], name, setting[at + 1 :])
                known = groups[key][at][1] if key in groups else ()
                groups[key] = (*setting[:at], (name, tuple(dict.fromkeys((*known, *choices)))), *setting[at + 1 :])
            left = list(groups.values())
        if len(left) == before:
            return left
