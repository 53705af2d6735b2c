"""Code blocks of Markdown pages: what they are, what they print, why the tests leave some out."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click

ROOT = Path(__file__).resolve().parents[2]
# Pages whose blocks a test of their own runs, below tests/.
BY_TEST = {"docs/how-to/adding-a-method.md": "training/api/test_howto_method.py",
           "docs/how-to/adding-a-protocol.md": "protocols/test_howto_protocol.py",
           "docs/how-to/adding-an-encoder.md": "encoders/test_encoder_contract.py"}
_BLOCK = re.compile(
    r"(?P<above>[^\n]*)\n+(?P<mark><!-- not run by the tests: (?P<reason>[^\n]+) -->\n)?"
    r"```(?P<kind>\w+)\n(?P<text>.*?)^```$(?:\n+prints\n+```\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A code block. file: what it is saved as; reason: why the tests leave it out; output: what the page says it prints."""

    kind: str
    text: str
    file: str | None = None
    reason: str | None = None
    output: str | None = None

    @property
    def commands(self):
        """The lines of a shell block as words; a backslash joins two lines."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def pages():
    """Path -> text: the README and every page below docs/."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def blocks(text):
    """The blocks of a page that have a language; those without one are output or a drawing."""
    made = []
    for match in _BLOCK.finditer(text) if "```" in text else ():  # pages of numbers are long
        file = re.search(r"[Ss]ave this as `([\w.-]+)`", match["above"])
        made.append(Block(match["kind"], match["text"], file and file[1], match["reason"], match["output"]))
    return made


def fences(text):
    """(language, text) of every fenced block, however it is marked."""
    return re.findall(r"^ *```([\w-]*)[^\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


def parse(words):
    """Raise click.UsageError where `stsbench` would not understand these words. Nothing is run, no path is looked for."""
    from stsbench.cli.main import cli

    command = cli
    context = click.Context(command, info_name="stsbench")
    while isinstance(command, click.Group):
        name, chosen, words = command.resolve_command(context, words)
        if chosen is None:
            raise click.UsageError(f"no command {name}")
        command, context = chosen, click.Context(chosen, info_name=name, parent=context)
    values, left, _ = command.make_parser(context).parse_args(args=words)
    if left:
        raise click.UsageError(f"{command.name}: left over: {' '.join(left)}")
    for option in command.params:
        if isinstance(option.type, click.Choice) and isinstance(value := values.get(option.name or ""), str):
            option.type.convert(value, option, context)
