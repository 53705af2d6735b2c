"""Hyperparameter search: trials of a method's settings, scored on development data; the best one becomes a recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stsbench.config import flatten, parse_yaml, shorten
from stsbench.errors import StsbenchError, one_line
from stsbench.extensions.jobs.content import check_read, dev_digests, digests
from stsbench.extensions.jobs.expand import FILES, MOST_JOBS, Job, as_text, expand
from stsbench.extensions.jobs.plan_file import Defaults, Plan, TrainGroup
from stsbench.extensions.jobs.pool import Pool
from stsbench.extensions.jobs.schedule import run_jobs
from stsbench.extensions.jobs.space import UNSCORED, Sampler, Space, Study, Trial
from stsbench.extensions.jobs.state import BESIDE, Standing, alone, is_done, is_pruned, prune
from stsbench.files import atomic_write, sha256_file
from stsbench.parsing import read_json_object
from stsbench.training.recipes.methods import canonical, method_file, short_name
from stsbench.training.recipes.recipe import OPERATIONAL, Recipe, checked, resolved_yaml
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import SearchSettings
from stsbench.training.runs.report import read_log, spread, summary

BEST, TRIALS = "best.yaml", "trials.json"
STUDY = "study.json"  # in .jobs: identifies the search that the folder belongs to
FAILURES = 10  # trials that fail in a row end a sweep: its settings are at fault, not its values
SEARCH = "search.json"  # as training/runs/finish.py reads it


@dataclass(frozen=True)
class Sweep:
    """A search space and how it is searched. group: the trainings of a trial, without the searched values; trials: number,
    None for the whole grid."""

    group: TrainGroup
    defaults: Defaults
    space: Space
    sampler: Sampler
    trials: int | None
    prune: bool
    output: Path

    def __post_init__(self) -> None:
        if (count := (self.space.points if self.trials is None else self.trials) * len(self.seeds)) > MOST_JOBS:
            raise StsbenchError(f"the search has {count:,} trainings, and a sweep may have {MOST_JOBS:,}: try fewer values, "
                                "or some of them by --sampler random")

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.group.seeds or self.defaults.seeds

    @cached_property
    def recipe(self) -> Recipe:
        """Return the recipe of the trainings, without the searched values and those that have options of their own."""
        group = self.group
        overrides = [f"{key}={value}" for key, value in zip(group.set, map(as_text, group.set.values()), strict=True)]
        return load_recipe(group.method[0], group.recipe[0] if group.recipe else None, overrides)

    def read(self) -> dict[str, str]:
        """Return name -> digest of each text, model and dev data that the trainings read on this machine. Raises
        StsbenchError without dev data."""
        group, recipe, by = self.group, self.recipe, self.recipe.selection.by
        stages = [recipe.stage_data(name).file for name in recipe.stages]
        labelled = recipe.labelled.file if recipe.labelled else None
        texts = [group.data or recipe.data.file, group.labelled or labelled, *stages]
        texts += [text for key in FILES for text in _as_list(self.space, key)]
        models = [*(group.backbone or [recipe.backbone.model]), *_as_list(self.space, "backbone.model")]
        dev = {} if "selection.by" in self.space.space else dev_digests(by, self.defaults)
        return {**digests(filter(None, texts), models, self.defaults), **dev}

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Return what identifies the search, by the user's names: options, the recipe's values, digests of files. The number
        of trials and the way they are run are not part of it."""
        group, recipe = self.group, self.recipe
        listed = [name for key in FILES for name in _as_list(self.space, key)]
        files = {name: sha256_file(path) for name in (group.data, group.labelled, *map(group.set.get, FILES), *listed)
                 if isinstance(name, str) and (path := Path(name).expanduser()).is_file()}
        values = recipe.model_dump(mode="json", exclude={"name", "description", "source", "published", "seed", *OPERATIONAL})
        of_group = {key: value for key, value in group.model_dump(mode="json").items() if value is not None}
        of_group["set"] = {key: value for key, value in of_group["set"].items() if key not in OPERATIONAL}
        options = {
            **self.defaults.model_dump(mode="json", exclude={"offline"}), **of_group, "sampler": self.sampler,
            "seeds": list(self.seeds), "space": self.space.model_dump(mode="json")["space"], "recipe": values,
            "content": files, **method_file(recipe.method),
        }
        stored: dict[str, Any] = json.loads(json.dumps(options))  # equals what is read back from study.json
        return stored

    @property
    def name(self) -> str:
        """Return the study's name, which ends in a digest of the identity."""
        digest = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()
        return f"{short_name(self.group.method[0])}-{digest[:10]}"

    def samples(self) -> list[Job]:
        """Return trainings that together name every file and every backbone of the search."""
        first = {key: among[0] if isinstance(among, list) else among.low for key, among in self.space.space.items()}
        named = [(key, value) for key in (*FILES, "backbone.model") for value in _as_list(self.space, key)]
        return [self.jobs(Trial(0, {**first, **dict([pair])}, ""))[0] for pair in named or [*first.items()][:1]]

    def jobs(self, trial: Trial) -> list[Job]:
        """Return the trainings of a trial, one per seed. Trials with equal values share them."""
        group = self.group.model_copy(update={"set": {**self.group.set, **trial.values}})
        plan = Plan(output=str(self.output), defaults=self.defaults, train={"trial": group})
        return expand(plan, f"trial {trial.number}", group.method)


