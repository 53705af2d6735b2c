"""A report for a paper: paragraphs and tables, as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, get_args

from stsbench.config import shown
from stsbench.display.latex import PACKAGES, caption, latex_table
from stsbench.errors import StsbenchError
from stsbench.wording import visible

Form = Literal["markdown", "latex"]
# An underscore inside a word is no markup, and names are full of them.
_MARKDOWN = re.compile(r"[\\`*<\[\]|~]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True)
class ReportTable:
    """A paragraph of results and its table. title: what stands over the table; lines: cells as text, the header first."""

    paragraph: str
    title: str
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """What was measured and how, in paragraphs of plain text; then the results, a table each."""

    paragraphs: Sequence[str]
    tables: Sequence[ReportTable]

    def text(self, form: Form = "markdown") -> str:
        """The report as Markdown, or as LaTeX that needs the packages booktabs and graphicx.

        Raises StsbenchError for another form.

        >>> from stsbench.display.report import Report, ReportTable
        >>> table = ReportTable("A scores 1.", "scores x 100", [["task", "A"], ["STS-B", "1"]])
        >>> print(Report(["A is a_b."], [table]).text())
        A is a_b.
        <BLANKLINE>
        A scores 1.
        <BLANKLINE>
        **Table 1.** scores x 100
        <BLANKLINE>
        | task | A |
        | --- | ---: |
        | STS-B | 1 |
        <BLANKLINE>
        """
        if form not in get_args(Form):
            raise StsbenchError(f"form={shown(form)}: a report is 'markdown' or 'latex'")
        return self._latex() if form == "latex" else self._markdown()

    def _markdown(self) -> str:
        parts = [_marked(text) for text in self.paragraphs]
        for number, table in enumerate(self.tables, 1):
            header, *body = ([_marked(cell) for cell in line] for line in table.lines)
            rows = [header, ["---", *["---:"] * (len(header) - 1)], *body]
            grid = "\n".join(f"| {' | '.join(row)} |" for row in rows)
            parts += [_marked(table.paragraph), f"**Table {number}.** {_marked(table.title)}", grid]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _latex(self) -> str:
        parts = [caption(visible(text)) for text in self.paragraphs]
        for number, table in enumerate(self.tables, 1):
            lines = [[visible(cell) for cell in line] for line in table.lines]
            title = caption(visible(table.title))
            parts += [caption(visible(table.paragraph)), latex_table(lines, title, f"report-{number}")]
        return PACKAGES + "\n" + "\n\n".join(filter(None, parts))


def markdown_cell(text: str) -> str:
    """Plain text in a table or line of Markdown: it is neither HTML nor another cell."""
    return visible(escape(text, quote=False), "\u200c\u200d").replace("|", "\\|")


def _marked(text: str) -> str:
    """Plain text as Markdown: whatever it holds is printed."""
    return _MARKDOWN.sub(lambda match: "\\" + match.group(), visible(text))
