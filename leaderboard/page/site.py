"""The files of the board's site: the bundled page, and its data, each as JSON and as a script that registers them.

An invalid board raises StsbenchError. index.json lists the board's tabs and entries with their files, for the page and for
programs. pairs/ holds the tests of pairs of rows, which the page loads when two rows are compared.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import FLAGS, Board, Cell, Exposure, PromptSpread, Provenance, Row, Tab
from stsbench.leaderboard.ranks.plan import sections
from stsbench.leaderboard.ranks.published_tabs import by_lead
from stsbench.leaderboard.ranks.wording import group_title
from stsbench.leaderboard.records.paths import BUNDLE
from stsbench.metrics.aggregation import overstated

from .tables import SHORT, comparable

# http, https, or a path beside the page: a colon elsewhere could begin another scheme (javascript:).
_LINK = re.compile(r"https?://[^\x00-\x20\x7f\\]+|[^\x00-\x20\x7f\\:]+", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
SCHEMA = 1  # version of the files, raised when a field changes its meaning or is removed
CELL = ("value", "low", "high", "sd", "n")  # the items of a score's list
SETTINGS = {
    "unsup": "no labels", "semi": "labels of natural language inference, through a classifier",
    "sup": "labels used otherwise, by the backbone of a measured row, too; or what a paper calls supervised",
    "unknown": "nobody says which labels, if any",
}
ROWS = 64  # rows per file of pair tests: with 1000 rows, the largest file has 62,000 pairs, some 90 kB gzipped
Floats = NDArray[np.float64]
TIMED = ("sentences_per_second", "memory_mb")
PAGE = ("index.html", "board.js", "charts.js", "grid.js", "board.css", "LICENSES.txt")


def check(board: Board) -> None:
    """Raise StsbenchError where two tabs share an id, a name cannot be a file's, a lead is no column, a score is not finite,
    or a row's entry is not on the board."""
    taken: set[str] = set()
    for tab in board.tabs:
        # On some systems, file names that differ in case only are the same file.
        if tab.id.lower() in taken or not _NAME.fullmatch(tab.id):
            raise StsbenchError(
                f"tab '{tab.id}' ({tab.title}): its id is taken or unfit for a file and a link; give it another"
            )
        taken.add(tab.id.lower())
        if tab.lead not in tab.columns:
            raise StsbenchError(f"tab '{tab.id}': its lead '{tab.lead}' is not one of its columns")
        for row in (*tab.measured, *tab.published):
            _check_row(board, tab, row)
    names: set[str] = set()
    for name in board.entries:
        if name.lower() in names or not _NAME.fullmatch(name):
            raise StsbenchError(f"entry '{name}': its name is taken or unfit for a file and a link; rename its folder")
        names.add(name.lower())


def _check_row(board: Board, tab: Tab, row: Row) -> None:
    for name, cell in (*row.cells.items(), *row.subsets.items()):
        if not all(math.isfinite(x) for x in (cell.value, cell.low, cell.high, cell.sd) if x is not None):
            raise StsbenchError(f"tab '{tab.id}', row '{row.id}', {name}: not a finite number")
    if row.entry and row.entry not in board.entries:
        raise StsbenchError(f"tab '{tab.id}', row '{row.id}': no entry '{row.entry}' stands behind it")


def safe_link(link: str) -> str:
    """Return `link` if it is an http or https address or a relative path, else ""."""
    return link if _LINK.fullmatch(link) else ""


def index(board: Board) -> dict[str, Any]:
    """Return the content of index.json: the board's tabs in its order and entries by name, with their files."""
    return {
        "schema_version": SCHEMA,
        "updated": updated(board), **({"name": board.name} if board.name else {}),
        "cell": list(CELL),
        "settings": SETTINGS,
        "flags": {key: dict(zip(("label", "about"), FLAGS.get(key, (key, key)), strict=True)) for key in _flags(board)},
        "groups": [{"id": name, "title": group_title(name)} for name in dict.fromkeys(tab.group for tab in board.tabs)],
        "tabs": [_tab(tab) for tab in board.tabs],
        "entries": {key: {"name": board.entries[key].name, "file": f"entries/{key}.json"} for key in sorted(board.entries)},
    }


