"""The tab key: a real bash on a terminal completes commands, options and values; scripts for other shells are click's."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest
from click.shell_completion import CompletionItem
from clirun import cli, place  # noqa: F401 - fixtures

from stsbench.cli.main import cli as root
from stsbench.cli.setup.completion import VARIABLE, Bash


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
        assert terminal.complete("stsbench eval --model lexical:tf") == "stsbench eval --model lexical:tfidf"
        assert terminal.complete("stsbench train simcse --recipe sup-roberta-l") == (
            "stsbench train simcse --recipe sup-roberta-large"
        )
        (tmp_path / "sentences.txt").touch()
        assert terminal.complete("stsbench train simcse --data sent") == "stsbench train simcse --data sentences.txt"
    finally:
        terminal.close()


def completed(line):
    """What is offered for the last word of a line, in full."""
    complete = Bash(root, {}, "stsbench", VARIABLE)
    words = line.split(" ")[1:]
    return [item.value if item.type == "plain" else item.type for item in complete.get_completions(words[:-1], words[-1])]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("stsbench comp", ["compare", "completion"]),
        ("stsbench compare a b --protocol tra", ["transfer"]),
        ("stsbench eval --pool", ["--pooler"]),
        ("stsbench eval --pooler first", ["first_last:embeddings", "first_last:layer1"]),
        ("stsbench eval --protocol sts,tra", ["sts,transfer"]),
        ("stsbench eval --protocol sts:w", ["sts:wmean"]),
        ("stsbench eval --protocol simc", ["simcse"]),
        ("stsbench eval --model mini", ["minilm"]),
        ("stsbench eval --model ./mo", ["file"]),
        ("stsbench eval --post whi", ["whitening"]),
        ("stsbench train pro", ["promptbert"]),
        ("stsbench train ./mine.py", ["file"]),
        ("stsbench train simcse --recipe ./mine", ["file"]),
        ("stsbench train nothing --recipe uns", ["file"]),
        ("stsbench show data sick-r/te", ["sick-r/test"]),
        ("stsbench show recipe diffcse/bert-base-un", []),
        ("stsbench data verify sts12", ["sts12/test"]),
        ("stsbench list rec", ["recipes"]),
        ("stsbench no-such-command --x", []),
    ],
)
def test_values(line, offered):
    assert completed(line) == offered


def test_every_recipe_of_a_method_is_offered(cli):
    _, out, _ = cli("list", "recipes", "--method", "ct")
    assert completed("stsbench train ct --recipe ") == [line.split()[0].removeprefix("ct/") for line in out.splitlines()]


@pytest.mark.parametrize(
    ("breaks", "line", "value", "shown"),
    [
        (":= ", "stsbench eval --model lexical:t", "lexical:tfidf", "tfidf"),  # bash replaces what stands behind the colon
        (" ", "stsbench eval --model lexical:t", "lexical:tfidf", "lexical:tfidf"),
        (":= ", "stsbench eval --protocol sts,tr", "sts,transfer", "sts,transfer"),
    ],
)
def test_bash_gets_the_part_of_a_word_that_it_replaces(monkeypatch, breaks, line, value, shown):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_WORDBREAKS", breaks)
    shell = Bash(root, {}, "stsbench", VARIABLE)
    shell.get_completion_args()
    assert shell.format_completion(CompletionItem(value)) == f"plain,{shown}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_read_by_their_shell(cli, shell, tmp_path):
    code, out, err = cli("completion", shell)
    assert code == 0 and err == "" and VARIABLE in out
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    (tmp_path / "script").write_text(out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
