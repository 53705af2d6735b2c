"""What commands print: lines, results, and progress, a bar on stderr or none with --quiet and where that is not a terminal.
Whatever a name or a text holds, a terminal shows it and obeys none of it."""

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
    """From now on a character that stdout or stderr cannot encode is printed as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Text on stdout or stderr, in the console's own encoding."""
    stream = sys.stderr if err else sys.stdout  # click.echo would write UTF-8 on an ASCII console
    stream.write((at_words(printable(text)) if err else printable(text)) + ("\n" if nl else ""))
    stream.flush()


def at_words(text: str) -> str:
    """Return `text` in lines that fit stderr where that is a terminal: none ends within a word, or within a command or a
    path, which is copied in one piece."""
    width = _width()
    return break_lines(text, width) if width else text


def _width() -> int:
    """Return columns of the terminal that stderr is; 0 where it is none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 0
    except (OSError, ValueError):
        return 0


def be_quiet(quiet: bool) -> None:
    """--quiet: from now on only results, warnings and errors are printed."""
    global _QUIET
    _QUIET = quiet


def is_quiet() -> bool:
    """Return whether --quiet is on: no progress bar then."""
    return _QUIET


def print_above(display: Live | None) -> None:
    """Messages go above the bar that `display` draws from now on; None: there is no bar any more."""
    global _BAR
    _BAR = display


def log(line: str) -> None:
    """One line on stderr; with --quiet only a warning or a failure."""
    if not _QUIET or line.startswith(("warning:", "failed:")):
        tell(line)


def tell_stopped(line: str) -> None:
    """One line on stderr after Ctrl-C, of which a terminal shows ^C in a line that it does not end."""
    with contextlib.suppress(BrokenPipeError):
        echo(f"\n{line}" if sys.stderr.isatty() else line, err=True)


def tell(line: str) -> None:
    """One line on stderr, with --quiet too; above a bar, where one is drawn."""
    with contextlib.suppress(BrokenPipeError):  # `2>&1 | head`: the work goes on whoever reads on
        if _BAR is None:
            echo(line, err=True)
        else:  # written past the bar's console, it would stand in the bar's own line
            with _BAR._lock:  # rich holds it while its thread draws, not while another prints: a bar would be left behind
                _BAR.console.print(at_words(printable(line)), soft_wrap=True, markup=False, highlight=False)


def warnings_as_lines() -> None:
    """Python's warnings as one line each, like everything else here."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        tell(f"warning: {message}")

    warnings.showwarning = show


def write_json(value: Any, target: str) -> None:
    """Write `value` to the file `target`, or to stdout for "-"; in ASCII, which every console can encode."""
    _write(json.dumps(value, indent=1) + "\n", target)


def _write(text: str, target: str) -> None:
    if target == "-":
        echo(text, nl=False)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text)


def print_omissions(result: Tabular) -> None:
    """Write a line to stderr for whatever failed or was left out."""
    for line in result.omissions():
        echo(line, err=True)


def print_document(document: Document) -> None:
    """Write tables and lines to stdout, as wide as the terminal where it is one, and averages bold there."""
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        sys.stdout.write(document.text(terminal_width(), bold=True) + "\n")  # `echo` would show the codes of bold
    else:
        echo(document.text(terminal_width()))


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write one table of rows of cells to stdout."""
    print_document(Document([Table.from_rows(title, header, rows)]))


def print_result(
    result: Tabular, form: str = "table", *, json_target: str | None = None, report_target: str | None = None,
    above: Sequence[str] | None = None,
) -> None:
    """Write a result to stdout: as tables, or as LaTeX, Markdown or CSV.

    json_target, report_target: files for it as JSON and as a report, LaTeX where it ends in .tex, else Markdown; with "-"
    stdout is that alone. above: lines that stand above its tables instead of its own.
    """
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
    """Dev before, best and after, or the table over seeds or subsets, then the scores of the final test, on stdout."""
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
    """Over seeds, or over seeds of several subsets."""
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
    """One row: what is being done, how far it is, the time it has taken and the time left where its length is known."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._row: TaskID | None = None

    def __call__(self, total: int) -> Step:
        """Return encoding begins, of so many texts; returns what is called with the number of those just done."""
        row = self._begin("encoding", total)
        return lambda done: self._bar.advance(row, done)

    def doing(self, what: str) -> None:
        """Work begins whose length is not known."""
        self._begin(what, None)

    def going_on(self, task: str) -> None:
        """Rename the work that is shown; its time runs on."""
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
    """Yield a bar that says what is being done; None without a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    with draw_progress(*columns()) as bar:
        yield Bar(bar)


def columns() -> list[ProgressColumn]:
    """Return what is done, how far it is, the time it has taken and the time left."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    class Left(TimeRemainingColumn):
        """Drawn only where something is left and its speed is known."""

        def render(self, task):  # type: ignore[no-untyped-def]
            known = task.total is not None and not task.finished and task.time_remaining is not None
            return super().render(task) + " left" if known else ""

    how_far = (BarColumn(), TaskProgressColumn(text_format_no_percentage=""))
    return [TextColumn("{task.description}", markup=False), *how_far, TextColumn("in"), TimeElapsedColumn(), Left()]


@contextmanager
def draw_progress(*columns: ProgressColumn, transient: bool = True) -> Iterator[Progress]:
    """Yield a bar of these columns on stderr; messages go above it while it is there."""
    from rich.console import Console
    from rich.progress import Progress

    try:
        with Progress(*columns, console=Console(stderr=True), transient=transient) as bar:
            print_above(bar.live)
            yield bar
    finally:
        print_above(None)


class TrainingProgress:
    """Stage, step, loss, dev score (last and best), sentences/s and time left, on stderr.

    On a terminal they are drawn several times a second, with what the training waits for. Elsewhere `log` gets one line for
    every dev evaluation and for every `line_every`-th step. Only the process that is `shown` shows anything.
    """

    def __init__(
        self, log: Callable[[str], None], *, line_every: int = 1, shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._line_every, self._shown, self._clock = log, line_every, shown, clock
        self._live: Any = None  # rich's display, the bar in it and the stage's row of the bar
        self._bar: Any = None
        self._task: Any = None
        self._name, self._steps, self._first, self._began = "", 0, 0, 0.0
        self._numbers = self._dev = self._what = ""
        self._done, self._since = 0, 0.0  # steps of the stage, and when `_what` began
        self._best: tuple[str, str] | None = None  # the dev score's name, and its best value with its place

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
        """Report that `step` steps of the stage are done, and `what` delays the next one."""
        self._done, self._what, self._since = step, what, self._clock()

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """`step` steps of the stage are done."""
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
            self._dev = f"{name} {shown}"  # a resumed run's best may be from before: not known here
        if self._live is None and self._shown:
            self._log(f"{self._name} {step}/{self._steps}: {self._dev}")

    def close(self) -> None:
        """Leave the last state on the screen. May be called twice."""
        self._what = ""
        if self._live:
            self._live.stop()
            print_above(None)
            self._live = None

    def _left(self, step: int) -> str:
        """Return time left in this stage, from its mean speed here, dev evaluations included."""
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
        """Return what stands on the terminal at this moment."""
        from rich.console import Group
        from rich.text import Text

        if self._task is not None:
            self._bar.update(self._task, completed=self._done)
        lines = [self._numbers and f"{self._numbers}, {self._left(self._done)}", self._dev]
        if self._what:
            lines.append(f"{self._what}, {timedelta(seconds=int(self._clock() - self._since))}")
        return Group(self._bar, *(Text(printable(line)) for line in lines if line))
