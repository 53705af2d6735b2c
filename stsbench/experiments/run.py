"""A training that has ended, as an object: its scores, its log, its picture, the encoder and the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stsbench.display.table import Document, Table
from stsbench.display.tabular import RowsInFolder
from stsbench.encoders.options import EncoderOptions
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.result import Result
from stsbench.options import takes
from stsbench.parsing import read_json_object
from stsbench.training.recipes.methods import short_name
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import stored_recipe
from stsbench.training.runs.report import LOG, read_log, seed_table, shared_line, shown_scores, shown_sd, subset_rows
from stsbench.wording import counted

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder
    from stsbench.evaluation.result import Result

_SEVERAL = {"subsets.json": "subset-", "seeds.json": "seed-"}  # file -> the beginning of its runs' folders
_OF_LINES = ("kind", "stage", "step", "terms", "name", "undefined")  # keys of the log's lines that are no columns
_OF_TRAINING = ("train.json", "seeds.json", "subsets.json", "recipe.yaml")


@dataclass(repr=False)
class Run(RowsInFolder):
    """What a training gave, of one seed, of several, or of several subsets.

    folder: the run folder; summary: what its train.json (seeds.json, subsets.json) holds, and run["best"] is
    run.summary["best"]; failures: task of the final test -> reason. Wherever a path or a model's name is meant, such as in
    `evaluate` and `load_encoder`, a Run stands for its folder.
    """

    meant: ClassVar = {**RowsInFolder.meant, "encode": "encoder().encode",
                       **dict.fromkeys(("save", "save_pretrained"), "encoder(), whose folder is best/"),
                       "similarity": "encoder().similarity", "model": "encoder()"}
    folder: Path
    summary: dict[str, Any]
    failures: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Return the finished run in a folder of `stsbench train` or `train`. Raises StsbenchError, one line, for any
        other."""
        folder = Path(folder)
        for name in (*_SEVERAL, "train.json"):
            if (folder / name).is_file():
                run = cls(folder, read_json_object(folder / name, DataError))
                try:  # what is printed of it reads all of its fields
                    run._lines(), run._label(), run._score(), run._remarks()
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise DataError(f"{folder / name} holds no summary of a run: {error!r}") from error
                return run
        if any(folder.glob("**/recipe.yaml")):
            raise StsbenchError(f"{folder} has not finished training: go on with resume=True (--resume)")
        raise StsbenchError(f"{folder} is not a run folder of `stsbench train`")

    def __getitem__(self, key: str) -> Any:
        return self.summary[key]

    @property
    def runs(self) -> list[Run]:
        """Return each seed's run, subset by subset; of one seed itself."""
        if "subsets" in self.summary:
            return [run for number in self.summary["subsets"] for run in Run.open(self.folder / f"subset-{number}").runs]
        seeds = self.summary.get("seeds")
        return [self] if seeds is None else [Run.open(self.folder / f"seed-{seed}") for seed in seeds]

    @cached_property
    def recipe(self) -> Recipe:
        """Return what it was trained by; of several seeds that of the first."""
        return stored_recipe(self.runs[0].folder)

    def encoder(self) -> Encoder:
        """Return the encoder that was kept. Raises StsbenchError for several seeds: each of `runs` has its own."""
        from stsbench.encoders.load import load_encoder

        if len(self.runs) > 1:
            several = counted(len(self.runs), "run")
            raise StsbenchError(f"{self.folder} holds {several}: take one's encoder, such as runs[0].encoder()")
        return load_encoder(self.runs[0].folder / "best")

    @property
    def tested(self) -> Result | None:
        """Return what the final test (evaluate=...) measured; None without one, and of several seeds."""
        if not (self.folder / "eval").is_dir():
            return None
        from stsbench.evaluation.rescore import score_again

        return score_again(self.folder / "eval")

    def plot(self) -> Sequence[Any]:
        """Return loss, development score, learning rate and gradient norm over the steps, as `stsbench plot training`
        draws them: matplotlib's axes, whose `figure` can be saved."""
        from stsbench.display.style import shown_in_notebook, style
        from stsbench.registry import resolve

        with style():
            drawing = resolve("stsbench.pictures", "training")([self.folder])
        return list(shown_in_notebook(drawing).axes)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the log, a row a step: stage, step, epoch, loss and its terms, learning rate, ..., and of a development
        score its name (dev), the score and whether it was the best; of several runs also seed and subset."""
        rows: list[dict[str, Any]] = []
        for run in self.runs:
            folder = run.folder.relative_to(self.folder)
            of = {part.split("-")[0]: int(part.split("-")[1]) for part in folder.parts}
            by_step: dict[tuple[str, int], dict[str, Any]] = {}
            for line in read_log(run.folder / LOG):
                if line["kind"] in ("train", "dev"):
                    start = {**of, "stage": line["stage"], "step": line["step"]}
                    by_step.setdefault((line["stage"], line["step"]), start).update(_cells(line))
            rows += by_step.values()
        return rows

    def as_json(self) -> dict[str, Any]:
        """Return the summary."""
        return self.summary

    def __repr__(self) -> str:
        of = f"{short_name(self.recipe.method)}, recipe {self.recipe.name}"
        return f"<Run of {of}, {self._label()}: {self._score()} in {self.folder}; print it for its scores>"

    def document(self) -> Document:
        """Return the scores, before, best and after, or over seeds; the final test; and what must be known of them."""
        header, *lines = self._lines()
        title = f"{short_name(self.recipe.method)}, recipe {self.recipe.name}, {self._label()}"
        tested = self.tested
        test = Document() if tested is None else tested.document()
        below = [*test.below, *(tested.omissions() if tested else []), *self._remarks()]
        return Document([Table.from_rows(title, header, lines), *test.tables], below=below)

    def _label(self) -> str:
        numbers = {key[:-1]: self.summary[key] for key in ("subsets", "seeds") if key in self.summary}
        return ", ".join(counted(len(listed), name) for name, listed in numbers.items()) or f"seed {self.summary['seed']}"

    def _score(self) -> str:
        """Return the development score in a few words, or how many steps there were."""
        if "seeds" in self.summary:
            for name, entry, digits in shown_scores(self.summary)[:1]:
                sd = "" if entry["sd"] is None else f" ± {shown_sd(entry, digits)}"
                return f"{name} {entry['mean']:.{digits}f}{sd}"
            return "no score"
        if best := self.summary["best"]:
            return f"{best['name']} {best['score']:.2f} at step {best['step']}"
        return counted(sum(self.summary["stages"].values()), "step")

    def _lines(self) -> list[list[str]]:
        """Return lines of cells, the header first."""
        if "subsets" in self.summary:
            return [["score", "mean", "sd of runs", "n", "sd of subsets"], *map(list, seed_table(self.summary))]
        if "seeds" in self.summary:
            seeds = [str(seed) for seed in self.summary["seeds"]]
            lines = [["score", "mean", "sd", "n", *(f"seed {seed}" for seed in seeds)]]
            for name, entry, digits in shown_scores(self.summary):
                values = {str(seed): f"{value:.{digits}f}" for seed, value in entry["values"].items()}
                lines.append([name, f"{entry['mean']:.{digits}f}", shown_sd(entry, digits), str(entry["n"]),
                              *(values.get(seed, "") for seed in seeds)])
            return lines
        best = self.summary["best"]
        steps = ", ".join(f"{stage} {count:,}" for stage, count in self.summary["stages"].items())
        digits = 4 if self.summary["selected_by"].startswith("held-out") else 2
        scores = [self.summary["before"], best["score"] if best else None, self.summary["after"]]
        before, kept, after = ("–" if score is None else f"{score:.{digits}f}" for score in scores)
        step = f"{best['stage']} {best['step']:,}" if best else "–"
        return [["score", "before", "best", "at", "after", "steps"],
                [self.summary["selected_by"], before, kept, step, after, steps]]

    def _remarks(self) -> list[str]:
        shared = shared_line(self.summary) if "seeds" in self.summary else None
        rows = subset_rows(self.summary) if "subsets" in self.summary else []
        return [*rows, *([shared] if shared else [])]

    def omissions(self) -> list[str]:
        """Return a line for each task of the final test that failed, and why."""
        return [f"failed: {task}: {why}" for task, why in self.failures.items()]


def _cells(line: dict[str, Any]) -> dict[str, Any]:
    """Return what a line of the log has for a table."""
    cells = {key: value for key, value in line.items() if key not in _OF_LINES and not isinstance(value, dict | list)}
    if line["kind"] == "dev":
        return {"dev": line["name"], **cells}
    return {**cells, **{f"terms.{name}": value for name, value in line["terms"].items()}}


@takes(renamed={entry.name: "load_encoder, which loads a model" for entry in fields(EncoderOptions)})
def load(run: str | Path) -> Result | Run:
    """Return what made a run, from its folder: the Result of `evaluate` or `stsbench eval`, the Run of `train` or `stsbench
    train`.

    run: a run folder, or the run.parquet in it. A Result's scores are computed from its observations, as `score` does, so
    that nothing edited is taken for a score. Raises StsbenchError, one line: no run, a training that has not ended, a file
    that is damaged or was edited.

    >>> import stsbench
    >>> run = stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0, output="run")
    >>> stsbench.load("run").rows == run.rows
    True
    """
    from stsbench.evaluation.rescore import score_again
    from stsbench.evaluation.run_file import run_folder

    folder = run_folder(run)
    if any((folder / name).is_file() for name in _OF_TRAINING):
        return Run.open(folder)
    result = score_again(folder)
    result.read_missing()
    return result
