"""The cells of tables that are printed as text, read back by the rule below their header."""

import re
from itertools import pairwise

RULE = re.compile(r"-+(?:  -+)*")


def parts(lines):
    """[header, *rows] of each table, or part of one, on these lines; words of a cell that was broken are joined."""
    lines, actual = list(lines), []
    rules = [at for at, line in enumerate(lines) if RULE.fullmatch(line)]
    while rules:
        first = rules[0]
        spans = [match.span() for match in re.finditer("-+", lines[first])]
        top = first
        while top and _fits(lines[top - 1], spans):
            top -= 1
        above = [_cells(line, spans) for line in lines[top:first]]
        header = [" ".join(filter(None, words)) for words in zip(*above, strict=True)]
        rows, end = [], first + 1
        while end < len(lines) and _fits(lines[end], spans):
            if not RULE.fullmatch(lines[end]):
                cells = _cells(lines[end], spans)
                if cells[0] or not rows:
                    rows.append(cells)
                else:
                    rows[-1] = [" ".join(filter(None, pair)) for pair in zip(rows[-1], cells, strict=True)]
            end += 1
        actual.append([header, *rows])
        rules = [at for at in rules if at >= end]
    return actual


def by_row(lines):
    """Name -> the cells of its row in all parts, without the name; the header is the row "task" or the like."""
    rows = {}
    for table in parts(lines):
        for name, *cells in table:
            rows.setdefault(name, []).extend(cells)
    return rows


def _fits(line, spans):
    """Whether a line stands within these columns: between them are blanks alone."""
    gaps = [(end, start) for (_, end), (start, _) in pairwise(spans)]
    return bool(line.strip()) and len(line) <= spans[-1][1] and not any(line[start:end].strip() for start, end in gaps)


def _cells(line, spans):
    return [line[start:end].strip() for start, end in spans]