@dataclass(frozen=True)
class TrialResult:
    """A trial and its trainings. scores: seed -> development score, {} unless it is complete; by: the score's name."""

    trial: Trial
    jobs: tuple[Job, ...]
    scores: dict[int, float] = field(default_factory=dict)
    by: str = ""

    @property
    def reason(self) -> str:
        """Return why the trial failed; "" for one that did not."""
        return str(self.trial.facts.get("reason", ""))


def sweep(
    search: Sweep, pool: Pool, storage: str | None, command: Sequence[str], log: Callable[[str], None],
    working: Callable[[str], None] | None = None,
) -> list[TrialResult]:
    """Run trials until none is left to start, and return all trials of the study, the best first. working: called with the
    state of the running trainings whenever that changes.

    Writes OUTPUT/trials.json, OUTPUT/best.yaml (a recipe with the best trial's values) and, in each trained run's folder,
    search.json, from which its records state among how many trials it was chosen. Trials that other processes work on are
    left to them. Raises StsbenchError where optuna is not installed.
    """
    check_selection(search)
    read = search.read()
    _claim(search)
    check_read(search.output, read)
    study = Study(search.name, search.space, search.sampler, search.trials, search.output, storage=storage,
                  seed=search.seeds[0], prune=search.prune, log=log)
    feed = _Feed(search, study, log, working)
    run_jobs([], pool, search.output, log, feed)
    with alone(search.output):  # so that the process that writes last has read the results of all others
        results = sorted(_results(search, study), key=lambda result: (  # trials without a score last
            result.trial.score is None, -(result.trial.score or 0.0), result.trial.number))
        _write(search, results, command)
    if not any(result.trial.score is not None for result in results):
        reasons = [feed.reason, *(result.reason for result in results)]
        why = next((f": {reason}" for reason in reasons if reason), "")
        raise StsbenchError(f"no trial is complete; the last failed{why}; see the logs in {search.output / BESIDE}")
    if feed.failures >= feed.most_failures:
        log(f"stopped: {feed.failures} trials in a row failed, the last: {feed.reason}; the same command goes on")
    return results


def _as_list(space: Space, key: str) -> list[Any]:
    among = space.space.get(key)
    return among if isinstance(among, list) else []


