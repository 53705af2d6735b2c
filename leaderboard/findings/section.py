"""The section of the board that writes below docs/: the README's picture, docs/findings/protocol-sensitivity, a table of
encoders, the table of the page on MiniLM."""

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
MINILM_PAGE = "methods-on-minilm.md"  # it holds one table of the board


class Findings(Section):
    """How the order of rows changes with the setting, and what else of the board stands in git."""

    def content(
        self, root: Path, placed: Sequence[Placed], tabs: Sequence[Tab], tests: Mapping[str, Tested]
    ) -> Sensitivity | None:
        """Return how the order of the measured rows changes with the setting; None where there is nothing to compare."""
        return sensitivity(tabs, tests)

    def findings(self, content: Sensitivity | None, board: Board, docs: Path) -> Mapping[Path, str]:
        """Return the pages, tables and pictures, those of which the board has the rows."""
        findings = docs / "findings"
        files = {findings / ENCODERS: encoder_table(board), docs / FOREST: forest(board)}
        if content is not None:
            files[findings / "protocol-sensitivity.md"] = sensitivity_page(board.tabs, content)
            files[findings / PICTURE] = picture(content)
        if (page := findings / MINILM_PAGE).is_file():
            files[page] = with_table(page, backbone_table(board))
        return {path: text for path, text in files.items() if text}
