"""Options of commands, made of the fields of dataclasses, where their defaults and help stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_type_hints

import click

from stsbench.errors import StsbenchError
from stsbench.options import flag_name
from stsbench.registry import where


def add_options(*groups: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option for each field of these dataclasses that `stsbench.options.option` made, in their order.

    StsbenchError: two of them, one perhaps an extension's, have a field of one name.
    """
    count = Counter(entry.name for group in groups for entry in fields(group))
    if twice := sorted(name for name, times in count.items() if times > 1):
        raise StsbenchError(f"{' and '.join(map(where, groups))} have the option {twice[0]} twice: give one another name")

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for group in reversed(groups):
            types = get_type_hints(group)
            for entry in reversed([entry for entry in fields(group) if "help" in entry.metadata]):
                command = _option(entry, types[entry.name], _section(group, entry.name))(command)
        return command

    return add


def _section(group: type, name: str) -> str:
    """Return the heading in a command's help: the name of the dataclass that declares the field, as words."""
    owner = next(kind for kind in reversed(group.__mro__) if name in vars(kind).get("__annotations__", {}))
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", owner.__name__).capitalize()


class Command(click.Command):
    """A command whose help lists options below the headings of what they are of, rare ones by --help-all alone."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        if any(getattr(parameter, "rare", False) for parameter in self.params):
            self.params.append(click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False,
                                            callback=_show_all, help="Show this message with the rarer options, too."))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each heading with its options; those of the command itself come first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            shown = ctx.meta.get(_ALL) or not getattr(parameter, "rare", False)
            record = parameter.get_help_record(ctx) if shown and isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


_ALL = "stsbench.help_all"


def _show_all(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _option(entry: Field[Any], kind: Any, section: str) -> Callable[..., Any]:
    """Return the option of a field with values of the type `kind`. A default other than None, False and nothing is shown."""
    known = entry.metadata
    more = {"help": known["help"] or None, "metavar": known["metavar"], "required": known["required"]}
    flag = flag_name(entry)
    if kind is bool:
        more["is_flag"] = True
    elif kind == bool | None:
        flag, more["default"] = f"{flag}/--no-{flag.removeprefix('--')}", None
    elif known["choices"]:
        more["type"] = click.Choice(known["choices"])
    elif known["least"] is not None:
        more["type"] = (click.FloatRange if kind in (float, float | None) else click.IntRange)(min=known["least"])
    elif kind == int | None:
        more["type"] = int
    elif kind == float | None:
        more["type"] = float
    elif kind == Path | None:
        more["type"] = click.Path(path_type=Path)
    elif entry.default_factory in (dict, list):
        more["multiple"] = True
    default = ",".join(entry.default) if isinstance(entry.default, tuple) else entry.default
    if default and isinstance(default, str | int | float):
        more |= {"default": default, "show_default": True}
    renamed = {_as_flag(old): _as_flag(new) for old, new in known["renamed"].items()}
    about = {"renamed": renamed, "section": section, "rare": known["rare"]}
    return click.option(flag, entry.name, cls=type("Option", (Option,), about), **more)


class Option(click.Option):
    """An option that knows the flags that it had in earlier versions."""

    renamed: Mapping[str, str] = {}  # old flag -> what is written now
    section = "Options"  # the heading in a command's help
    rare = False  # listed by --help-all alone


def written_now(error: click.NoSuchOption) -> str | None:
    """Return what to write in the place of a flag of an earlier version; None for any other."""
    parameters = error.ctx.command.params if error.ctx else ()
    now = [parameter.renamed[error.option_name] for parameter in parameters
           if isinstance(parameter, Option) and error.option_name in parameter.renamed]
    return f"there is no {error.option_name}: write {' or '.join(now)}" if now else None


def _as_flag(argument: str) -> str:
    """Return `extra_body={...}`, an argument of Python, as the command line has it."""
    if " " in argument:
        return f"--{argument}"
    name, equals, value = argument.partition("=")
    return f"--{name.replace('_', '-')}" + (f" '{value}'" if equals else "")
