"""`stsbench leaderboard submit` and `placement`, and the functions, which do the same: where an entry stands, in words, what
git says of a board, and commits made beside the working tree."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import board_example
import pytest
from board_runs import NEW, WORDS, checkout, read_once, repository, runs, silent  # noqa: F401 - fixtures
from clirun import cli, place, refuses  # noqa: F401 - fixtures

from stsbench import leaderboard
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.leaderboard.ranks.board import PromptSpread, Rank
from stsbench.leaderboard.records.paths import write_index
from stsbench.leaderboard.submissions import checkout as git_board
from stsbench.leaderboard.submissions.checkout import EntryChange, changes_since, commit_on_branch, others_since
from stsbench.leaderboard.submissions.standing import headline, report, standings
from stsbench.leaderboard.submissions.submission import Submission, next_steps

pytestmark = pytest.mark.usefixtures("silent")
BOARD = board_example.board(measured=14, published=5)


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_a_run_is_shown_and_nothing_is_written(runs, checkout, cli):
    code, out, err = cli("leaderboard", "submit", runs["letters"], *WORDS)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("would rank ") and " of 3 under sts:all (Spearman, all" in lines[0]
    assert any(line.startswith("to be committed: ") for line in lines) and "  leaderboard/measured/mine/entry.yaml" in lines
    told = "--entry mine --method 'my method' --backbone none --setting unsup --flag nli"
    assert lines[lines.index("next:") + 1 :] == [
        "  git switch -c entry-mine", f"  stsbench leaderboard add {runs['letters']} {told}",
        "  git add leaderboard/measured/mine", "  git commit -m 'Add mine to the board'",
        "  git push -u origin entry-mine", "  gh pr create --head entry-mine --fill"]
    with pytest.warns(StsbenchWarning):
        submission = leaderboard.submit(runs["letters"], "mine", **NEW)
    assert f"{submission}\n" == out and repr(submission).startswith("<Submission of mine: ") and len(repr(submission)) < 100
    files = ("leaderboard/measured/mine/a", "leaderboard/shared/new")  # beside the entries
    assert next_steps(Path("leaderboard"), Submission("mine", files, 1, (), (), ""), [])[2] == (
        "git add leaderboard/measured/mine leaderboard/shared")
    for words, *arguments in (  # in the board's own paths
        ("leaderboard/measured/words/", runs["words"], *WORDS), ("is a new entry", runs["letters"], "--entry", "mine"),
        ("nothing to submit: leaderboard/measured/noisy", runs["noisy"], "--entry", "noisy")):
        code, out, err = cli("leaderboard", "submit", *arguments, "--open")
        assert (code, out, err.count("\n")) == (1, "", 1) and words in err and "/tmp" not in err.split("holds")[0]
    assert git("status", "--porcelain") == "" and git("branch", "--format=%(refname:short)") == "main"


def test_open_commits_the_record_and_only_that_on_a_branch(runs, checkout, cli):
    (checkout / "half done.txt").write_text("mine")
    code, out, err = cli("leaderboard", "submit", runs["letters"], *WORDS, "--open")
    assert code == 0, err
    shown = [line.strip() for line in out.splitlines() if line.startswith("  leaderboard/")]
    assert git("diff", "--name-only", "--diff-filter=A", "main", "entry-mine").splitlines() == sorted(shown)
    assert git("diff", "--name-only", "--diff-filter=a", "main", "entry-mine") == ""
    assert git("status", "--porcelain") == '?? "half done.txt"' and git("branch", "--show-current") == "main"
    assert git("log", "-1", "--format=%s", "entry-mine") == "Add mine to the board: 9 records"
    assert out.splitlines()[-2:] == ["  git push -u origin entry-mine", "  gh pr create --head entry-mine --fill"]
    # The reviewer's side: the branch says where the entry would rank.
    git("switch", "-q", "entry-mine")
    code, out, _ = cli("leaderboard", "placement", "--since", "main")
    assert code == 0 and out.startswith(f"### mine (new, {len(shown)} files)\n\n**Your entry would rank ")
    placement = leaderboard.placement("main")
    assert str(placement) == placement._repr_markdown_() == out
    frame = placement.to_pandas()
    (row,) = [row for row in placement.board.tabs[0].measured if row.entry == "mine"]
    assert (frame.entry == "mine").all() and frame.value[0] == row.cells["Avg"].value
    assert (frame["first"][0], frame["last"][0]) == (row.rank.first, row.rank.last)


def test_a_board_whose_runs_lie_elsewhere_says_so(runs, checkout, cli, tmp_path):
    for file in (checkout / "leaderboard").rglob("*.parquet"):
        target = tmp_path / "elsewhere" / file.relative_to(checkout / "leaderboard")
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
    write_index(checkout / "leaderboard", str(tmp_path / "elsewhere"))
    code, out, err = cli("leaderboard", "submit", runs["letters"], *WORDS)
    assert (code, out, err.count("\n")) == (1, "", 1) and "the runs of leaderboard lie elsewhere" in err, err


def test_the_headline_has_rank_interval_protocol_and_score_or_the_reason_for_none():
    tab, row = BOARD.tabs[0], next(row for row in BOARD.tabs[0].measured if row.rank)

    def told(rank, **changes):
        return headline((tab, replace(row, rank=rank, **changes)))

    cell = row.cells["Avg"]
    score = f"Avg {cell.value:.2f}, 95 % interval {cell.low:.2f} to {cell.high:.2f}"
    assert told(Rank(5, 4, 7, "b")) == f"rank 4-7 of 12 under sts:all (Spearman, all; {score})"
    assert told(Rank(5, 5, 5, "b")).startswith("rank 5 of 12 under")
    unranked = told(None, unranked="not ranked: SICK-R not measured", cells={})
    assert unranked == "not be ranked under sts:all (Spearman, all; no Avg): SICK-R not measured"
    over = told(Rank(5, 4, 7, "b", prompts=(3, 9), chance=0.1), prompts=PromptSpread(15, 70.0, 1.0, 66.125, 72.5))
    score += "; 66.12 to 72.50 over 15 prompts"
    assert over == f"rank 4-7 of 12 (over prompts 3-9) under sts:all (Spearman, all; {score})"


def test_standings_are_in_the_board_s_order_and_prompts_stand_where_their_encoder_does():
    names = [tab.id for tab, _ in standings(BOARD, "entry-00")]
    assert names[0] == "sts-spearman-all" and names == sorted(names, key=[tab.id for tab in BOARD.tabs].index)
    assert standings(BOARD, "no-such-entry") == []
    about = replace(BOARD.entries["entry-00"], prompts=("a: ",), prompt_entries=("worded",))
    prompted = replace(BOARD, entries={**BOARD.entries, "entry-00": about})
    assert standings(prompted, "worded") == standings(BOARD, "entry-00") != []
    text = report(prompted, [EntryChange("worded", True, 3, 0, 0)])
    assert text.startswith("### worded (new, 3 files)\n\n**The row of entry-00, whose prompts these are, would ")
    assert "no longer" not in text


def test_the_report_has_a_section_for_each_entry_and_says_how_a_description_changes():
    text = report(BOARD, [EntryChange("entry-00", True, 9, 0, 0), EntryChange("entry-01", False, 1, 2, 0),
                          EntryChange("<b>gone</b>", False, 0, 0, 3)])
    assert re.findall("^### (.*)$", text, re.MULTILINE) == [
        "entry-00 (new, 9 files)", "entry-01 (on the board already; 1 file added, 2 files changed)",
        "&lt;b&gt;gone&lt;/b&gt; (on the board already; 3 files deleted)"]
    said = re.compile(r"^\*\*(?:Your|This) entry would (not be ranked|rank \d+(-\d+)? of \d+) under sts:all ", re.MULTILINE)
    assert len(said.findall(text)) == 2
    assert "| transfer | Accuracy | Avg " in text and "<script" not in text
    assert text.endswith("This entry is no longer on the board.\n")
    assert report(BOARD, ()) == "No measured entry is new or changed.\n"
    # How a description changes.
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
    # Which files are no entries.
    assert "Not only entries" not in report(BOARD, [EntryChange("entry-01", False, 0, 1, 0)])
    files = [f"code/{i}.py" for i in range(12)]
    assert report(BOARD, (), files[:1]).endswith("**Not only entries change**, but also 1 other file: code/0.py.\n")
    assert report(BOARD, (), files).endswith("12 other files: " + ", ".join(files[:10]) + " and 2 more.\n")


@pytest.fixture
def two_entries(tmp_path, monkeypatch):
    """A repository with a board of two entries, committed on main."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "tester")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "tester@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    home = tmp_path / "home"
    for name in ("one", "two"):
        (home / "leaderboard/measured" / name).mkdir(parents=True)
        (home / "leaderboard/measured" / name / "entry.yaml").write_text(name)
    monkeypatch.chdir(home)
    git("init", "-q", "-b", "main")
    commit()
    return home


