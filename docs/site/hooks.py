"""MkDocs' hooks: pages from outside docs/, pages made from code and files, links, and whether a page reads as on GitHub."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import api
import commands
import losses
import notebooks
import tables
from latex2mathml.converter import convert
from links import rewrite
from lists import four_columns
from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
log = get_plugin_logger("stsbench")
# Markdown of the repository that is a page in another place. The start page is the repository's README.
ELSEWHERE = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
_SOURCES: dict[str, Path] = {}  # site path -> the file of the repository
_FORMULA = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.MULTILINE | re.DOTALL)
# What newcomers look for stands first among what the search finds.
_FIRST = {"how-to/choose.md", "how-to/compare.md", "how-to/own-data.md", "reference/training.md", "how-to/evaluate.md"}
_BLOCKS = ("h1", "h2", "h3", "h4", "li", "tr", "pre", "blockquote")


def _elsewhere() -> dict[str, str]:
    """Every page from outside docs/, the cards among them."""
    from stsbench.encoders.post.chain import GROUP as POST
    from stsbench.encoders.post.chain import card_path
    from stsbench.training.recipes.methods import find_method

    cards = {}
    for name in tables.names(tables.GROUP):
        folder = find_method(name).folder.resolve()
        cards[(folder / "card.md").relative_to(ROOT).as_posix()] = f"methods/{name}.md"
    for point in sorted(entry_points(group=POST)):  # they are not loaded: some need torch
        module = find_spec(point.module)
        if module and (card := card_path(Path(module.origin).resolve(), point.name)):
            cards[card.relative_to(ROOT).as_posix()] = f"post/{point.name}.md"
    return {**ELSEWHERE, **cards}


def card_title(card: Path) -> str:
    """Return a method's name as its card has it: what stands before a colon or a bracket in the first line."""
    return re.split(r"[:(]", card.read_text("utf-8").partition("\n")[0].removeprefix("# "))[0].strip()


def on_startup(command: str, dirty: bool) -> None:
    """Make the folder that mkdocstrings reads, which it looks for before it reads any page."""
    api.link_sources(ROOT)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that docs/ does not hold, and put them into the navigation."""
    readme = files.get_file_from_path("README.md")
    if readme is not None:
        files.remove(readme)
    elsewhere, books = _elsewhere(), notebooks.pages(ROOT)
    config.extra["elsewhere"] = {**elsewhere, **{f"docs/{uri[:-3]}.ipynb": uri for uri in books}}
    for name, uri in elsewhere.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
        _SOURCES[uri] = ROOT / name
    made = {
        "methods": {p: (card_title(ROOT / n), "") for n, p in elsewhere.items() if p.startswith("methods/")},
        "post": {p: (p[5:-3], "") for p in elsewhere.values() if p.startswith("post/")},
        "cli": commands.pages(),
        "api": api.pages(ROOT),
        "losses": losses.pages(ROOT),
        "notebooks": {uri: (book.title, book.text) for uri, book in books.items()},
        "recipes": tables.recipe_pages(ROOT),
        "keys": {"reference/recipe-keys.md": ("", tables.keys_page())},
        "settings": {"reference/settings.md": ("", tables.settings_page())},
        "presets": {"reference/presets.md": ("", tables.presets_page())},
        "schema": {"reference/record-schema.md": ("", tables.schema_page(ROOT))},
    }
    for pages in made.values():
        for uri, (_, text) in pages.items():
            if text:
                files.append(File.generated(config, uri, content=text))
    for uri, content in (item for book in books.values() for item in book.pictures.items()):
        files.append(File.generated(config, uri, content=content))
    config.nav = _filled(config.nav, made)
    return files


def _filled(nav: Any, made: dict[str, Any]) -> Any:
    """The navigation with `+ NAME` replaced by that kind's pages."""
    if isinstance(nav, list):
        return [_filled(item, made) for item in nav]
    if isinstance(nav, dict):
        return {title: _filled(item, made) for title, item in nav.items()}
    if not nav.startswith("+ "):
        return nav
    pages = made[nav[2:]]
    entries = [{title: uri} if title else uri for uri, (title, _) in pages.items()]
    return entries if len(entries) > 1 else entries[0]


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """The board, which is built beside the documentation, and the repository."""
    nav.items.append(Link("Leaderboard", "leaderboard/index.html"))
    nav.items.append(Link("Repository", config.extra["repository"]))
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn formulas into MathML, which needs no script, and links to files of the repository into links of the site."""
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # a column with one line
    if uri in _FIRST:
        page.meta["search"] = {"boost": 3}
    source = _SOURCES.get(uri) or ROOT / "docs" / uri
    if not source.is_file():
        return markdown  # made here, with links of the site
    markdown = _FORMULA.sub(lambda match: f"<div>{convert(match[1], display='block')}</div>", markdown)
    return four_columns(rewrite(markdown, source, uri, ROOT, config.extra["elsewhere"], config.extra["repository"]))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warn where Python-Markdown reads other headings, list items, rows or code blocks than GitHub does."""
    source = _SOURCES.get(page.file.src_uri) or ROOT / "docs" / page.file.src_uri
    if page.file.src_uri.startswith("cli/"):
        html = commands.without_missing(html)
        if "Sentinel" in html:
            log.warning(f"{page.file.src_uri}: click's mark of a missing default is on the page")
    if not source.is_file():
        return html
    github = _count(MarkdownIt("commonmark").enable("table").render(source.read_text("utf-8")))
    site = _count(re.sub(r'<div class="toc">.*?</div>', "", html, flags=re.DOTALL))
    for tag in _BLOCKS:
        if github.get(tag, 0) != site.get(tag, 0):
            log.warning(f"{page.file.src_uri}: {site.get(tag, 0)} <{tag}> here, {github.get(tag, 0)} on GitHub")
    return html


def _count(html: str) -> dict[str, int]:
    counts: dict[str, int] = {}

    class _Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            counts[tag] = counts.get(tag, 0) + 1

    _Tags(convert_charrefs=True).feed(html)
    return counts
