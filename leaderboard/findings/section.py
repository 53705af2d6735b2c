"""The board's extension that writes below docs/: the README's picture, docs/findings/protocol-sensitivity, a table of
encoders, and the table of the page on MiniLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stsbench.leaderboard.board_files import with_table
from stsbench.leaderboard.ranks.board import Board, Tab
from stsbench.leaderboard.ranks.plan import Placed, Section, Tested

from .forest import forest
from .pages import PICTURE, backbone_table, encoder_table, sensitivity_page
from .picture import picture
from .sensitivity import Sensitivity, sensitivity

FOREST = "leaderboard.svg"
ENCODERS = "which-encoder.csv"
MINILM_PAGE = "methods-on-minilm.md"  # a written page with one table made from the board


class Findings(Section):
    """Protocol sensitivity, and the other files of docs/ that are made from the board."""

    def content(
        self, root: Path, placed: Sequence[Placed], tabs: Sequence[Tab], tests: Mapping[str, Tested]
    ) -> Sensitivity | None:
        """Return the protocol sensitivity of the measured rows; None for fewer than two settings or rows."""
        return sensitivity(tabs, tests)

    def findings(self, content: Sensitivity | None, board: Board, docs: Path) -> Mapping[Path, str]:
        """Return path -> text of the pages, tables and pictures for which the board has rows."""
        findings = docs / "findings"
        files = {findings / ENCODERS: encoder_table(board), docs / FOREST: forest(board)}
        if content is not None:
            files[findings / "protocol-sensitivity.md"] = sensitivity_page(board.tabs, content)
            files[findings / PICTURE] = picture(content)
        if (page := findings / MINILM_PAGE).is_file():
            files[page] = with_table(page, backbone_table(board))
        return {path: text for path, text in files.items() if text}