def commit():
    git("add", "-A")
    git("commit", "-q", "-m", "change")


def test_what_changed_is_counted_committed_or_not_and_what_is_no_entry_is_named(two_entries):
    board, measured = two_entries / "leaderboard", two_entries / "leaderboard/measured"
    assert changes_since("main", measured) == ()
    git("switch", "-q", "-c", "work")
    (measured / "one/entry.yaml").write_text("other")
    for name in ("measured/one/run é.parquet", "measured/stray.txt", "observations/b.parquet", "records.sha256",
                 "expected.yaml", "measured.py", "../é.py"):  # a stray file among the entries: the build says so
        (board / name).parent.mkdir(parents=True, exist_ok=True)
        (board / name).write_text("")
    assert others_since("main", board) == ()
    commit()
    (measured / "two/entry.yaml").unlink()
    (measured / "three").mkdir()
    (measured / "three/entry.yaml").write_text("three")
    assert changes_since("main", measured) == (
        EntryChange("one", False, 1, 1, 0, ("one", "other")), EntryChange("three", True, 1, 0, 0),
        EntryChange("two", False, 0, 0, 1))
    assert others_since("main", board) == ("leaderboard/expected.yaml", "leaderboard/measured.py", "é.py")
    git("rm", "-q", "é.py", "leaderboard/expected.yaml")
    (board / "measured.py").write_text("changed")
    assert others_since("main", board) == ("leaderboard/measured.py",)


