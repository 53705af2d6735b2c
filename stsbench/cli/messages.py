"""Console output of the commands: messages, results and progress bars, which need a terminal and no --quiet. Control
characters in names and texts are escaped, so that a terminal never obeys them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stsbench.display.table import Document, Table, terminal_width
from stsbench.files import atomic_write
from stsbench.wording import break_lines, printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress, ProgressColumn, TaskID

    from stsbench.display.tabular import Reported, Tabular
    from stsbench.encoders.base import Progress as Step


_QUIET = False
_BAR: Live | None = None


def escape_unencodable() -> None:
    """Make stdout and stderr print characters that they cannot encode as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write text to stdout, or stderr with `err`, in the console's own encoding."""
    stream = sys.stderr if err else sys.stdout  # click.echo would write UTF-8 on an ASCII console
    stream.write((at_words(printable(text)) if err else printable(text)) + ("\n" if nl else ""))
    stream.flush()


def at_words(text: str) -> str:
    """Return `text` wrapped to the width of stderr where that is a terminal. Words are not broken, nor commands and paths,
    so that they can be copied."""
    width = _width()
    return break_lines(text, width) if width else text


def _width() -> int:
    """Return the width of the terminal on stderr in columns; 0 where stderr is not a terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 0
    except (OSError, ValueError):
        return 0


def be_quiet(quiet: bool) -> None:
    """Set --quiet on or off: with it only results, warnings and errors are printed."""
    global _QUIET
    _QUIET = quiet


def is_quiet() -> bool:
    """Return whether --quiet is on."""
    return _QUIET


def print_above(display: Live | None) -> None:
    """Print messages above the bar of `display` from now on; None: no bar is drawn any more."""
    global _BAR
    _BAR = display


def log(line: str) -> None:
    """Write one line to stderr; with --quiet only if it is a warning or a failure."""
    if not _QUIET or line.startswith(("warning:", "failed:")):
        tell(line)


def tell_stopped(line: str) -> None:
    """Write one line to stderr after Ctrl-C, on a line of its own below the terminal's ^C."""
    with contextlib.suppress(BrokenPipeError):
        echo(f"\n{line}" if sys.stderr.isatty() else line, err=True)


def tell(line: str) -> None:
    """Write one line to stderr, also with --quiet; above a progress bar, where one is drawn."""
    with contextlib.suppress(BrokenPipeError):  # the work goes on when nobody reads any more, as after `2>&1 | head`
        if _BAR is None:
            echo(line, err=True)
        else:  # written directly to stderr, the text would end up in the bar's line
            with _BAR._lock:  # rich locks while its own thread draws, but not while another prints: a stale bar would remain
                _BAR.console.print(at_words(printable(line)), soft_wrap=True, markup=False, highlight=False)


def warnings_as_lines() -> None:
    """Print Python's warnings as one line each, in the form of the other messages."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        tell(f"warning: {message}")

    warnings.showwarning = show


def write_json(value: Any, target: str) -> None:
    """Write `value` as JSON to the file `target`, or to stdout for "-", in ASCII, which every console can encode."""
    _write(json.dumps(value, indent=1) + "\n", target)


def _write(text: str, target: str) -> None:
    if target == "-":
        echo(text, nl=False)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text)


def print_omissions(result: Tabular) -> None:
    """Write a line to stderr for each task that failed or was left out."""
    for line in result.omissions():
        echo(line, err=True)


def print_document(document: Document) -> None:
    """Write tables and lines to stdout; on a terminal they fit its width, and averages are bold."""
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        sys.stdout.write(document.text(terminal_width(), bold=True) + "\n")  # `echo` would escape the codes for bold
    else:
        echo(document.text(terminal_width()))


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write one table, given as rows of cells, to stdout."""
    print_document(Document([Table.from_rows(title, header, rows)]))


def print_result(
    result: Tabular, form: str = "table", *, json_target: str | None = None, report_target: str | None = None,
    above: Sequence[str] | None = None,
) -> None:
    """Write a result to stdout: as tables, or as LaTeX, Markdown or CSV.

    json_target, report_target: files for the result as JSON and as a report, in LaTeX if the name ends in .tex, else in
    Markdown; with "-" it is written to stdout, and nothing else is. above: lines to print above the tables instead of the
    result's own."""
    if json_target:
        write_json(result.as_json(), json_target)
    if report_target:
        latex = report_target.lower().endswith(".tex")
        _write(cast("Reported", result).report("latex" if latex else "markdown"), report_target)
    if "-" in (json_target, report_target):
        return
    if form != "table":
        echo({"latex": result.latex, "markdown": result.markdown, "csv": result.csv}[form](), nl=False)
        return
    document = result.document()
    print_document(document if above is None else replace(document, above=above))


