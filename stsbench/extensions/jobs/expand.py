"""Expand a plan into its jobs, each after those that it depends on."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from stsbench.config import parse_yaml, shorten
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.plan_file import DATA_DIR, JOB, EvalGroup, Plan, TrainGroup
from stsbench.registry import did_you_mean, is_file_class

DIGITS = 10  # hex digits of a digest in a name
MOST_JOBS = 5_000  # jobs of a plan or a sweep; benchmarks/zoo.yaml has some 200
DEEPEST = 100  # length of a chain of groups of a plan, each of which starts from the one before
FILES = ("data.file", "labelled.file")  # settings of a recipe that name training text
PYTHON = "python:"  # before a callable that an evaluation imports
_DESCRIPTIVE = {"name", "description", "source", "published"}  # keys of a recipe without an effect on the training


@dataclass(frozen=True)
class Job:
    """One `stsbench train` or `stsbench eval`.

    name: group, what varies in it, and seed; words: the command without `stsbench` and --output, another job's run written
    as job:ID; needs: ids of the jobs that it depends on; digest: sha256, hex; reads: other files that it reads; protocols,
    tasks, settings, text: what an evaluation measures (settings as of evaluation.plan); backbone: the training's backbone,
    None where it is another job's run.
    """

    name: str
    group: str
    kind: Literal["train", "eval"]
    words: tuple[str, ...]
    digest: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    seed: int | None = None
    protocols: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    text: str = "senteval"
    backbone: str | None = None

    @property
    def id(self) -> str:
        """Return the name of its run folder."""
        return f"{self.name}-{self.digest[:DIGITS]}"

    def folder(self, output: Path) -> Path:
        """Return its run folder."""
        return output / self.id

    def command(self, output: Path, *more: str) -> list[str]:
        """Return the command's words after `stsbench`."""
        words = [_with(word, {id: str(output / id) for id in self.needs}) for word in self.words]
        return [*words, "--output", str(self.folder(output)), *more]

    def line(self, output: Path) -> str:
        """Return the command line, quoted for a shell."""
        return shlex.join(["stsbench", *self.command(output)])


def job_digest(words: Sequence[str], recipe: Mapping[str, Any] | None, needs: Mapping[str, str]) -> str:
    """Return sha256 over a job's words, all values of its recipe, and the digests of the jobs it depends on (id -> digest).

    Where run folders lie does not enter: a plan's output may be moved. Nor does --offline, which changes no result.
    """
    known = {id: f"{JOB}{digest}" for id, digest in needs.items()}
    hashed = [[_with(word, known) for word in words if word != "--offline"], recipe]
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def _with(word: str, values: Mapping[str, str]) -> str:
    """Return a word with each job:ID replaced by the value that `values` has for the id; the word is job:ID itself, or a
    setting that contains it."""
    if word.startswith(JOB):
        return values.get(word.removeprefix(JOB), word)
    for id, text in values.items():
        word = word.replace(f"{JOB}{id}", json.dumps(text)[1:-1])  # the word may be a list in JSON
    return word


def expand(plan: Plan, where: str, allowed: Iterable[str] = ()) -> list[Job]:
    """Return the jobs of a plan: trainings, then evaluations, each after those that it depends on.

    where: the plan file, for messages; allowed: code that the plan may name, spelled as in the plan (FILE.py:CLASS,
    python:MODULE:CALLABLE), since a plan may be by another author. Recipes are read, torch is not imported. Raises
    StsbenchError, one line that names file and key, for other code, the name of an unknown job, jobs that depend on each
    other in a circle, an invalid recipe, two jobs with the same command, more than MOST_JOBS.
    """
    _refuse_code(plan, where, allowed)
    if (count := job_count(plan, where)) > MOST_JOBS:
        raise StsbenchError(f"{where}: it has {count:,} jobs, and a plan may have {MOST_JOBS:,}: make several of it")
    jobs = _Expansion(plan, where).jobs()
    by_digest: dict[str, Job] = {}
    for job in jobs:
        if (other := by_digest.setdefault(job.digest, job)) is not job:
            raise StsbenchError(f"{where}: {other.name} and {job.name} are one command: leave one out")
    return jobs


