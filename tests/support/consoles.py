"""Consoles of any encoding, and a text that holds what a terminal would obey."""

import io
import sys

import pytest

from stsbench.cli.main import main

HOSTILE = "a [red]boat[/red] \\[/] \U0001f31e \x1b[31m\x07 \x9b2J \u202egnol\u202c é\u2013"
ESCAPED = [r"[red]boat[/red] \[/]", r"\x1b[31m\x07 \x9b2J", r"\u202egnol\u202c"]
ENCODINGS = ["utf-8", "cp1252", "latin-1", "ascii"]


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
