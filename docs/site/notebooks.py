"""Pages of the notebooks, with the outputs that they hold: nothing is run. nbconvert writes the Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbconvert import MarkdownExporter

# What pandas writes before a frame's rows: a style and a class of its own, in whose place stand those of the site's tables.
_FRAME = re.compile(r'<style scoped>.*?</style>\s*<table border="1" class="dataframe">', re.DOTALL)


class Page(NamedTuple):
    """A notebook as Markdown. pictures: site path -> bytes."""

    title: str
    text: str
    pictures: dict[str, bytes]


def pages(root: Path) -> dict[str, Page]:
    """Site path -> page."""
    made = {}
    for path in sorted((root / "docs/notebooks").glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        title = book.cells[0].source.partition("\n")[0].lstrip("# ")
        text, resources = MarkdownExporter().from_notebook_node(book)
        text = _FRAME.sub(r'<table style="text-align: right">', text)
        first, _, rest = text.lstrip().partition("\n")
        note = f"*This page is a notebook: [{path.name}]({path.name}). The tests run it.*"
        pictures = {f"notebooks/{path.stem}-{name}": content for name, content in resources["outputs"].items()}
        for name in resources["outputs"]:
            rest = rest.replace(f"]({name})", f"]({path.stem}-{name})")
        made[f"notebooks/{path.stem}.md"] = Page(title, f"{first}\n\n{note}\n{rest}", pictures)
    return made