def _refuse_code(plan: Plan, where: str, allowed: Iterable[str]) -> None:
    """Raise StsbenchError for a Python file or callable that the plan names and that is not in `allowed`."""
    from stsbench.training.recipes.methods import canonical

    methods = [(f"train.{name}", method) for name, group in plan.train.items() for method in group.method]
    models = [(f"eval.{name}", model.replace(DATA_DIR, plan.defaults.data_dir or "", 1))
              for name, group in plan.eval.items() for model in group.model]
    code = [pair for pair in methods if is_file_class(pair[1])] + [pair for pair in models if pair[1].startswith(PYTHON)]
    known = {canonical(entry) for entry in allowed}
    for group, name in code:
        if canonical(name) not in known:
            raise StsbenchError(
                f"{where}: {group} names code, {shorten(name)}: it is run only where the command names it, too: "
                f"--allow {name}"
            )


def job_count(plan: Plan, where: str) -> int:
    """Return how many jobs a plan has, computed without making them. Raises StsbenchError for too long a chain of groups."""
    known: dict[str, int] = {}

    def variants(text: str | None, above: tuple[str, ...] = ()) -> int:
        """Return how many trainings, counted once for all seeds, a model or an earlier run stands for."""
        name = text.removeprefix(JOB) if text is not None and text.startswith(JOB) else ""
        if name not in plan.train or name in above:  # a model, one job, or a circle, which is refused later
            return 1
        if len(above) > DEEPEST:
            raise StsbenchError(f"{where}: train.{name}: more than {DEEPEST} groups go on from one another")
        if name not in known:
            group, way = plan.train[name], (*above, name)
            models = sum(variants(model, way) for model in group.backbone or (None,))
            known[name] = len(group.method) * len(group.recipe or (None,)) * models * variants(group.start_from, way)
        return known[name]

    def of_group(text: str) -> int:
        group = plan.train.get(text.removeprefix(JOB)) if text.startswith(JOB) else None
        return variants(text) * (len(group.seeds or plan.defaults.seeds) if group else 1)

    tests = (len(group.protocols) * sum(map(of_group, group.model)) for group in plan.eval.values())
    return sum(of_group(f"{JOB}{name}") for name in plan.train) + sum(tests)


def command_words(options: Mapping[str, Any]) -> list[str]:
    """Return a command's options as words: None is left out, False becomes --no-NAME, a mapping repeats --NAME KEY=VALUE."""
    words: list[str] = []
    for key, value in options.items():
        option = f"--{key.replace('_', '-')}"
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                words += [option, f"{name}={as_text(inner)}"]
        elif isinstance(value, tuple):
            words += [option, ",".join(value)]
        else:
            words += [option, str(value)]
    return words


def as_text(value: Any) -> str:
    """Return a value as text that --set parses back to it: plain words as they are, anything else as JSON."""
    if isinstance(value, str) and value:
        try:
            plain = parse_yaml(value, "") == value
        except StsbenchError:
            plain = False
        return value if plain else json.dumps(value)
    return json.dumps(value)


