"""Shell commands that reproduce a published row, and the models, data and hardware that are missing to run them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from stsbench.data.fetch.sources import NAMED
from stsbench.data.sets.catalog import entries
from stsbench.errors import DataError, StsbenchError
from stsbench.leaderboard.records.publications import Heading, PublishedRow
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import shipped_recipe

from .ways import Way

SUBSETS, SEEDS = 5, 3  # DiffAug's Table 2 has 5 subsets with 3 seeds; rows of all labels have 3 seeds
NO_LABELS = "0 %"  # the column of the unsupervised method, which is a single run
_MODELS = ("generator", "replacer")  # options of methods whose value is another model


def protocol_option(heading: Heading) -> str | None:
    """Return the value of --protocol or --eval for a table's figures; None where training itself computes them, or they are
    costs."""
    if heading.protocol in ("sts", "few-labels"):
        return {None: "sts:all", "unknown": "sts"}.get(heading.aggregation, f"sts:{heading.aggregation}")
    if heading.protocol == "dev":
        return "transfer" if heading.task == "transfer" else None
    return None if heading.protocol == "cost" else heading.protocol


def commands(row: PublishedRow, way: Way, data_dir: Path | None) -> list[str]:
    """Return the row's shell commands, in order. data_dir: the --data-dir of the commands, if any."""
    protocol = protocol_option(row.heading)
    data_options = [] if data_dir is None else ["--data-dir", str(data_dir)]
    lines = []
    for name in way.recipes:
        words = ["stsbench", "train", *_recipe(row, way, name)]
        if way.eval is None and protocol:
            words += ["--eval", protocol]
        if way.eval is not None:
            words += ["--output", "RUN"]
        lines.append([*words, *data_options])
    if way.eval is not None:
        model = ["--model", "RUN"] if way.recipe else []
        lines.append(["stsbench", "eval", *model, *shlex.split(way.eval), "--protocol", protocol or "all", *data_options])
    if way.checkpoint is not None:
        lines.append(["stsbench", "eval", *shlex.split(way.checkpoint), "--protocol", protocol or "all", *data_options])
    return [shlex.join(words) for words in lines]


def _recipe(row: PublishedRow, way: Way, name: str) -> list[str]:
    """Return the arguments of `stsbench train`: METHOD --recipe NAME, the training text, and the seeds of the row's mean."""
    method, _, short = name.partition("/")
    words = [method, "--recipe", short]
    try:
        recipe = shipped_recipe(name)
    except StsbenchError:
        return words
    if recipe.data.file and not known_data(recipe.data.file):
        words += ["--data", Path(recipe.data.file).name]
    if recipe.labelled and recipe.labelled.file and not known_data(recipe.labelled.file):
        words += ["--labelled", Path(recipe.labelled.file).name]
    if row.heading.protocol == "few-labels":
        if any(part is not None and part.share < 1 for part in (recipe.data, recipe.labelled)):
            return [*words, "--subsets", str(SUBSETS), "--seeds", str(SEEDS)]
        return words if way.column_recipe(NO_LABELS) == name else [*words, "--seeds", str(SEEDS)]
    return [*words, "--seeds", str(row.runs)] if row.runs and row.runs > 1 else words


def known_data(name: str) -> tuple[str, ...]:
    """Return the ids of the catalog's sets that a recipe's `data.file` stands for; () where it is the name of a file."""
    if name in NAMED:
        return NAMED[name].sets
    return tuple(item.id for item in entries("senteval") if item.id == name)


