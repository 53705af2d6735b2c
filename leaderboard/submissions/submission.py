"""Submission of runs to a board: files, ranks and git commands, worked out on a copy before anything is written."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.leaderboard.board_files import SITE
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.board_settings import SETTINGS
from stsbench.leaderboard.records.entries import Entry, Prompts
from stsbench.leaderboard.records.paths import records_folder
from stsbench.wording import counted, sized

from .checkout import checkout_top, commit_on_branch
from .standing import Standing, headline, standings


@dataclass(frozen=True, repr=False)
class Submission:
    """A submission. files: paths that are new or changed; size: of all of them, in bytes; standings: tabs with the entry's
    rows; branch: the branch of the commit, "" if nothing is committed; steps: the commands that publish it."""

    entry: str
    files: tuple[str, ...]
    size: int
    standings: tuple[Standing, ...]
    warnings: tuple[str, ...]
    branch: str = ""
    steps: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Submission of {self.entry}: {counted(len(self.files), 'file')}; print it for where the entry would rank>"

    def __str__(self) -> str:
        return "\n".join([*self.lines(), "next:", *(f"  {step}" for step in self.steps)])

    def _owner(self, standing: Standing) -> str:
        """Return "the row of X " for an entry of X's prompts, else ""."""
        return "" if standing[1].entry == self.entry else f"the row of {standing[1].entry} "

    def lines(self) -> list[str]:
        """Return lines that say where the entry would rank, and name its files."""
        where = f"on the branch {self.branch}" if self.branch else "to be committed"
        return [
            *(f"{self._owner(standing)}would {headline(standing)}" for standing in self.standings),
            f"{where}: {counted(len(self.files), 'file')}, {sized(self.size)}", *(f"  {path}" for path in self.files),
        ]


def submit(board: Path, runs: Sequence[Path], slug: str, entry: Entry | Prompts | None, commit: bool = False) -> Submission:
    """Return the submission of `runs` to the entry `slug` of `board`; the board's folder does not change.

    commit: commit the files on a new branch, `entry-SLUG`; neither the working tree nor the current branch changes. Raises
    StsbenchError, and creates no branch, where `leaderboard add` would refuse the records or where the board would not be
    valid with them.
    """
    records_folder(board, None)  # refuses a board whose runs are kept elsewhere
    top, branch = (checkout_top(board).resolve(), f"entry-{slug}") if commit else (None, "")
    with _copied(board, slug) as trial:
        try:
            added = add(trial, runs, slug, entry)
            placed = standings(gather(trial), slug) if added.written else []
        except StsbenchError as error:
            raise StsbenchError(str(error).replace(str(trial), str(board))) from error
        if not added.written:
            raise StsbenchError(f"nothing to submit: {board / 'measured' / slug} holds all of these records")
        listed = _files(trial)
        new = [path for path in listed if not _same(trial / path, board / path)]
        if top is not None:
            below = board.resolve().relative_to(top)
            # The commit gets the whole entry, because the entry's files in the working tree may not be committed yet.
            contents = {(below / path).as_posix(): trial / path for path in listed}
            commit_on_branch(top, branch, contents, f"{_title(slug)}: {counted(len(added.written), 'record')}")
        size = sum((trial / path).stat().st_size for path in new)
    files = tuple((board / path).as_posix() for path in new)
    return Submission(slug, files, size, tuple(placed), added.warnings, branch)


def next_steps(board: Path, submission: Submission, arguments: Sequence[str]) -> list[str]:
    """Return the shell commands that publish a submission. arguments: those of `leaderboard add`, for a submission without a
    branch."""
    slug, branch = submission.entry, f"entry-{submission.entry}"
    steps = [] if submission.branch else [
        ["git", "switch", "-c", branch], ["stsbench", "leaderboard", "add", *arguments],
        ["git", "add", *_folders(board, submission)], ["git", "commit", "-m", _title(slug)],
    ]
    steps += [["git", "push", "-u", "origin", branch], ["gh", "pr", "create", "--head", branch, "--fill"]]
    return [shlex.join(step) for step in steps]


def as_arguments(runs: Sequence[Path], board: str | Path | None, slug: str, stated: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `leaderboard add` for these runs and options."""
    words = [*map(str, runs), *([] if board is None else ["--board", str(board)]), "--entry", slug]
    for name, value in stated.items():
        option = f"--{name.replace('_', '-')}"
        for word in value if isinstance(value, tuple) else [value]:
            words += [option, str(word)] if word not in (None, "") else []
    return words


def _folders(board: Path, submission: Submission) -> list[str]:
    """Return the paths to add to git: the entry's folder, and the board's other folders that gained a file."""
    tops = dict.fromkeys(Path(path).relative_to(board).parts[0] for path in submission.files)
    return [str(board / "measured" / submission.entry), *(str(board / top) for top in tops if top != "measured")]


def _title(slug: str) -> str:
    return f"Add {slug} to the board"


@contextmanager
def _copied(board: Path, slug: str) -> Iterator[Path]:
    """Yield a temporary copy of `board` to try an addition on: the entry `slug` is copied, all other files are links.

    Outside measured/, folders are created and their files linked: a file added to a linked folder would change the board.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / board.resolve().name
        (trial / "measured").mkdir(parents=True)
        for path in board.iterdir():
            if path.name == SETTINGS:
                _link(str(path), str(trial / SETTINGS))
            elif path.is_dir() and path.name not in ("measured", SITE):
                shutil.copytree(path, trial / path.name, copy_function=_link)
        for path in (board / "measured").iterdir() if (board / "measured").is_dir() else ():
            if path.name == slug:
                shutil.copytree(path, trial / "measured" / slug)
            else:
                (trial / "measured" / path.name).symlink_to(path.resolve())
        yield trial


def _same(first: Path, second: Path) -> bool:
    return second.is_file() and first.read_bytes() == second.read_bytes()


def _link(source: str, target: str) -> None:
    Path(target).symlink_to(Path(source).resolve())


def _files(trial: Path) -> list[Path]:
    """Return the files of the temporary board that are not links, relative to it: those of the entry, and files added
    outside measured/."""
    paths = sorted(Path(folder, name) for folder, _, names in os.walk(trial) for name in names)
    return [path.relative_to(trial) for path in paths if not path.is_symlink()]
