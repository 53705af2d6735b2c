"""The built page in a browser, for its tests: written to a folder, opened at a fragment, read as a reader sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from board_example import board
from browser import need_browser, requests, screen, started
from synthetic_board import synthetic

from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.page.tables import comparable
from stsbench.leaderboard.ranks.board import Board, Tab

ODD = board(12, 50)  # everything a page must be able to show
SMALL = synthetic(12)  # the same rows in every tab
TEXTS = synthetic(9, 3, ("", "raw text"))  # the same, on two texts


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    boards = {"odd": ODD, "small": SMALL, "texts": TEXTS}
    return {name: write_site(each, tmp_path_factory.mktemp(name)) for name, each in boards.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need_browser()
    with started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def visit(browser: Any, urls: dict[str, str]) -> Iterator[Callable[..., Any]]:
    """Opens the odd board, or the small one, at a fragment; at the end nothing may have been complained of or asked for."""
    yield lambda at="", which="odd", **more: go(browser, urls[which], at, **more)
    clean(browser, *urls.values())


def write_site(board: Board, folder: Path) -> str:
    """The address of the page of `board`, written below `folder`."""
    for name, text in site(board).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return (folder / "index.html").as_uri()


def css(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def by_script(element: Any) -> None:
    """A click that takes no pointer's time."""
    element.parent.execute_script("arguments[0].click()", element)


def comes_to(read: Callable[[], Any], expected: Any, seconds: float = 10) -> None:
    """`read()` must become `expected`: what a page loads or draws comes a moment later."""
    until = time.monotonic() + seconds
    while (seen := read()) != expected and time.monotonic() < until:
        time.sleep(0.02)
    assert seen == expected


def ready(browser: Any) -> Any:
    """The browser, once the tab's rows are drawn or the page has said why not."""
    comes_to(
        lambda: browser.execute_script("return Boolean(document.querySelector('#view > *, .banner, #board > p'))"), True
    )
    return browser


def go(browser: Any, url: str, fragment: str = "", width: int = 1280, scheme: str = "light") -> Any:
    """Open the page at a fragment, afresh."""
    screen(browser, width, 844 if width < 600 else 1000, scheme)
    browser.get("about:blank")
    browser.get(f"{url}#{fragment}" if fragment else url)
    return ready(browser)


def clean(browser: Any, *urls: str) -> None:
    """Nothing was complained of, and nothing asked for outside the pages' folders."""
    assert [entry for entry in browser.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}] == []
    folders = tuple(url.rpartition("/")[0] + "/" for url in urls)
    assert [asked for asked in requests(browser) if not asked.startswith(folders)] == []


def said(browser: Any, selector: str) -> str:
    """What the first element of a selector shows, on one line."""
    script = "return document.querySelector(arguments[0])?.innerText ?? ''"
    return " ".join(str(browser.execute_script(script, selector)).split())


def fragment(browser: Any) -> str:
    return str(browser.execute_script("return location.hash.slice(1)"))


def ranking(browser: Any, kind: str = "measured") -> list[str]:
    """The names in the ranking, from the top."""
    return list(
        browser.execute_script(
            "return [...document.querySelectorAll('.lines.' + arguments[0] + ' .name .open')].map(each => each.textContent)",
            kind,
        )
    )


def first_view(tab: Tab) -> list[str]:
    """The names in a tab's first view: its comparable rows, the largest kind of supervision on top; all where none is."""
    kinds = sorted(comparable(tab).values(), key=len, reverse=True) or [list(tab.measured)]
    return [row.method for rows in kinds for row in rows]


def column(browser: Any, field: str, kind: str = "measured") -> list[str]:
    """The first line of each cell of a column of the table of scores, as far as it is drawn."""
    script = """
        const [field, kind] = arguments;
        const cells = document.querySelectorAll(`.grid-box.${kind} .tabulator-cell[tabulator-field="${field}"]`);
        const first = (cell) => cell.querySelector('.open, .none') ?? cell.firstChild?.firstChild ?? cell.firstChild;
        return [...cells].map(cell => first(cell)?.textContent ?? '')"""
    return list(browser.execute_script(script, field, kind))
