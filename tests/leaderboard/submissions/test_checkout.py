"""What git says of a board: which entries changed since a revision, and commits made beside the working tree."""

import subprocess

import pytest

from stsbench.errors import StsbenchError
from stsbench.leaderboard.submissions.checkout import (
    EntryChange,
    changes_since,
    checkout_top,
    commit_on_branch,
    others_since,
)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a board of two entries, committed on main."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "tester")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "tester@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    home = tmp_path / "home"
    for name in ("one", "two"):
        (home / "leaderboard/measured" / name).mkdir(parents=True)
        (home / "leaderboard/measured" / name / "entry.yaml").write_text(name)
    git(home, "init", "-q", "-b", "main")
    commit(home)
    return home


def git(folder, *arguments):
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")


def test_entries_that_changed_are_counted_committed_or_not(checkout):
    measured = checkout / "leaderboard/measured"
    assert changes_since("main", measured) == ()
    git(checkout, "switch", "-q", "-c", "work")
    (measured / "one/entry.yaml").write_text("other")
    (measured / "one/run é.parquet").write_text("")
    (measured / "stray.txt").write_text("not an entry: the build says so")
    (checkout / "elsewhere.txt").write_text("not the board's")
    commit(checkout)
    (measured / "two/entry.yaml").unlink()
    (measured / "three").mkdir()
    (measured / "three/entry.yaml").write_text("three")
    assert changes_since("main", measured) == (
        EntryChange("one", False, 1, 1, 0, ("one", "other")), EntryChange("three", True, 1, 0, 0),
        EntryChange("two", False, 0, 0, 1),
    )


def test_files_that_are_no_entries_are_named(checkout):
    board = checkout / "leaderboard"
    git(checkout, "switch", "-q", "-c", "work")
    for name in ("leaderboard/measured/one/a/run.parquet", "leaderboard/observations/b.parquet",
                 "leaderboard/records.sha256", "leaderboard/expected.yaml", "leaderboard/measured.py", "é.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("")
    assert others_since("main", board) == ()
    commit(checkout)
    assert others_since("main", board) == ("leaderboard/expected.yaml", "leaderboard/measured.py", "é.py")
    git(checkout, "rm", "-q", "é.py", "leaderboard/expected.yaml")
    (checkout / "leaderboard/measured.py").write_text("changed")
    assert others_since("main", board) == ("leaderboard/measured.py",)


def test_what_others_added_to_main_meanwhile_is_not_ours(checkout):
    measured = checkout / "leaderboard/measured"
    git(checkout, "switch", "-q", "-c", "work")
    git(checkout, "switch", "-q", "main")
    (measured / "one/more.parquet").write_text("")
    commit(checkout)
    git(checkout, "switch", "-q", "work")
    assert changes_since("main", measured) == ()


def test_git_s_complaints_are_one_line(checkout, tmp_path):
    with pytest.raises(StsbenchError, match=r"^git knows no revision 'nothing-of-that-name' that .*measured shares$"):
        changes_since("nothing-of-that-name", checkout / "leaderboard/measured")
    with pytest.raises(StsbenchError, match="not a git repository"):
        checkout_top(tmp_path)
    with pytest.raises(StsbenchError, match="cannot run git"):
        checkout_top(tmp_path / "nowhere")


def test_a_commit_beside_leaves_index_branch_and_files_as_they_are(checkout, tmp_path):
    (checkout / "half done.txt").write_text("mine")
    (checkout / "leaderboard/measured/one/entry.yaml").write_text("edited, not committed")
    git(checkout, "add", "half done.txt")
    before = git(checkout, "status", "--porcelain"), git(checkout, "branch", "--show-current")
    content = tmp_path / "content"
    content.write_bytes(b"a\r\nb")
    made = commit_on_branch(checkout, "entry-three", {"leaderboard/measured/three/entry.yaml": content}, "Add three")
    assert (git(checkout, "status", "--porcelain"), git(checkout, "branch", "--show-current")) == before
    assert git(checkout, "diff", "--name-status", "main", "entry-three") == "A\tleaderboard/measured/three/entry.yaml"
    assert git(checkout, "log", "-1", "--format=%H %s", "entry-three") == f"{made} Add three"
    shown = subprocess.run(["git", "show", "entry-three:leaderboard/measured/three/entry.yaml"], cwd=checkout,
                           capture_output=True, check=True)
    assert shown.stdout == b"a\r\nb"
    with pytest.raises(StsbenchError, match="branch entry-three exists already"):
        commit_on_branch(checkout, "entry-three", {"x": content}, "again")


def test_a_commit_that_cannot_be_made_leaves_no_branch(checkout, tmp_path, monkeypatch):
    content = checkout / "leaderboard/measured/one/entry.yaml"
    with pytest.raises(StsbenchError, match="nothing to commit"):
        commit_on_branch(checkout, "same", {"leaderboard/measured/one/entry.yaml": content}, "nothing")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "")
    with pytest.raises(StsbenchError, match=r"git commit-tree: .*ident"):
        commit_on_branch(checkout, "nobody", {"new": content}, "by nobody")
    assert git(checkout, "branch", "--list", "--format=%(refname:short)") == "main"
