"""A real browser for the page's tests: Chromium, headless, that reports every console message and every request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,1000",
)


def need_browser() -> tuple[str, str]:
    """Paths of Chromium and its driver; skips the test, with the reason, where one or selenium is missing."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install stsbench[dev]")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip(f"no {'chromium' if not chromium else 'chromedriver'} on the PATH")
    return chromium, driver


@contextmanager
def started(profile: Path) -> Iterator[Any]:
    """A driver with a fresh profile; the driver is named, so that selenium looks for none to download."""
    chromium, driver = need_browser()
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


def requests(browser: Any) -> list[str]:
    """URLs asked for since the last call. Left out: pictures that stand in the page (data:), Chromium's own pages, and what
    the page's policy stopped before it was sent (the console tells of that)."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    failed = [each["params"] for each in messages if each["method"] == "Network.loadingFailed"]
    stopped = {each["requestId"] for each in failed if each.get("blockedReason") == "csp"}
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    urls = [each["request"]["url"] for each in sent if each["requestId"] not in stopped]
    return [url for url in urls if not url.startswith(("data:", "chrome:", "about:"))]


def screen(browser: Any, width: int, height: int, scheme: str = "light") -> None:
    """The size of the window's inside and the colour scheme that the system prefers."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def accessible(browser: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """(role, name, properties) of everything that assistive technology is told of."""
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    return [
        (
            node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""),
            {each["name"]: each["value"].get("value") for each in node.get("properties", [])},
        )
        for node in nodes if not node.get("ignored")
    ]
