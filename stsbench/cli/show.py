"""The commands `stsbench list` and `stsbench show`."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import click
import yaml

from stsbench.cli.messages import echo, write_json
from stsbench.display.table import terminal_width
from stsbench.registry import match_name, names, resolve
from stsbench.wording import break_lines, counted, printable

if TYPE_CHECKING:
    from rich.table import Table

    from stsbench.settings import Described
    from stsbench.training.recipes.recipe import Recipe

_PAGES = "stsbench.pages"  # entry points: objects with the interface of Pages, of extensions
_FEWEST = 30  # least width of a list's last column; in a narrower terminal it is printed below the other columns
_LISTS = {  # word of `stsbench list` -> its description
    "protocols": "how encoders are measured, and the presets of papers", "encoders": "what --model takes",
    "post": "what follows an encoder, as --post takes it", "data": "the sets that are known by name",
    "methods": "what `stsbench train` trains by", "recipes": "their settings in papers, with the scores that these print",
}
_KINDS = ("protocol", "post", "data", "method", "recipe", "section")


class Pages(Protocol):
    """Interface of a further kind for `stsbench show`, which an extension registers under the kind's name."""

    title: str  # the line above these rows in `stsbench list encoders`

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the list: a name, then what describes it."""

    def page(self, name: str) -> str:
        """Return the page, in Markdown, of this name. Raises StsbenchError, one line, for an unknown name."""


class _Kind(click.Choice[str]):
    """Kind to list, in the plural or singular; "models" means encoders."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        words = {"models": "encoders", **{kind.removesuffix("s"): kind for kind in self.choices}, "model": "encoders"}
        return super().convert(match_name(words.get(value.lower(), value), self.choices), param, ctx)


@click.command("list")
@click.argument("what", required=False, type=_Kind([*_LISTS]))
@click.option("--method", metavar="NAME", help="The recipes of one method only.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the recipes as JSON; - makes stdout pure JSON.")
def list_(what: str | None, method: str | None, json_target: str | None) -> None:
    """List protocols (with papers' presets), encoders, post-processings, data sets, methods, or recipes with their
    published scores.
    """
    if what is None and not method and not json_target:
        _print_aligned([(f"stsbench list {name}", about) for name, about in _LISTS.items()])
        return
    what = what or "recipes"
    if what != "recipes" and (method or json_target):
        raise click.UsageError(f"{'--method' if method else '--json'} goes with `list recipes`, not with `list {what}`")
    if what == "protocols":
        from stsbench.evaluation.plan import presets
        from stsbench.evaluation.protocol import kinds

        rows = []
        for name, kind in kinds().items():
            forms = f"; also {', '.join(f'{name}:{word}' for word in kind.variants)}" if kind.variants else ""
            tasks = [task for task in kind({}).tasks() if task not in kind.on_request]
            named = f"; with --tasks also {', '.join(sorted(kind.on_request))}" if kind.on_request else ""
            without = "your own file" if kind.path_setting else kind.about
            rows.append((name, f"tasks: {', '.join(tasks) or without}{named}{forms}"))
        _print_aligned([*rows, *((name, facts["paper"]) for name, facts in presets().items())])
    elif what == "encoders":
        from stsbench.encoders.forward.pooling import MEAN_PADDED, POOLERS
        from stsbench.encoders.load import usage

        for line in (*usage(), f"poolers: {', '.join((*POOLERS, MEAN_PADDED))}"):
            echo(break_lines(line, terminal_width() or len(line)))
        for pages in (resolve(_PAGES, name) for name in names(_PAGES)):
            echo(pages.title)
            _print_aligned(pages.rows())
    elif what == "post":
        from stsbench.encoders.post.chain import load_post, post_names

        _print_aligned([(name, load_post(name).source) for name in post_names()])
    elif what == "data":
        from stsbench.data.sets.catalog import LANGUAGES, entries, further_sources

        _print_aligned([
            *((entry.id, entry.text_version, f"{entry.total:6}", entry.licence) for entry in entries()),
            *((item.id, "own", f"{item.pairs:6}", f"--tasks {item.task}: {item.languages}; licence {item.licence}")
              for item in LANGUAGES),
            *((name, "own", f"{item.rows:6}", f"{item.about}; licence {item.licence}")
              for name, item in further_sources().items()),
        ])
    elif what == "methods":
        from stsbench.training.recipes.methods import title
        from stsbench.training.recipes.recipes import list_methods, recipe_names

        _print_aligned([(name, counted(len(recipe_names(name)), "recipe"), title(name)) for name in list_methods()])
    else:
        from stsbench.training.recipes.recipes import find_recipe, list_methods, recipe_names

        methods = [method] if method else list_methods()
        recipes = [find_recipe(holder, name)[0] for holder in methods for name in recipe_names(holder)]
        if json_target != "-":
            _print_aligned([(f"{one.method}/{one.name}", one.backbone.model, _score(one), one.description)
                            for one in recipes])
        if json_target:
            kept = {"method", "name", "description", "source", "published"}
            write_json([{**one.model_dump(mode="json", include=kept), "backbone": one.backbone.model} for one in recipes],
                       json_target)


