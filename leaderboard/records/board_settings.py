"""Settings of a user's own board, in board.yaml. A board without that file obeys the rules of the repository's board."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from stsbench.config import parse_yaml
from stsbench.errors import StsbenchError
from stsbench.files import create_whole
from stsbench.parsing import MOST_YAML, read_text

from .admission import check_repeatable, first_problem, hidden_in
from .entries import LoadedEntry
from .paths import SHIPPED

SETTINGS = "board.yaml"
HEAD = """\
# The settings of a board of one's own (`stsbench leaderboard init`).
# title: the heading of the page
# published: true puts the papers' rows beside those that were measured; false leaves them out
# uncommitted: true takes records that a checkout of stsbench with uncommitted changes measured, and marks their rows;
#   false refuses them, as the public board does
"""


class BoardSettings(BaseModel):
    """The settings that a user's own board may choose. All other rules are those of the public board."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    title: str = Field(default="Leaderboard", min_length=1, max_length=80)
    published: bool = Field(default=False, strict=True)
    uncommitted: bool = Field(default=True, strict=True)

    @field_validator("title")
    @classmethod
    def _is_visible(cls, title: str) -> str:
        if hidden := hidden_in(title):
            raise ValueError(f"it holds a character that is not seen ({hidden})")
        return title


def read_settings(board: Path) -> BoardSettings | None:
    """Return the settings of a user's own board; None for a board without board.yaml, which obeys the public board's rules.

    Raises StsbenchError, naming file and field, for an invalid file, and for one in a board with published/, whose rules
    cannot be relaxed.
    """
    path = board / SETTINGS
    if not path.is_file():
        return None
    if (board / "published").is_dir() or board.resolve() == SHIPPED:
        raise StsbenchError(f"{path}: a board with published rows of its own is public, and takes no settings: remove it")
    stated = parse_yaml(read_text(path, MOST_YAML), str(path)) or {}
    try:
        return BoardSettings.model_validate(stated)
    except ValidationError as error:
        raise StsbenchError(f"{path}: {first_problem(error)}") from error


def write_settings(board: Path, title: str) -> Path:
    """Make the folder `board` a user's own board, with board.yaml and an empty measured/, and return board.yaml's path.

    Raises StsbenchError where the folder is a board already or is not empty, and for an invalid title.
    """
    path = board / SETTINGS
    if board.is_symlink() or (board.exists() and not board.is_dir()):
        raise StsbenchError(f"{board} is not a folder: name another")
    if path.exists():
        raise StsbenchError(f"{path} is there already: {board} is a board")
    if board.is_dir() and any(board.iterdir()):
        raise StsbenchError(f"{board} is not empty: name a new folder")
    try:
        settings = BoardSettings(title=title)
    except ValidationError as error:
        raise StsbenchError(f"--{first_problem(error)}") from error
    text = yaml.safe_dump(settings.model_dump(), sort_keys=False, allow_unicode=True, width=120)
    (board / "measured").mkdir(parents=True, exist_ok=True)
    create_whole(path, (HEAD + text).encode())
    return path


def check_admitted(entries: list[LoadedEntry], settings: BoardSettings | None) -> None:
    """Raise StsbenchError, naming the file, for a record of uncommitted code, unless the board's settings accept these."""
    if settings is None or not settings.uncommitted:
        for entry in entries:
            for run in (*entry.runs, *entry.prompts):
                for measured in run.records:
                    check_repeatable(measured.path, measured.record)