def print_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Print a training's dev scores before, best and after, or its table over seeds or subsets, then the test scores."""
    if "seeds" in summary:
        _averages(summary)
    else:
        _run(folder, summary)
    for task, why in summary.get("failures", {}).items():
        echo(f"failed: {task}: {why}", err=True)


def _run(folder: Path, summary: dict[str, Any]) -> None:
    name = summary["selected_by"]
    before, after = (
        "undefined" if summary[when] is None else f"{summary[when]:.2f}" for when in ("before", "after")
    )
    undefined = summary.get("undefined", [])
    if summary["before"] is not None or undefined:
        kept = summary["best"]
        stage = f" of stage {kept['stage']}" if kept and set(summary["stages"]) != {kept["stage"]} else ""
        best = f"best {kept['score']:.2f} at step {kept['step']}{stage}" if kept else "no step in between was scored"
        if kept and summary["before"] is not None and kept["score"] < summary["before"]:
            best += " (below the start)"
        if not kept and undefined:
            best = "no step that could be kept has a score"
        line = f"{name}: {before} before, {best}, {after} after the last step"
        print_document(Document(above=[line]))
    echo(f"exported {summary['exported']}: {folder / 'best'}")
    if (folder / "eval").is_dir():
        from stsbench.evaluation.rescore import score_again

        result = score_again(folder / "eval")
        print_result(result)
        print_omissions(result)


def _averages(summary: dict[str, Any]) -> None:
    """Print the averages over seeds, or over seeds and subsets."""
    from stsbench.training.runs.report import seed_table, shared_line, subset_rows

    seeds, header = ", ".join(map(str, summary["seeds"])), ["score", "mean", "sd", "n"]
    title = f"{len(summary['seeds'])} seeds: {seeds}"
    if "subsets" in summary:
        for line in subset_rows(summary):
            echo(line)
        subsets, header = ", ".join(map(str, summary["subsets"])), ["score", "mean", "sd of runs", "n", "sd of subsets"]
        title = f"{len(summary['subsets'])} subsets ({subsets}) of {len(summary['seeds'])} seeds ({seeds})"
    rows = seed_table(summary)
    print_table(title, header, rows)
    if not rows:
        echo("no score to average: there was no dev evaluation and no --eval")
    if shared := shared_line(summary):
        echo(shared)


class Bar:
    """Progress bar of one row: the current work, its progress, the time taken and, if its length is known, the time left."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._row: TaskID | None = None

    def __call__(self, total: int) -> Step:
        """Show that encoding of `total` texts begins; return a function to call with the number of texts just done."""
        row = self._begin("encoding", total)
        return lambda done: self._bar.advance(row, done)

    def doing(self, what: str) -> None:
        """Show that work of unknown length begins."""
        self._begin(what, None)

    def going_on(self, task: str) -> None:
        """Rename the work that is shown, without resetting its time."""
        if self._row is None:
            self._begin(task, None)
        else:
            self._bar.update(self._row, description=printable(task))

    def _begin(self, task: str, total: int | None) -> TaskID:
        if self._row is not None:
            self._bar.remove_task(self._row)
        self._row = self._bar.add_task(printable(task), total=total)
        return self._row


@contextmanager
def progress_bar() -> Iterator[Bar | None]:
    """Yield a progress bar; None with --quiet or without a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    with draw_progress(*columns()) as bar:
        yield Bar(bar)


