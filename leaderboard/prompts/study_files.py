"""Reading of the published study of prompt sensitivity (Kostiuk and Enevoldsen 2026): its repository, or one table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.parsing import read_json, read_json_object, read_text
from stsbench.wording import counted

REPOSITORY = "https://github.com/centre-for-humanities-computing/instruction-sensitivity-evaluation"
_PROMPTS, _LIST, _GENERATED = Path("data", "prompts"), "deduplicated_prompts.json", "-gen-prompts.json"
_RESULTS = Path("data", "cache_data", "mteb_cache", "results")
_SPLITS = ("test", "dev")  # the first that a file has is used
_ENGLISH = ("default", "en", "eng")  # names of a set's English subset
Floats = NDArray[np.float64]
COLUMNS = ("main_score", "task", "model", "prompt", "is_baseline")
MOST = 64 * 2**20  # bytes
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class StudyPrompt:
    """A prompt of the deduplicated list. generator: the models whose files hold it; context: what was given to them."""

    task: str
    text: str
    generator: str  # "" where it is not known; the context is then "", too
    context: str  # "task", "task, data", "task, data, language"


@dataclass(frozen=True)
class Study:
    """The study's main scores x 100. scores: task -> (models, prompts), NaN where not run; default: task -> (models,).

    dropped: (model, task) -> number of runs whose prompt is not in the list, and how many of them have exactly the default's
    score. left_out: a sentence for each model and task that lacks results.
    """

    models: tuple[str, ...]
    prompts: Mapping[str, tuple[StudyPrompt, ...]]
    scores: Mapping[str, Floats]
    default: Mapping[str, Floats]
    dropped: Mapping[tuple[str, str], tuple[int, int]]
    left_out: tuple[str, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the tasks that were run, in the list's order."""
        return tuple(self.scores)

    def notes(self) -> list[str]:
        """Return a line for each model or task left out, for dropped runs, and for prompts that were not run."""
        lines = [
            *self.left_out,
            *(f"{model}, {task}: {counted(runs, 'run')} dropped, whose prompt is in no prompt file"
              + (f"; {same} of them with the very score of the default" if same else "")
              for (model, task), (runs, same) in self.dropped.items()),
        ]
        for task in self.tasks:
            for model, row in zip(self.models, self.scores[task], strict=True):
                if lacking := int(np.isnan(row).sum()):
                    lines.append(f"{model}, {task}: {lacking} of {len(row)} prompts were not run")
        return lines


def read_study(folder: Path) -> Study:
    """Return the study in a clone of the repository. Raises StsbenchError, naming the file, for any other folder or content.

    Runs are matched to prompts by their texts: bge-small and bge-base have runs with older prompts that are in no list.
    """
    if not (folder / _PROMPTS / _LIST).is_file():
        raise StsbenchError(f"{folder} holds no {_PROMPTS / _LIST}: give a clone of {REPOSITORY}")
    prompts, results = read_prompts(folder / _PROMPTS), folder / _RESULTS
    models = sorted(path.name for path in results.iterdir() if path.is_dir()) if results.is_dir() else []
    runs_of = {model: _Runs(prompts) for model in models}
    for model, runs in runs_of.items():
        for revision in sorted(path for path in (results / model).iterdir() if path.is_dir()):
            runs.read(revision)
    kept = [model for model in models if runs_of[model].scores]
    if not kept:
        raise StsbenchError(f"{results} holds no results of prompts: give a whole clone of {REPOSITORY}")
    tasks = [task for task in prompts if any(at == task for model in kept for at, _ in runs_of[model].scores)]
    for model in kept:
        runs_of[model].check(tasks, results / model)
    return Study(
        tuple(model.rpartition("__")[2] for model in kept), {task: prompts[task] for task in tasks},
        {task: np.array([[runs_of[model].scores.get((task, one.text), np.nan) for one in prompts[task]] for model in kept])
         for task in tasks},
        {task: np.array([runs_of[model].default.get(task, np.nan) for model in kept]) for task in tasks},
        {(model.rpartition("__")[2], task): (count, runs_of[model].like_default(task))
         for model in kept for task, count in sorted(runs_of[model].dropped().items())},
    )


def read_prompts(folder: Path) -> dict[str, tuple[StudyPrompt, ...]]:
    """Return task -> its deduplicated prompts, with the generators whose files hold them. Raises StsbenchError, naming the
    file, for invalid content."""
    by: dict[tuple[str, str], list[str]] = {}
    for path in sorted(folder.glob(f"*{_GENERATED}")):
        for entry in _entries(path):
            by.setdefault((entry["task"], entry["generated_prompt"]), []).append(path.name.removesuffix(_GENERATED))
    prompts: dict[str, dict[str, StudyPrompt]] = {}
    for entry in _entries(folder / _LIST):
        task, text = entry["task"], entry["generated_prompt"]
        told = ", ".join(["task", *(word for word, key in _TOLD.items() if entry.get(key))])
        generators = " and ".join(dict.fromkeys(by.get((task, text), ["unknown"])))
        prompts.setdefault(task, {})[text] = StudyPrompt(task, text, generators, told)
    return {task: tuple(of_task.values()) for task, of_task in sorted(prompts.items())}


