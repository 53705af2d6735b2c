"""Measure a model with every prompt of a list, with its default, without a prompt, and with a neutral prompt."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import yaml

from stsbench.data.own.table import is_table
from stsbench.data.sets.lines import numbered_lines, without_end
from stsbench.display.style import COLOURS, GREY, PAGE, new_figure, style
from stsbench.display.table import Column, Document, Estimate, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.encoders.base import Encoder
from stsbench.encoders.options import CacheOptions
from stsbench.errors import EncoderError, StsbenchError, StsbenchWarning, check_log, warning_log
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.options import DataOptions, MeasureArguments, MeasureOptions
from stsbench.evaluation.plan import metric_under
from stsbench.evaluation.result import Result
from stsbench.evaluation.tables import main_rows, main_scores
from stsbench.files import atomic_write
from stsbench.metrics.aggregation import Spread, mean_over_prompts, spread
from stsbench.options import takes
from stsbench.parsing import MOST_YAML, load_yaml, read_text
from stsbench.registry import DEFAULT_PROTOCOL
from stsbench.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table as ArrowTable


_ROW = 0.42  # inches that a task takes
NEUTRAL = "text: "  # says nothing of the task: its score shows what any prompt costs
DEFAULT, NONE, CONTROL, PROMPT = "default", "no prompt", "neutral prompt", "prompt"  # kinds of what is measured
FOOT = (
    "default: as the model is used; neutral: behind {neutral!r}; sd over prompts (n - 1); error: of the mean, over prompts; "
    "below default: share of prompts that are worse, ties half; 95 % over prompts: where another prompt of the kind may lie;"
    " over items: where the score by default may lie on other items."
)


@dataclass(frozen=True)
class Strip:
    """One task in the plot: scores with its prompts, with the default and its 95 % interval over items, without a prompt,
    and with a neutral prompt."""

    name: str
    scores: tuple[float, ...]
    default: float
    items: tuple[float | None, float | None]
    none: float | None
    neutral: float | None


def figure(strips: Sequence[Strip], title: str, label: str, neutral: str) -> Any:
    """Return a matplotlib figure, the first task at the top. label: of the axis; neutral: the neutral prompt."""
    with style():
        drawing = new_figure(PAGE, 1.1 + _ROW * len(strips))
        axes = drawing.subplots()
        for y, strip in enumerate(strips):
            low, high = strip.items
            if low is not None and high is not None:
                axes.plot([low, high], [y - 0.22, y - 0.22], color=COLOURS[0], linewidth=1.2)
            axes.plot([strip.default], [y - 0.22], "o", color=COLOURS[0], markersize=4.5)
            axes.plot(strip.scores, [y + 0.12] * len(strip.scores), "|", color=GREY, markersize=8, markeredgewidth=0.8)
            for value, mark, colour in ((strip.none, "s", COLOURS[1]), (strip.neutral, "^", COLOURS[2])):
                if value is not None:
                    axes.plot([value], [y + 0.12], mark, color=colour, markerfacecolor="white", markersize=4.5)
        axes.set_yticks(range(len(strips)), [strip.name for strip in strips])
        axes.set_ylim(len(strips) - 0.4, -0.6)
        axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.5)
        axes.set_xlabel(label)
        axes.set_title(title, loc="left", wrap=True)
        drawing.legend(handles=_legend(strips, neutral), loc="outside lower center", ncols=4)
    return drawing


def _legend(strips: Sequence[Strip], neutral: str) -> list[Any]:
    from matplotlib.lines import Line2D

    marks = [("o", COLOURS[0], COLOURS[0], "default, 95 % over items"), ("|", GREY, GREY, "one prompt")]
    if any(strip.none is not None for strip in strips):
        marks.append(("s", COLOURS[1], "white", "no prompt"))
    if any(strip.neutral is not None for strip in strips):
        marks.append(("^", COLOURS[2], "white", f"behind {neutral!r}"))
    return [Line2D([], [], linestyle="", marker=mark, color=colour, markerfacecolor=fill, markersize=5, label=text)
            for mark, colour, fill, text in marks]


@dataclass(frozen=True)
class PromptScore:
    """One score with one prompt: value, and low and high, its 95 % interval over items, in the metric's unit."""

    kind: str  # DEFAULT, NONE, CONTROL or PROMPT
    prompt: str  # "" for none
    protocol: str
    task: str
    metric: str
    value: float
    low: float | None
    high: float | None
    n: int
    fingerprint: str  # the encoder's behind this prompt


