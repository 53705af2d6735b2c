"""Bars on a terminal: what is being done, elapsed and left, by a clock that the test turns; and messages above them.
Every console gets every text: what its encoding lacks, and what a terminal would obey, is printed as an escape."""

import io
import json
import re
import sys
from functools import partial
from threading import Thread

import pyte
import pytest
from rich.console import Console
from rich.live import Live
from rich.progress import Progress

from stsbench.cli import messages
from stsbench.cli.main import main
from stsbench.cli.messages import Bar, TrainingProgress, columns
from stsbench.display.table import Column, Document, Table
from stsbench.evaluation.announce import EncodingTime
from stsbench.wording import printable, visible

HOSTILE = "a [red]boat[/red] \\[/] \U0001f31e \x1b[31m\x07 \x9b2J \u202egnol\u202c é\u2013"
ESCAPED = [r"[red]boat[/red] \[/]", r"\x1b[31m\x07 \x9b2J", r"\u202egnol\u202c"]


CONSOLE = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, legacy_windows=False)


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    return Clock()


def words_of(shown):
    with CONSOLE.capture() as capture:
        CONSOLE.print(shown)
    return " ".join(capture.get().split())


@pytest.fixture
def row(clock):
    """(a bar by the clock, what it shows now)"""
    bar = Progress(*columns(), console=CONSOLE, get_time=clock, auto_refresh=False)
    return Bar(bar), lambda: words_of(bar.get_renderable())


def terminal_of(monkeypatch):
    """A stream that says it is a terminal, as stdout and stderr."""
    stream = io.StringIO()
    stream.isatty = lambda: True
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


def test_encoding_shows_elapsed_and_what_is_left_of_the_work(row, clock):
    """Longest texts first: by texts done the bar would promise far too much time."""
    bar, shown = row
    texts = ["x" * length for length in range(2000, 0, -1)]
    step = EncodingTime(texts, lambda line: None, bar(len(texts)), clock)
    whole = sum(8 + len(text) for text in texts)
    step(1)
    for at in range(1, 1000):
        clock.now += (8 + len(texts[at])) / whole * 100  # a hundred seconds for all of it
        step(1)
    assert "encoding" in shown() and "75%" in shown() and "in 0:01:14" in shown()
    left = int(shown().split()[-2].split(":")[-1])
    assert shown().endswith("left") and abs(left - 25) <= 2
    clock.now += 2
    assert "in 0:01:16" in shown()  # it moves while a batch is waited for
    step(1000)
    assert "100%" in shown() and "left" not in shown()


def test_what_has_no_length_shows_what_it_is_and_how_long(row, clock):
    bar, shown = row
    bar(10)(5)
    bar.doing("transfer [red]MR[/red]\x1b[2J")
    clock.now += 61
    assert shown().startswith(r"transfer [red]MR[/red]\x1b[2J") and "in 0:01:01" in shown() and "%" not in shown()


def test_a_training_shows_every_step_and_what_it_waits_for(monkeypatch, clock):
    terminal_of(monkeypatch)
    progress = TrainingProgress(lambda line: pytest.fail(line), clock=clock)
    progress.stage("main", 100)

    def shown():
        return words_of(progress._render())

    try:
        progress.doing(0, "scoring sts-b dev")
        clock.now = 90
        assert "0/100" in shown() and shown().endswith("scoring sts-b dev, 0:01:30")
        progress.dev(0, "sts-b dev", 60.0, False)
        progress.doing(0)
        for step in range(1, 13):
            clock.now += 36  # DiffAug's steps at 128
            if step == 10:
                progress.step(10, 0.5, 12.0)
            progress.doing(step)
            assert f"{step}/100" in shown()
        assert "loss 0.5000" in shown() and "sts-b dev 60.00" in shown() and "left" in shown()
        progress.doing(100, "saving a checkpoint")
        assert "all steps done" in shown() and "saving a checkpoint, 0:00:00" in shown()
    finally:
        progress.close()
    assert "saving" not in shown()  # what stays on the screen is what was done


def screen_of(stream, width, height):
    """The lines that a terminal of this size shows after what was written."""
    drawn = pyte.Screen(width, height)
    pyte.Stream(drawn).feed(stream.getvalue().replace("\n", "\r\n"))
    return [line.rstrip() for line in drawn.display if line.strip()]


