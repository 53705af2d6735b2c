"""The reports on docs/how-to/report.md are those that the commands above them print.

`python tests/extensions/reports/test_report_page.py` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from stsbench.comparison import shared
from stsbench.comparison.compare import compare

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/how-to/report.md"
RESAMPLES = 1000  # the usual number takes ten seconds
ENOUGH = 200  # resamples, for the same tasks to differ significantly
REPORT = re.compile(r"(?<=<!-- report: )(?P<a>\S+) (?P<b>\S+) -->\n(?P<text>.*?)(?=<!-- end of report -->)", re.DOTALL)


def quoted(a, b, resamples=RESAMPLES):
    """The report of two entries of the board, as the page has it."""
    measured = ROOT / "leaderboard/measured"
    lines = compare(measured / a, measured / b, protocols="sts", resamples=resamples).report().splitlines()
    return "\n".join(["", *(f"> {line}".rstrip() for line in lines), "", ""])


def outline(text):
    """Without the figures, many of which depend on the number of resamples."""
    return re.sub(r"\d+\.\d+|[\d,]+ resamples", "#", text)


def scores(text):
    """Task, number of items, both scores and their difference, of each row of the table."""
    return re.findall(r"^> \| (\S+ \| \d+ \| \S+ \| \S+ \| \S+) ", text, re.MULTILINE)


def test_the_page_has_what_the_command_prints(monkeypatch):
    monkeypatch.setattr(shared, "rescored", lambda path, record: (None, record.scores))  # the board's tests score them again
    page = PAGE.read_text("utf-8")
    [match] = REPORT.finditer(page)
    a, b = (f"leaderboard/measured/{match[side]}" for side in "ab")
    assert f"stsbench compare {a} {b} --protocol sts --resamples {RESAMPLES} --report -" in page
    made = quoted(match["a"], match["b"], ENOUGH)
    assert outline(match["text"]) == outline(made) and scores(match["text"]) == scores(made) and len(scores(made)) == 8


if __name__ == "__main__":
    def renewed(match: re.Match[str]) -> str:
        return f"{match['a']} {match['b']} -->\n{quoted(match['a'], match['b'])}"

    PAGE.write_text(REPORT.sub(renewed, PAGE.read_text("utf-8")), "utf-8")
