"""Options that are made of the fields of dataclasses: each default and help stands once; and the tab key, which completes
them by click's own script."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from clirun import cli, place  # noqa: F401 - fixtures

from stsbench.cli.eval import evaluate
from stsbench.cli.options import add_options
from stsbench.errors import StsbenchError
from stsbench.evaluation.options import EvalOptions, studies
from stsbench.options import extensible, flag_name, option


@dataclass(frozen=True, kw_only=True)
class Options:
    name: str = option("", "Who.", required=True)
    size: int | None = option(None, "How many.", least=1)
    folder: Path | None = option(None, "Where.", flag="--to")
    kind: str = option("plain", "Of which kind.", choices=("plain", "other"))
    parts: tuple[str, ...] = option(("one", "two"), "Parts.", metavar="A,B")
    limit: float = option(2.5, "Most.")
    whole: bool = option(False, "All.")
    ends: bool | None = option(None, "With ends.")
    values: Mapping[str, Any] = option(dict, "Values.", metavar="KEY=VALUE")
    inner: int = 3  # no option


@click.command()
@add_options(Options)
def command(**options):
    click.echo(repr(sorted(options.items())))


def called(*words):
    return CliRunner().invoke(command, words)


def test_every_type_of_field_has_its_option():
    defaults = {"name": "a", "size": None, "folder": None, "kind": "plain", "parts": "one,two", "limit": 2.5, "whole": False,
                "ends": None, "values": ()}
    assert called("--name", "a").output == f"{sorted(defaults.items())!r}\n"
    told = called("--name", "a", "--size", "2", "--to", "x", "--kind", "other", "--limit", "1", "--whole", "--no-ends",
                  "--values", "a=1", "--values", "b=2", "--parts", "three").output
    named = {"name": "a", "size": 2, "folder": Path("x"), "kind": "other", "parts": "three", "limit": 1.0, "whole": True,
             "ends": False, "values": ("a=1", "b=2")}
    assert told == f"{sorted(named.items())!r}\n"
    assert Options(name="a").values == {} and Options(name="a").parts == ("one", "two")


def test_help_says_a_default_that_is_one():
    lines = [line.split() for line in called("--help").output.splitlines() if line.lstrip().startswith("--")]
    shown = {words[0]: " ".join(words) for words in lines}
    assert "[default: 2.5]" in shown["--limit"] and "default" not in shown["--size"] + shown["--whole"]


def test_eval_takes_what_its_options_are_and_no_other_default():
    of_python = {"fingerprint", "command", "extra_provenance"}
    made = {entry.name: entry for kind in (EvalOptions, *(study.options for study in studies())) for entry in fields(kind)
            if entry.name not in of_python}
    parameters = {parameter.name: parameter for parameter in evaluate.params}
    assert set(parameters) - set(made) == {"json_target", "form", "help_all"} and set(made) <= set(parameters)
    shown = {name: parameters[name].default for name in made if getattr(parameters[name], "show_default", None)}
    assert shown.items() >= {
        "dtype": "float32", "attention": "auto", "cache_limit": 20.0, "protocols": "sts", "text_version": "senteval",
    }.items()


def test_help_lists_what_many_need_and_help_all_the_rest():
    def listed(word):
        return re.findall(r"^  (?:-h, )?(--[\w-]+)", CliRunner().invoke(evaluate, [word]).output, re.MULTILINE)

    of_extensions = {name for kind in EvalOptions.__mro__ if kind.__module__.startswith("stsbench.extensions")
                     for name in vars(kind).get("__annotations__", {})}
    flags = {entry.name: flag_name(entry) for entry in fields(EvalOptions) if "help" in entry.metadata}
    core = {flag for name, flag in flags.items() if name not in of_extensions}
    shown, everything = {*listed("--help")}, {*listed("--help-all")}
    assert shown < everything and {*flags.values()} <= everything
    assert len(shown - {"--help", "--help-all"}) == 15 and shown & core == shown & {*flags.values()}


def test_an_extension_cannot_take_the_name_of_another_option(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Taking:
        size: int | None = option(7, "Another default.")

    monkeypatch.setattr("stsbench.options.names", lambda group: ["one"])
    monkeypatch.setattr("stsbench.options.resolve", lambda group, name: Taking)
    with pytest.raises(StsbenchError, match=r"Taking .*has the option size of Options .*: give it another name"):
        extensible("a group")(Options)
    with pytest.raises(StsbenchError, match=r"Options .* and Taking .* have the option size twice"):
        add_options(Options, Taking)


@pytest.mark.parametrize(("line", "completed"), [
    ("stsbench eva", "plain,eval\n"), ("stsbench eval --strict-d", "plain,--strict-data\n"),
    ("stsbench eval --text sent", "plain,senteval\n"),
])
def test_what_is_typed_is_completed(cli, monkeypatch, line, completed):
    """As bash asks: its script puts the line into the environment."""
    asked = {"_STSBENCH_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert cli() == (0, completed, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_read_by_their_shell(cli, shell, tmp_path):
    code, out, err = cli("completion", shell)
    assert code == 0 and err == "" and "_STSBENCH_COMPLETE" in out
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    (tmp_path / "script").write_text(out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
