"""The study of prompt sensitivity as one table: a line for each model, task and prompt, as its authors publish it, too."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import numpy as np

from stsbench.errors import StsbenchError
from stsbench.parsing import read_text

from .study_files import Study, StudyPrompt

COLUMNS = ("main_score", "task", "model", "prompt", "is_baseline")
MOST = 64 * 2**20  # bytes
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclass
class _Model:
    default: dict[str, float] = field(default_factory=dict)  # by task
    scores: dict[tuple[str, str], float] = field(default_factory=dict)  # by task and prompt


def read_table(path: Path) -> Study:
    """A CSV file with the columns of COLUMNS, others aside; main_score 0 to 1. Who wrote a prompt is not known of it.

    A model without a result by default is left out, then a task that has none by default, or none of any prompt, for one of
    the others: `notes` names them. StsbenchError, one line naming file and line: a column is missing, a score is none or no
    share, a line stands there twice with different scores, nothing is left.
    """
    models = _lines(path)
    left_out = [f"{_short(name)} is left out: it has no result by default" for name, model in models.items()
                if not model.default]
    kept = {name: model for name, model in models.items() if model.default}
    prompts = _prompts(kept)
    for task in sorted(prompts):
        lacking = [_short(name) for name, model in kept.items()
                   if task not in model.default or not any(at == task for at, _ in model.scores)]
        if lacking:
            del prompts[task]
            left_out.append(f"{task} is left out: no result by default, or of any prompt, of {', '.join(lacking)}")
    if not kept or not prompts:
        raise StsbenchError(f"{path} has no task with results by default and of prompts for its models")
    return Study(
        tuple(map(_short, kept)), prompts,
        {task: np.array([[100 * model.scores.get((task, one.text), np.nan) for one in listed] for model in kept.values()])
         for task, listed in prompts.items()},
        {task: np.array([100 * model.default[task] for model in kept.values()]) for task in prompts}, {}, tuple(left_out),
    )


def _lines(path: Path) -> dict[str, _Model]:
    models: dict[str, _Model] = {}
    reader = csv.DictReader(read_text(path, MOST).splitlines(keepends=True))
    if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
        raise StsbenchError(f"{path} has no column {missing[0]}: its header must name {', '.join(COLUMNS)}")
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if any(not row[column] for column in COLUMNS):
            raise StsbenchError(f"{where}: a column is empty")
        by_default = _TRUTH.get(row["is_baseline"].lower())
        if by_default is None:
            raise StsbenchError(f"{where}: is_baseline must be True or False, not {row['is_baseline'][:50]!r}")
        model, score = models.setdefault(row["model"], _Model()), _score(row["main_score"], where)
        known = (model.default.setdefault(row["task"], score) if by_default
                 else model.scores.setdefault((row["task"], row["prompt"]), score))
        if known != score:
            raise StsbenchError(f"{where}: a second score of the same model, task and prompt")
    return dict(sorted(models.items()))


def _score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = np.nan
    if not isfinite(score) or abs(score) > 1:
        raise StsbenchError(f"{where}: main_score must be a number between -1 and 1, not {text[:50]!r}")
    return score


def _prompts(models: Mapping[str, _Model]) -> dict[str, tuple[StudyPrompt, ...]]:
    """By task, each prompt that a model was run with, in the order of the file."""
    listed: dict[str, dict[str, StudyPrompt]] = {}
    for model in models.values():
        for task, text in model.scores:
            listed.setdefault(task, {}).setdefault(text, StudyPrompt(task, text, "", ""))
    return {task: tuple(of_task.values()) for task, of_task in sorted(listed.items())}


def _short(model: str) -> str:
    return model.rpartition("/")[2]