def columns() -> list[ProgressColumn]:
    """Return the columns of a progress bar: the work, its progress, the time it has taken and the time left."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    class Left(TimeRemainingColumn):
        """Time left, shown only where something is left and its speed is known."""

        def render(self, task):  # type: ignore[no-untyped-def]
            known = task.total is not None and not task.finished and task.time_remaining is not None
            return super().render(task) + " left" if known else ""

    how_far = (BarColumn(), TaskProgressColumn(text_format_no_percentage=""))
    return [TextColumn("{task.description}", markup=False), *how_far, TextColumn("in"), TimeElapsedColumn(), Left()]


@contextmanager
def draw_progress(*columns: ProgressColumn, transient: bool = True) -> Iterator[Progress]:
    """Yield a bar of these columns on stderr, above which messages are printed until the block ends."""
    from rich.console import Console
    from rich.progress import Progress

    try:
        with Progress(*columns, console=Console(stderr=True), transient=transient) as bar:
            print_above(bar.live)
            yield bar
    finally:
        print_above(None)


class TrainingProgress:
    """Progress of a training on stderr: stage, step, loss, dev score (last and best), sentences/s and time left.

    A terminal shows it, several times a second, as a display that also names what the training waits for. Elsewhere `log`
    gets one line for every dev evaluation and every `line_every`-th step. With `shown` False nothing is shown.
    """

    def __init__(
        self, log: Callable[[str], None], *, line_every: int = 1, shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._line_every, self._shown, self._clock = log, line_every, shown, clock
        self._live: Any = None  # rich's display, its bar and the stage's row in the bar
        self._bar: Any = None
        self._task: Any = None
        self._name, self._steps, self._first, self._began = "", 0, 0, 0.0
        self._numbers = self._dev = self._what = ""
        self._done, self._since = 0, 0.0  # completed steps of the stage, and the time at which `_what` began
        self._best: tuple[str, str] | None = None  # the dev score's name, and its best value with the step

    def stage(self, name: str, steps: int, start_step: int = 0) -> None:
        """Show that a stage of this many steps begins, or goes on after `start_step`."""
        self._name, self._steps, self._first, self._began = name, steps, start_step, self._clock()
        self._numbers, self._dev, self._what, self._done = "", "", "", start_step
        self._best = None  # each stage, and each seed's run, starts without a best
        if self._shown and self._live is None and sys.stderr.isatty():
            self._open()
        if self._live:
            self._task = self._bar.add_task(printable(name), total=steps, completed=start_step)

    def doing(self, step: int, what: str = "") -> None:
        """Show that `step` steps of the stage are done, and that the next one waits for `what`."""
        self._done, self._what, self._since = step, what, self._clock()

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """Show that `step` steps of the stage are done, with the loss and the speed."""
        self._numbers = f"loss {loss:.4f}, {sentences_per_second:.0f} sentences/s"
        self._done = step
        if self._live is None and self._shown and (step % self._line_every == 0 or step == self._steps):
            self._log(f"{self._name} {step}/{self._steps}: {self._numbers}, {self._left(step)}")

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """Show a dev evaluation after `step` steps; `best`: the highest of the stage so far, whose weights are kept."""
        digits = 4 if name.startswith("held-out") else 2
        shown = "undefined" if score is None else f"{score:.{digits}f}"
        if best:
            self._best = name, f"{shown} at step {step}"
            self._dev = f"{name} {shown} (the best so far)"
        elif self._best and self._best[0] == name:
            self._dev = f"{name} {shown} (best {self._best[1]})"
        else:
            self._dev = f"{name} {shown}"  # a resumed run's best may be from before it stopped, and is not known
        if self._live is None and self._shown:
            self._log(f"{self._name} {step}/{self._steps}: {self._dev}")

    def close(self) -> None:
        """Stop drawing, leaving the last state on the screen. May be called twice."""
        self._what = ""
        if self._live:
            self._live.stop()
            print_above(None)
            self._live = None

    def _left(self, step: int) -> str:
        """Return the time left in this stage as text, from its mean speed in this process, dev evaluations included."""
        if step >= self._steps:
            return "all steps done"
        done = step - self._first
        if done <= 0:
            return "time left unknown"
        return f"{timedelta(seconds=round((self._clock() - self._began) / done * (self._steps - step)))} left"

    def _open(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        name, elapsed = TextColumn("{task.description}", markup=False), (TextColumn("in"), TimeElapsedColumn())
        self._bar = Progress(name, BarColumn(), MofNCompleteColumn(), *elapsed)
        self._live = Live(
            console=Console(stderr=True, highlight=False), refresh_per_second=4, get_renderable=lambda: self._render()
        )
        print_above(self._live)
        self._live.start()

    def _render(self) -> Any:
        """Return rich's renderable of the current state."""
        from rich.console import Group
        from rich.text import Text

        if self._task is not None:
            self._bar.update(self._task, completed=self._done)
        lines = [self._numbers and f"{self._numbers}, {self._left(self._done)}", self._dev]
        if self._what:
            lines.append(f"{self._what}, {timedelta(seconds=int(self._clock() - self._since))}")
        return Group(self._bar, *(Text(printable(line)) for line in lines if line))
