"""The leaderboard's page in Chromium: bytes, first paint, sort, filter, and opening a row, for boards of drawn rows.

    python benchmarks/page.py --rows 17 100 300 1000

Needs chromium, chromedriver and selenium (the dev extra). Bytes are gzip -9 of what the first tab loads: page, style,
script, index and the tab's rows. Times are processor milliseconds of the page's main thread, which a busy machine
disturbs less than those of the clock: until the first rows stand, and from a click until its result does. Medians of
--repeats visits, from a local server, without a cache.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

FIRST = ("index.html", "board.css", "board.js", "index.js", "tabs/sts-spearman-all.js")
# Resolves when `shown` holds and the browser has drawn the frame after it.
UNTIL = """
const [shown, done] = [arguments[1], arguments[arguments.length - 1]];
const holds = new Function(`return ${shown}`);
document.querySelector(arguments[0])?.click();
const look = () => holds() ? requestAnimationFrame(() => setTimeout(done)) : setTimeout(look, 5);
look();
"""
TYPE = """
const [done, field] = [arguments[1], document.querySelector('#filters [type=search]')];
field.value = arguments[0];
field.dispatchEvent(new Event('input', {bubbles: true}));
requestAnimationFrame(() => setTimeout(done));
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
        server.shutdown()


def seconds(browser: Any) -> float:
    """Processor seconds of the page's main thread since it began."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def measured(browser: Any, url: str) -> dict[str, float]:
    """Milliseconds of one visit."""
    times = {}

    def timed(name: str, script: str, *arguments: str) -> None:
        before = seconds(browser)
        browser.execute_async_script(script, *arguments)
        times[name] = 1000 * (seconds(browser) - before)

    browser.get("about:blank")
    browser.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.get(url)
    browser.execute_async_script(UNTIL, "none", "document.querySelector('.encoders tbody tr, .lines.measured li')")
    times["first paint"] = 1000 * seconds(browser)
    browser.get(f"{url}#sts-spearman-all")
    browser.execute_async_script(UNTIL, "none", "document.querySelector('.lines.measured li')")
    pearson = "[name=switch-metric][value=pearson]"
    first = "document.querySelector('.lines.measured .score b').textContent"
    browser.execute_script(f"window.before = {first}")
    timed("switch", UNTIL, pearson, f"{first} !== window.before")
    browser.get(f"{url}#sts-spearman-all?view=scores")
    head = ".grid-box.measured .tabulator-col[tabulator-field=STS12]"
    browser.execute_async_script(UNTIL, "none", f"document.querySelector('{head} .heading')")
    timed("sort", UNTIL, f"{head} .heading", f"document.querySelector('{head}[aria-sort=descending]')")
    timed("filter", TYPE, "simcse")
    opened = "document.querySelector('#drawer .behind:not([aria-busy])')"
    timed("open a row", UNTIL, ".grid-box.measured .open", opened)
    times["elements"] = browser.execute_script("return document.querySelectorAll('*').length")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[17, 100, 300, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    from board_example import synthetic
    from site_pages import screen, started, write_site

    print("| rows | kB gzipped | of it rows | first paint | switch | sort | filter | open a row | elements |")
    print("|---|---|---|---|---|---|---|---|---|")
    for rows in args.rows:
        with tempfile.TemporaryDirectory() as temporary, started(Path(temporary) / "profile") as browser:
            folder = Path(temporary) / "site"
            write_site(synthetic(rows), folder)
            sizes = [len(gzip.compress((folder / name).read_bytes(), 9)) / 1000 for name in FIRST]
            screen(browser, 1280, 1000)
            with served(folder) as url:
                visits = [measured(browser, url) for _ in range(args.repeats)]
        medians = {name: statistics.median(visit[name] for visit in visits) for name in visits[0]}
        times = " | ".join(f"{value:.0f}" for value in medians.values())
        print(f"| {rows} | {sum(sizes):.0f} | {sizes[-1]:.0f} | {times} |", flush=True)


if __name__ == "__main__":
    main()
