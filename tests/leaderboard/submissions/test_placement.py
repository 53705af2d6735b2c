"""Where an entry stands, in words: rank intervals, reasons, what changed."""

import re
from dataclasses import replace

import board_example

from stsbench.leaderboard.ranks.board import PromptSpread, Rank
from stsbench.leaderboard.submissions.checkout import EntryChange
from stsbench.leaderboard.submissions.standing import headline, report, standings

BOARD = board_example.board(measured=14, published=5)


def placed(rank):
    """The entry's row of the first tab with another rank."""
    tab = BOARD.tabs[0]
    row = next(row for row in tab.measured if row.rank)
    return tab, replace(row, rank=rank)


def test_the_headline_has_the_rank_s_interval_protocol_and_score():
    tab, row = placed(Rank(5, 4, 7, "b"))
    cell = row.cells["Avg"]
    score = f"Avg {cell.value:.2f}, 95 % interval {cell.low:.2f} to {cell.high:.2f}"
    assert headline((tab, row)) == f"rank 4-7 of 12 under sts:all (Spearman, all; {score})"
    assert headline(placed(Rank(5, 5, 5, "b"))).startswith("rank 5 of 12 under")


def test_a_row_without_rank_has_its_reason():
    tab, row = placed(None)
    row = replace(row, unranked="not ranked: SICK-R not measured", cells={})
    assert headline((tab, row)) == "not be ranked under sts:all (Spearman, all; no Avg): SICK-R not measured"


def test_standings_are_in_the_board_s_order():
    ids = [tab.id for tab in BOARD.tabs]
    names = [tab.id for tab, _ in standings(BOARD, "entry-00")]
    assert names[0] == "sts-spearman-all" and names == sorted(names, key=ids.index)
    assert standings(BOARD, "no-such-entry") == []


def test_the_report_has_a_section_for_each_entry():
    text = report(BOARD, [EntryChange("entry-00", True, 9, 0, 0), EntryChange("entry-01", False, 1, 2, 0),
                          EntryChange("<b>gone</b>", False, 0, 0, 3)])
    assert re.findall("^### (.*)$", text, re.MULTILINE) == [
        "entry-00 (new, 9 files)", "entry-01 (on the board already; 1 file added, 2 files changed)",
        "&lt;b&gt;gone&lt;/b&gt; (on the board already; 3 files deleted)",
    ]
    said = re.compile(r"^\*\*(?:Your|This) entry would (not be ranked|rank \d+(-\d+)? of \d+) under sts:all ", re.MULTILINE)
    assert len(said.findall(text)) == 2
    assert "| transfer | Accuracy | Avg " in text and "<script" not in text
    assert text.endswith("This entry is no longer on the board.\n")
    assert report(BOARD, ()) == "No measured entry is new or changed.\n"


def test_prompts_stand_where_their_encoder_does():
    prompts = PromptSpread(15, 70.0, 1.0, 66.125, 72.5)
    tab, row = placed(Rank(5, 4, 7, "b", prompts=(3, 9), chance=0.1))
    row = replace(row, prompts=prompts)
    cell = row.cells["Avg"]
    score = f"Avg {cell.value:.2f}, 95 % interval {cell.low:.2f} to {cell.high:.2f}; 66.12 to 72.50 over 15 prompts"
    assert headline((tab, row)) == f"rank 4-7 of 12 (over prompts 3-9) under sts:all (Spearman, all; {score})"
    about = replace(BOARD.entries["entry-00"], prompts=("a: ",), prompt_entries=("worded",))
    prompted = replace(BOARD, entries={**BOARD.entries, "entry-00": about})
    assert standings(prompted, "worded") == standings(BOARD, "entry-00") != []
    text = report(prompted, [EntryChange("worded", True, 3, 0, 0)])
    assert text.startswith("### worded (new, 3 files)\n\n**The row of entry-00, whose prompts these are, would ")
    assert "no longer" not in text


def test_the_report_says_how_a_description_changes():
    before = "method: a\nbackbone: b\nsetting: unsup\nflags: [nli, sts]\npaper: https://x.org/|\n"
    now = "backbone: b\nmethod: a\nsetting: sup\nflags: [nli]\nnote: " + "word " * 100
    (section,) = report(BOARD, [EntryChange("entry-01", False, 0, 1, 0, (before, now))]).split("### ")[1:]
    bullets = re.findall("^- (.*)$", section.partition("**")[0], re.MULTILINE)
    assert bullets[:3] == ["setting: unsup → sup", "flags: nli, sts → nli", "paper: https:<!-- -->//x.org/\\| → nothing"]
    assert bullets[3].startswith("note: nothing → word word") and bullets[3].endswith("…") and len(bullets) == 4
    assert "**This entry would" in section
    text = report(BOARD, [EntryChange("entry-01", False, 0, 1, 0, (before, before + "# a remark\n"))])
    assert "- its form, and nothing it says" in text
    assert "- method: nothing → a" in report(BOARD, [EntryChange("entry-01", False, 0, 1, 0, ("[", before))])


def test_the_report_names_files_that_are_no_entries():
    assert "Not only entries" not in report(BOARD, [EntryChange("entry-01", False, 0, 1, 0)])
    files = [f"code/{i}.py" for i in range(12)]
    assert report(BOARD, (), files[:1]).endswith("**Not only entries change**, but also 1 other file: code/0.py.\n")
    assert report(BOARD, (), files).endswith("12 other files: " + ", ".join(files[:10]) + " and 2 more.\n")
