"""The tab key: a real bash on a terminal completes commands, options and choices by click's own script."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest
from clirun import cli, place  # noqa: F401 - fixtures


class Terminal:
    """An interactive bash that has evaluated `stsbench completion bash`."""

    def __init__(self, folder):
        tool = folder / "stsbench"
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m stsbench "$@"\n')
        tool.chmod(0o755)
        self.process, self._terminal = pty.fork()
        if not self.process:
            os.chdir(folder)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb", "HISTFILE": ""}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        # The echo of what is typed holds a quote, and so never looks like the answer.
        self._ask("bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; eval \"$(stsbench completion bash)\"")

    def complete(self, line):
        """The line after a tab at its end."""
        os.write(self._terminal, f"{line}\t\x01echo '[[' \x05 ']]'\n".encode())
        return self._until(r"\[\[ (.*?)\s*\]\]\r\n")

    def _ask(self, line):
        os.write(self._terminal, f"{line}; echo rea''dy\n".encode())
        self._until(r"(ready)\r\n")

    def _until(self, pattern):
        text, end = "", time.monotonic() + 30
        while not (match := re.search(pattern, text)):
            assert select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))[0], text
            text += os.read(self._terminal, 1 << 16).decode(errors="replace")
        return match[1]

    def close(self):
        os.close(self._terminal)
        os.waitpid(self.process, 0)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes_what_is_typed(tmp_path):
    terminal = Terminal(tmp_path)
    try:
        assert terminal.complete("stsbench eva") == "stsbench eval"
        assert terminal.complete("stsbench eval --strict-d") == "stsbench eval --strict-data"
        assert terminal.complete("stsbench eval --text sent") == "stsbench eval --text senteval"
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_read_by_their_shell(cli, shell, tmp_path):
    code, out, err = cli("completion", shell)
    assert code == 0 and err == "" and "_STSBENCH_COMPLETE" in out
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    (tmp_path / "script").write_text(out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
