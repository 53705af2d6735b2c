"""`stsbench leaderboard submit` and `placement`, and the functions, which do the same."""

import subprocess
from pathlib import Path

import pytest
from board_runs import NEW, WORDS, check_signature, checkout, read_once, repository, runs, silent  # noqa: F401  fixtures
from clirun import cli, place  # noqa: F401  fixtures

from stsbench import leaderboard
from stsbench.errors import StsbenchWarning
from stsbench.leaderboard.command import leaderboard as commands
from stsbench.leaderboard.records.paths import write_index
from stsbench.leaderboard.submissions.submission import Submission, next_steps

pytestmark = pytest.mark.usefixtures("silent")


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_options_and_defaults_are_the_commands():
    check_signature(commands.commands["submit"], leaderboard.submit, {"slug": "entry", "commit": "open"})
    check_signature(commands.commands["placement"], leaderboard.placement)


def test_a_run_is_shown_and_nothing_is_written(runs, checkout, cli):
    code, out, err = cli("leaderboard", "submit", runs["letters"], *WORDS)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("would rank ") and " of 3 under sts:all (Spearman, all" in lines[0]
    assert any(line.startswith("to be committed: ") for line in lines) and "  leaderboard/measured/mine/entry.yaml" in lines
    assert lines[lines.index("next:") + 1 :] == [
        "  git switch -c entry-mine",
        f"  stsbench leaderboard add {runs['letters']} --entry mine --method 'my method' --backbone none "
        "--setting unsup --flag nli",
        "  git add leaderboard/measured/mine", "  git commit -m 'Add mine to the board'",
        "  git push -u origin entry-mine", "  gh pr create --head entry-mine --fill",
    ]
    with pytest.warns(StsbenchWarning):
        submission = leaderboard.submit(runs["letters"], "mine", **NEW)
    assert f"{submission}\n" == out and repr(submission).startswith("<Submission of mine: ") and len(repr(submission)) < 100
    files = ("leaderboard/measured/mine/a", "leaderboard/shared/new")  # beside the entries
    assert next_steps(Path("leaderboard"), Submission("mine", files, 1, (), (), ""), [])[2] == (
        "git add leaderboard/measured/mine leaderboard/shared")
    for arguments, words in {(runs["words"], *WORDS): "leaderboard/measured/words/",
                             (runs["letters"], "--entry", "mine"): "is a new entry",
                             (runs["noisy"], "--entry", "noisy"): "nothing to submit: leaderboard/measured/noisy",
                             }.items():  # in the board's own paths
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
