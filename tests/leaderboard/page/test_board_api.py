"""The programs in docs/reference/board-api.md, as they stand there, on the files of a board."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from synthetic_board import synthetic

from stsbench.leaderboard.page.site import ROWS, site

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "board-api.md"
BOARD = synthetic(ROWS + 3, published=1)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the document's programs define, run in its order on a board of three more rows than a file of pairs has."""
    folder = tmp_path_factory.mktemp("board")
    for name, text in site(BOARD).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    made: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block.replace("https://example.org/board/", f"{folder.as_uri()}/"), str(DOCUMENT), "exec"), made)
    return made


def test_a_pair_is_that_of_the_boards_test(names: dict[str, Any]) -> None:
    tab = BOARD.tabs[0]
    assert tab.pairs is not None
    place = {row: at for at, row in enumerate(tab.pairs.rows)}
    listed = next(each for each in names["index"]["tabs"] if each["id"] == tab.id)
    for one, other in ((tab.measured[0], tab.measured[1]), (tab.measured[-1], tab.measured[3])):
        gap, low, high, different = names["pair"](listed, one.id, other.id)
        assert gap == pytest.approx(one.cells["Avg"].value - other.cells["Avg"].value, abs=1e-3)
        assert (high - low) / 2 == pytest.approx(tab.pairs.halves[place[one.id], place[other.id]], abs=0.011)
        assert different == tab.pairs.different[place[one.id], place[other.id]]


def test_all_swaps_are_listed(names: dict[str, Any]) -> None:
    tabs = [{row.id: round(row.cells["STS12"].value, 4) for row in tab.measured} for tab in BOARD.tabs]
    expected = {
        frozenset((a, b)) for a, b in combinations(tabs[0], 2)
        if {tab[a] > tab[b] for tab in tabs} == {True, False} and all(tab[a] != tab[b] for tab in tabs)
    }
    listed = names["swaps"](names["settings"], "STS12")
    assert len(names["settings"]) == 6 and {frozenset(pair) for _, *pair in listed} == expected and expected
    assert [lead for lead, *_ in listed] == sorted((lead for lead, *_ in listed), reverse=True)
