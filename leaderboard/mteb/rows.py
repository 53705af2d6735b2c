"""Rows of MTEB's published models: one table of those with all seven STS tasks, and one table for each language.

Doubtful scores are flagged, never repaired. Languages are never averaged, and languages with too few pairs are not ranked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from stsbench.metrics.aggregation import FEWEST_ITEMS
from stsbench.metrics.paired import LEVEL
from stsbench.metrics.ranks import rank_intervals

from .differences import mean_difference_error
from .results import ITEMS, TWIN, Score

NO_MODELS = ("baseline/Human", "mteb/baseline-random-encoder")
CARD = "external"  # the folder of scores copied from model cards
SAME_DATA = {"a6ea5a8cab320b040a23452cc28066d9beae2cee"}  # of SICK-R: 20 models scored on both differ by a median of 0.00
TINY, USUAL = 0.02, 0.3  # a correlation below TINY, where all others are above USUAL, was divided by 100 twice
APART = 0.01  # two scores of one test set that differ by more were not measured in the same way
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
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
PAIRS = {  # pairs in the test split of each language, as mteb 2.26 describes its data
    "STS17": {"en-en": 250, "ar-ar": 250, "es-es": 250, "ko-ko": 2846, "en-ar": 250, "en-de": 250, "en-tr": 250,
              "es-en": 250, "fr-en": 250, "it-en": 250, "nl-en": 250},
    "STS22.v2": {"en": 197, "de": 514, "es": 200, "pl": 182, "tr": 208, "ar": 193, "ru": 265, "zh": 637, "fr": 101,
                 "it": 407, "de-en": 158, "es-en": 365, "zh-en": 161, "es-it": 212, "de-fr": 74, "pl-en": 48,
                 "de-pl": 28, "fr-pl": 8},
}
HUNDREDTH = 0.003, 0.01  # the range of usual correlations that were divided by 100 twice


@dataclass(frozen=True)
class PublishedRow:
    """A published model. scores: task -> score x 100, as printed; folders: task -> folder; doubts: (FLAGS' key, details)."""

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
        """Return why the row has no rank, "" if it has one."""
        return "a score was divided by 100 twice, so its mean is not one of correlations" if "divided" in self.flags else ""


def seven_task_rows(scores: Iterable[Score]) -> tuple[PublishedRow, ...]:
    """Return the models with all seven tasks, best mean first, ties by name. Scores are from one folder that has all seven
    or, flagged `mixed`, from several. Human annotators and the random encoder are left out.

    Among several folders with all seven tasks, or with one task, those named by a commit come first, then the first by name.
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
    """Return whether a folder's name is a commit: 40 hex digits."""
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
        yield "mixed", "; ".join(f"{_join(tasks)} from {folder}" for folder, tasks in sorted(of_folder.items()))
    if CARD in of_folder:
        yield "card", _join(of_folder[CARD])
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
        yield "data", f"{_join(strange)}: {'another revision' if known else 'none named'}"
    for task, cells in chosen.items():
        if len({cell.value for cell in cells}) > 1:
            yield "twice", f"{task}: {' and '.join(cell.value for cell in cells)}"


def _join(tasks: Sequence[str]) -> str:
    return "all seven tasks" if len(tasks) == len(ITEMS) else ", ".join(tasks)


def over_items(scores: Floats, items: Sequence[int], shared: float = 0.0) -> tuple[Bools, Bools]:
    """Return two bool (r, r): the pairs of rows that differ at 5 % by themselves, and jointly over a row's pairs
    (Bonferroni). scores: (r, k) correlations; items: k numbers of items; shared: as in `mean_difference_error`."""
    errors = mean_difference_error(scores, np.array(items, dtype=np.float64), shared)
    gaps = np.abs(scores.mean(axis=1)[:, None] - scores.mean(axis=1)[None, :])
    return gaps > critical(1) * errors, gaps > critical(max(len(scores) - 1, 1)) * errors


def critical(tests: int) -> float:
    """Return the critical value at 5 %, two-sided, for so many tests (Bonferroni), in standard errors of a difference."""
    return float(norm.isf((1 - LEVEL) / 2 / tests))


@dataclass(frozen=True)
class LanguageRow:
    """A model in one language. score: x 100, as printed; first, last: 95 % interval of its rank over other sentence pairs,
    for this row by itself, if two models' errors are independent; None for a row or a language without ranks."""

    model: str
    folder: str
    score: float
    doubts: tuple[tuple[str, str], ...]
    position: int | None = None
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Language:
    """A language of a task. rows: models, best first, those without a rank last; refused: why none has a rank, or ""."""

    task: str
    name: str
    pairs: int
    rows: tuple[LanguageRow, ...]
    refused: str

    @property
    def ranked(self) -> int:
        return sum(row.position is not None for row in self.rows)

    @property
    def first(self) -> int:
        """Return the number of rows that could be first."""
        return sum(row.first == 1 for row in self.rows)


def languages(scores: Iterable[Score]) -> tuple[Language, ...]:
    """Return every language of PAIRS, in that order, with the models that have a score in it, each from one folder, chosen
    as in `seven_task_rows`. Human annotators and the random encoder are left out."""
    cells: dict[str, dict[str, dict[str, dict[str, Score]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    usual: dict[str, Counter[str]] = defaultdict(Counter)
    for score in scores:
        if score.task in PAIRS and score.model not in NO_MODELS:
            cells[score.task][score.model][score.revision][score.subset] = score
            usual[score.task][score.dataset_revision] += 1
    made = []
    for task, of_language in PAIRS.items():
        data = usual[task].most_common(1)[0][0] if usual[task] else ""
        chosen = {}
        for model, folders in cells[task].items():
            name = min(folders, key=lambda name: (not is_commit(name), name))
            chosen[model] = folders[name], _language_doubts(name, folders[name], data)
        for language, pairs in of_language.items():
            rows = [LanguageRow(model, of[language].revision, 100 * of[language].number, doubts)
                    for model, (of, doubts) in chosen.items() if language in of]
            made.append(_language(task, language, pairs, rows))
    return tuple(made)


def _language(task: str, name: str, pairs: int, rows: list[LanguageRow]) -> Language:
    refused = f"{pairs} pairs rank nothing: at least {FEWEST_ITEMS} are needed" if pairs < FEWEST_ITEMS else ""
    rows = sorted(rows, key=lambda row: (_divided(row), -row.score, row.model))
    able = [row for row in rows if not _divided(row) and not refused]
    if able:
        values = np.array([row.score for row in able])
        _, different = over_items(values[:, None] / 100, [pairs])
        bounds = zip(*(bound.tolist() for bound in rank_intervals(values, different)), strict=True)
        able = [LanguageRow(row.model, row.folder, row.score, row.doubts, *some)
                for row, some in zip(able, bounds, strict=True)]
    return Language(task, name, pairs, (*able, *rows[len(able):]), refused)


def _divided(row: LanguageRow) -> bool:
    return any(key == "divided" for key, _ in row.doubts)


def _language_doubts(folder: str, scores: dict[str, Score], data: str) -> tuple[tuple[str, str], ...]:
    doubts = []
    if folder == CARD:
        doubts.append(("card", "this task"))
    elif not is_commit(folder):
        doubts.append(("no-commit", f"folder {folder}"))
    low, high = HUNDREDTH
    if len(scores) > 1 and all(low < score.number <= high for score in scores.values()):
        doubts.append(("divided", f"all {len(scores)} languages are printed as {low} to {high}"))
    if any(score.dataset_revision != data for score in scores.values()):
        doubts.append(("data", "another revision"))
    return tuple(doubts)