def _claim(search: Sweep) -> None:
    """Claim the output folder for one search. Raises StsbenchError, naming the first difference, if it holds another one."""
    path, trials = search.output / BESIDE / STUDY, search.output / TRIALS
    with alone(search.output):
        if path.is_file():
            before, now = (flatten(content, lists=True) for content in (read_json_object(path), search.identity))
            for key in {**before, **now}:
                if before.get(key) != now.get(key):
                    was, now_is = shorten(before.get(key)), shorten(now.get(key))
                    raise StsbenchError(
                        f"{search.output} holds another search: {key} was {was} there and is {now_is} here: choose another "
                        "--output"
                    )
        elif trials.is_file() and read_json_object(trials).get("study") != search.name:
            raise StsbenchError(f"{trials} is of another search, or of an older version's: choose another --output")
        with atomic_write(path) as stream:
            stream.write(json.dumps(search.identity, indent=1) + "\n")


def check_selection(search: Sweep) -> None:
    """Raise StsbenchError where trials will have no development score to be compared by: the recipe keeps the last weights,
    or the training ends before the first score."""
    group = search.group
    named = [f"{key}={value}" for key, value in group.set.items() if key.startswith("selection.")]
    recipe = load_recipe(group.method[0], group.recipe[0] if group.recipe else None, named)
    chosen = recipe.selection
    if chosen.by == "none":
        raise StsbenchError(f"the recipe {recipe.name} has no development score (selection.by none): a sweep needs one")
    unknown = any(key.startswith("selection.") for key in search.space.space) or (search.defaults.sample and not group.data)
    steps = group.max_steps
    if steps is not None and steps < chosen.every and not chosen.at_end and not unknown:
        raise StsbenchError(
            f"--max-steps {steps} ends before the first development score, after selection.every {chosen.every} "
            "steps: lower that or set selection.at_end=true"
        )


