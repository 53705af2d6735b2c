"""Escaping of text, and tables, for LaTeX and GitHub's Markdown: no character of a name is taken for markup."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence

from stsbench.wording import printable, visible

PACKAGES = "% \\usepackage{booktabs,graphicx}\n"
_HEADER = 14  # the most characters in a line of a column's name
_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
          # In TeX's default font encoding, these three characters would be printed as others.
          "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
          "±": r"$\pm$", "–": "--", "-": "$-$"}
_MINUS = r"(?<![\w.)\]-])-(?=\.?\d)"  # the sign of a number, but no hyphen of a name or a date
_MARKUP = re.compile(f"[{re.escape(''.join(_LATEX).replace('-', ''))}]|{_MINUS}")


def escaped(text: str) -> str:
    """Return `text` for LaTeX, with every special character replaced by a command that prints it.

    >>> from stsbench.display.markup import escaped
    >>> escaped("all-MiniLM-L6-v2 & co: -0.20")
    'all-MiniLM-L6-v2 \\\\& co: $-$0.20'
    """
    return _MARKUP.sub(lambda match: _LATEX[match.group()], printable(text))


def comment(text: str) -> str:
    """Return `text` as a LaTeX comment of one line, as LaTeX would typeset a second line."""
    return f"% {visible(text)}"


def caption(title: str) -> str:
    """Return a table's title as LaTeX, with a multiplication sign in "x 100"."""
    return escaped(title).replace("x 100", r"$\times$ 100")


def tabular(columns: str, lines: Sequence[str]) -> str:
    """Return a LaTeX tabular of rows in LaTeX, scaled down to the page where it is wider. columns: its column types."""
    return "\n".join([
        r"  \resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%", rf"  \begin{{tabular}}{{{columns}}}",
        *(f"    {line}" for line in lines), r"  \end{tabular}}",
    ])


def latex_table(lines: Sequence[Sequence[str]], title: str, label: str, left: Sequence[bool]) -> str:
    """Return a booktabs table, no wider than both columns of a page.

    lines: rows of plain text, which is escaped, the header first; title: its caption, in LaTeX; label: of \\label, in which
    "-" replaces characters that it does not allow; left: for each column, whether it is left-aligned.
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
    """Return a column's name in LaTeX, broken into several lines where it is long. side: its alignment, "l" or "r"."""
    lines = textwrap.wrap(text, _HEADER, break_long_words=False, break_on_hyphens=False)
    if len(lines) < 2:
        return escaped(text)
    stacked = r" \\ ".join(_line(escaped(line)) for line in lines)
    return rf"\shortstack[{side}]{{{stacked}}}"


def _line(latex: str) -> str:
    """Return a line of a table, with {} before a bracket or a star, which would be an argument of the line break before."""
    return "{}" + latex if latex.startswith(("[", "*")) else latex


def plain_markdown(text: str) -> str:
    """Return `text` on one line, with every special character of GitHub's Markdown and HTML escaped, and addresses and
    mentions split by comments, so that GitHub does not link them."""
    line = visible(" ".join(text.split()), "\u200c\u200d").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = re.sub(r"(?<![^\W_])_|_(?![^\W_])|[\\`*\[\]|~$]", lambda match: "\\" + match.group(), line)
    return re.sub(r"(?i)(?<=:)(?=//)|(?<=(?<!\w)@)(?=\w)|(?<=@)(?=[\w-]+\.\w)|(?<=\bwww)(?=\.)", "<!-- -->", plain)


def card_text(value: object) -> str:
    """Return a value as text for the Markdown of a model card, with special characters escaped, also those of tables."""
    special = r"[\\`*\[\]<>#|~&$@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\."
    return re.sub(special, lambda match: f"&#{ord(match[0])};", visible(str(value)), flags=re.IGNORECASE)


def pipes(grid: Sequence[Sequence[str]], words: int, also: Collection[int] = ()) -> str:
    """Return a Markdown table of escaped cells, header first. The first `words` columns, those in `also` and those called
    Flags and Source are left-aligned as text, the others right-aligned as numbers."""
    texts = {*range(words), *also, *(index for index, name in enumerate(grid[0]) if name in ("Flags", "Source"))}
    rule = ["---" if index in texts else "---:" for index in range(len(grid[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (grid[0], rule, *grid[1:]))
