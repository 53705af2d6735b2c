"""Entry point of the command line: lazy commands, one-line errors, exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from itertools import pairwise
from typing import Any

import click
from click.shell_completion import get_completion_class

from stsbench.cli.messages import at_words, be_quiet, echo, escape_unencodable, warnings_as_lines
from stsbench.encoders.options import ProcessOptions
from stsbench.errors import StsbenchError
from stsbench.processes import exit_code, stop_on_sigterm
from stsbench.registry import did_you_mean, names, resolve
from stsbench.wording import printable

_LONGEST = 500  # characters of an unforeseen error: some libraries' messages fill a screen
_GROUP = "stsbench.commands"  # entry points: commands of extensions, with `short_help` as "section | line"
_SECTIONS = ("Measure", "Train", "Compare and decide", "Board and papers", "Tools")  # their order; other sections follow
# name -> (module, its section in the help and one line): the module is imported only when its command runs.
_COMMANDS = {
    "eval": ("stsbench.cli.eval:evaluate", "Measure | Measure an encoder under one protocol, several, or all."),
    "train": ("stsbench.cli.train:train", "Train | Train a method by a recipe; export and test the result."),
    "score": ("stsbench.cli.runs:score", "Measure | Score a run again from its stored observations (imports no torch)."),
    "compare": (
        "stsbench.cli.runs:compare_", "Compare and decide | Compare two runs: paired bootstrap, per task and on average."
    ),
    "list": ("stsbench.cli.show:list_", "Tools | List protocols, encoders, data, methods or recipes."),
    "show": ("stsbench.cli.show:show", "Tools | Show one protocol, data set, method or recipe in full."),
    "data": ("stsbench.cli.data:data", "Tools | Fetch, verify, bundle data; find sentences shared by sets."),
    "completion": ("stsbench.cli.main:completion", "Tools | Print the script for the tab key in bash, zsh or fish."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return _names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return _command(name) if name in _names() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _names() and not args[0].startswith("-") and not ctx.resilient_parsing:
            from stsbench.cli.options import command_meant

            meant = [name for name in _names() if args[0] in getattr(_command(name), "also", ())]
            if meant:  # of several commands take the one whose number of arguments fits best
                alone = sum(word[0] != "-" != before[0] for before, word in pairwise([".", *args[1:]]) if word)
                takes = {name: [one for one in _command(name).params if isinstance(one, click.Argument)] for name in meant}
                name = min(meant, key=lambda name: abs(alone - len(takes[name])))
                ctx.fail(f"no such command '{args[0]}': {command_meant(name, _command(name), args[1:])}")
            ctx.fail(f"no such command '{args[0]}'{did_you_mean(args[0], _names())}")
        name = args[0] if args else ""
        ctx.default_map = {name: _defaults_below_torchrun(name, args[1:])}
        resolved, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            from stsbench.cli.options import refuse_repeated

            refuse_repeated(command, rest)
        return resolved, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = {name: _COMMANDS[name][1] if name in _COMMANDS else _command(name).short_help or "" for name in _names()}
        sections: dict[str, list[tuple[str, str]]] = {section: [] for section in _SECTIONS}
        for name, line in lines.items():
            section, bar, about = line.partition(" | ")
            sections.setdefault(section if bar else "Others", []).append((name, about if bar else line))
        for section, commands in ((section, commands) for section, commands in sections.items() if commands):
            with formatter.section(section):
                formatter.write_dl(commands)


def _names() -> list[str]:
    """Return the names of the commands: the core's in their order, then those of extensions."""
    return [*_COMMANDS, *(name for name in names(_GROUP) if name not in _COMMANDS)]


def _command(name: str) -> click.Command:
    if name in _COMMANDS:
        module, _, attribute = _COMMANDS[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
    registered: click.Command = resolve(_GROUP, name)
    return registered


def _defaults_below_torchrun(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the defaults of a command's options when torchrun started it; {} where they are the same as without it.

    `train` runs in each of torchrun's processes. A command that takes ProcessOptions runs in the first, which starts as
    many of its own; the other processes exit here. Raises StsbenchError for any other command, and on several machines, as
    every process would do the same work."""
    count = os.environ.get("WORLD_SIZE", "1")
    if name == "train" or not count.isdecimal() or int(count) <= 1:
        return {}
    if not {entry.name for entry in fields(ProcessOptions)} & {option.name for option in _command(name).params}:
        raise StsbenchError(f"`stsbench {name}` runs in one process, and this is one of {count}: start it without torchrun, "
                            "WORLD_SIZE unset")
    if os.environ.get("LOCAL_WORLD_SIZE", count) != count:
        raise StsbenchError(f"`stsbench {name}` runs on one machine, and torchrun started it on several: leave --nnodes out")
    if os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) != "0":
        sys.exit(0)
    for variable in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"):  # or libraries would wait for the others
        os.environ.pop(variable, None)
    return ProcessOptions.of_torchrun(int(count), arguments)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="stsbench")
def cli() -> None:
    """Measure sentence embeddings under the protocols of the literature, train encoders by its methods.

    \b
    stsbench eval --model minilm --sample

    Anywhere on the line: --quiet shows results, warnings and errors alone, --debug shows tracebacks.
    """


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 finished with some tasks failed, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    arguments = [word for word in sys.argv[1:] if word not in ("--debug", "--quiet")]
    debug = "--debug" in sys.argv[1:]
    escape_unencodable()
    be_quiet("--quiet" in sys.argv[1:])
    warnings_as_lines()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # imported by peft, it logs which kernels it lacks
    if debug:  # show details of failures on stderr, such as the traceback of a failed task
        logger = logging.getLogger("stsbench")
        logger.setLevel(logging.DEBUG)
        if not logger.handlers:
            logger.addHandler(logging.StreamHandler())
    stop_on_sigterm()
    # torch's threads wait for one another by spinning, so where one core has other work, too, all of them spin until it is
    # done: a training on two busy cores took three times as long as with sleeping threads, which cost a tenth on idle cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Without PYTHONSAFEPATH child processes (joblib's, for example) would import modules from the working folder, which may
    # hold a run or data from elsewhere. The console script itself does not.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    try:
        for word in arguments:  # a file's name may hold bytes that are not UTF-8, and records are UTF-8
            try:
                word.encode()
            except UnicodeEncodeError:
                remedy = "type a text in UTF-8, rename a file or make a link to it"
                raise click.UsageError(f"{word!a} is not UTF-8: {remedy}") from None
        code = cli.main(arguments, prog_name="stsbench", standalone_mode=False)
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            from stsbench.cli.options import meant

            if now := meant(error, arguments[1:]):
                error = click.UsageError(now, error.ctx)
        text = at_words(f"Error: {printable(error.message)}").removeprefix("Error: ")
        vars(error)["message"] = text  # set through vars, as click declares the attribute final
        error.show(sys.stderr)  # with the file named, or click would write UTF-8 to an ASCII console
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        echo("stsbench: interrupted", err=True)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a closed pipe, as after `| head`, is not a failure
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        text = str(error)
        if not isinstance(error, StsbenchError | OSError):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
            text = f"{text if len(text) <= _LONGEST else text[:_LONGEST] + '...'} (--debug shows where)"
        echo("stsbench: error: " + " ".join(text.split()), err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options by the tab key.

    \b
    bash:  echo 'eval "$(stsbench completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(stsbench completion zsh)"' >> ~/.zshrc
    fish:  stsbench completion fish > ~/.config/fish/completions/stsbench.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click supports all three shells
    echo(kind(ctx.find_root().command, {}, "stsbench", "_STSBENCH_COMPLETE").source())