@dataclass(frozen=True, repr=False)
class PromptScores(Tabular):
    """The result of `measure_prompts`: every score, and for each task their distribution over prompts."""

    name: str  # the model's
    scores: tuple[PromptScore, ...]
    neutral: str = NEUTRAL
    failures: tuple[str, ...] = ()  # a line for each task that had no score behind a prompt

    def __repr__(self) -> str:
        what = f"{counted(self.prompts, 'prompt')}, {counted(len(self.tasks), 'task')}"
        return f"<PromptScores of {self.name}: {what}; print it>"

    @property
    def prompts(self) -> int:
        """Return how many prompts there are, controls left out."""
        return len({score.prompt for score in self.scores if score.kind == PROMPT})

    @cached_property
    def tasks(self) -> tuple[tuple[str, str], ...]:
        """Return (protocol, task), averages among them, in their order."""
        return tuple(dict.fromkeys((score.protocol, score.task) for score in self.scores))

    def task_scores(self, task: tuple[str, str], kind: str) -> list[PromptScore]:
        """Return the scores of one kind on one task."""
        return [score for score in self.scores if (score.protocol, score.task) == task and score.kind == kind]

    def spread(self, task: tuple[str, str]) -> Spread:
        """Return the distribution over prompts; headroom and percentile count what is better, also where that is lower."""
        scores, default = self._values(task)
        made = spread(scores, default)
        if not self._lower(task):
            return made
        turned = spread(-scores, -default)
        return Spread(**{**asdict(made), "percentile": turned.percentile, "headroom": turned.headroom})

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each task."""
        for task in self.tasks:
            scores, _ = self._values(task)
            over = mean_over_prompts(scores)
            low, high = (float(value) for value in np.quantile(scores, [0.025, 0.975]))
            [default] = self.task_scores(task, DEFAULT)
            yield {
                "protocol": task[0], "task": task[1], "metric": default.metric, **asdict(self.spread(task)),
                "no_prompt": self._score(task, NONE), "neutral": self._score(task, CONTROL), "error": over.error,
                "prompts_low": low, "prompts_high": high, "items_low": default.low, "items_high": default.high,
            }

    def as_json(self) -> list[dict[str, Any]]:
        """Return the content of --json as plain data."""
        return [*self.rows()]

    def to_arrow(self) -> ArrowTable:
        """Return a row for each prompt and task, the default and the controls among them."""
        return arrow_table([asdict(score) for score in self.scores])

    def save(self, folder: Path) -> None:
        """Write prompts.csv, every score, and prompts.png, the picture, into `folder`."""
        from stsbench.display.style import save

        with atomic_write(folder / "prompts.csv") as stream:
            stream.write(self.csv())
        save(self.plot(), folder / "prompts.png")

    def plot(self) -> Figure:
        """Return each task's scores over prompts as points, with the default, its interval over items, and the controls."""

        strips = [
            Strip(task[1], tuple(score.value for score in self.task_scores(task, PROMPT)), default.value,
                  (default.low, default.high), self._score(task, NONE), self._score(task, CONTROL))
            for task in self.tasks for default in self.task_scores(task, DEFAULT)
        ]
        title = f"{self.name}, {counted(self.prompts, 'prompt')}"
        drawn: Figure = figure(strips, title, self.scores[0].metric, self.neutral)
        return drawn

    def document(self) -> Document:
        """Return scores and intervals of each task, then its best and its worst prompt."""
        rows = list(self.rows())

        def column(header: str, key: str, detail: int = 0) -> Column:
            return Column(header, [row[key] for row in rows], detail=detail)

        columns = [
            Column("task", [row["task"] for row in rows]),
            Column("default", [Estimate(row["default"], row["items_low"], row["items_high"]) for row in rows]),
            column("no prompt", "no_prompt"), column("neutral", "neutral"), column("mean", "mean"), column("sd", "sd"),
            column("min", "min"), column("max", "max"),
            Column("below default", [f"{100 * row['percentile']:.0f}%" for row in rows], detail=1),
            column("prompts", "n", 1), column("error", "error", 1),
            Column("95 % over prompts", [Estimate(None, row["prompts_low"], row["prompts_high"]) for row in rows], detail=1),
        ]
        title = f"{self.name}: scores over {counted(self.prompts, 'prompt')}"
        return Document([Table(title, columns)], below=self._remarks())

    def _remarks(self) -> list[str]:
        lines = []
        for task in self.tasks:
            ordered = sorted(self.task_scores(task, PROMPT), key=lambda score: score.value, reverse=not self._lower(task))
            best, worst = ordered[0], ordered[-1]
            lines.append(f"{task[1]}: best {best.value:.2f} behind {best.prompt!r}, worst {worst.value:.2f} behind "
                         f"{worst.prompt!r}")
        return [*lines, FOOT.format(neutral=self.neutral)]

    def _values(self, task: tuple[str, str]) -> tuple[Any, float]:
        [default] = self.task_scores(task, DEFAULT)
        return np.array([score.value for score in self.task_scores(task, PROMPT)]), default.value

    def _score(self, task: tuple[str, str], kind: str) -> float | None:
        return next((score.value for score in self.task_scores(task, kind)), None)

    def _lower(self, task: tuple[str, str]) -> bool:
        return metric_under(task[0], self.task_scores(task, DEFAULT)[0].metric).lower