def _score(recipe: Recipe) -> str:
    """Return a recipe's main published score: the test average of STS, else of transfer, else the dev score, else "-"."""
    for protocol in ("sts:all", "transfer", "sts-b dev"):
        for row in recipe.published:
            if row.protocol == protocol and len(row.scores) > 0:
                name = "Avg" if "Avg" in row.scores else next(iter(row.scores))
                score = row.scores[name]  # as printed: papers give dev scores with one decimal or two
                return f"{protocol} {score:.2f}" if name == "Avg" else f"{protocol} {score}"
    return "-"


def _print_aligned(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in aligned columns; the last column is wrapped to the terminal's width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    start, room = sum(widths[:-1]) + 2 * len(widths[:-1]), terminal_width()
    for row in rows:
        before = "".join(f"{word:{width}}  " for word, width in zip(row[:-1], widths, strict=False))
        if room is None or start + len(row[-1]) <= room:
            echo(f"{before}{row[-1]}".rstrip())
            continue
        indent = start if room - start >= _FEWEST else 4
        first = before if indent == start else f"{before.rstrip()}\n{' ' * indent}"
        last = textwrap.wrap(row[-1], max(room - indent, _FEWEST), break_long_words=False, break_on_hyphens=False)
        echo(first + f"\n{' ' * indent}".join(last))


@click.command("show")
@click.argument("kind", type=click.Choice([*_KINDS, *names(_PAGES)]))
@click.argument("name")
@click.option("--method", metavar="METHOD|FILE.py:CLASS", help="The method of a recipe file that names none, or FILE.py.")
def show(kind: str, name: str, method: str | None) -> None:
    """Show one protocol (or a paper's preset), post-processing, data set or recipe in full, a method's card and options, or
    what the keys of a recipe's section mean.

    A recipe is NAME, METHOD/NAME or a YAML file of your own, which is checked. A section is training, data, backbone and the
    like, or recipe for the keys beside them.
    """
    if method and kind != "recipe":
        raise click.UsageError(f"--method goes with `show recipe FILE.yaml`, not with `show {kind}`")
    if kind == "data":
        from dataclasses import asdict

        from stsbench.data.sets.catalog import entry, further_sources

        facts = json.loads(json.dumps(asdict(further_sources().get(name) or entry(name))))
        echo(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True), nl=False)
    elif kind == "recipe":
        from stsbench.training.recipes.named import named_recipe
        from stsbench.training.recipes.recipe import resolved_yaml

        echo(resolved_yaml(named_recipe(name, method)), nl=False)
    elif kind == "post":
        from stsbench.encoders.post.chain import card, load_post
        from stsbench.settings import described, setting_defaults

        settings = load_post(name).Options
        _print_markdown(card(name))
        _settings(described(settings, setting_defaults(settings)), f"--post {name}:SETTING=VALUE")
    elif kind == "section":
        from stsbench.training.recipes.recipe import SECTIONS, describe_keys

        rows = describe_keys(name)
        echo(inspect.cleandoc(SECTIONS[name].__doc__ or ""))
        _settings(rows, f"--set {'' if name == 'recipe' else f'{name}.'}KEY=VALUE")
        echo(f"\nOther sections: {', '.join(key for key in SECTIONS if key != name)}")
    elif kind == "method":
        from stsbench.training.recipes import methods

        name = methods.canonical(name)
        about = methods.options_class(name)
        _print_markdown("\n".join([
            methods.card(name).rstrip(), "\n## Options and stages\n",
            f"Stages: {', '.join(about.stages)}. Default recipe: {about.default_recipe or 'none'}.",
            "A recipe's `options`, or `--set options.NAME=VALUE`:\n", *map(str, methods.options(name)),
        ]))
    elif kind == "protocol":
        _show_protocol(name)
    else:
        _print_markdown(resolve(_PAGES, kind).page(name))


