"""The leaderboard's page in Chromium: bytes, first paint, sort, filter, and opening a row, for boards of drawn rows.

    python benchmarks/page.py --rows 17 100 300 1000

Needs chromium, chromedriver and selenium (the dev extra). Bytes are gzip -9 of what the first tab loads: page, style, script,
index and the tab's rows. First paint of the ranking is the time from the start of the navigation to the frame in which its
rows stand, from a local server without a cache. Sort, filter and open are from the click to the frame that shows the result.
Milliseconds are medians of --repeats. --throttle slows the processor down by a factor, as a phone's is slower.
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
# Resolves with milliseconds when `shown` holds and the browser has drawn the frame after it.
UNTIL = """
const [start, shown, done] = [performance.now(), arguments[1], arguments[arguments.length - 1]];
const holds = new Function(`return ${shown}`);
document.querySelector(arguments[0])?.click();
const look = () => holds() ? requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))) : setTimeout(look);
look();
"""
PAINTED = """
const done = arguments[0];
const look = () => document.querySelector('.lines.measured li')
  ? requestAnimationFrame(() => setTimeout(() => done(performance.now()))) : setTimeout(look);
look();
"""
TYPE = """
const [done, field] = [arguments[1], document.querySelector('#filters [type=search]')];
const start = performance.now();
field.value = arguments[0];
field.dispatchEvent(new Event('input', {bubbles: true}));
requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
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


def measured(browser: Any, url: str, throttle: float) -> dict[str, float]:
    """Milliseconds of one visit."""
    browser.get("about:blank")
    browser.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    browser.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": throttle})
    browser.get(url)
    times = {"first paint": browser.execute_async_script(PAINTED)}
    times["switch"] = browser.execute_async_script(
        UNTIL, "[name=switch-metric][value=pearson]", "document.querySelector('h2').textContent.includes('Pearson') && document.querySelector('.answer').textContent"
    )
    browser.get(f"{url}#sts-spearman-all?view=scores")
    head = ".grid-box.measured .tabulator-col[tabulator-field=STS12]"
    browser.execute_async_script(UNTIL, "none", f"document.querySelector('{head} .heading')")
    times["sort"] = browser.execute_async_script(
        UNTIL, f"{head} .heading", f"document.querySelector('{head}[aria-sort=descending]')"
    )
    times["filter"] = browser.execute_async_script(TYPE, "simcse")
    times["open a row"] = browser.execute_async_script(
        UNTIL, ".grid-box.measured .open", "document.querySelector('#drawer .behind:not([aria-busy])')"
    )
    times["elements"] = browser.execute_script("return document.querySelectorAll('*').length")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[17, 100, 300, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--throttle", type=float, default=1.0)
    args = parser.parse_args()
    from browser import screen, started
    from site_pages import write_site
    from synthetic_board import synthetic

    print("| rows | kB gzipped | of it rows | first paint | switch | sort | filter | open a row | elements |")
    print("|---|---|---|---|---|---|---|---|---|")
    for rows in args.rows:
        with tempfile.TemporaryDirectory() as place, started(Path(place) / "profile") as browser:
            folder = Path(place) / "site"
            write_site(synthetic(rows), folder)
            sizes = [len(gzip.compress((folder / name).read_bytes(), 9)) / 1000 for name in FIRST]
            screen(browser, 1280, 1000)
            with served(folder) as url:
                visits = [measured(browser, url, args.throttle) for _ in range(args.repeats)]
        medians = {name: statistics.median(visit[name] for visit in visits) for name in visits[0]}
        times = " | ".join(f"{value:.0f}" for value in medians.values())
        print(f"| {rows} | {sum(sizes):.0f} | {sizes[-1]:.0f} | {times} |", flush=True)


if __name__ == "__main__":
    main()