def test_what_others_added_to_main_meanwhile_is_not_ours(two_entries, tmp_path):
    measured = two_entries / "leaderboard/measured"
    git("branch", "work")
    (measured / "one/more.parquet").write_text("")
    commit()
    git("switch", "-q", "work")
    assert changes_since("main", measured) == ()
    # Git's complaints are one line.
    words = r"^git knows no revision 'nothing-of-that-name' that .*measured shares$"
    refuses(StsbenchError, words, changes_since, "nothing-of-that-name", measured)
    refuses(StsbenchError, "not a git repository", git_board.checkout_top, tmp_path)
    refuses(StsbenchError, "cannot run git", git_board.checkout_top, tmp_path / "nowhere")


def test_a_commit_beside_leaves_index_branch_and_files_as_they_are(two_entries, tmp_path):
    (two_entries / "half done.txt").write_text("mine")
    (two_entries / "leaderboard/measured/one/entry.yaml").write_text("edited, not committed")
    git("add", "half done.txt")
    before = git("status", "--porcelain"), git("branch", "--show-current")
    content = tmp_path / "content"
    content.write_bytes(b"a\r\nb")
    made = commit_on_branch(two_entries, "entry-three", {"leaderboard/measured/three/entry.yaml": content}, "Add three")
    assert (git("status", "--porcelain"), git("branch", "--show-current")) == before
    assert git("diff", "--name-status", "main", "entry-three") == "A\tleaderboard/measured/three/entry.yaml"
    assert git("log", "-1", "--format=%H %s", "entry-three") == f"{made} Add three"
    show = ["git", "show", "entry-three:leaderboard/measured/three/entry.yaml"]
    assert subprocess.run(show, check=True, capture_output=True).stdout == b"a\r\nb"
    words = "branch entry-three exists already"
    refuses(StsbenchError, words, commit_on_branch, two_entries, "entry-three", {"x": content}, "again")


def test_a_commit_that_cannot_be_made_leaves_no_branch(two_entries, monkeypatch):
    name = "leaderboard/measured/one/entry.yaml"
    content = two_entries / name
    refuses(StsbenchError, "nothing to commit", commit_on_branch, two_entries, "same", {name: content}, "nothing")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "")
    refuses(StsbenchError, "git commit-tree: .*ident", commit_on_branch, two_entries, "nobody", {"new": content}, "nothing")
    assert git("branch", "--list", "--format=%(refname:short)") == "main"