@takes(MeasureOptions, DataOptions, CacheOptions)
def measure_prompts(
    encoder: Encoder, prompts: Sequence[str] | Mapping[str, Sequence[str]],
    protocols: str | Sequence[str] = (DEFAULT_PROTOCOL,), *, tasks: str | Sequence[str] | None = None,
    neutral: str = NEUTRAL, output: str | Path | None = None, log: Callable[[str], None] | None = None,
    post: str | None = None, fit_on: str | Path | None = None, **how: Unpack[MeasureArguments],
) -> PromptScores:
    """Measure an encoder behind every prompt, as it is, without any, and behind one that says nothing; it is loaded once.

    prompts: texts that stand before every text without a role, each with the blank that it needs at its end; or by task,
    {"STS14": [...]}, each then measured on its task alone. neutral: the second control. output: a new folder for the runs,
    one a prompt. log: gets a line before each run, and each warning once; without it they are StsbenchWarnings. The rest is
    that of `evaluate`.

    Raises StsbenchError, one line: no prompt, one twice, or an empty one; an encoder that reads no prompts, or the same one
    whatever is asked.

    >>> from stsbench import load_encoder, measure_prompts
    >>> measure_prompts(load_encoder("lexical:token-set"), ["a photo of "], neutral="a ", sample=True)
    Traceback (most recent call last):
    stsbench.errors.EncoderError: lexical:token-set cannot be read behind 'a ': it knows no prompts, or a template or \
its training decides what stands around a text
    """
    check_log(log)
    log, asked = log or warning_log(), _by_prompt(prompts)
    if not hasattr(encoder, "spec"):
        raise EncoderError("a function reads no prompts: give a model")
    if output is not None and Path(output).is_dir() and any(Path(output).iterdir()):
        raise StsbenchError(f"{output} is already there: choose another output")
    runs = [(DEFAULT, encoder.spec.prefix or "", encoder, tasks), (NONE, "", None, tasks), (CONTROL, neutral, None, tasks),
            *((PROMPT, prompt, None, only or tasks) for prompt, only in asked.items())]
    made: dict[str, Result] = {}
    told: set[str] = set()
    failures: list[str] = []
    errors: list[StsbenchError] = []
    scores: list[PromptScore] = []
    # A prompt that the encoder cannot read is refused before any run.
    readers = {prompt: with_prompt(encoder, prompt) for kind, prompt, _, _ in runs if kind != DEFAULT}
    for number, (kind, prompt, as_it_is, of_tasks) in enumerate(runs):
        reader = as_it_is or readers[prompt]
        known = None if kind == PROMPT else made.get(reader.identity.fingerprint())  # the default may be without a prompt
        if known is None:
            log(f"{number + 1} of {len(runs)}: {kind} {prompt!r}")
            folder = None if output is None else Path(output) / f"{number:02}-{kind.replace(' ', '-')}"
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", StsbenchWarning)
                try:
                    known = evaluate(reader, protocols=protocols, tasks=of_tasks, output=folder, post=post, fit_on=fit_on,
                                     **how)
                except StsbenchError as error:
                    if kind == DEFAULT:  # the model's default, or that of what is requested
                        raise
                    failures.append(f"{kind} {prompt!r}: {error}")
                    log(f"warning: {failures[-1]}")
                    errors.append(error)
                    continue
            failed = [f"{kind} {prompt!r}: {what}: {why}" for what, why in known.failures.items()]
            failures += failed
            for line in dict.fromkeys([*failed, *(str(warning.message) for warning in caught)]):
                if line not in told:
                    log(f"warning: {line}")
                    told.add(line)
            made[reader.identity.fingerprint()] = known
        scores += _scores(known, kind, prompt, reader.identity.fingerprint())
    complete = {(score.protocol, score.task) for score in scores if score.kind == PROMPT}
    complete &= {(score.protocol, score.task) for score in scores if score.kind == DEFAULT}
    scores = [score for score in scores if (score.protocol, score.task) in complete]
    if not scores and errors:
        raise errors[-1]
    if not scores:
        raise StsbenchError(f"{encoder.spec.name}: no task was measured both by default and behind a prompt")
    return PromptScores(encoder.spec.name, tuple(scores), neutral, tuple(failures))


