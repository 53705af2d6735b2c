"""Text and tables in GitHub's Markdown: whatever a name holds is shown, none of it is markup."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from stsbench.wording import visible


def plain_markdown(text: str) -> str:
    """Return `text` on one line, with every character that GitHub's Markdown or HTML would take for markup escaped; what it
    would make a link or a mention of by itself is parted."""
    line = visible(" ".join(text.split()), "\u200c\u200d").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = re.sub(r"(?<![^\W_])_|_(?![^\W_])|[\\`*\[\]|~$]", lambda match: "\\" + match.group(), line)
    return re.sub(r"(?i)(?<=:)(?=//)|(?<=(?<!\w)@)(?=\w)|(?<=@)(?=[\w-]+\.\w)|(?<=\bwww)(?=\.)", "<!-- -->", plain)


def pipes(grid: Sequence[Sequence[str]], words: int, also: Collection[int] = ()) -> str:
    """Return a Markdown table of escaped cells, header first: the first `words` columns, those in `also` and those called
    Flags and Source are text, the others numbers."""
    texts = {*range(words), *also, *(index for index, name in enumerate(grid[0]) if name in ("Flags", "Source"))}
    rule = ["---" if index in texts else "---:" for index in range(len(grid[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (grid[0], rule, *grid[1:]))
