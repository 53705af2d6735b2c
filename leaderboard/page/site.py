"""The site's files: the page as it was bundled, and the data it shows, each as JSON and as a script that registers it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import Board, Cell, PromptSpread, Provenance, Row, Tab
from stsbench.leaderboard.ranks.section import sections
from stsbench.leaderboard.records.paths import BUNDLE
from stsbench.metrics.aggregation import overstated

from .checks import check, safe_link
from .index_json import SCHEMA, index
from .pair_shards import pair_files, pair_shards
from .tables import comparable

TIMED = ("sentences_per_second", "memory_mb")
PAGE = ("index.html", "board.js", "board.css", "LICENSES.txt")


def site(board: Board) -> dict[str, str]:
    """File, below the site's folder -> content. The same board gives the same bytes.

    Raises StsbenchError for a board that `check` refuses, or where the bundle is missing.
    """
    check(board)
    known = index(board)
    for name, content in board.sections.items():
        known |= sections()[name].index(content)
    files = {name: _bundled(name) for name in PAGE} | _both("index", known)
    files["index.html"] = _named(files["index.html"], board.name)
    for tab in board.tabs:
        files |= _both(f"tabs/{tab.id}", tab_shard(board, tab))
        for name, shard in pair_shards(tab).items():
            files |= _both(name, shard)
    for section, content in board.sections.items():
        for name, data in sections()[section].files(content).items():
            files |= _both(name, data)
    for key, rows in rows_of(board).items():
        files |= _both(f"entries/{key}", entry_shard(board.entries[key], rows))
    return files


def _bundled(name: str) -> str:
    try:
        return (BUNDLE / name).read_text("utf-8")
    except OSError as error:
        raise StsbenchError(f"{BUNDLE / name}: {error.strerror}; `make web` in a checkout makes it") from error


def _named(page: str, name: str) -> str:
    """The page with the board's name as its title and heading."""
    for mark in ("title", "h1") if name else ():
        before, _, rest = page.partition(f"<{mark}>")
        page = f"{before}<{mark}>{escape(name)}</{mark}>{rest.partition(f'</{mark}>')[2]}"
    return page


def _both(name: str, data: dict[str, Any]) -> dict[str, str]:
    """NAME.json, and NAME.js: a page opened from a file may load a script, but may not read a file."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Line separators would end a script's line in old readers; "<" could end the element that a script stands in.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return {f"{name}.json": text + "\n", f"{name}.js": f"stsbench({json.dumps(name)},{safe});\n"}


_ARXIV = re.compile(r"arxiv\.org/(?:abs|pdf)/(\d\d)(?:0[1-9]|1[0-2])\.\d{4,5}", re.IGNORECASE)


def tab_shard(board: Board, tab: Tab) -> dict[str, Any]:
    """A tab's rows, and the files with the tests of their pairs."""
    kinds = {row.id: name for name, rows in comparable(tab).items() for row in rows}
    return {
        "schema_version": SCHEMA, "id": tab.id,
        "settings": {key: tab.settings[key] for key in sorted(tab.settings)},
        "data": {key: tab.data[key] for key in sorted(tab.data)}, "notes": list(tab.notes),
        "measured": [_row(board, tab, row, kinds.get(row.id)) for row in _best_first(tab)],
        "published": [_row(board, tab, row, None) for row in tab.published],
        **_filled({"pairs": [f"{name}.json" for name in pair_files(tab)]}),
    }


def entry_shard(entry: Provenance, rows: Sequence[tuple[Tab, Row]]) -> dict[str, Any]:
    """What stands behind an entry: note, recipe, its runs, the parts of its tasks in every tab (`rows_of`), and the other
    prompts that its encoder was read behind."""
    return {
        "schema_version": SCHEMA, "id": entry.id, "name": entry.name, "note": entry.note, "recipe": entry.recipe,
        "runs": [{name: run[name] for name in sorted(run)} for run in entry.runs], "parts": _parts(rows),
        **_filled({"prompts": list(entry.prompts), "over_tasks": list(filter(None, [_over_tasks(*row) for row in rows]))}),
    }


def _over_tasks(tab: Tab, row: Row) -> dict[str, Any]:
    """The interval of a row's average over tasks, and with which neighbours its order would survive; {} without one."""
    over = tab.over_tasks(row)
    if over is None or over.low is None or over.high is None or over.sd is None:
        return {}
    low, high, sd = (round(number, tab.digits) + 0.0 for number in (over.low, over.high, over.sd))
    mean = row.cells[tab.lead].value  # of an average: in points
    order = [{"id": other.id, "same_order": round(share, 4),
              **({"overstated": True} if overstated(mean - other.cells[tab.lead].value, share) else {})}
             for other, share in tab.neighbours(row)]
    return {"tab": tab.id, "n": over.tasks, "low": low, "high": high, "sd": sd, **_filled({"neighbours": order})}