def test_a_bar_is_gone_when_its_work_is_done_and_what_was_said_stays(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with messages.progress_bar() as bar:
        bar(3)(1)
        messages.tell("a message")
    assert "\u2501" in terminal.getvalue()
    assert screen_of(terminal, 80, 20) == ["a message"]
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with messages.progress_bar() as bar:
        assert bar is None


def test_tables_are_as_wide_as_the_terminal_and_only_their_markup_is_escaped(monkeypatch):
    assert printable("two\nlines\tand é 漢 👩\u200d🚀") == "two\nlines\tand é 漢 👩\u200d🚀"
    assert visible("two\nlines\tand é 漢") == r"two\nlines\tand é 漢"
    assert printable("\r\b\x7f\x85\u2028\u2066\ud800\ufeff") == r"\r\x08\x7f\x85\u2028\u2066\ud800\ufeff"
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(messages, "terminal_width", lambda: 40)
    columns = [Column("task", ["STS12", "Avg"]), *(Column(f"metric {at}", [12.34, 56.78]) for at in range(7))]
    messages.print_document(document := Document([Table("scores", columns, rules=[1], strong=[1])]))
    assert terminal.getvalue() == document.text(40, bold=True) + "\n" != document.text(40) + "\n"
    assert terminal.getvalue().count("task") > 1


def test_a_message_leaves_no_bar_behind_while_another_thread_draws(monkeypatch, request):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)  # seconds: a thread stops amid its work, as on a busy machine
    written = io.StringIO()
    with Live("bar", console=Console(file=written, force_terminal=True, width=60, height=200), auto_refresh=False) as live:
        monkeypatch.setattr(messages, "_BAR", live)
        drawing = Thread(target=lambda: [live.update("bar\nof two" if i % 2 else "bar", refresh=True) for i in range(300)])
        drawing.start()
        for i in range(300):
            messages.tell(f"line {i}")
        drawing.join()
    assert screen_of(written, 60, 400) == [*(f"line {i}" for i in range(300)), "bar", "of two"]


def test_messages_are_broken_between_words_and_commands_stay_whole(monkeypatch):
    texts = [
        "the 7 tasks measured are kept: stsbench score runs/20261125-1200-minilm; --protocol and --tasks measure others",
        "give your copy, or fetch it by `stsbench data fetch wiki1m_for_simcse.txt --data-dir there` (it is not here yet)",
        "write --set 'data.columns={anchor: question, positive: answer}' for the roles of a file's own columns, all of them"]
    monkeypatch.setattr(messages, "_width", lambda: 40)
    for text in texts:
        lines = messages.at_words(text).split("\n")
        assert " ".join(lines) == text and len(lines) > 1
        assert all(len(line) <= 40 or re.match(r"stsbench|`|--set|runs/", line) for line in lines)
    whole = ["stsbench score runs/20261125-1200-minilm;", "`stsbench data fetch wiki1m_for_simcse.txt --data-dir there`",
             "--set 'data.columns={anchor: question, positive: answer}'"]
    for text, command in zip(texts, whole, strict=True):
        assert any(command in line for line in messages.at_words(text).split("\n"))


@pytest.fixture
def console(monkeypatch):
    """Run the command line on a console of an encoding: (exit code, stdout and stderr in it)."""

    def run(encoding, *words):
        streams = [io.TextIOWrapper(io.BytesIO(), encoding, newline="\n") for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        monkeypatch.setattr(sys, "argv", ["stsbench", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        both = []
        for stream in streams:
            stream.flush()
            both.append(stream.buffer.getvalue().decode(encoding))
        for text in both:
            assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\u202c"} and "Traceback" not in text
        return stop.value.code, *both

    return run


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    rows = [f"{score}\ta {word} boat\tthe {other}" for score, word, other in zip("01234", "pqrst", "pqxyz", strict=True)]
    pairs = tmp_path / f"{HOSTILE.replace('/', '')}.tsv"
    pairs.write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n", "utf-8")
    return tmp_path


def test_names(hostile, console):
    [pairs] = hostile.glob("*.tsv")
    name = f"sts:{pairs.name}"
    words = ["eval", "--model", "lexical:token-set", "--protocol", name, "--no-cache", "--resamples", "40", "--output"]
    for form in ("table", "csv"):
        code, out, err = console("ascii", *words, f"runs/{form}", "--format", form)
        assert code == 0 and out, err
    code, out, err = console("ascii", "compare", "runs/table", "runs/csv")
    assert code == 0 and all(part in " ".join(out.split()) for part in ESCAPED[1:]), err
    code, out, err = console("ascii", *words, "runs/table", "--json", "-")
    assert code == 0 and json.loads(out)[0]["task"]


@pytest.mark.parametrize(("encoding", "words", "wanted"), [
    ("utf-8", ["score", HOSTILE], 1), ("cp1252", [HOSTILE], 2),
    ("ascii", ["eval", "--model", "lexical:token-set", "--protocol", HOSTILE], 1)])
def test_errors(hostile, console, encoding, words, wanted):
    code, out, err = console(encoding, *words)
    assert (code, out) == (wanted, "") and r"\x1b" in err and err.count("stsbench: error:") == (wanted == 1)