def updated(board: Board) -> str | None:
    """Return the time when the newest record was measured (ISO 8601, UTC); None for a board without measured rows."""
    dates = [moment for entry in board.entries.values() for run in entry.runs for moment in run.get("measured", ())]
    return max(dates, default=None)


def form(tab: Tab) -> str:
    """Return the part of a tab's title after metric and aggregation, such as "raw text"; "" for a protocol's defaults."""
    if tab.form is not None:
        return tab.form
    _, *rest = re.split(r", ", tab.title)
    return ", ".join(part for part in rest if part != tab.aggregation)


def _tab(tab: Tab) -> dict[str, Any]:
    prompted = sum(row.prompts is not None for row in tab.measured)
    return {
        "id": tab.id, "group": tab.group, "title": tab.title, "about": tab.about, "metric": tab.metric,
        "aggregation": tab.aggregation, "form": form(tab), "lead": tab.lead, "digits": tab.digits,
        "columns": [{"name": column, "better": tab.direction(column), "lower_is_better": tab.lower(column),
                     **({"digits": tab.finer[column]} if column in tab.finer else {})}
                    for column in _columns(tab)],
        "sample": tab.sample, "known_data": tab.known, "measured": len(tab.measured), "published": len(tab.published),
        "file": f"tabs/{tab.id}.json", **({"prompts": prompted} if prompted else {}),
        **({"user_set": tab.user_set} if tab.user_set else {}), **({"language": tab.language} if tab.language else {}),
    }


def _columns(tab: Tab) -> list[str]:
    """Return the columns in the tab's order, but the average first, so that it is visible on a phone."""
    first = [column for column in tab.columns if column == tab.lead == "Avg"]
    return [*first, *(column for column in tab.columns if column not in first)]


def _flags(board: Board) -> list[str]:
    """Return the flags of all rows, those of FLAGS first."""
    used = {flag for tab in board.tabs for row in (*tab.measured, *tab.published) for flag in row.flags}
    return [*(flag for flag in FLAGS if flag in used), *sorted(used - set(FLAGS))]