def rows_of(board: Board) -> dict[str, list[tuple[Tab, Row]]]:
    """Entry -> its rows, each with its tab."""
    rows: dict[str, list[tuple[Tab, Row]]] = {key: [] for key in sorted(board.entries)}
    for tab in board.tabs:
        for row in tab.measured:
            if row.entry:
                rows[row.entry].append((tab, row))
    return rows


def _best_first(tab: Tab) -> list[Row]:
    """The board's order; where nothing is ranked, by what is better in the lead column, rows without it last."""
    rows = list(tab.measured)
    if any(row.rank for row in rows):
        return rows
    sign = tab.sign(tab.lead)

    def key(row: Row) -> tuple[bool, float]:
        cell = row.cells.get(tab.lead)
        return cell is None, sign * cell.value if cell else 0.0

    return sorted(rows, key=key)


def _row(board: Board, tab: Tab, row: Row, kind: str | None) -> dict[str, Any]:
    """A row without its empty fields; kind: what a comparable row was trained with."""
    rank = row.rank and {"place": row.rank.position, "first": row.rank.first, "last": row.rank.last, "ties": row.rank.ties,
                         "alone": list(row.rank.alone) if any(row.rank.alone) else None,
                         "tier": row.rank.tier,
                         "prompts": row.rank.prompts and list(row.rank.prompts),
                         "chance": row.rank.chance if row.rank.chance is None else round(row.rank.chance, 4)}
    fields = {
        "id": row.id, "method": row.method, "backbone": row.backbone, "setting": row.setting, "flags": list(row.flags),
        "seeds": row.seeds, "best_of": row.best_of, "rank": rank and _filled(rank), "unranked": row.unranked,
        "average_printed": row.average_printed, "marks": list(row.marks), "source": row.source, "link": safe_link(row.link),
        "card": row.card, "entry": row.entry, "year": row.year or _arxiv_year(row.link),
        "comparable": kind, "prompts": _over_prompts(row.prompts, tab.digits),
        **_size(board.entries.get(row.entry)),
    }
    return {
        **_filled(fields),
        "scores": {name: scores(row.cells[name], tab.digits_in(name)) for name in tab.columns if name in row.cells},
    }


def _over_prompts(over: PromptSpread | None, digits: int) -> dict[str, Any]:
    """The scores with two digits more than are shown, as those of a row."""
    if over is None:
        return {}
    scores = {name: round(getattr(over, name), digits + 2) + 0.0 for name in ("mean", "lowest", "highest")}
    return _filled({"n": over.n, **scores, "sd": over.sd if over.sd is None else round(over.sd, digits)})


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def scores(cell: Cell, digits: int) -> list[float | int | None]:
    """[value, low, high, sd, n] without the empty end. A value has two digits more than are shown: rows are sorted by it."""
    noise = [None if number is None else round(number, digits) + 0.0 for number in (cell.low, cell.high, cell.sd)]
    fields: list[float | int | None] = [round(cell.value, digits + 2) + 0.0, *noise, cell.n]
    while fields[-1] is None:
        fields.pop()
    return fields


def _arxiv_year(link: str) -> int | None:
    """The year that an arXiv identifier begins with."""
    match = _ARXIV.search(link)
    return 2000 + int(match[1]) if match else None


def _size(entry: Provenance | None) -> dict[str, Any]:
    """What the records hold of an encoder's size, where all runs agree, and of its speed and memory, where all runs were
    timed on one machine: the median over them, with that machine."""
    if entry is None:
        return {}
    runs = [{"width": run.get("width"), **run.get("costs", {})} for run in entry.runs]

    def shared(name: str) -> Any:
        values = {run.get(name) for run in runs}
        return values.pop() if len(values) == 1 else None

    sizes = {name: shared(name) for name in ("width", "parameters", "bytes_a_vector")}
    if machine := shared("machine"):
        timed = {name: [run[name] for run in runs if run.get(name) is not None] for name in TIMED}
        sizes |= {name: float(f"{median(values):.3g}") for name, values in timed.items() if len(values) == len(runs)}
        sizes |= {"machine": machine, "run_on": shared("run_on")}
    return {name: value for name, value in sizes.items() if value is not None}


def _parts(rows: Sequence[tuple[Tab, Row]]) -> list[dict[str, Any]]:
    """The parts of an entry's tasks, once for all tabs that show the same: aggregations of one metric share them."""
    parts: dict[str, dict[str, Any]] = {}
    for tab, row in rows:
        if row.subsets:
            position = {column: i for i, column in enumerate(tab.columns)}
            names = sorted(row.subsets, key=lambda name: (position.get(name[0], len(position)), name))
            lines = [[task, part, scores(row.subsets[task, part], tab.digits)] for task, part in names]
            parts.setdefault(repr((tab.metric, lines)), {"metric": tab.metric, "tabs": [], "scores": lines})["tabs"].append(
                tab.id
            )
    return list(parts.values())