class Surroundings:
    """The data, models and hardware available on this machine; each is searched for once. data_dir: as --data-dir."""

    def __init__(self, data_dir: Path | None) -> None:
        self.data_dir = data_dir
        self._sets: dict[str, bool] = {}

    def missing(self, way: Way, heading: Heading) -> list[str]:
        """Return a line for each missing requirement of a row, most important first; [] where its commands can be run."""
        if way.missing is not None:
            return [way.missing]
        lines: list[str] = []
        for name in way.recipes:
            try:
                lines += self._of_recipe(shipped_recipe(name))
            except StsbenchError as error:
                lines.append(str(error))
        for line in filter(None, (way.eval, way.checkpoint)):
            lines += self._of_eval(line)
        lines += self._of_protocol(heading)
        return list(dict.fromkeys(lines))

    @cached_property
    def has_cuda(self) -> bool:
        """Return whether torch finds a CUDA device."""
        from stsbench.training.recipes.recipes import lacks_fp16

        return not lacks_fp16(None)

    @cached_property
    def eval_options(self) -> set[str]:
        """Return the options of `stsbench eval`."""
        from stsbench.cli.eval import evaluate

        return {word for option in evaluate.params for word in option.opts}

    def _of_recipe(self, recipe: Recipe) -> Iterator[str]:
        further = [recipe.options[key] for key in _MODELS if recipe.options.get(key)]
        for model in (recipe.backbone.model, *further):
            yield from _model(model)
        labelled = recipe.labelled.file if recipe.labelled else None
        for file, what in ((recipe.data.file, "training text"), (labelled, "labelled rows"),
                           (recipe.options.get("thesaurus"), "thesaurus")):
            if file and (sets := known_data(file)):
                yield from self._data({id: id for id in sets})
            elif file and not (what == "labelled rows" and file == recipe.data.file):
                yield from _file(file, what)
        if recipe.selection.by == "sts-b dev":
            yield from self._data({"STS-B dev": "stsb/dev"})
        elif recipe.selection.by == "transfer dev":
            yield from self._data(_tasks("transfer"))
        if recipe.precision == "fp16" and not self.has_cuda:
            yield "a CUDA device for fp16: without one it is trained in float32, which is another recipe"

    def _of_eval(self, line: str) -> Iterator[str]:
        words = shlex.split(line)
        options = {word: value for word, value in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}
        for option in options:
            if option not in self.eval_options:
                yield f"`stsbench eval` has no {option} in this version"
        model = options.get("--model", "")
        kind, _, argument = model.partition(":")
        if kind == "words":
            yield from _file(argument, "word vectors")
        elif model:
            yield from _model(model)
        if (fit_on := options.get("--fit-on", "target")) != "target":
            yield from _file(fit_on, "texts to fit on")

    def _of_protocol(self, heading: Heading) -> Iterator[str]:
        protocol = protocol_option(heading)
        if protocol is None:
            return
        tasks = _tasks(protocol.partition(":")[0])
        named = {task: id for task, id in tasks.items() if task in heading.columns}
        yield from self._data(named or tasks)

    def _data(self, sets: dict[str, str]) -> Iterator[str]:
        """Yield a line that names the sets (name -> id) that are not found on this machine; nothing if all are found."""
        if lacking := [name for name, id in sets.items() if not self._has(id)]:
            yield f"data of {', '.join(lacking)}: --data-dir DIR, or stsbench data fetch"

    def _has(self, id: str) -> bool:
        from stsbench.data.fetch.sources import locate
        from stsbench.data.sets.catalog import entry

        if id not in self._sets:
            try:
                self._sets[id] = bool(locate(entry(id), data_dir=self.data_dir, offline=True))
            except DataError:
                self._sets[id] = False
        return self._sets[id]


def _tasks(protocol: str) -> dict[str, str]:
    """Return task -> set id of a protocol by default: the tasks of its average, if it has one, else all."""
    from stsbench.evaluation.protocol import load_protocol

    made = load_protocol(protocol)({})
    return {task: id for task, id in made.tasks().items() if not made.averaged or task in made.averaged}


def _file(name: str, purpose: str) -> Iterator[str]:
    if not Path(name).is_file():
        yield f"{purpose} {name}: there is no such file here"


def _model(name: str) -> Iterator[str]:
    from huggingface_hub import try_to_load_from_cache

    if not Path(name).is_dir() and not isinstance(try_to_load_from_cache(name, "config.json"), str):
        yield f"the model {name}: fetched from the Hub when it is run"
