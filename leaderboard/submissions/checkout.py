"""Git operations for submissions: changes since a revision, and a commit that leaves the working tree as it is."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.entries import DESCRIPTION
from stsbench.leaderboard.records.paths import INDEX


@dataclass(frozen=True)
class EntryChange:
    """The changes in an entry's folder. new: whether the folder did not exist before; added, changed, deleted: numbers of
    files.

    described: the text of its entry.yaml before and now, if both exist and differ.
    """

    entry: str
    new: bool
    added: int
    changed: int
    deleted: int
    described: tuple[str, str] | None = None


def checkout_top(folder: Path) -> Path:
    """Return the top folder of the checkout that `folder` is in. Raises StsbenchError outside of a checkout."""
    return Path(_git(folder, "rev-parse", "--show-toplevel").strip())


def changes_since(revision: str, folder: Path) -> tuple[EntryChange, ...]:
    """Return the changes of entries below `folder` (a board's measured/) since the last common ancestor of HEAD and
    `revision`.

    Uncommitted and untracked files are included. Raises StsbenchError where git does not know `revision`.
    """
    base = _shared_with(revision, folder)
    kinds: dict[str, dict[str, str]] = {}
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", ".").split("\0")[:-1]
    for path, kind in {**_changed(base, folder), **dict.fromkeys(untracked, "A")}.items():
        entry, slash, file = path.partition("/")
        if slash:  # files beside the entries' folders are refused when the board is read
            kinds.setdefault(entry, {})[file] = kind
    before = set(_git(folder, "ls-tree", "--name-only", "-z", base, "./").split("\0"))
    changes = []
    for entry, files in sorted(kinds.items()):
        letters = list(files.values())
        added, deleted = letters.count("A"), letters.count("D")
        texts = None
        if files.get(DESCRIPTION, "A") not in "AD":
            old = _git(folder, "show", f"{base}:./{entry}/{DESCRIPTION}")
            texts = old, (folder / entry / DESCRIPTION).read_text("utf-8")
        changes.append(EntryChange(entry, entry not in before, added, len(letters) - added - deleted, deleted, texts))
    return tuple(changes)


def others_since(revision: str, board: Path) -> tuple[str, ...]:
    """Return the tracked files that changed since `revision`, as in `changes_since`, other than the entries of `board`,
    their shared observations and the index of its runs: paths from the checkout's top. Untracked files are ignored."""
    top = checkout_top(board).resolve()
    inside = board.resolve().relative_to(top)
    folders = tuple(f"{(inside / name).as_posix()}/" for name in ("measured", "observations"))
    index = (inside / INDEX).as_posix()
    changed = _changed(_shared_with(revision, board), top)
    return tuple(sorted(path for path in changed if path != index and not path.startswith(folders)))


def _shared_with(revision: str, folder: Path) -> str:
    """Return the last common ancestor of HEAD and `revision`. Raises StsbenchError if git finds none."""
    checkout_top(folder)
    try:
        return _git(folder, "merge-base", revision, "HEAD").strip()
    except StsbenchError:
        raise StsbenchError(f"git knows no revision '{revision}' that the checkout of {folder} shares") from None


def _changed(base: str, folder: Path) -> dict[str, str]:
    """Return path below `folder` -> git's status letter of each tracked file changed since `base`, committed or not."""
    listed = _git(folder, "diff", "--name-status", "--no-renames", "-z", "--relative", base, "--", ".").split("\0")[:-1]
    return dict(zip(listed[1::2], listed[::2], strict=True))


def commit_on_branch(top: Path, branch: str, files: Mapping[str, Path], message: str) -> str:
    """Create a commit on a new branch, of HEAD's files and `files` (path from the top of the checkout -> file to copy), and
    return its id.

    The working tree, the index and the current branch do not change. Raises StsbenchError, and creates no branch, where the
    branch exists, git knows no author, or nothing would change.
    """
    _git(top, "check-ref-format", "--branch", branch)
    if _git(top, "branch", "--list", branch).strip():
        raise StsbenchError(f"the branch {branch} exists already; `git branch -D {branch}` deletes it")
    head = _git(top, "rev-parse", "HEAD").strip()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(top, "read-tree", "HEAD", environment=environment)
        lines = []
        for path, content in files.items():
            blob = _git(top, "hash-object", "-w", "--no-filters", str(content.resolve())).strip()
            lines.append(f"100644 {blob}\t{path}\0")
        _git(top, "update-index", "-z", "--index-info", environment=environment, text="".join(lines))
        tree = _git(top, "write-tree", environment=environment).strip()
    if tree == _git(top, "rev-parse", "HEAD^{tree}").strip():
        raise StsbenchError("nothing to commit: HEAD holds these files already")
    commit = _git(top, "commit-tree", tree, "-p", head, "-m", message).strip()
    _git(top, "branch", "--no-track", branch, commit)
    return commit


def _git(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, text: str | None = None) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, input=text, check=False, capture_output=True, encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError as error:
        raise StsbenchError(f"cannot run git in {folder}: {error.strerror or error}") from error
    if done.returncode:
        problem = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise StsbenchError(f"git {arguments[0]}: {problem}")
    return done.stdout
