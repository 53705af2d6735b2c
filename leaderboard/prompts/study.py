"""`stsbench reproduce prompt-sensitivity`: a study's figures, recomputed from its result files, and checks of its claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stsbench.display.table import Column, Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import UsageError
from stsbench.metrics.aggregation import mean_over_prompts, spread
from stsbench.wording import counted

from .rank_chances import (
    RankBounds,
    RankChances,
    common_ranks,
    independent_ranks,
    kendall_w,
    rank_bounds,
    shared_prompts,
    variance_split,
)
from .study_files import REPOSITORY, Study, read_study, read_table

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable

NAME = "prompt-sensitivity"
MEAN = "mean of the sets"  # each set has its own prompt
FOOT = (
    "main score x 100; sd over prompts (n - 1); error: of the mean, where generators and contexts are drawn again, or "
    "prompts where these are not known; below default: share of prompts, ties half. Ranks: 1 is the best; alone: every "
    "model draws its own prompt, same: all read the same one; own, all: best to worst rank by the choice of the model's "
    "own prompt against the others' default, and of all prompts."
)


@dataclass(frozen=True)
class Claim:
    """A claim of the study. holds: whether its result files support it; because: the figures that show this."""

    text: str
    holds: bool
    because: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'does not hold'}: {self.text}. {self.because}"


@dataclass(frozen=True, repr=False)
class PromptStudy(Tabular):
    """The study's results in tables, and its claims."""

    study: Study

    def __repr__(self) -> str:
        true = sum(claim.holds for claim in self.claims)
        what = f"{counted(len(self.study.models), 'model')}, {counted(len(self.study.tasks), 'set')}"
        return f"<PromptStudy {what}: {true} of {len(self.claims)} claims hold; print it>"

    @cached_property
    def ranks(self) -> dict[str, tuple[RankChances, RankChances, RankBounds]]:
        """Return task -> (rank probabilities if each model draws its own prompt, if all read the same one, rank bounds)."""
        scores, default = self.study.scores, self.study.default
        return {task: (independent_ranks(list(rows)), common_ranks(rows), _bounds(rows, default[task]))
                for task, rows in scores.items()}

    @cached_property
    def mean_bounds(self) -> RankBounds:
        """Return rank bounds by the mean over sets, where each set has its own prompt."""
        rows, default = self.study.scores.values(), self.study.default.values()
        low, high = (np.mean([end(matrix, axis=1) for matrix in rows], axis=0) for end in (np.nanmin, np.nanmax))
        return rank_bounds(low, high, np.mean(list(default), axis=0))

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """Return the study's claims, checked."""
        return _claims(self)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row of figures for each set and model."""
        for task in self.study.tasks:
            alone, same, bounds = self.ranks[task]
            prompts = self.study.prompts[task]
            clusters = [(one.generator, one.context) for one in prompts] if any(one.generator for one in prompts) else None
            by_default = _ranks(self.study.default[task])
            for at, model in enumerate(self.study.models):
                scores, default = self.study.scores[task][at], self.study.default[task][at]
                yield {
                    "set": task, "model": model, **asdict(spread(scores, default)),
                    "error": mean_over_prompts(scores, clusters).error, "default_rank": int(by_default[at]),
                    "first_alone": alone.first[at], "first_same": same.first[at], "expected_rank_alone": alone.expected[at],
                    "expected_rank_same": same.expected[at],
                    **{name: int(values[at]) for name, values in vars(bounds).items()},
                }

    def document(self) -> Document:
        """Return tables of scores and ranks for each set; below them the claims, notes on left-out runs, and a key."""
        rows, tables = list(self.rows()), []
        for task in self.study.tasks:
            here = [row for row in rows if row["set"] == task]
            count = shared_prompts(self.study.scores[task]).shape[1]
            tables += [_score_table(task, here), _rank_table(task, here, count)]
        by_default = _ranks(np.mean(list(self.study.default.values()), axis=0))
        ranks = [[model, str(by_default[at]), *_range_cells(self.mean_bounds, at)]
                 for at, model in enumerate(self.study.models)]
        tables.append(Table.from_rows(f"{MEAN}: ranks", ["model", "by default", "own", "all"], ranks))
        header = ["set", "model", "prompt", "rest", "Kendall's W"]
        tables.append(Table.from_rows("shares of the variance", header, map(self._split, self.study.tasks)))
        return Document(tables, below=[*map(str, self.claims), *self.study.notes(), FOOT])

    def to_arrow(self) -> ArrowTable:
        """Return a table with a row for each set and model."""
        return arrow_table(list(self.rows()))

    def as_json(self) -> dict[str, Any]:
        """Return what --json writes, as plain data; null where a figure is missing."""
        return {
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self.rows()],
            "mean": {name: values.tolist() for name, values in vars(self.mean_bounds).items()},
            "models": list(self.study.models), "claims": [asdict(claim) for claim in self.claims],
            "notes": self.study.notes(),
        }

    def _split(self, task: str) -> list[str]:
        split, agreement = variance_split(self.study.scores[task]), kendall_w(self.study.scores[task])
        return [task, *(f"{value:.3f}" for value in (split.model, split.prompt, split.rest, agreement))]


def prompt_sensitivity(results: str | Path) -> PromptStudy:
    """Recompute the figures and claims of Kostiuk and Enevoldsen 2026 (arXiv 2605.22544) from their result files.

    results: a clone of their repository, github.com/centre-for-humanities-computing/instruction-sensitivity-evaluation, or
    a CSV file with the columns main_score (-1 to 1), task, model, prompt, is_baseline, as in an earlier state of it. No
    model is run. Raises StsbenchError, naming the file, where it is neither.

    >>> from stsbench import leaderboard
    >>> leaderboard.prompt_sensitivity("nowhere")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: nowhere holds no data/prompts/deduplicated_prompts.json: give a clone of \
