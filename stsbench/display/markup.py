"""Text and tables as LaTeX and as GitHub's Markdown: whatever a name holds is shown, none of it is markup."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence

from stsbench.wording import printable, visible

PACKAGES = "% \\usepackage{booktabs,graphicx}\n"
_HEADER = 14  # characters of a column's name on one line
_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
          # In TeX's own font encoding these three would print as other characters.
          "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
          "±": r"$\pm$", "–": "--", "-": "$-$"}
_MINUS = r"(?<![\w.)\]-])-(?=\.?\d)"  # the sign of a number: not a hyphen of a name or a date
_MARKUP = re.compile(f"[{re.escape(''.join(_LATEX).replace('-', ''))}]|{_MINUS}")


def escaped(text: str) -> str:
    """Return `text` with every character that LaTeX would take for markup replaced by what prints it.

    >>> from stsbench.display.markup import escaped
    >>> escaped("all-MiniLM-L6-v2 & co: -0.20")
    'all-MiniLM-L6-v2 \\\\& co: $-$0.20'
    """
    return _MARKUP.sub(lambda match: _LATEX[match.group()], printable(text))


def comment(text: str) -> str:
    """Return `text` as a comment, of one line: what stood on a second one would be a command."""
    return f"% {visible(text)}"


def caption(title: str) -> str:
    """Return a table's title as LaTeX, in which "x 100" has the sign of multiplication."""
    return escaped(title).replace("x 100", r"$\times$ 100")


def tabular(columns: str, lines: Sequence[str]) -> str:
    """Return LaTeX's tabular of rows that are LaTeX; one that is wider than the page is made as wide as it."""
    return "\n".join([
        r"  \resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%", rf"  \begin{{tabular}}{{{columns}}}",
        *(f"    {line}" for line in lines), r"  \end{tabular}}",
    ])


def latex_table(lines: Sequence[Sequence[str]], title: str, label: str, left: Sequence[bool]) -> str:
    """Return a booktabs table, no wider than both columns of a page.

    lines: the header first, of plain text, which is escaped; title: its caption, LaTeX; label: "-" stands for whatever of it
    \\label does not take; left: whether each column has its cells to the left.
    """
    names, *body = lines
    columns = "".join("l" if side else "r" for side in left)
    rows = [[_name(name, side) for name, side in zip(names, columns, strict=True)], *(map(escaped, line) for line in body)]
    header, *rest = (_line(" & ".join(row)) + r" \\" for row in rows)
    return "\n".join([
        r"\begin{table*}", r"  \centering", r"  \small",
        tabular(columns, [r"\toprule", header, r"\midrule", *rest, r"\bottomrule"]),
        rf"  \caption{{{title}}}", rf"  \label{{tab:{re.sub(r'[^A-Za-z0-9.:]+', '-', label).strip('-')}}}",
        r"\end{table*}", "",
    ])


def _name(text: str, side: str) -> str:
    """Return a column's name, a long one on several lines."""
    lines = textwrap.wrap(text, _HEADER, break_long_words=False, break_on_hyphens=False)
    if len(lines) < 2:
        return escaped(text)
    stacked = r" \\ ".join(_line(escaped(line)) for line in lines)
    return rf"\shortstack[{side}]{{{stacked}}}"


def _line(latex: str) -> str:
    """Guard a line of a table: behind the end of the one before, a bracket or a star would be an argument of that."""
    return "{}" + latex if latex.startswith(("[", "*")) else latex


def plain_markdown(text: str) -> str:
    """Return `text` on one line, with every character that GitHub's Markdown or HTML would take for markup escaped; what it
    would make a link or a mention of by itself is parted."""
    line = visible(" ".join(text.split()), "\u200c\u200d").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = re.sub(r"(?<![^\W_])_|_(?![^\W_])|[\\`*\[\]|~$]", lambda match: "\\" + match.group(), line)
    return re.sub(r"(?i)(?<=:)(?=//)|(?<=(?<!\w)@)(?=\w)|(?<=@)(?=[\w-]+\.\w)|(?<=\bwww)(?=\.)", "<!-- -->", plain)


def card_text(value: object) -> str:
    """Return the text of a value as Markdown of a model card that shows just it, in a table's cell too."""
    special = r"[\\`*\[\]<>#|~&$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\."
    return re.sub(special, lambda match: f"&#{ord(match[0])};", visible(str(value)), flags=re.IGNORECASE)


def pipes(grid: Sequence[Sequence[str]], words: int, also: Collection[int] = ()) -> str:
    """Return a Markdown table of escaped cells, header first: the first `words` columns, those in `also` and those called
    Flags and Source are text, the others numbers."""
    texts = {*range(words), *also, *(index for index, name in enumerate(grid[0]) if name in ("Flags", "Source"))}
    rule = ["---" if index in texts else "---:" for index in range(len(grid[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (grid[0], rule, *grid[1:]))