def with_prompt(encoder: Encoder, prompt: str) -> Encoder:
    """Return the same encoder with `prompt` before every text; "": with none. EncoderError: it reads no prompts, or none
    here."""
    other = encoder.with_prompt(prompt).anew()
    if (other.spec.prefix or "") != prompt:
        raise EncoderError(f"{encoder.spec.name} cannot be read behind {prompt!r}: it knows no prompts, or a template or "
                           "its training decides what stands around a text")
    return other


def read_prompts(path: Path) -> list[str] | dict[str, list[str]]:
    """Return a prompt a line (.txt; blanks at its end are kept, empty lines are not), or lists by task (.yaml, .yml, .json).

    StsbenchError, one line naming the file: it cannot be read, or holds something else.
    """
    if is_table(path) and path.suffix.lower() != ".json":
        raise StsbenchError(f"{path} is a table: write a prompt a line (.txt), or lists by task (.yaml, .yml, .json)")
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return [without_end(line) for _, line in numbered_lines(path) if line.strip()]
    try:
        stored = load_yaml(read_text(path, MOST_YAML))
    except (yaml.YAMLError, ValueError) as error:
        raise StsbenchError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(stored, dict) or not all(
        isinstance(listed, list) and all(isinstance(prompt, str) for prompt in listed) for listed in stored.values()
    ):
        raise StsbenchError(f"{path} must hold lists of prompts by task, as STS14: [\"...\", \"...\"]")
    return {str(task): listed for task, listed in stored.items()}


def _by_prompt(prompts: Sequence[str] | Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return prompt -> the tasks that it is for; [] for all. StsbenchError: there is none, one is empty or stands there
    twice."""
    if isinstance(prompts, str | Set):  # a set's order changes with each process
        raise StsbenchError("prompts must be a list of texts, or lists by task")
    by_task: dict[str | None, list[str]] = {None: list(prompts)}
    if isinstance(prompts, Mapping):
        by_task = {task: list(listed) for task, listed in prompts.items()}
    tasks: dict[str, list[str]] = {}
    for task, listed in by_task.items():
        for prompt in listed:
            if not prompt.strip():
                raise StsbenchError("an empty prompt is the control 'no prompt', which is measured anyway: leave it out")
            if listed.count(prompt) > 1:
                raise StsbenchError(f"the prompt {prompt!r} stands there twice")
            tasks.setdefault(prompt, []).extend([] if task is None else [task])
    if not tasks:
        raise StsbenchError("there is no prompt to measure")
    return tasks


def _scores(result: Result, kind: str, prompt: str, fingerprint: str) -> Iterator[PromptScore]:
    """Yield the score of each task that its protocol reports first, and one average."""
    for label in dict.fromkeys(row.protocol for row in result.rows):
        rows = [row for row in main_scores(main_rows(result, label)).values()
                if row.task != "Avg-full" and row.subset is None]
        for row in rows:
            yield PromptScore(kind, prompt, label, row.task, row.metric, row.value, row.low, row.high, row.n, fingerprint)