def plain(name: str) -> str:
    """Return a name as part of a file name: other characters than letters, digits, `_`, `.` and `-` become `-`."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "x"


class _Expansion:
    """Expands a plan into jobs group by group, a group's dependencies first."""

    def __init__(self, plan: Plan, where: str) -> None:
        self.plan, self.where = plan, where
        self._groups: dict[str, list[Job]] = {}
        self._open: list[str] = []  # groups of trainings that are being expanded

    def jobs(self) -> list[Job]:
        for name in self.plan.train:
            self._trainings(name)
        trained = [job for group in self._groups.values() for job in group]
        return trained + [job for name, group in self.plan.eval.items() for job in self._evaluations(name, group)]

    def _trainings(self, name: str) -> list[Job]:
        if name in self._groups:
            return self._groups[name]
        if name in self._open:
            raise StsbenchError(f"{self.where}: train.{name}: jobs run in a circle: {' -> '.join([*self._open, name])}")
        self._open.append(name)
        group = self.plan.train[name]
        models = [pair for model_name in group.backbone or (None,) for pair in self._variants(name, "backbone", model_name)]
        starts = self._variants(name, "start_from", group.start_from)
        made = []
        for method, recipe, (model, of_model), (start, of_start) in product(
            group.method, group.recipe or (None,), models, starts
        ):
            parts = [(method, group.method), (recipe, group.recipe or ()), (model, models), (start, starts)]
            label = self._label(name, parts)
            for seed in group.seeds or self.plan.defaults.seeds:
                needs = [_of_seed(jobs, seed, f"{self.where}: train.{name}") for jobs in (of_model, of_start) if jobs]
                references = [f"{JOB}{job.id}" for job in needs]
                backbone = references[0] if of_model else self._path(model)
                start_from = references[-1] if of_start else start
                made.append(self._training(name, group, label, seed, method, recipe, backbone, start_from, needs))
        self._open.pop()
        self._groups[name] = made
        return made

    def _training(
        self, name: str, group: TrainGroup, label: str, seed: int, method: str, recipe: str | None, backbone: str | None,
        start_from: str | None, needs: Sequence[Job],
    ) -> Job:
        from stsbench.training.recipes.methods import method_file
        from stsbench.training.recipes.recipe import OPERATIONAL
        from stsbench.training.recipes.recipes import load_recipe

        shared = self.plan.defaults
        data, labelled = self._path(group.data), self._path(group.labelled)
        sets, read = self._settings(name, {**(shared.set if group.default_set else {}), **group.set}, seed)
        dtype = group.dtype or shared.dtype
        words = ["train", method, *command_words({
            "recipe": self._path(recipe), "backbone": backbone, "data": data, "labelled": labelled, "stage": group.stage,
            "from": start_from, "max_steps": group.max_steps, "set": sets, "seed": seed,
            "device": group.device or shared.device, "dtype": dtype, **self._everywhere(),
        })]
        named = {
            "backbone.model": backbone, "data.file": data, "labelled.file": labelled, "seed": seed, "precision": dtype,
            "training.max_steps": group.max_steps,
        }
        overrides = command_words({"set": sets})[1::2]
        start = backbone or sets.get("backbone.model")
        files = [file for file in (data, labelled, *(sets.get(key) for key in FILES)) if isinstance(file, str)]
        try:
            resolved = load_recipe(method, self._path(recipe), overrides, {k: v for k, v in named.items() if v is not None})
            values = _without_later(resolved.model_dump(mode="json", exclude=_DESCRIPTIVE | OPERATIONAL))
            values["backbone"]["model"] = None if needs else values["backbone"]["model"]  # in the words, by its digest
            values = _by_digest(values, read)
            values |= method_file(resolved.method)
        except StsbenchError as error:
            raise StsbenchError(f"{self.where}: train.{name}: {error}") from error
        known = {job.id: job.digest for job in (*needs, *read)}
        digested = [word for at, word in enumerate(words)
                    if words[at + (word == "--set")].partition("=")[0] not in OPERATIONAL]
        return Job(
            f"{label}-{seed}", name, "train", tuple(words), job_digest(digested, values, known), tuple(known), tuple(files),
            seed, backbone=None if needs else start,
        )

    def _settings(self, name: str, sets: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], list[Job]]:
        """Return the settings with each job:NAME (a teacher, for example) replaced by job:ID, and the jobs named."""
        jobs: list[Job] = []

        def known(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: known(part) for key, part in value.items()}
            if isinstance(value, list | tuple):
                return [known(part) for part in value]
            if not (isinstance(value, str) and value.startswith(JOB)):
                return value
            jobs.append(_of_seed(self._referred(f"train.{name}.set", value), seed, f"{self.where}: train.{name}"))
            return f"{JOB}{jobs[-1].id}"

        return known(sets), jobs

    def _evaluations(self, name: str, group: EvalGroup) -> Iterable[Job]:
        shared = self.plan.defaults
        settings = self._measured_settings(name, group)
        for model in group.model:
            tested = self._referred(f"eval.{name}.model", model) if model.startswith(JOB) else [None]
            for job, protocols in product(tested, group.protocols):
                tested_model = self._path(model) if job is None else f"{JOB}{job.id}"
                words = ["eval", *command_words({
                    "model": tested_model, "protocol": protocols, **group.options, "set": group.set,
                    "device": group.device or shared.device, **self._everywhere(),
                })]
                label = ".".join([name, plain(model) if job is None else job.name])
                if len(group.protocols) > 1:
                    label += f".{plain(protocols)}"
                needs = [] if job is None else [job]
                yield Job(
                    label, name, "eval", tuple(words), job_digest(words, None, {need.id: need.digest for need in needs}),
                    tuple(need.id for need in needs), (), job.seed if job else None, _split(protocols),
                    group.options["tasks"], settings, group.options["text"] or "senteval",
                )

    def _measured_settings(self, name: str, group: EvalGroup) -> dict[str, dict[str, Any]]:
        """Return protocol -> setting -> value of the group. Raises StsbenchError for an unknown protocol, task or setting,
        which `eval` would refuse only after the training it waits for."""
        from stsbench.evaluation.plan import named_settings, plan

        try:
            columns, tasks = group.options["columns"], group.options["tasks"]
            settings = named_settings(group.set, {} if columns is None else {"columns": columns})
            for protocols in group.protocols:
                plan(_split(protocols), tasks, settings, absent=True)  # a user's folder or file may still be made
        except StsbenchError as error:
            raise StsbenchError(f"{self.where}: eval.{name}: {error}") from error
        return settings

    def _everywhere(self) -> dict[str, Any]:
        shared = self.plan.defaults
        flags = {name: True for name in ("sample", "offline") if getattr(shared, name)}
        return {"data_dir": shared.data_dir, **flags}

    def _path(self, text: str | None) -> str | None:
        """Return a path with {data_dir} replaced by the data folder."""
        if text is None or DATA_DIR not in text:
            return text
        if self.plan.defaults.data_dir is None:
            raise StsbenchError(f"{self.where}: {text} needs defaults.data_dir, or --data-dir")
        return text.replace(DATA_DIR, self.plan.defaults.data_dir, 1)

    def _variants(self, name: str, key: str, text: str | None) -> list[tuple[str | None, list[Job]]]:
        """Return (name, jobs) pairs for a model or an earlier run: itself without jobs, or for job:NAME one pair per
        training, with its jobs of all seeds."""
        if text is None or not text.startswith(JOB):
            return [(text, [])]
        variants: dict[str, list[Job]] = {}
        for job in self._referred(f"train.{name}.{key}", text):
            variants.setdefault(job.name.rpartition("-")[0], []).append(job)
        return list(variants.items())

    def _referred(self, key: str, text: str) -> list[Job]:
        """Return the trainings that job:NAME refers to: all of a group, or the one of this name."""
        name = text.removeprefix(JOB)
        if name in self.plan.train:
            return self._trainings(name)
        group = max((candidate for candidate in self.plan.train if name.startswith(candidate)), key=len, default=None)
        jobs = [job for job in self._trainings(group) if job.name == name] if group else []
        if not jobs:
            known = [*self.plan.train, *(job.name for job in self._groups.get(group or "", []))]
            raise StsbenchError(f"{self.where}: {key}: there is no training {name}{did_you_mean(name, known)}")
        return jobs

    def _label(self, name: str, parts: Sequence[tuple[Any, Sequence[Any]]]) -> str:
        """Return the group's name, and what varies in it."""
        varying = [Path(str(value)).name.removesuffix(".yaml") for value, among in parts if len(among) > 1]
        return ".".join([name, *map(plain, varying)])


def _of_seed(jobs: Sequence[Job], seed: int, where: str) -> Job:
    """Of the same training with several seeds the one of this seed; one alone is for all."""
    if len(jobs) == 1:
        return jobs[0]
    if match := [job for job in jobs if job.seed == seed]:
        return match[0]
    seeds = ", ".join(str(job.seed) for job in jobs)
    raise StsbenchError(f"{where}: {jobs[0].group} has no seed {seed}, but {seeds}")


def _without_later(values: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe's values without those keys of LATER whose value is LATER's."""
    from stsbench.training.recipes.recipe import LATER

    for name, value in LATER.items():
        *sections, key = name.split(".")
        holder: Any = values
        for section in sections:
            holder = (holder or {}).get(section)
        if holder and key in holder and holder[key] == value:
            del holder[key]
    return values


def _by_digest(values: Any, jobs: Sequence[Job]) -> Any:
    """Return a recipe's values with each job's id replaced by its digest."""
    text = json.dumps(values)
    for job in jobs:
        text = text.replace(f"{JOB}{job.id}", f"{JOB}{job.digest}")
    return json.loads(text) if jobs else values


def _split(text: str) -> tuple[str, ...]:
    """Return the parts of a text between commas, except for commas inside parentheses."""
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip())
