"""A report: paragraphs and tables as Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from stsbench.config import shorten
from stsbench.display.markup import PACKAGES, caption, plain_markdown
from stsbench.display.table import Table
from stsbench.display.tabular import Form
from stsbench.errors import StsbenchError
from stsbench.wording import visible


@dataclass(frozen=True)
class Report:
    """What was measured and how, in paragraphs of plain text; then the results: a paragraph and a table each."""

    paragraphs: Sequence[str]
    results: Sequence[tuple[str, Table]]

    def text(self, form: Form = "markdown") -> str:
        """Return the report as Markdown, or as LaTeX that needs the packages booktabs and graphicx.

        Raises StsbenchError for another form.

        >>> from stsbench.extensions.reports.document import Report
        >>> from stsbench.display.table import Column, Table
        >>> table = Table("scores x 100", [Column("task", ["STS-B"]), Column("A", [1])])
        >>> print(Report(["A is a_b."], [("A scores 1.", table)]).text())
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
            raise StsbenchError(f"form={shorten(form)}: a report is 'markdown' or 'latex'")
        return self._latex() if form == "latex" else self._markdown()

    def _markdown(self) -> str:
        parts = [*map(plain_markdown, self.paragraphs)]
        for number, (paragraph, table) in enumerate(self.results, 1):
            grid = replace(table, title="", notes=()).markdown().rstrip("\n")
            parts += [plain_markdown(paragraph), f"**Table {number}.** {plain_markdown(table.title)}", grid]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _latex(self) -> str:
        parts = [caption(visible(text)) for text in self.paragraphs]
        for number, (paragraph, table) in enumerate(self.results, 1):
            parts += [caption(visible(paragraph)), replace(table, notes=(), label=f"report-{number}").latex()]
        return PACKAGES + "\n" + "\n\n".join(filter(None, parts))