class _Feed:
    """The feed of a sweep: gives the schedule the jobs of new trials, reports their scores to the study, prunes trials."""

    def __init__(
        self, search: Sweep, study: Study, log: Callable[[str], None], working: Callable[[str], None] | None = None
    ) -> None:
        self.search, self.study, self.log = search, study, log
        self.working, self.shown = working, ""
        self.jobs: dict[int, tuple[Trial, list[Job]]] = {}  # trials that have not ended, by number
        self.standing: dict[str, Standing | None] = {}  # every job so far; None: not ended
        self.reported: dict[int, int] = {}  # trial's number -> last step reported to the study
        trials = search.space.points if search.trials is None else search.trials
        self.failures, self.most_failures, self.reason = 0, min(FAILURES, trials), ""  # in a row, in this process

    def more(self) -> list[Job]:
        while self.failures < self.most_failures and (asked := self.study.ask(1)):
            jobs = self.search.jobs(asked[0])
            self.jobs[asked[0].number] = asked[0], jobs
            new = [job for job in jobs if job.id not in self.standing]
            self.standing |= {job.id: None for job in new}
            self._tell()  # a trial whose values were tried before may have all its results already
            if new:
                return new
        return []

    def name(self, job: Job) -> str:
        numbers = [str(number) for number, (_, jobs) in self.jobs.items() if any(other.id == job.id for other in jobs)]
        return f"trial {' and '.join(numbers)}, seed {job.seed}" if numbers else job.name

    def ended(self, job: Job, standing: Standing) -> None:
        for trial, jobs in self.jobs.values() if self.search.prune else ():
            if jobs[0].id == job.id and standing.where == "done":
                with suppress(OSError, StsbenchError):  # of a damaged log, the points read so far count
                    for point in self._curve(trial, job):  # points not read while it ran: other trials are pruned by them
                        self._bad(trial, *point)
        self.standing[job.id] = standing
        self._tell()

    def given_up(self) -> list[Job]:
        """Return jobs of pruned trials to stop; shows the trials' progress, too, as the schedule calls this every second."""
        if self.working and (now := "; ".join(self._steps())) != self.shown:
            self.shown = now
            self.working(now)
        if not self.search.prune:
            return []
        stopped: list[Job] = []
        for trial, jobs in self.jobs.values():
            running = self.standing[jobs[0].id] is None and not is_pruned(jobs[0], self.search.output)
            if not running:
                continue
            new = False
            with suppress(OSError, StsbenchError):  # a log that is being replaced is read at the next call
                new = any(self._bad(trial, *point) for point in self._curve(trial, jobs[0]))
            if new or (trial.number in self.reported and self.study.should_stop(trial)):
                self.log(f"trial {trial.number}: given up after step {self.reported[trial.number]}")
                unfinished = [job for job in jobs if not is_done(job, self.search.output)]
                for job in unfinished:
                    prune(self.search.output, job)
                stopped += unfinished
        return stopped

    def _steps(self) -> Iterator[str]:
        """Yield 'trial 0, seed 42, step 20' for every unfinished training that has a log, 'trial 1 starts' for a trial
        without logs."""
        for number, (_, jobs) in self.jobs.items():
            steps = []
            for job in (job for job in jobs if self.standing[job.id] is None):
                folder = job.folder(self.search.output)
                with suppress(OSError, StsbenchError):  # no log yet, or one that is being replaced: it is only shown
                    last = max((line.get("step", 0) for line in read_log(folder / "log.jsonl")), default=0)
                    steps.append(f"trial {number}, seed {job.seed}, step {last}")
            yield from steps or [f"trial {number} starts"]

    def _bad(self, trial: Trial, step: int, score: float) -> bool:
        self.reported[trial.number] = step
        return self.study.report(trial, step, score)

    def _curve(self, trial: Trial, job: Job) -> Iterator[tuple[int, float]]:
        """Yield (step, development score) of the trial's first seed not reported yet; steps count on over stages."""
        path = job.folder(self.search.output) / "log.jsonl"
        before, last = 0, 0
        for line in read_log(path) if path.is_file() else []:
            if line["kind"] == "start":
                before = before + last
            last = line.get("step", 0)
            new = last > 0 and before + last > self.reported.get(trial.number, 0)
            if line["kind"] == "dev" and new and line["score"] is not None:  # None: undefined
                yield before + last, line["score"]

    def _tell(self) -> None:
        """Report to the study every trial whose trainings have all ended."""
        for number, (trial, jobs) in list(self.jobs.items()):
            ends = [self.standing[job.id] for job in jobs]
            if not all(ends):
                continue
            del self.jobs[number]
            where = {end.where for end in ends if end}
            failed = [end.detail for end in ends if end and end.where not in ("done", "pruned")]
            score, facts = None, dict[str, Any]()
            if all(end == "done" for end in where):
                try:
                    scores, by = _scores(self.search, jobs)
                    recipe = (jobs[0].folder(self.search.output) / "recipe.yaml").read_text("utf-8")
                    facts = {"scores": {str(seed): value for seed, value in scores.items()}, "by": by, "recipe": recipe}
                    score = spread(scores)["mean"]
                except (StsbenchError, OSError) as error:  # fails this trial alone: others may have scores
                    failed, facts = [one_line(error)], {UNSCORED: True}
            if failed:
                facts["reason"] = failed[-1]
            self.study.tell(trial, score, pruned="pruned" in where, facts=facts)
            self.failures = self.failures + 1 if failed else 0
            self.reason = failed[-1] if failed else self.reason
            values = ", ".join(f"{key} {value}" for key, value in trial.values.items())
            what = f"{score:.2f}" if score is not None else "given up" if "pruned" in where else "failed"
            self.log(f"trial {number} ({values}): {what}{f', {failed[-1]}' if UNSCORED in facts else ''}")


