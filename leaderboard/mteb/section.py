"""MTEB's published results on a board: a table of their own on the page, its files, and a page of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stsbench.leaderboard.ranks.section import Section
from stsbench.leaderboard.ranks.significance import Placed

from .published_board import published_board
from .published_json import BY_LANGUAGE, FILE, language_shard, published_index, published_shard
from .published_page import published_page
from .standings import AsPublished


class PublishedResults(Section):
    """What lies in as_published/ of a board."""

    folders = ("published",)

    def content(self, root: Path, placed: Sequence[Placed]) -> AsPublished | None:
        """Return the published results, ranked, beside what was measured of them here."""
        return published_board(root, placed)

    def index(self, content: AsPublished) -> Mapping[str, Any]:
        """Return what the page says before the files are loaded."""
        return {"as_published": published_index(content)}

    def files(self, content: AsPublished) -> Mapping[str, dict[str, Any]]:
        """Return the rows with their ranks, and those of each language."""
        return {FILE: published_shard(content), BY_LANGUAGE: language_shard(content)}

    def findings(self, content: AsPublished) -> Mapping[str, str]:
        """Return the page on which rows tie and what is doubtful."""
        return {"mteb-as-published.md": published_page(content)}
