"""The site's files: the page as it was bundled, and the data it shows, each as JSON and as a script that registers it."""

from __future__ import annotations

import json
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.records.paths import BUNDLE

from .checks import check
from .index_json import index
from .pair_shards import pair_shards
from .shards import entry_shard, rows_of, tab_shard

PAGE = ("index.html", "board.js", "board.css", "LICENSES.txt")


def site(board: Board) -> dict[str, str]:
    """File, below the site's folder -> content. The same board gives the same bytes.

    Raises StsbenchError for a board that `check` refuses, or where the bundle is missing.
    """
    check(board)
    files = {name: _bundled(name) for name in PAGE} | _both("index", index(board))
    for tab in board.tabs:
        files |= _both(f"tabs/{tab.id}", tab_shard(board, tab))
        for name, shard in pair_shards(tab).items():
            files |= _both(name, shard)
    for key, rows in rows_of(board).items():
        files |= _both(f"entries/{key}", entry_shard(board.entries[key], rows))
    return files


def _bundled(name: str) -> str:
    try:
        return (BUNDLE / name).read_text("utf-8")
    except OSError as error:
        raise StsbenchError(f"{BUNDLE / name}: {error.strerror}; `make web` in a checkout makes it") from error


def _both(name: str, data: dict[str, Any]) -> dict[str, str]:
    """NAME.json, and NAME.js: a page opened from a file may load a script, but may not read a file."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Line separators would end a script's line in old readers; "<" could end the element that a script stands in.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return {f"{name}.json": text + "\n", f"{name}.js": f"stsbench({json.dumps(name)},{safe});\n"}
