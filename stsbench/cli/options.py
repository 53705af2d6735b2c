"""Options of commands, made of the fields of dataclasses, where their defaults and help stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    """A command whose help lists options below the headings of what they are of, rare ones by --help-all alone.

    common: the names of those that --help lists, in this order, without headings; (): all that are not rare. also: what
    people call the command, whom an error tells its name.
    """

    def __init__(self, *args: Any, common: Sequence[str] = (), also: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self.common, self.also = common, also
        if common or any(getattr(parameter, "rare", False) for parameter in self.params):
            self.params.append(click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False,
                                            callback=_show_all, help="Show all options."))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each heading with its options; those of the command itself come first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        parameters, few = self.get_params(ctx), self.common and not ctx.meta.get(_ALL)
        if few:
            *others_and_common, of_help = parameters
            by_name = {parameter.name: parameter for parameter in others_and_common}
            others = [parameter.opts[0] for name, parameter in by_name.items() if name not in (*self.common, "help_all")]
            sections["More options"] = [("--help-all", f"explains these, too: {' '.join(others)}")]
            parameters = [*map(by_name.__getitem__, self.common), of_help]
        for parameter in parameters:
            shown = few or ctx.meta.get(_ALL) or not getattr(parameter, "rare", False)
            record = parameter.get_help_record(ctx) if shown and isinstance(parameter, click.Option) else None
            if record is not None:
                title = "Options" if few else getattr(parameter, "section", "Options")
                sections.setdefault(title, []).append(record)
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
        more["type"] = _Choices(known["choices"])
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
    """An option that knows the flags that it had in earlier versions, and has in other programs."""

    def __init__(self, *args: Any, renamed: Mapping[str, str] | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self.renamed = {**self.renamed, **(renamed or {})}

    renamed: Mapping[str, str] = {}  # such a flag -> what is written here
    section = "Options"  # the heading in a command's help
    rare = False  # listed by --help-all alone


class _Choices(click.Choice[str]):
    """Words, of which others are refused in the place of one that other programs have, as fp16, by naming it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        flag = getattr(param, "renamed", {}).get(f"--{value}", "")
        if flag and value not in self.choices:
            self.fail(f"'{value}' is written {flag.rpartition(' ')[2]} here.", param, ctx)
        return super().convert(value, param, ctx)


def _as_flag(argument: str) -> str:
    """Return `extra_body={...}`, an argument of Python, as the command line has it; `o` is -o."""
    first, blank, rest = argument.partition(" ")
    name, equals, value = first.partition("=")
    flag = f"{'-' if len(name) == 1 else '--'}{name.replace('_', '-')}"
    return f"{flag} '{value}{blank}{rest}'" if "{" in value else flag + equals.replace("=", " ") + value + blank + rest
