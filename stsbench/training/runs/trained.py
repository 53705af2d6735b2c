"""The functions `stsbench.train` and `stsbench.load`, and `Run`, the result of a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stsbench.data.own.source import in_users_words, is_in_memory, rows_file
from stsbench.display.table import Document, Table
from stsbench.display.tabular import RowsInFolder
from stsbench.encoders.options import EncoderOptions
from stsbench.errors import DataError, StsbenchError, warning_log
from stsbench.evaluation.options import split_names
from stsbench.evaluation.result import Result
from stsbench.notebook import TrainingBar, in_notebook
from stsbench.options import takes
from stsbench.parsing import read_json_object
from stsbench.registry import is_file_class
from stsbench.training.api.options import Options
from stsbench.training.engine.callbacks import Callbacks, TrainingCallback, checked_callbacks
from stsbench.training.recipes.methods import method_name, short_name
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import WARNING, stored_recipe
from stsbench.training.recipes.sections import OWN_PAIRS
from stsbench.training.runs.options import KEYS, RecipeOptions, TrainRequest, resolve
from stsbench.training.runs.report import LOG, read_log, seed_table, shared_line, shown_scores, shown_sd, subset_rows
from stsbench.wording import counted

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder


FilePath = str | PathLike[str]
Rows = FilePath | Iterable[Any]  # a file, the name of a set, a list, or a table
_SEVERAL = {"subsets.json": "subset-", "seeds.json": "seed-"}  # summary file -> prefix of its runs' folders
_OF_LINES = ("kind", "stage", "step", "terms", "name", "undefined")  # keys of the log's lines without a column of their own
_OF_TRAINING = ("train.json", "seeds.json", "subsets.json", "recipe.yaml")


@dataclass(repr=False)
class Run(RowsInFolder):
    """The result of a training with one seed, with several seeds, or on several subsets.

    folder: the run folder; summary: the content of its train.json (seeds.json, subsets.json), of which run["best"] is
    run.summary["best"]; failures: task of the final test -> reason. Functions that take a path or a model's name, such as
    `evaluate` and `load_encoder`, also take a Run.
    """

    meant: ClassVar = {**RowsInFolder.meant, "encode": "encoder().encode",
                       **dict.fromkeys(("save", "save_pretrained"), "encoder(), whose folder is best/"),
                       "similarity": "encoder().similarity", "model": "encoder()"}
    folder: Path
    summary: dict[str, Any]
    failures: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Return the finished run in a folder of `stsbench train` or `train`. Raises StsbenchError, one line, for another
        folder, an unfinished run or a damaged summary."""
        folder = Path(folder)
        for name in (*_SEVERAL, "train.json"):
            if (folder / name).is_file():
                run = cls(folder, read_json_object(folder / name, DataError))
                try:  # these methods read every field that is printed
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
        """Return the run of each seed, subset by subset; for a training with one seed, [self]."""
        if "subsets" in self.summary:
            return [run for number in self.summary["subsets"] for run in Run.open(self.folder / f"subset-{number}").runs]
        seeds = self.summary.get("seeds")
        return [self] if seeds is None else [Run.open(self.folder / f"seed-{seed}") for seed in seeds]

    @cached_property
    def recipe(self) -> Recipe:
        """Return the recipe of the training; of several seeds or subsets the first one's."""
        return stored_recipe(self.runs[0].folder)

    def encoder(self) -> Encoder:
        """Return the trained encoder. Raises StsbenchError for several runs, of which each in `runs` has its own."""
        from stsbench.encoders.load import load_encoder

        if len(self.runs) > 1:
            several = counted(len(self.runs), "run")
            raise StsbenchError(f"{self.folder} holds {several}: take one's encoder, such as runs[0].encoder()")
        return load_encoder(self.runs[0].folder / "best")

    @property
    def tested(self) -> Result | None:
        """Return the Result of the final test (evaluate=...); None without a test, and for several seeds."""
        if not (self.folder / "eval").is_dir():
            return None
        from stsbench.evaluation.rescore import score_again

        return score_again(self.folder / "eval")

    def plot(self) -> Sequence[Any]:
        """Plot loss, development score, learning rate and gradient norm over the steps, as `stsbench plot training` does.
        Return matplotlib's axes, whose `figure` can be saved."""
        from stsbench.display.style import shown_in_notebook, style
        from stsbench.registry import resolve

        with style():
            drawing = resolve("stsbench.pictures", "training")([self.folder])
        return list(shown_in_notebook(drawing).axes)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the log, one row for each logged step: stage, step, epoch, loss and its terms, learning rate, ..., and for
        a development score its name (dev), the score and whether it was the best; for several runs also seed and subset."""
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
        """Return tables of the development scores (before, best, after; or over seeds) and the final test, with remarks."""
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
        """Return the development score in a few words, or the number of steps where there is none."""
        if "seeds" in self.summary:
            for name, entry, digits in shown_scores(self.summary)[:1]:
                sd = "" if entry["sd"] is None else f" ± {shown_sd(entry, digits)}"
                return f"{name} {entry['mean']:.{digits}f}{sd}"
            return "no score"
        if best := self.summary["best"]:
            return f"{best['name']} {best['score']:.2f} at step {best['step']}"
        return counted(sum(self.summary["stages"].values()), "step")

    def _lines(self) -> list[list[str]]:
        """Return the cells of the scores' table, row by row, the header first."""
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
    """Return the columns and values of one line of the log."""
    cells = {key: value for key, value in line.items() if key not in _OF_LINES and not isinstance(value, dict | list)}
    if line["kind"] == "dev":
        return {"dev": line["name"], **cells}
    return {**cells, **{f"terms.{name}": value for name, value in line["terms"].items()}}