def _scores(search: Sweep, jobs: Sequence[Job]) -> tuple[dict[int, float], str]:
    """Return seed -> best development score of finished trainings, and the score's name."""
    best = {job.seed or 0: summary(job.folder(search.output))["best"] for job in jobs}
    if missing := [seed for seed, record in best.items() if record is None]:
        raise StsbenchError(
            f"seed {missing[0]} of {jobs[0].folder(search.output)} has no development score: its last step is before "
            "selection.every (lower that or set selection.at_end=true), or the development data are not on this machine "
            "(`stsbench data fetch`), or none of its scores is defined"
        )
    return {seed: record["score"] for seed, record in best.items()}, next(record["name"] for record in best.values())


def _results(search: Sweep, study: Study) -> Iterator[TrialResult]:
    """Yield every trial; of a failed grid point that was tried again only the last try, so that points are counted once."""
    trials = study.trials()
    if search.sampler == "grid":
        last = {json.dumps(trial.values, sort_keys=True): trial.number for trial in trials}
        trials = [trial for trial in trials
                  if trial.state != "fail" or last[json.dumps(trial.values, sort_keys=True)] == trial.number]
    for trial in trials:
        if trial.score is None or set(trial.values) != set(search.space.space):
            yield TrialResult(trial, ())
            continue
        jobs, facts = search.jobs(trial), trial.facts
        if "scores" in facts:
            yield TrialResult(trial, tuple(jobs), {int(seed): score for seed, score in facts["scores"].items()}, facts["by"])
        elif all(is_done(job, search.output) for job in jobs):  # the storage of an older version
            yield TrialResult(trial, tuple(jobs), *_scores(search, jobs))
        else:
            yield TrialResult(trial, tuple(jobs))


def _write(search: Sweep, results: Sequence[TrialResult], command: Sequence[str]) -> None:
    """Write trials.json, the best trial's recipe, and search.json in each run folder."""
    rows = [
        {"number": result.trial.number, "state": result.trial.state, "values": result.trial.values,
         "score": result.trial.score, "seeds": result.scores, "runs": [job.id for job in result.jobs],
         **({"reason": result.reason} if result.reason else {})}
        for result in results
    ]
    by = next((result.by for result in results if result.by), "")
    with atomic_write(search.output / TRIALS) as stream:
        stream.write(json.dumps({"study": search.name, "command": list(command), "by": by, "trials": rows}, indent=1) + "\n")
    if not results or results[0].trial.score is None:
        return
    best = results[0]
    facts = SearchSettings(
        trials=len(results), seeds=len(search.seeds), by=best.by, score=results[0].trial.score, sampler=search.sampler,
        space=search.space.model_dump(mode="json")["space"],
    )
    for tried in results:
        for job in tried.jobs:
            if not is_done(job, search.output):  # deleted, or run in another folder that shares the storage
                continue
            with atomic_write(job.folder(search.output) / SEARCH) as stream:
                stream.write(facts.model_dump_json(indent=1) + "\n")
    with atomic_write(search.output / BEST) as stream:
        stream.write(f"# {' '.join(command)}\n" + resolved_yaml(_recipe(search, best, facts)))


def _recipe(search: Sweep, best: TrialResult, facts: SearchSettings) -> Recipe:
    """Return the recipe of the best trial, which states the search that chose it."""
    path, method = best.jobs[0].folder(search.output) / "recipe.yaml", search.group.method[0]
    if "recipe" in best.trial.facts:
        recipe = checked({**parse_yaml(best.trial.facts["recipe"], str(path)), "method": canonical(method)}, str(path))
    elif path.is_file():
        recipe = load_recipe(method, str(path))
    else:
        raise StsbenchError(f"{path} is gone, and the storage, of an older version, has no recipe: choose another --output")
    values = ", ".join(f"{key} {value}" for key, value in best.trial.values.items())
    description = f"the best of {facts.trials} trials by {facts.by}, {facts.score:.2f} over {facts.seeds} seed(s): {values}"
    return recipe.model_copy(update={"name": f"{recipe.name.removesuffix('-changed')}-swept", "description": description,
                                     "published": [], "search": facts})
