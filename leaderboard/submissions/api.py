"""The functions `leaderboard.submit` and `placement`: what runs would add to a board, and where entries would rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stsbench.errors import warning_log
from stsbench.leaderboard.api import Flag, Folder, Run, Setting, run_paths, stated_fields
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import described
from stsbench.leaderboard.records.paths import find_board

from .checkout import changes_since, others_since
from .standing import Placement
from .submission import Submission, as_arguments, next_steps
from .submission import submit as submit_runs


def submit(
    runs: Run | Sequence[Run], entry: str, *, board: Folder | None = None, prompt_of: str | None = None,
    method: str | None = None, backbone: str | None = None, setting: Setting | None = None, flag: Flag | Sequence[Flag] = (),
    best_of: int | None = None, recipe: str = "", paper: str | None = None, card: str = "", note: str = "",
    open: bool = False,
) -> Submission:
    """Return the files that runs would add to a board, the entry's ranks, and the commands that publish it. Nothing is
    written to the board.

    The options and checks are those of `add`. open: commit the files on a new branch, entry-NAME; the working tree and the
    current branch do not change. Nothing is ever pushed. Raises StsbenchError where `add` would.

    >>> from stsbench import leaderboard
    >>> leaderboard.submit("nowhere", "my-method", board="board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: board is not a board: it has neither measured/ nor published/; ...
    """
    log = warning_log()
    stated = stated_fields(prompt_of, method, backbone, setting, flag, best_of, recipe, paper, card, note)
    made = submit_runs(find_board(board), run_paths(runs), entry, described(stated), open)
    for line in made.warnings:
        log(f"warning: {line}")
    arguments = as_arguments(run_paths(runs), board, entry, stated)
    return replace(made, steps=tuple(next_steps(find_board(board), made, arguments)))


def placement(since: str, *, board: Folder | None = None, records: Folder | None = None) -> Placement:
    """Return the ranks of entries that are new or changed since a git revision, committed or not; its str() is Markdown.

    since: a revision, such as "origin/main". board, records: as in `load`. Raises StsbenchError outside of a checkout, and
    where git does not know the revision.

    >>> from stsbench import leaderboard
    >>> leaderboard.placement("HEAD", board="board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: board is not a board: it has neither measured/ nor published/; ...
    """
    root = find_board(board)
    changes = changes_since(since, root / "measured")
    return Placement(gather(root, records), changes, others_since(since, root))