def pair_files(tab: Tab) -> list[str]:
    """Return the names of a tab's files of pair tests, without suffix: "pairs/TAB.0", "pairs/TAB.1"; [] for no tests."""
    count = len(tab.pairs.rows) if tab.pairs else 0
    return [f"pairs/{tab.id}.{at}" for at in range(-(-count // ROWS))] if count > 1 else []


def pair_shards(tab: Tab) -> dict[str, dict[str, Any]]:
    """Return file name -> content of a tab's pair tests. Rows have the tab's order, each with its pairs with rows above."""
    if tab.pairs is None:
        return {}
    index = {row: at for at, row in enumerate(tab.pairs.rows)}
    ranked = [row for row in tab.measured if row.id in index]
    order = [index[row.id] for row in ranked]
    different = tab.pairs.different[np.ix_(order, order)]
    values = np.array([row.cells[tab.lead].value for row in ranked])
    shown = whole_halves(values, tab.pairs.halves[np.ix_(order, order)], tab.digits)
    shards = {}
    for number, name in enumerate(pair_files(tab)):
        some = range(number * ROWS, min((number + 1) * ROWS, len(ranked)))
        shards[name] = {
            "schema_version": SCHEMA, "id": tab.id, "column": tab.lead, "first": some.start,
            "rows": [{"id": ranked[at].id, "different": "".join("01"[value] for value in different[at, :at].tolist()),
                      "half": [None if value < 0 else value for value in shown[at, :at].tolist()]} for at in some],
        }
    return shards


def whole_halves(values: Floats, halves: Floats, digits: int) -> NDArray[np.int64]:
    """Return int (r, r): the half widths of intervals of the differences between `values` (r,), in units of the last digit
    shown;
    -1 where there is none.

    They are rounded to the nearest, except that an interval must contain 0 if and only if the unrounded one does.
    """
    unit = 10.0**-digits
    # The page computes differences of values with two digits more than it shows; the same is done here.
    rounded = np.round(values, digits + 2)
    sizes = np.round(np.abs(rounded[:, None] - rounded), digits + 2)
    nearest = np.round(halves / unit)
    reach = np.ceil(np.round(sizes / unit, 2))  # the smallest half width whose interval contains 0
    outside = np.abs(values[:, None] - values) > halves
    kept = np.where(outside, np.clip(nearest, 0, np.maximum(reach - 1, 0)), np.maximum(nearest, reach))
    return np.where(np.isfinite(halves), kept, -1).astype(np.int64)


def site(board: Board) -> dict[str, str]:
    """Return path below the site's folder -> content of the site's files. The same board gives the same bytes.

    Raises StsbenchError for a board that `check` refuses, or where the bundle is missing.
    """
    check(board)
    known = index(board)
    for name, content in board.sections.items():
        known |= sections()[name].index(content)
    files = {name: _bundled(name) for name in PAGE} | _both("index", known)
    files["index.html"] = _with_title(files["index.html"], board.name)
    for tab in board.tabs:
        files |= _both(f"tabs/{tab.id}", tab_shard(board, tab))
        for name, shard in pair_shards(tab).items():
            files |= _both(name, shard)
    for section, content in board.sections.items():
        for name, data in sections()[section].files(content).items():
            files |= _both(name, data)
    for key, rows in entry_rows(board).items():
        files |= _both(f"entries/{key}", entry_shard(board.entries[key], rows))
    return files


def _bundled(name: str) -> str:
    try:
        return (BUNDLE / name).read_text("utf-8")
    except OSError as error:
        raise StsbenchError(f"{BUNDLE / name}: {error.strerror}; `make web` in a checkout makes it") from error


def _with_title(page: str, name: str) -> str:
    """Return the page with the board's name as its title and heading."""
    for mark in ("title", "h1") if name else ():
        before, _, rest = page.partition(f"<{mark}>")
        page = f"{before}<{mark}>{escape(name)}</{mark}>{rest.partition(f'</{mark}>')[2]}"
    return page


def _both(name: str, data: dict[str, Any]) -> dict[str, str]:
    """Return NAME.json and NAME.js -> content: a page opened as a local file may load scripts, but not read JSON files."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Old browsers end a script's line at Unicode's line separators; "<" could end the element around a script.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return {f"{name}.json": text + "\n", f"{name}.js": f"stsbench({json.dumps(name)},{safe});\n"}


_ARXIV = re.compile(r"arxiv\.org/(?:abs|pdf)/(\d\d)(?:0[1-9]|1[0-2])\.\d{4,5}", re.IGNORECASE)


def tab_shard(board: Board, tab: Tab) -> dict[str, Any]:
    """Return the content of a tab's file: its settings, data, notes and rows, and the names of its files of pair tests."""
    # The page shows these as headings: "Trained on test sentences", ..., and SHORT, whose rows it folds.
    kinds = {row.id: f"Trained on {name}" if name != SHORT else name
             for name, rows in comparable(tab).items() for row in rows}
    best_first = tab.measured if any(row.rank for row in tab.measured) else by_lead(tab.measured, tab)
    return {
        "schema_version": SCHEMA, "id": tab.id,
        "settings": {key: tab.settings[key] for key in sorted(tab.settings)},
        "data": {key: tab.data[key] for key in sorted(tab.data)}, "notes": list(tab.notes),
        "measured": [_row(board, tab, row, kinds.get(row.id)) for row in best_first],
        "published": [_row(board, tab, row, None) for row in tab.published],
        **_filled({"pairs": [f"{name}.json" for name in pair_files(tab)]}),
    }


def entry_shard(entry: Provenance, rows: Sequence[tuple[Tab, Row]]) -> dict[str, Any]:
    """Return the content of an entry's file: note, recipe, runs, the scores of its tasks' subsets in every tab, and the
    other prompts that its encoder was measured with. rows: the entry's item of `entry_rows`."""
    return {
        "schema_version": SCHEMA, "id": entry.id, "name": entry.name, "note": entry.note, "recipe": entry.recipe,
        "runs": [{name: run[name] for name in sorted(run)} for run in entry.runs], "parts": _parts(rows),
        **_filled({"prompts": list(entry.prompts), "over_tasks": list(filter(None, [_over_tasks(*row) for row in rows]))}),
    }


def _over_tasks(tab: Tab, row: Row) -> dict[str, Any]:
    """Return the interval of a row's average over tasks, and how likely its order with its neighbours is to survive; {} for
    no average."""
    over = tab.over_tasks(row)
    if over is None or over.low is None or over.high is None or over.sd is None:
        return {}
    low, high, sd = (round(number, tab.digits) + 0.0 for number in (over.low, over.high, over.sd))
    mean = row.cells[tab.lead].value  # an average, in points
    order = [{"id": other.id, "same_order": round(share, 4),
              **({"overstated": True} if overstated(mean - other.cells[tab.lead].value, share) else {})}
             for other, share in tab.neighbours(row)]
    return {"tab": tab.id, "n": over.tasks, "low": low, "high": high, "sd": sd, **_filled({"neighbours": order})}


def entry_rows(board: Board) -> dict[str, list[tuple[Tab, Row]]]:
    """Return entry -> [(tab, row), ...], its measured rows."""
    rows: dict[str, list[tuple[Tab, Row]]] = {key: [] for key in sorted(board.entries)}
    for tab in board.tabs:
        for row in tab.measured:
            if row.entry:
                rows[row.entry].append((tab, row))
    return rows


def _row(board: Board, tab: Tab, row: Row, kind: str | None) -> dict[str, Any]:
    """Return the fields of a row that are not empty. kind: the heading above a comparable row, None for other rows."""
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
        # {column: [yes, no or unknown, why]}; columns that are left out are unknown.
        "seen": {column: [one.answer, one.why] for column, one in row.exposure.items() if one != Exposure("unknown", "")},
        **size_and_cost(board.entries.get(row.entry)),
    }
    return {
        **_filled(fields),
        "scores": {name: scores(row.cells[name], tab.digits_in(name)) for name in tab.columns if name in row.cells},
    }


def _over_prompts(over: PromptSpread | None, digits: int) -> dict[str, Any]:
    """Return the spread over prompts: its scores have two digits more than are shown, as a row's; {} for None."""
    if over is None:
        return {}
    scores = {name: round(getattr(over, name), digits + 2) + 0.0 for name in ("mean", "lowest", "highest")}
    return _filled({"n": over.n, **scores, "sd": over.sd if over.sd is None else round(over.sd, digits)})


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def scores(cell: Cell, digits: int) -> list[float | int | None]:
    """Return [value, low, high, sd, n] without Nones at the end. The value has two digits more than are shown, because rows
    are sorted by it."""
    noise = [None if number is None else round(number, digits) + 0.0 for number in (cell.low, cell.high, cell.sd)]
    fields: list[float | int | None] = [round(cell.value, digits + 2) + 0.0, *noise, cell.n]
    while fields[-1] is None:
        fields.pop()
    return fields


def _arxiv_year(link: str) -> int | None:
    """Return the year in the identifier of an arXiv address; None for another address."""
    match = _ARXIV.search(link)
    return 2000 + int(match[1]) if match else None


def size_and_cost(entry: Provenance | None) -> dict[str, Any]:
    """Return an entry's size, speed and facts. The encoder's size is as recorded, if all runs agree; speed and memory are
    medians over the runs, with the machine, if all were timed on one machine. The facts are licence, released (YYYY or
    YYYY-MM), languages (all, by ISO 639) and hub (ORG/NAME), as the entry states them, and max_tokens."""
    if entry is None:
        return {}
    runs = [{"width": run.get("width"), **run.get("costs", {})} for run in entry.runs]

    def shared(name: str) -> Any:
        values = {run.get(name) for run in runs}
        return values.pop() if len(values) == 1 else None

    sizes = {name: shared(name) for name in ("width", "parameters", "bytes_a_vector", "weights_mb")}
    if machine := shared("machine"):
        timed = {name: [run[name] for run in runs if run.get(name) is not None] for name in TIMED}
        sizes |= {name: float(f"{median(values):.3g}") for name, values in timed.items() if len(values) == len(runs)}
        sizes |= {"machine": machine, "run_on": shared("run_on")}
    return {**{name: value for name, value in sizes.items() if value is not None}, **entry.facts}


def _parts(rows: Sequence[tuple[Tab, Row]]) -> list[dict[str, Any]]:
    """Return the scores of an entry's tasks on subsets, once for all tabs that share them: aggregations of one metric do."""
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
