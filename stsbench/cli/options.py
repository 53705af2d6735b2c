"""Command-line options made from dataclass fields, which hold their defaults and help, and suggestions for mistyped lines:
which option, command or order of words was meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import Field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import click

from stsbench.errors import StsbenchError
from stsbench.options import flag_name
from stsbench.registry import did_you_mean, where


def add_options(*groups: type, only: Collection[str] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds an option for each field of these dataclasses that `stsbench.options.option` made.

    only: names of the fields to add, None for all. Raises StsbenchError where two of the dataclasses, one perhaps an
    extension's, have a field of the same name."""
    count = Counter(entry.name for group in groups for entry in fields(group))
    if twice := sorted(name for name, times in count.items() if times > 1):
        raise StsbenchError(f"{' and '.join(map(where, groups))} have the option {twice[0]} twice: give one another name")

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for group in reversed(groups):
            types = get_type_hints(group)
            for entry in reversed([entry for entry in fields(group) if "help" in entry.metadata]):
                if only is not None and entry.name not in only:
                    continue
                # The heading in a command's help is the name of the dataclass that declares the field, as words.
                owner = next(kind for kind in reversed(group.__mro__) if entry.name in vars(kind).get("__annotations__", {}))
                section = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", owner.__name__).capitalize()
                command = _option(entry, types[entry.name], section)(command)
        return command

    return add


class Command(click.Command):
    """A command whose help groups its options below headings and lists advanced ones only with --help-all.

    common: the names of the options that --help lists, in this order, without headings; (): all but the advanced ones. also:
    other names that people may type for the command, for which an error suggests this one.
    """

    def __init__(self, *args: Any, common: Sequence[str] = (), also: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self.common, self.also = common, also
        if common or any(getattr(parameter, "advanced", False) for parameter in self.params):
            self.params.append(click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False,
                                            callback=_show_all, help="Show all options."))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each heading with its options; the command's own options come first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        parameters, few = self.get_params(ctx), self.common and not ctx.meta.get(_ALL)
        if few:
            *others_and_common, of_help = parameters
            by_name = {parameter.name: parameter for parameter in others_and_common}
            others = [parameter.opts[0] for name, parameter in by_name.items() if name not in (*self.common, "help_all")]
            sections["More options"] = [("--help-all", f"explains these, too: {' '.join(others)}")]
            parameters = [*map(by_name.__getitem__, self.common), of_help]
        for parameter in parameters:
            shown = few or ctx.meta.get(_ALL) or not getattr(parameter, "advanced", False)
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
    """Return the option of a field whose values have the type `kind`. Help shows defaults except None, False and ""."""
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
    if isinstance(default, str | int | float) and default is not False and default != "":
        more |= {"default": default, "show_default": True}
    renamed = {_as_flag(old): _as_flag(new) for old, new in known["renamed"].items()}
    about = {"renamed": renamed, "section": section, "advanced": known["advanced"]}
    return click.option(flag, entry.name, cls=type("Option", (Option,), about), **more)


