"""The published models that have all seven STS tasks, and what is doubtful about each. Nothing is repaired."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .results import ITEMS, TWIN, Score

NO_MODELS = ("baseline/Human", "mteb/baseline-random-encoder")
CARD = "external"  # the folder of what was copied from model cards
NO_COMMIT = "no_revision_available"
SAME_DATA = {"a6ea5a8cab320b040a23452cc28066d9beae2cee"}  # SICK-R's: 20 models scored on both differ by a median of 0.00
TINY, USUAL = 0.02, 0.3  # a correlation that is below the former where all others are above the latter was divided twice
APART = 0.01  # two scores of one test set that differ by more were not made alike
# key -> (short label, sentence)
FLAGS: dict[str, tuple[str, str]] = {
    "mixed": ("mixed folders", "its seven scores come from several folders, which may be different runs or revisions"),
    "card": ("from its model card", "copied from the model card, not run by mteb: its version and settings are not known"),
    "no-commit": ("no commit", "its folder names no commit of the model, whose weights may have changed since"),
    "divided": ("divided by 100 twice", "a score is a hundredth of what the model's other scores lead one to expect"),
    "disagrees": ("two scores for one set", "the results hold another score on the same sentences, over a point away"),
    "data": ("other data revision", "names another revision of the data than most rows, or none"),
    "twice": ("printed twice", "a file prints a score twice, with different values"),
}


@dataclass(frozen=True)
class PublishedRow:
    """One model: task -> score x 100, as printed; task -> its folder; doubts: (key of FLAGS, what exactly)."""

    model: str
    scores: Mapping[str, float]
    folders: Mapping[str, str]
    versions: tuple[str, ...]
    doubts: tuple[tuple[str, str], ...] = ()

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores)

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for key, _ in self.doubts))

    @property
    def unranked(self) -> str:
        """Why it has no rank, or ""."""
        return "a score was divided by 100 twice, so its mean is not one of correlations" if "divided" in self.flags else ""


def seven_task_rows(scores: Iterable[Score]) -> tuple[PublishedRow, ...]:
    """The models with all seven tasks, best mean first, equal ones by name: where one folder has all seven, of that folder;
    else of several, flagged `mixed`. Human annotators and the random encoder are left out.

    Of several folders with all seven, as of a task that several folders have, a folder named by a commit is taken before
    others, then the first by name.
    """
    cells: dict[str, dict[str, dict[str, list[Score]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    twins: dict[str, list[Score]] = defaultdict(list)
    usual: dict[str, Counter[str]] = defaultdict(Counter)
    for score in scores:
        if (score.task, score.subset) == TWIN:
            twins[score.model].append(score)
        elif score.task in ITEMS and score.model not in NO_MODELS:
            cells[score.model][score.revision][score.task].append(score)
            usual[score.task][score.dataset_revision] += 1
    data = {task: {counts.most_common(1)[0][0], *SAME_DATA} for task, counts in usual.items()}
    rows = []
    for model, folders in cells.items():
        order = sorted(folders, key=lambda name: (not is_commit(name), name))
        whole = next((name for name in order if len(folders[name]) == len(ITEMS)), None)
        chosen = {task: folders[name][task] for task in ITEMS for name in ([whole] if whole else order)[::-1]
                  if task in folders[name]}
        if len(chosen) == len(ITEMS):
            rows.append(_row(model, chosen, twins.get(model, ()), data))
    return tuple(sorted(rows, key=lambda row: (-row.mean, row.model)))


def is_commit(folder: str) -> bool:
    """Whether a folder's name is that of a commit."""
    return len(folder) == 40 and set(folder) <= set("0123456789abcdef")


def _row(
    model: str, chosen: Mapping[str, Sequence[Score]], twins: Sequence[Score], data: Mapping[str, set[str]]
) -> PublishedRow:
    first = {task: cells[0] for task, cells in chosen.items()}
    row = PublishedRow(
        model, {task: 100 * score.number for task, score in first.items()},
        {task: score.revision for task, score in first.items()},
        tuple(sorted({score.mteb_version for score in first.values() if score.mteb_version})),
    )
    return PublishedRow(**{**vars(row), "doubts": tuple(_doubts(row, chosen, twins, data))})


def _doubts(
    row: PublishedRow, chosen: Mapping[str, Sequence[Score]], twins: Sequence[Score], data: Mapping[str, set[str]]
) -> Iterable[tuple[str, str]]:
    of_folder: dict[str, list[str]] = defaultdict(list)
    for task, folder in row.folders.items():
        of_folder[folder].append(task)
    if len(of_folder) > 1:
        yield "mixed", "; ".join(f"{_listed(tasks)} from {folder}" for folder, tasks in sorted(of_folder.items()))
    if CARD in of_folder:
        yield "card", _listed(of_folder[CARD])
    if other := sorted(folder for folder in of_folder if folder != CARD and not is_commit(folder)):
        yield "no-commit", f"folder {' and '.join(other)}"
    usual = [score for score in row.scores.values() if score > 100 * USUAL]
    for task, score in row.scores.items():
        if abs(score) < 100 * TINY and len(usual) == len(ITEMS) - 1:
            yield "divided", f"{task} is printed as {chosen[task][0].value}"
    for twin in twins:
        if abs(twin.number - row.scores["STSBenchmark"] / 100) > APART:
            here, there = row.scores["STSBenchmark"], 100 * twin.number
            folder = twin.revision[:12]
            yield "disagrees", f"STSBenchmark {here:.2f}, and {there:.2f} as English of {TWIN[0]} (folder {folder})"
    strange = [task for task, cells in chosen.items() if cells[0].dataset_revision not in data[task]]
    if strange:
        known = all(chosen[task][0].dataset_revision for task in strange)
        yield "data", f"{_listed(strange)}: {'another revision' if known else 'none named'}"
    for task, cells in chosen.items():
        if len({cell.value for cell in cells}) > 1:
            yield "twice", f"{task}: {' and '.join(cell.value for cell in cells)}"


def _listed(tasks: Sequence[str]) -> str:
    return "all seven tasks" if len(tasks) == len(ITEMS) else ", ".join(tasks)