def _print_markdown(text: str) -> None:
    """Write a page of Markdown to stdout: rendered on a terminal, as source elsewhere."""
    width = terminal_width()
    if width is None:
        echo(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown, TableElement
    from rich.table import Table as RichTable

    class Whole(TableElement):
        def __rich_console__(self, *about: Any) -> Iterator[Any]:
            for table in super().__rich_console__(*about):
                if isinstance(table, RichTable):
                    _fit_words(table, about[1].max_width)
                yield table

    class Page(Markdown):
        elements: ClassVar = {**Markdown.elements, "table_open": Whole}

    # Formulas are shown as LaTeX source in code blocks, so that their lines are not wrapped.
    text = re.sub(r"(?ms)^\$\$(.*?)\$\$$", lambda match: f"```\n{match[1].strip()}\n```", text)
    Console(width=width, highlight=False).print(Page(printable(text)))


def _fit_words(table: Table, width: int) -> None:
    """Set the widths of a table's columns: each fits its longest word, and columns that need more share the rest equally.

    Words that still do not fit are folded onto the next line, where rich would cut them off.
    """
    cells = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    words = [max(len(word) for cell in column for word in cell.split() or [""]) for column in cells]
    longer = [max(map(len, column)) - word for column, word in zip(cells, words, strict=True)]
    left = width - sum(words) - 2 * len(words)  # one space on either side of a cell
    for number, i in enumerate(sorted(range(len(words)), key=longer.__getitem__)):
        column = table.columns[i]
        column.overflow = "fold"
        if left >= 0:
            share = min(longer[i], left // (len(words) - number))
            column.width, left = words[i] + share, left - share


def _show_protocol(name: str) -> None:
    from stsbench.evaluation.plan import find_protocol, presets
    from stsbench.settings import described

    papers = presets()
    if name in papers:
        echo(yaml.safe_dump({"name": name, **papers[name]}, sort_keys=False), nl=False)
        return
    protocol = find_protocol(name, {})
    facts: dict[str, Any] = {"name": name, "version": protocol.version, "tasks": protocol.tasks()}
    if variants := [f"{protocol.name}:{word}" for word in protocol.variants]:
        facts["variants"] = variants
    echo(yaml.safe_dump(facts, sort_keys=False), nl=False)
    _settings(described(protocol.settings_model(protocol.settings), protocol.settings), f"--set {protocol.name}.NAME=VALUE")


def _settings(rows: Sequence[Described], way: str) -> None:
    """Print settings as a list. way: how to change one, such as "--set sts.NAME=VALUE"."""
    echo(f"\nSettings (`{way}`):\n" if rows else "\nNo settings.")
    for row in rows:
        echo(str(row))