class Option(click.Option):
    """An option that knows its flags of earlier versions and of other programs, for suggestions."""

    def __init__(self, *args: Any, renamed: Mapping[str, str] | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self.renamed = {**self.renamed, **(renamed or {})}

    renamed: Mapping[str, str] = {}  # flag of an earlier version or another program -> what to write instead
    section = "Options"  # the heading in a command's help
    advanced = False  # whether only --help-all lists it


class _Choices(click.Choice[str]):
    """Choice among words that refuses the word of another program, such as fp16, by naming its equivalent."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        flag = getattr(param, "renamed", {}).get(f"--{value}", "")
        if flag and value not in self.choices:
            self.fail(f"'{value}' is written {flag.rpartition(' ')[2]} here.", param, ctx)
        return super().convert(value, param, ctx)


def _as_flag(argument: str) -> str:
    """Return an argument of Python, such as `extra_body={...}`, as it is written on the command line; `o` becomes -o."""
    first, blank, rest = argument.partition(" ")
    name, equals, value = first.partition("=")
    flag = f"{'-' if len(name) == 1 else '--'}{name.replace('_', '-')}"
    return f"{flag} '{value}{blank}{rest}'" if "{" in value else flag + equals.replace("=", " ") + value + blank + rest


_RUNS = ("a", "b", "run")  # names of arguments that take run folders


def command_meant(name: str, command: click.Command, words: Sequence[str]) -> str:
    """Return what to write instead of an unknown command and its arguments. name, command: what was probably meant."""
    return "; ".join([f"write stsbench {name}", *_words_alone(command, words), *_unknown_options(command, "", words)])


def meant(error: click.UsageError, words: Sequence[str]) -> str | None:
    """Return what to write instead of the words of a line that its command does not take; None without a suggestion."""
    command = error.ctx.command if error.ctx else None
    if command is None or isinstance(command, click.Group):
        return None
    if not isinstance(error, click.NoSuchOption | click.MissingParameter) and "unexpected extra" not in error.message:
        return None
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        kind = error.param.type
        return f"name one of {', '.join(map(str, kind.choices))}" if isinstance(kind, click.Choice) else None
    unknown = _unknown_options(command, error.option_name, words) if isinstance(error, click.NoSuchOption) else []
    return "; ".join([*_words_alone(command, words), *unknown]) or None


def refuse_repeated(command: click.Command, words: Sequence[str]) -> None:
    """Raise click.UsageError for a single-valued option that is given twice: click would silently keep the last value."""
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    values: dict[str, list[str]] = {}
    for flag, value in _valued(command, words):
        values.setdefault(flag, []).append(value)
    for flag, several in values.items():
        if len(several) > 1 and not _parameters(command)[flag].multiple:
            joined = f": name several with commas, {flag} {','.join(several)}" if _takes_commas(command, flag) else ""
            raise click.UsageError(f"{flag} is given {'twice' if len(several) == 2 else f'{len(several)} times'}{joined}")


def _valued(command: click.Command, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (first flag, value) of each option of a line that takes a value."""
    options = _parameters(command)
    rest = iter(words)
    for word in rest:
        if word == "--":
            return
        flag, equals, value = word.partition("=")
        option = options.get(flag)
        if option is not None and not getattr(option, "is_flag", False):
            yield option.opts[0], value if equals else next(rest, "")


def _takes_commas(command: click.Command, flag: str) -> bool:
    option = _parameters(command).get(flag)
    metavar = getattr(option, "metavar", None) or ""
    return "," in metavar and "=" not in metavar


def _unknown_options(command: click.Command, first: str, words: Sequence[str]) -> list[str]:
    """Return suggestions for all options of the line that the command does not have, not only for the first."""
    known = _parameters(command)
    written = [*([first] if first else []), *(word.partition("=")[0] for word in words if re.match("--|-[a-z]$", word))]
    meanings: dict[str, list[str]] = {}
    for word in dict.fromkeys(written):
        if word == first or word not in {*known, "--", "-h", "--help"}:
            value = next((after for before, after in pairwise(words) if before == word and not after.startswith("-")), None)
            flags = {flag for flag, one in known.items() if value is None or not getattr(one, "is_flag", False)}
            meanings.setdefault(_spelling(command, word, flags, value), []).append(word)
    return [f"there is no {', '.join(unknown)}{meaning}" for meaning, unknown in meanings.items()]


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    return {name: parameter for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def _spelling(command: click.Command, word: str, flags: set[str], value: str | None) -> str:
    """Return ": write ..." or "; did you mean ...?" for an option that the command does not have. flags: the flags that may
    be meant; value: the word after the option."""
    name = word.strip("-").replace("_", "-")
    plain = word.replace("_", "-")
    options = sorted((one for one in command.params if isinstance(one, Option)), key=lambda one: one.advanced)
    meant = [option for option in options if plain in option.renamed]
    now = [option.renamed[plain] for option in meant if option.advanced == meant[0].advanced]
    if more := [option.renamed[f"--{value}"] for option in meant if f"--{value}" in option.renamed]:  # as --precision fp16
        return f": write {more[0]}"
    if value is not None and plain == "--data" and now and Path(value).exists() and (protocols := _protocols(value)):
        return f": write {protocols}"
    # For example --batch_size for --batch-size, and --output-dir for --output.
    now = now or sorted((flag for flag in flags if f"--{name}-".startswith(f"{flag}-")), key=len)[-1:]
    if now:
        return f": write {' or '.join(now)}"
    if len(name) == 1 and (fitting := [flag for flag in flags if flag.startswith(f"--{name}")]):
        return f"; did you mean {' or '.join(sorted(fitting)[:3])}?"
    return did_you_mean(f"--{name}", sorted(name for name in flags if name.startswith("--")), otherwise="; see --help")


def _protocols(file: str) -> str:
    """Return the options that measure a user's file, judging by its columns; "" where the columns fit none."""
    from stsbench.evaluation.own_data import fitting_options

    try:
        return ", or ".join(option for _, option in fitting_options(Path(file)))
    except StsbenchError:
        return ""


def _words_alone(command: click.Command, words: Sequence[str]) -> list[str]:
    """Return suggestions for words without an option: a model, a file, or a value after a flag that takes none."""
    parameters = _parameters(command)
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    if any(argument.nargs < 0 for argument in arguments):
        return []
    alone, before, lists, last = [], "", dict[str, list[str]](), ""
    for word in words:
        parameter = parameters.get(before)
        if word.startswith("-"):
            last = before = "" if "=" in word else word
            continue
        if last and _takes_commas(command, last):
            lists.setdefault(last, []).append(word)
        elif not before or (isinstance(parameter, click.Option) and parameter.is_flag):
            alone.append((word, before))
        before = ""
    commas = [f"name several with commas: {flag} {','.join(several)}" for flag, several in lists.items() if len(several) > 1]
    flags = [f"{flag} takes no value, and {word} stands behind it" for word, flag in alone if flag]
    flags += [f"{word} is not a run folder: measure it first, stsbench eval --model {word} --output runs/{Path(word).name}"
              for argument, (word, _) in zip(arguments, alone, strict=False)
              if argument.name in _RUNS and not Path(word).exists() and not any(letter in word for letter in "*,:")]
    left = [word for word, flag in alone if not flag][len(arguments) :]
    if not flags and left and "--run" in parameters:
        return [f"name runs by their option: {' '.join(f'--run {run}' for run in left)}"]
    if flags or not left or "--model" not in parameters:
        return [*flags, *commas]
    lines = commas if "--model" in words else [*commas, f"name the model by its option: --model {left.pop(0)}"]
    if files := [word for word in left if Path(word).exists()]:
        options = [name for name in ("--input", "--corpus", "--data") if name in parameters]
        if "--protocol" in parameters:
            kinds = f"--protocol sts:{files[0]} (or pairs:, triplets:, transfer:, retrieval:)"
            lines.append(f"name data by their kind: {_protocols(files[0]) or kinds}")
        elif options:
            lines.append(f"name the texts by their option: {options[0]} {files[0]}")
    return lines