_TOLD = {"data": "dataset_description", "language": "language"}


def _entries(path: Path) -> list[dict[str, Any]]:
    entries = read_json(path)
    if not isinstance(entries, list):
        raise StsbenchError(f"{path} must hold a list of prompts")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("task", "generated_prompt")):
            raise StsbenchError(f"{path}: entry {number} has no task and generated_prompt")
    return entries


class _Runs:
    """The results of one model: (task, prompt) -> main score, and task -> default score."""

    def __init__(self, prompts: Mapping[str, Sequence[StudyPrompt]]) -> None:
        self._known = {(task, one.text) for task, of_task in prompts.items() for one in of_task}
        self._tasks = set(prompts)
        self.scores: dict[tuple[str, str], float] = {}
        self.default: dict[str, float] = {}
        self._older: dict[tuple[str, str], float] = {}

    def read(self, revision: Path) -> None:
        """Read a revision's default results, and its experiments, one folder per prompt."""
        for task, path in self._files(revision):
            _put(self.default, task, path)
        experiments = revision / "experiments"
        for folder in sorted(experiments.iterdir()) if experiments.is_dir() else ():
            for task, path in self._files(folder):
                key = task, _prompt(folder / "model_meta.json", task)
                _put(self.scores if key in self._known else self._older, key, path)

    def check(self, tasks: Sequence[str], folder: Path) -> None:
        """Raise StsbenchError for a task without a default result or without any result of a prompt, since the model has no
        rank then."""
        run = {task for task, _ in self.scores}
        for task in tasks:
            if task not in self.default or task not in run:
                what = "no result of any prompt" if task in self.default else "no result by default"
                raise StsbenchError(f"{folder} holds {what} of {task}, which other models have: give a whole clone")

    def dropped(self) -> Counter[str]:
        """Return task -> number of runs whose prompt is not in the list."""
        return Counter(task for task, _ in self._older)

    def like_default(self, task: str) -> int:
        """Return how many of a task's dropped runs have exactly the default's score, as if the prompt had no effect."""
        return sum(at == task and score == self.default.get(task) for (at, _), score in self._older.items())

    def _files(self, folder: Path) -> Iterator[tuple[str, Path]]:
        return ((path.stem, path) for path in sorted(folder.glob("*.json")) if path.stem in self._tasks)


def _put(values: dict[Any, float], key: Any, path: Path) -> None:
    score = _main_score(path)
    if values.setdefault(key, score) != score:
        raise StsbenchError(f"{path} is a second result of the same model, task and prompt, with another score")


def _prompt(meta: Path, task: str) -> str:
    """Return the prompt of a run; for retrieval, that of the queries. Raises StsbenchError if the file states none."""
    kwargs = read_json_object(meta).get("experiment_kwargs")
    prompts = kwargs.get("prompts") if isinstance(kwargs, dict) else None
    stated = prompts if isinstance(prompts, dict) else {}
    text = stated.get(task, stated.get(f"{task}-query"))
    if not isinstance(text, str):
        raise StsbenchError(f"{meta} states no prompt of {task} under experiment_kwargs.prompts")
    return text


def _main_score(path: Path) -> float:
    """Return a result's main score x 100 on its English subset. Raises StsbenchError, naming the file, if not just one."""
    scores = read_json_object(path).get("scores")
    parts = next((scores[split] for split in _SPLITS if split in scores), None) if isinstance(scores, dict) else None
    rows = [row for row in parts if isinstance(row, dict)] if isinstance(parts, list) else []
    english = [row.get("main_score") for row in rows if row.get("hf_subset") in _ENGLISH]
    scored = english or [row.get("main_score") for row in rows]
    if len(scored) != 1 or not isinstance(scored[0], int | float):
        raise StsbenchError(f"{path} holds no main_score of one English part (a split of {' or '.join(_SPLITS)})")
    return 100 * float(scored[0])


@dataclass
class _Model:
    default: dict[str, float] = field(default_factory=dict)  # by task
    scores: dict[tuple[str, str], float] = field(default_factory=dict)  # by task and prompt


def read_table(path: Path) -> Study:
    """Return the study in a CSV file with at least the columns of COLUMNS; it does not state the generators of prompts.

    Models without a default result are left out, then tasks for which one of the others lacks a default result or any result
    of a prompt; `notes` names them. Raises StsbenchError, naming file and line, for a missing column, a score outside
    [-1, 1], and two scores of one model, task and prompt; also where nothing is left.
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
    """Return task -> the prompts that any model was run with, in the order of models and lines."""
    listed: dict[str, dict[str, StudyPrompt]] = {}
    for model in models.values():
        for task, text in model.scores:
            listed.setdefault(task, {}).setdefault(text, StudyPrompt(task, text, "", ""))
    return {task: tuple(of_task.values()) for task, of_task in sorted(listed.items())}


def _short(model: str) -> str:
    return model.rpartition("/")[2]
