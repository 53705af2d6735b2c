"""Text as LaTeX: whatever it holds is printed, none of it is a command."""

from __future__ import annotations

import re

_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
          # In TeX's own font encoding these three would print as other characters.
          "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}


def escaped(text: str) -> str:
    """`text` with every character that LaTeX would take for markup replaced by what prints it."""
    return re.sub(r"[\\&%$#_{}~^<>|]", lambda match: _LATEX[match.group()], text)
