"""The built page in headless Chromium, for its tests: written, opened at a fragment, read as a reader sees it."""

import json
import shutil
import time
from contextlib import contextmanager
from itertools import count

import pytest
from board_example import board, synthetic

from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.page.tables import comparable

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,1000")


@contextmanager
def started(profile):
    """A driver with a fresh profile; the driver is named, so that selenium looks for none to download. Skips the test, with
    the reason, where Chromium, its driver or selenium is missing."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install stsbench[dev]")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip(f"no {'chromium' if not chromium else 'chromedriver'} on the PATH")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser.get("about:blank")
        browser.get_log("performance")  # Chromium's own first page asks its maker for things
        yield browser
    finally:
        browser.quit()


def requests(browser):
    """URLs asked for since the last call. Left out: pictures that stand in the page (data:), Chromium's own pages, and what
    the page's policy stopped before it was sent (the console tells of that)."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    failed = [each["params"] for each in messages if each["method"] == "Network.loadingFailed"]
    stopped = {each["requestId"] for each in failed if each.get("blockedReason") == "csp"}
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    urls = [each["request"]["url"].partition("?")[0] for each in sent if each["requestId"] not in stopped]
    return [url for url in urls if not url.startswith(("data:", "chrome:", "about:"))]


def screen(browser, width, height):
    """The size of the window's inside."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})


def accessible(browser):
    """(role, name, properties) of everything that assistive technology is told of."""
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    return [(node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""),
             {each["name"]: each["value"].get("value") for each in node.get("properties", [])})
            for node in nodes if not node.get("ignored")]


_visits = count()
ODD = board(12, 50)  # everything a page must be able to show
SMALL = synthetic(12)  # the same rows in every tab


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    return {name: write_site(each, tmp_path_factory.mktemp(name)) for name, each in {"odd": ODD, "small": SMALL}.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def visit(browser, urls):
    """Opens the odd board, or the small one, at a fragment; at the end nothing may have been complained of, and nothing
    asked for outside the pages' folders."""

    def visit(at="", which="odd", width=1280):
        screen(browser, width, 844 if width < 600 else 1000)
        browser.get(f"{urls[which]}?{next(_visits)}" + (f"#{at}" if at else ""))  # another query makes it another page
        # Once the tab's rows are drawn or the page has said why not.
        ready = "return Boolean(document.querySelector('#view > *, .banner, #board > p'))"
        comes_to(lambda: browser.execute_script(ready), True)

    yield visit
    assert [entry for entry in browser.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}] == []
    folders = tuple(url.rpartition("/")[0] + "/" for url in urls.values())
    assert [asked for asked in requests(browser) if not asked.startswith(folders)] == []


def write_site(board, folder):
    """The address of the page of `board`, written below `folder`."""
    for name, text in site(board).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return (folder / "index.html").as_uri()


def css(browser, selector):
    return list(browser.find_elements("css selector", selector))


def by_script(element):
    element.parent.execute_script("arguments[0].click()", element)


def comes_to(read, expected, seconds=10):
    """`read()` must become `expected`: what a page loads or draws comes a moment later."""
    until = time.monotonic() + seconds
    while (seen := read()) != expected and time.monotonic() < until:
        time.sleep(0.02)
    assert seen == expected


def said(browser, selector):
    """What the first element of a selector shows, on one line."""
    script = "return document.querySelector(arguments[0])?.innerText ?? ''"
    return " ".join(str(browser.execute_script(script, selector)).split())


def fragment(browser):
    return str(browser.execute_script("return location.hash.slice(1)"))


def ranking(browser, kind="measured"):
    script = "return [...document.querySelectorAll('.lines.' + arguments[0] + ' .name .open')].map(each => each.textContent)"
    return list(browser.execute_script(script, kind))


def first_view(tab):
    """The names in a tab's first view: its ranked rows by their training, the kind of the best on top; all where none is."""
    kinds = list(comparable(tab).values()) or [list(tab.measured)]
    return [row.method for rows in kinds for row in rows]


def column(browser, field, kind="measured"):
    """The first line of each cell of a column of the table of scores, as far as it is drawn."""
    script = """
        const [field, kind] = arguments;
        const cells = document.querySelectorAll(`.grid-box.${kind} .tabulator-cell[tabulator-field="${field}"]`);
        const first = (cell) => cell.querySelector('.open, .none') ?? cell.firstChild?.firstChild ?? cell.firstChild;
        return [...cells].map(cell => first(cell)?.textContent ?? '')"""
    return list(browser.execute_script(script, field, kind))