https://github.com/centre-for-humanities-computing/instruction-sensitivity-evaluation
    """
    path = Path(results)
    return PromptStudy(read_table(path) if path.is_file() else read_study(path))


def recomputed(results: Path | None) -> PromptStudy:
    """Return the study for `stsbench reproduce`. Raises UsageError without result files."""
    if results is None:
        raise UsageError(f"--results is missing: a clone of the study's repository (git clone {REPOSITORY})")
    return prompt_sensitivity(results)


def _score_table(task: str, rows: Sequence[dict[str, Any]]) -> Table:
    quartiles = [" ".join(_number(row[key]) for key in ("lower", "median", "upper")) for row in rows]
    below = ["" if np.isnan(row["percentile"]) else f"{100 * row['percentile']:.0f}%" for row in rows]
    return Table(f"{task}: scores", [
        Column("model", [row["model"] for row in rows]), Column("n", [row["n"] for row in rows]),
        *(Column(key, [row[key] for row in rows]) for key in ("default", "mean", "sd", "error", "min")),
        Column("quartiles", quartiles), Column("max", [row["max"] for row in rows]), Column("below default", below),
    ])


def _rank_table(task: str, rows: Sequence[dict[str, Any]], count: int) -> Table:
    """Return the table of a set's ranks over prompts. count: the number of prompts that all models read."""
    spans = {name: [f"{row[f'{whose}_best']} to {row[f'{whose}_worst']}" for row in rows]
             for name, whose in (("own", "own"), ("all", "every"))}
    return Table(f"{task}: ranks, {counted(count, 'prompt')} that all models read", [
        Column("model", [row["model"] for row in rows]), Column("by default", [row["default_rank"] for row in rows]),
        Column("first alone", [float(row["first_alone"]) for row in rows], 3),
        Column("first same", [f"{row['first_same'] * count:g} of {count}" for row in rows]),
        Column("rank alone", [float(row["expected_rank_alone"]) for row in rows]),
        Column("rank same", [float(row["expected_rank_same"]) for row in rows]),
        *(Column(name, cells) for name, cells in spans.items()),
    ])


def _range_cells(bounds: RankBounds, index: int) -> list[str]:
    return [f"{bounds.own_best[index]} to {bounds.own_worst[index]}",
            f"{bounds.every_best[index]} to {bounds.every_worst[index]}"]


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value


def _bounds(rows: NDArray[np.float64], default: NDArray[np.float64]) -> RankBounds:
    return rank_bounds(np.nanmin(rows, axis=1), np.nanmax(rows, axis=1), default)


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return int ranks of scores, 1 for the best; ties share the better rank."""
    by_default: NDArray[np.int64] = 1 + (scores[None, :] > scores[:, None]).sum(axis=1)
    return by_default


def _claims(result: PromptStudy) -> tuple[Claim, ...]:
    models, study = result.study.models, result.study
    default = {**study.default, MEAN: np.mean(list(study.default.values()), axis=0)}
    bounds = {**{task: ranks[2] for task, ranks in result.ranks.items()}, MEAN: result.mean_bounds}
    before = {where: _names(models, _ranks(scores) == 1) for where, scores in default.items()}
    alone = {where: _names(models, one.own_best == 1) for where, one in bounds.items()}
    chosen = {where: _names(models, one.every_best == 1) for where, one in bounds.items()}
    risen = {where: [model for model in names if model not in before[where]] for where, names in alone.items()}
    return (
        Claim(f"by its own prompt any model can be first on the {MEAN}, the others as by default",
              len(alone[MEAN]) == len(models), f"Who can be first so: {_join(alone, models)}"),
        Claim(f"by prompts any model can be first on the {MEAN}, where the others' are chosen badly, too",
              len(chosen[MEAN]) == len(models), f"Who can be first so: {_join(chosen, models)}"),
        Claim("a model that is not first by default gets there only where the others' prompts are chosen, too",
              not any(risen.values()), f"Who gets there by its own prompt: {_join(risen, models)}"),
        *_claims_on_default(list(result.rows()), models, len(study.tasks)),
    )


def _claims_on_default(rows: Sequence[dict[str, Any]], models: Sequence[str], sets: int) -> tuple[Claim, ...]:
    above = [row["model"] for row in rows if row["default"] > row["mean"]]
    most = [model for model in models if above.count(model) > sets / 2]
    over, under = (sum(test) for test in zip(*((row["default"] > row["max"], row["default"] < row["min"]) for row in rows),
                                             strict=True))
    return (
        Claim("most models report scores above what a prompt gives on average", len(most) > len(models) / 2,
              f"Default above the mean on most sets: {len(most)} of {counted(len(models), 'model')} ({_some(most)})"),
        Claim("a score by default may be outside of all that other prompts give", over + under > 0,
              f"Of {len(rows)} defaults {over} are above every prompt's score, and {under} below"),
    )


def _names(models: Sequence[str], which: NDArray[np.bool_]) -> list[str]:
    return [model for model, there in zip(models, which, strict=True) if there]


def _join(first: dict[str, list[str]], models: Sequence[str]) -> str:
    return "; ".join(f"{where}: {'all' if len(names) == len(models) else _some(names)}" for where, names in first.items())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
