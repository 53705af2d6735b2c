"""Text and tables as LaTeX: whatever a text holds is printed, none of it is a command."""

from __future__ import annotations

import re
from collections.abc import Sequence

BOOKTABS = "% \\usepackage{booktabs}\n"
_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
          # In TeX's own font encoding these three would print as other characters.
          "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
          "±": r"$\pm$", "–": "--"}
_MARKUP = re.compile(f"[{re.escape(''.join(_LATEX))}]")


def escaped(text: str) -> str:
    """`text` with every character that LaTeX would take for markup replaced by what prints it."""
    return _MARKUP.sub(lambda match: _LATEX[match.group()], text)


def caption(title: str) -> str:
    """A table's title as LaTeX, in which "x 100" has the sign of multiplication."""
    return escaped(title).replace("x 100", r"$\times$ 100")


def latex_table(lines: Sequence[Sequence[str]], title: str, label: str, left: int = 1) -> str:
    """A booktabs table, as wide as both columns of a page.

    lines: the header first, of plain text, which is escaped; title: its caption, LaTeX; label: "-" stands for whatever of it
    \\label does not take; left: how many columns have their cells to the left.
    """
    header, *body = ("    " + " & ".join(map(escaped, line)) + r" \\" for line in lines)
    return "\n".join([
        r"\begin{table*}", r"  \centering", r"  \small",
        rf"  \begin{{tabular}}{{{'l' * left}{'r' * (len(lines[0]) - left)}}}",
        r"    \toprule", header, r"    \midrule", *body, r"    \bottomrule", r"  \end{tabular}",
        rf"  \caption{{{title}}}", rf"  \label{{tab:{re.sub(r'[^A-Za-z0-9.:]+', '-', label).strip('-')}}}",
        r"\end{table*}", "",
    ])
