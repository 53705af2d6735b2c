"""Lists as Python-Markdown wants them: content four columns in, a blank line before. GitHub asks for neither."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

_MARKER = re.compile(r"(?:[-*+]|\d+[.)]) +")


def four_columns(text: str) -> str:
    """The same Markdown with the contents of list items indented by four columns a level. Positions are CommonMark's."""
    lines = text.split("\n")
    depth, column = [0] * len(lines), [0] * len(lines)  # of each line: lists around it, where its content begins
    markers: dict[int, int] = {}  # line -> column of the marker
    first: set[int] = set()  # lines that begin a list, outside of any other
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.map is None:
            continue
        start, end = token.map
        if token.type in ("bullet_list_open", "ordered_list_open") and token.level == 0:
            first.add(start)
        if token.type == "list_item_open":
            at = column[start]
            at += len(lines[start][at:]) - len(lines[start][at:].lstrip())
            marker = _MARKER.match(lines[start][at:])
            if marker is None:
                continue  # an empty item
            markers[start] = at
            for line in range(start, end):
                depth[line] += 1
                column[line] = at + len(marker[0])
    made: list[str] = []
    blank = False  # whether a blank line came since the last marker
    for number, line in enumerate(lines):
        if (number in first or (number in markers and blank)) and made and made[-1].strip():
            made.append("")  # an item behind a paragraph of its own needs one, too
        blank = number not in markers and (blank or not line.strip())
        if number in markers:
            line = " " * 4 * (depth[number] - 1) + line[markers[number] :]
        elif depth[number] and line.strip():
            lead = min(column[number], len(line) - len(line.lstrip()))
            line = " " * 4 * depth[number] + line[lead:]
        made.append(line)
    return "\n".join(made)
