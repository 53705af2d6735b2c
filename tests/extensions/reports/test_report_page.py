"""The reports on docs/how-to/report.md are those that the commands above them print.

`python tests/evaluation/test_report_page.py` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from stsbench.comparison.compare import compare

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/how-to/report.md"
RESAMPLES = 1000  # the usual number takes ten seconds
REPORT = re.compile(r"(?<=<!-- report: )(?P<a>\S+) (?P<b>\S+) -->\n(?P<text>.*?)(?=<!-- end of report -->)", re.DOTALL)


def quoted(a: str, b: str) -> str:
    """The report of two entries of the board, as the page has it."""
    measured = ROOT / "leaderboard/measured"
    lines = compare(measured / a, measured / b, protocols="sts", resamples=RESAMPLES).report().splitlines()
    return "\n".join(["", *(f"> {line}".rstrip() for line in lines), "", ""])


def test_the_page_has_what_the_command_prints():
    page = PAGE.read_text("utf-8")
    [match] = REPORT.finditer(page)
    a, b = (f"leaderboard/measured/{match[side]}" for side in "ab")
    assert f"stsbench compare {a} {b} --protocol sts --resamples {RESAMPLES} --report -" in page
    assert match["text"] == quoted(match["a"], match["b"])


if __name__ == "__main__":
    def renewed(match: re.Match[str]) -> str:
        return f"{match['a']} {match['b']} -->\n{quoted(match['a'], match['b'])}"

    PAGE.write_text(REPORT.sub(renewed, PAGE.read_text("utf-8")), "utf-8")
