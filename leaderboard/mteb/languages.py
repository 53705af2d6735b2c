"""MTEB's tasks of several languages, a table a language: languages are never averaged, and too few pairs rank nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stsbench.metrics.aggregation import FEWEST_ITEMS
from stsbench.metrics.ranks import rank_intervals

from .over_items import separated_over_items
from .results import Score
from .rows import CARD, NO_MODELS, is_commit

PAIRS = {  # of the test split of each language, as mteb 2.26 describes its data
    "STS17": {"en-en": 250, "ar-ar": 250, "es-es": 250, "ko-ko": 2846, "en-ar": 250, "en-de": 250, "en-tr": 250,
              "es-en": 250, "fr-en": 250, "it-en": 250, "nl-en": 250},
    "STS22.v2": {"en": 197, "de": 514, "es": 200, "pl": 182, "tr": 208, "ar": 193, "ru": 265, "zh": 637, "fr": 101,
                 "it": 407, "de-en": 158, "es-en": 365, "zh-en": 161, "es-it": 212, "de-fr": 74, "pl-en": 48,
                 "de-pl": 28, "fr-pl": 8},
}
HUNDREDTH = 0.003, 0.01  # where a usual correlation lies that was divided by 100 twice


@dataclass(frozen=True)
class LanguageRow:
    """score x 100, as printed; first, last: the ranks that other sentence pairs may give it, 95 % for this row by itself, if
    two models' errors were independent; None for a row or a language that ranks nothing."""

    model: str
    folder: str
    score: float
    doubts: tuple[tuple[str, str], ...]
    position: int | None = None
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Language:
    """One language of a task. rows: best first, those without a rank last; refused: why none has a rank, or ""."""

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
        """How many could be first."""
        return sum(row.first == 1 for row in self.rows)


def languages(scores: Iterable[Score]) -> tuple[Language, ...]:
    """Every language of PAIRS, in that order, with the models that have a score there; of several folders of one model, as
    in `seven_task_rows`. Human annotators and the random encoder are left out."""
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
            chosen[model] = folders[name], _doubts(name, folders[name], data)
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
        different = separated_over_items(values[:, None] / 100, np.array([float(pairs)]))
        bounds = zip(*(bound.tolist() for bound in rank_intervals(values, different)), strict=True)
        able = [LanguageRow(row.model, row.folder, row.score, row.doubts, *some)
                for row, some in zip(able, bounds, strict=True)]
    return Language(task, name, pairs, (*able, *rows[len(able):]), refused)


def _divided(row: LanguageRow) -> bool:
    return any(key == "divided" for key, _ in row.doubts)


def _doubts(folder: str, scores: dict[str, Score], data: str) -> tuple[tuple[str, str], ...]:
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
