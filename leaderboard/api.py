"""The leaderboard's Python functions: the commands of `stsbench leaderboard`, without printing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from stsbench.errors import StsbenchError, UsageError, warning_log
from stsbench.files import one_at_a_time
from stsbench.leaderboard.ranks import results
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import Added, described
from stsbench.leaderboard.records.add import add as add_records
from stsbench.leaderboard.records.board_settings import write_settings
from stsbench.leaderboard.records.paths import Index, find_board, writable_board, write_index

from . import board_files
from .board_files import Built
from .loaded_board import Board


class HasFolder(Protocol):
    """A result that has the path of its run folder, such as the `Result` of `evaluate`."""

    @property
    def folder(self) -> Path: ...


Folder = str | Path
Run = Folder | HasFolder
Setting = Literal["unsup", "semi", "sup", "unknown"]
Flag = Literal["nli", "sts", "transductive", "dev-selected"]


def run_paths(runs: Run | Sequence[Run]) -> tuple[Path, ...]:
    """Return the run folders of `runs`: paths, or results with a `folder`. Raises StsbenchError for anything else."""
    several = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    folders = [run if isinstance(run, str | Path) else getattr(run, "folder", None) for run in several]
    if None in folders:
        raise StsbenchError(f"{several[folders.index(None)]!r} is neither a run folder nor a result that has one")
    return tuple(Path(folder) for folder in folders if folder is not None)


def stated_fields(
    prompt_of: str | None, method: str | None, backbone: str | None, setting: str | None, flag: str | Sequence[str],
    best_of: int | None, recipe: str, paper: str | None, card: str, note: str,
) -> dict[str, Any]:
    """Return option name -> value of the options that describe an entry."""
    flags = (flag,) if isinstance(flag, str) else tuple(flag)
    return {"prompt_of": prompt_of, "method": method, "backbone": backbone, "setting": setting, "flag": flags,
            "best_of": best_of, "recipe": recipe, "paper": paper, "card": card, "note": note}


def init(folder: Folder, *, title: str = "Leaderboard") -> Path:
    """Create a board of your own in a new or empty folder: board.yaml with its settings, and measured/. It needs no git.

    title: the heading of the board's page. Returns the path of board.yaml. `add`, `build`, `load` and the others take the
    folder as `board`; the page shows only what you measured, with a table for each of your files. Raises StsbenchError where
    the folder is not empty.

    >>> from stsbench import leaderboard
    >>> leaderboard.init("tickets", title="Support tickets").as_posix()
    'tickets/board.yaml'
    >>> leaderboard.load("tickets")
    <Board tickets: 0 entries, 0 tabs; print it for the leading one>
    """
    return write_settings(Path(folder), title)


def load(board: Folder | None = None, *, records: Folder | None = None) -> Board:
    """Read a board, check and rank it, and return it as a `Board` of tabs, rows and entries.

    board: its folder, ./leaderboard by default; a folder without published/ shows the papers' rows of the package. records:
    the folder or hf:OWNER/DATASET that holds its runs, if not the board's folder. Raises StsbenchError, naming the file, for
    a board that is not valid.

    >>> from pathlib import Path
    >>> from stsbench import leaderboard
    >>> Path("board/measured").mkdir(parents=True)
    >>> board = leaderboard.load("board")
    >>> len(board.entries), board.tab("sts-spearman-all").lead
    (0, 'Avg')
    """
    root = find_board(board)
    return Board(**vars(gather(root, records)), folder=root)


def build(
    board: Folder | None = None, *, records: Folder | None = None, check: bool = False, all: bool = False,
    output: Folder | None = None,
) -> Built:
    """Check every record against its observations, then write the page and the tables, as `stsbench leaderboard build`.

    board, records: as in `load`. check: write nothing, and raise StsbenchError where a file that is kept in git is out of
    date. all: score every run again. output: the folder to write to, the only one that changes. Returns the files that
    changed. Raises StsbenchError, before anything is written, where the board is not valid.

    >>> from pathlib import Path
    >>> from stsbench import leaderboard
    >>> Path("board/measured").mkdir(parents=True)
    >>> Path("page/index.html") in leaderboard.build("board", output="page").written
    True
    """
    if check and output:
        raise UsageError("--check and --output exclude each other: it writes nothing")
    root = find_board(board)
    if all:
        results.clear()
    if check:
        board_files.check(root, records)
        return Built((), ())
    return board_files.build(root, None if output is None else Path(output), records)


def add(
    runs: Run | Sequence[Run], entry: str, *, board: Folder | None = None, prompt_of: str | None = None,
    method: str | None = None, backbone: str | None = None, setting: Setting | None = None, flag: Flag | Sequence[Flag] = (),
    best_of: int | None = None, recipe: str = "", paper: str | None = None, card: str = "", note: str = "",
    records: Folder | None = None,
) -> Added:
    """Check all records of some runs and add the runs to an entry of a board, as `stsbench leaderboard add`.

    runs: run folders, or results of `evaluate`; several seeds of one method go into one entry. entry: its name, in small
    letters and dashes. board: its folder, ./leaderboard by default. A new entry needs method (what the row is called),
    backbone (the network underneath) and setting (unsup, semi, sup or unknown: which labels trained it). flag: nli, sts
    (trained on such labels), transductive (on test texts), dev-selected (on STS-B dev). best_of: the best of so many seeds.
    recipe, paper, card, note: shown with the row. records: the folder to write the runs to, if not the board's.

    prompt_of: the entry whose encoder the runs measured with other prompts (also the output folder of a study of prompts, of
    which the runs with its prompts are taken); they make no row: that entry's row then shows scores and ranks over prompts.

    Nothing is ever overwritten. A StsbenchWarning names each thing to consider before publishing. Raises StsbenchError for a
    record that was edited, was measured by changed code, or does not fit the entry or the board.

    >>> from stsbench import leaderboard
    >>> leaderboard.add(".", "my-method", board="board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: . is not a run folder: it holds no run.parquet
    """
    log = warning_log()
    is_described = described(stated_fields(prompt_of, method, backbone, setting, flag, best_of, recipe, paper, card, note))
    target = None if records is None else Path(records)
    added = add_records(writable_board(board), run_paths(runs), entry, is_described, target)
    for line in added.warnings:
        log(f"warning: {line}")
    return added


def index(records: Folder, *, board: Folder | None = None) -> Index:
    """Write records.sha256 into a board: the digest of every run file that is kept outside the board's folder.

    records: a folder, or hf:OWNER/DATASET of the Hugging Face Hub, that holds measured/ENTRY/RUN/run.parquet and
    observations/. Returns the source and the digests. Raises StsbenchError where `records` has no runs.

    >>> from pathlib import Path
    >>> from stsbench import leaderboard
    >>> Path("board/measured").mkdir(parents=True)
    >>> leaderboard.index("runs", board="board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: --records runs: there is no such folder
    """
    folder = find_board(board)
    with one_at_a_time(folder):  # an `add` in another process writes its runs first and the index afterwards
        return write_index(folder, str(records))
