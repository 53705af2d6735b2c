"""`stsbench new`: write a template for a user's own method, protocol or kind of encoder."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from stsbench.cli.messages import echo
from stsbench.errors import StsbenchError
from stsbench.files import new_folder
from stsbench.registry import names

# kind -> how its class is tried: without installation where it is FILE.py:CLASS
KINDS = {
    "method": "stsbench train {file}:{kind} --sample",
    "protocol": "stsbench eval --model minilm --protocol {file}:{kind} --sample",
    "encoder": "pip install -e {folder}, then stsbench eval --model {name}:3 --protocol sts --sample",
}
_PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1"
dependencies = ["stsbench"]

[project.entry-points."stsbench.{group}"]
{name} = "{module}:{kind}"

[tool.setuptools]
py-modules = ["{module}"]
"""


@click.command("new", short_help="Tools | Write a small method, protocol or encoder of your own, with its test.")
@click.argument("kind", type=click.Choice([*KINDS]))
@click.argument("name")
@click.option("--output", type=click.Path(path_type=Path), help="A new folder; default NAME.")
def new(kind: str, name: str, output: Path | None) -> None:
    """Write a folder with a small class that works, its test, and what makes it known by NAME once it is installed.

    NAME: words of letters and digits, joined by hyphens, such as my-loss.
    """
    for line in write_template(kind, name, output).lines():
        echo(line)


@dataclass(frozen=True)
class Written:
    """The written template: the file of the class, its test, and a command that runs the class."""

    file: Path
    test: Path
    command: str

    def lines(self) -> list[str]:
        """Return what to do with it, a line each."""
        return [f"the class  {self.file}", f"its test   pytest {self.test}", f"to run it  {self.command}"]


def write_template(kind: str, name: str, output: Path | None = None) -> Written:
    """Write a class of this kind, its test and its pyproject.toml into a new folder.

    kind: one of KINDS; name: by which the class is known once it is installed; output: None is the folder `name`.
    Raises StsbenchError, one line, for a name that cannot be one, or is taken, and for a folder that is already there.
    """
    module = name.replace("-", "_")
    if not re.fullmatch("[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise StsbenchError(f"{name!r} cannot be a name: small letters and digits, words joined by hyphens, e.g. my-loss")
    if name in names(f"stsbench.{kind}s") or find_spec(module):
        raise StsbenchError(f"the name {name} is taken, by an installed {kind} or a module: choose another")
    folder, class_name = output or Path(name), "".join(word.capitalize() for word in module.split("_"))
    changed = {"example_module": module, "example-name": name, "Example": class_name}
    with new_folder(folder) as building:
        for path in sorted((Path(__file__).parent / kind).glob("*.py")):
            text = re.sub("|".join(changed), lambda match: changed[match[0]], path.read_text("utf-8"))
            (building / path.name.replace("example_module", module)).write_text(text, "utf-8")
        project = _PROJECT.format(name=name, group=f"{kind}s", module=module, kind=class_name)
        (building / "pyproject.toml").write_text(project, "utf-8")
    shown = str(folder) if folder.is_absolute() else f"./{folder}"
    command = KINDS[kind].format(file=f"{shown}/{module}.py", kind=class_name, folder=shown, name=name)
    return Written(folder / f"{module}.py", folder / f"test_{module}.py", command)