@takes(renamed={entry.name: "load_encoder, which loads a model" for entry in fields(EncoderOptions)})
def load(run: str | Path) -> Result | Run:
    """Return the result in a run folder: a Result of `evaluate` or `stsbench eval`, or a Run of `train` or `stsbench
    train`.

    run: a run folder, or the run.parquet in it. A Result's scores are computed again from its observations, as `score` does,
    so that edited scores are not trusted. Raises StsbenchError, one line, for a folder without a run, an unfinished
    training, and a damaged or edited file.

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


def _renamed() -> dict[str, str]:
    """Return an argument's name in other libraries -> what to write for `train`, taken from the command's options."""
    made = {}
    for entry in fields(RecipeOptions):
        for old, new in entry.metadata["renamed"].items():
            key = new.removeprefix("set ").partition("=")[0]
            made[old] = f"settings={{'{key}': ...}}" if new.startswith("set ") else new
    return made


@takes(renamed=_renamed())
def train(
    method: str | Options | Recipe, *, recipe: FilePath | Recipe | None = None,
    backbone: FilePath | None = None, data: Rows | None = None, labelled: Rows | None = None,
    dev: Rows | None = None, stage: str | int | None = None, start_from: FilePath | None = None,
    output: str | Path | None = None, seed: int | None = None, seeds: int | None = None, subsets: int | None = None,
    max_steps: int | None = None, settings: Mapping[str, Any] | None = None, resume: bool = False,
    device: str | None = None, dtype: str | None = None, evaluate: str | Sequence[str] = (),
    data_dir: str | Path | None = None, sample: bool = False, track: str | Sequence[str] = (), offline: bool = False,
    callbacks: TrainingCallback | Sequence[TrainingCallback] = (),
) -> Run:
    """Train a method by a recipe, as `stsbench train` does: the same words give the same recipe and the same weights.

    method: a name (`stsbench list methods`); options from stsbench.methods, such as SimCSE(temperature=0.05), whose
        explicit values override the recipe's; FILE.py:CLASS; or a Recipe, which names its method.
    recipe: a name, a YAML file or a Recipe. None: the method's default recipe, or with start_from that run's recipe.
    backbone: the model to start from: a Hub id, a folder, minilm, or a training run.
    data, labelled: training text: a file (.txt, .csv, .tsv, .jsonl), stsb/train, or rows in memory: a list of texts, of
        tuples (two texts: anchor and positive; three: and negative; two and a score), of mappings; a table of pandas,
        polars, pyarrow or datasets with the columns of such a file. Rows in memory are written to a file in the cache,
        named by their content (see stsbench.data.own.source.rows_file), and the recipe names this file.
    dev: the score that selects the weights: "sts-b dev", "avg_sts", "transfer dev", "held-out", "none", or your own scored
        pairs: a file, or rows of two texts and a score. Sets selection.by.
    stage, start_from: train this stage alone (number or name), from the weights of the run start_from.
    output: the run folder. None: runs/<time>-<method>-<recipe>, which is the Run's `folder`.
    seed: the run's seed; seeds: number of runs, with seeds counted up from it; subsets: how many times the sampled rows are
        drawn, each time for all seeds. max_steps: number of steps in each stage, at most.
    settings: any other values of the recipe, by dotted key: {"training.learning_rate": 1e-5}.
    resume: continue the stopped run in `output`. device: cpu, cuda or mps. dtype: float32, bf16 or fp16.
    evaluate: protocols that test the best encoder after training (--eval). data_dir, sample: where development and test
        data are, as for `evaluate`; sample=True without your own rows trains on the package's. track: tensorboard, wandb.
    callbacks: called during training; see stsbench.training.TrainingCallback.

    Nothing is printed; a notebook shows a progress bar, and warnings of the command are StsbenchWarnings. Raises
    StsbenchError, one line.

    >>> import stsbench
    >>> from stsbench.methods import SimCSE
    >>> texts = ["A man plays a guitar.", "A dog runs.", "Two cats sleep.", "It rains."]
    >>> stsbench.train(SimCSE(temperature=0.1), backbone="minilm", data=texts, dev="none", device="cpu", output="run")
    <Run of simcse, recipe unsup-bert-base-changed, seed 42: 1 step in run; print it for its scores>
    """
    from stsbench.training.runs.seed_runs import train_runs

    log = warning_log()
    check_counts(seeds=seeds, subsets=subsets, max_steps=max_steps)
    told = checked_callbacks(callbacks)
    words = check_request(method, recipe, settings, backbone=backbone, data=data, labelled=labelled, dev=dev)
    values = {"backbone": words.backbone, "data": words.data, "labelled": words.labelled, "seed": seed,
              "max_steps": max_steps, "dtype": dtype}
    named = {**{KEYS[name]: value for name, value in values.items()}, "selection.by": words.dev}
    request = TrainRequest(
        method=words.method, recipe=words.recipe, output=None if output is None else Path(output), values=words.values,
        settings={key: value for key, value in named.items() if value is not None}, resume=resume, device=device,
        data_dir=None if data_dir is None else Path(data_dir), sample=sample, offline=offline,
        trackers=as_tuple(track, "track"), evaluate=as_tuple(split_names(evaluate), "evaluate"), stage=stage,
        start_from=None if start_from is None else Path(path_word(start_from, "start_from")),
    )
    bar = TrainingBar() if in_notebook() else None
    told += [bar] if bar else []
    chosen = None
    try:
        with in_users_words(words.files):
            chosen, on_sample = resolve(request, log)
            if output is None:
                chosen = replace(chosen, output=chosen.output.absolute())  # the working folder may change
            summary = train_runs(chosen, seeds, subsets, log, Callbacks(told) if told else None)
    except KeyboardInterrupt as error:
        if chosen is not None and any(chosen.output.glob("**/checkpoints/[0-9]*")):
            error.add_note(f"stopped; go on with output={str(chosen.output)!r}, resume=True")
        raise
    finally:
        if bar is not None:
            bar.close()
    run = replace(Run.open(chosen.output), failures=summary.get("failures", {}))
    for line in [*([WARNING] if on_sample else []), *(f"warning: {line}" for line in run.omissions())]:
        log(line)
    return run


@dataclass(frozen=True)
class TrainingRequest:
    """Checked arguments of `train`. values: settings by dotted key; files: argument -> the file of its rows in memory."""

    method: str
    recipe: str | Recipe | None
    values: dict[str, Any]
    backbone: str | None
    data: str | None
    labelled: str | None
    dev: str | None
    files: dict[str, str] = field(default_factory=dict)


def check_request(
    method: str | Options | Recipe, recipe: FilePath | Recipe | None, settings: Mapping[str, Any] | None, *,
    backbone: FilePath | None, data: Rows | None, labelled: Rows | None, dev: Rows | None,
) -> TrainingRequest:
    """Return the arguments as names and paths, with rows in memory written to files. Raises StsbenchError, one line, for an
    invalid method or settings, and for rows that cannot be written."""
    if settings is not None and not isinstance(settings, Mapping):
        raise StsbenchError(f"settings must be dotted key -> value, and not of type {type(settings).__name__}")
    name, recipe, options = _method(method, recipe)
    if twice := sorted({*(settings or {})} & {*options}):
        raise StsbenchError(f"{twice[0]} is set twice: in settings, and among the method's options")
    sections = {"data": data, "labelled": labelled, "dev": dev}
    files = {key: str(rows_file(rows, key)) for key, rows in sections.items() if rows is not None and is_in_memory(rows)}
    words = {key: None if rows is None else files.get(key) or fspath(rows) for key, rows in sections.items()}  # type: ignore[arg-type]  # no rows in memory are left
    if (pairs := words.pop("dev")) is not None and Path(pairs).expanduser().is_file():
        pairs = f"{OWN_PAIRS}{pairs}"
    return TrainingRequest(
        name, recipe if isinstance(recipe, Recipe) or recipe is None else path_word(recipe, "recipe"),
        {**options, **(settings or {})}, None if backbone is None else path_word(backbone, "backbone"), **words, dev=pairs,
        files=files,
    )


def _method(
    method: str | Options | Recipe, recipe: FilePath | Recipe | None
) -> tuple[str, FilePath | Recipe | None, dict[str, Any]]:
    """Return the method's name, the recipe, and the options that the user set explicitly, by dotted key."""
    if isinstance(method, Recipe):
        if recipe is not None:
            raise StsbenchError("two recipes: give the method's name first, or leave recipe out")
        if is_file_class(method.method):  # the recipe may be untrusted: no file runs because it names it
            raise StsbenchError(f"the recipe is of a Python file: name it, too: '{method.method}', recipe=...")
        return method.method, method, {}
    if isinstance(method, Options):
        written = method.model_dump(mode="json", include=method.model_fields_set)
        return method_name(method), recipe, {f"options.{name}": value for name, value in written.items()}
    if not isinstance(method, str):
        kind = getattr(method, "__name__", type(method).__name__)
        raise StsbenchError(f"a method is a name, FILE.py:CLASS, options of stsbench.methods or a recipe, and not a {kind}")
    return method, recipe, {}


def check_counts(**counts: int | None) -> None:
    """Raise StsbenchError for a count that is not a whole number from 1 on; None is allowed."""
    for name, count in counts.items():
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise StsbenchError(f"{name} must be a whole number from 1 on, not {count!r}")


def as_tuple(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    """Return names, or a single one, as a tuple. Raises StsbenchError, naming the option, for anything else."""
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if stray := [word for word in words if not isinstance(word, str)]:
        raise StsbenchError(f"{option} must be a name or a list of names, not {stray[0]!r}")
    return words


def path_word(value: FilePath, option: str) -> str:
    """Return a path or a name as text. Raises StsbenchError, naming the option, for a value of another type."""
    try:
        return fspath(value)
    except TypeError:
        raise StsbenchError(f"{option}={value!r}: must be a path or a name, not of type {type(value).__name__}") from None
