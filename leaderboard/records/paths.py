"""Paths of a board: the files of the package, the board's folder, and runs that are kept outside of it.

Thousands of runs would be too large for a code repository. The board then keeps only `records.sha256`, in the form of
`sha256sum`: the digest of each run file, and of each file of shared observations. So git records which files count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stsbench.errors import StsbenchError, UsageError
from stsbench.evaluation.run_file import RUN
from stsbench.files import atomic_write, sha256_file
from stsbench.hub import hub_errors
from stsbench.parsing import read_text

_HERE = Path(__file__).resolve().parents[1]
PUBLISHED = _HERE / "published"
REPRODUCTIONS = _HERE / "reproductions"
SHIPPED = _HERE  # the repository's board; in an installed package, the part of it that is included
BUNDLE = _HERE / "web" / "bundle"  # built by `make web`, and committed
EXPECTED = _HERE / "expected.yaml"
TRAINING_TEXTS = _HERE / "training_texts.yaml"
INDEX = "records.sha256"
HUB = "hf:"  # names of data sets of the Hugging Face Hub are hf:OWNER/DATASET or hf:OWNER/DATASET@REVISION
PATTERNS = (f"measured/*/*/{RUN}", "observations/*.parquet")
_LINE = re.compile(r"([0-9a-f]{64})  (measured/[^/]+/[^/]+/run\.parquet|observations/[^/]+\.parquet)")
_MOST = 50_000_000  # bytes of an index, enough for a hundred thousand runs


def find_board(board: str | Path | None) -> Path:
    """Return the board's folder: `board`, else ./leaderboard. Raises StsbenchError where it holds no board."""
    folder = Path("leaderboard" if board is None else board)
    if not (folder / "measured").is_dir() and not (folder / "published").is_dir():
        raise StsbenchError(
            f"{folder} is not a board: it has neither measured/ nor published/; run this in a checkout, or name it: --board"
        )
    return folder


def writable_board(board: str | Path | None) -> Path:
    """Return the folder of the board to add to: `board`, which need not exist yet, else ./leaderboard. Raises UsageError
    where that does not exist."""
    folder = Path("leaderboard" if board is None else board)
    if board is None and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: run this in a checkout, or name a board with --board")
    return folder


@dataclass(frozen=True)
class Index:
    """The index of a board's run files. source: hf:OWNER/DATASET@COMMIT, "" for a folder; files: path -> sha256."""

    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def records_folder(board: Path, records: str | Path | None) -> Path:
    """Return the folder that holds the runs of `board`. records: None for the board's own folder, another folder, or
    hf:OWNER/DATASET, which is downloaded.

    Raises StsbenchError where the files differ from the board's index, and where `records` is None though it has an index.
    """
    if records is None:
        if (board / INDEX).is_file():
            source = read_index(board).source
            raise StsbenchError(f"the runs of {board} lie elsewhere: say where, --records {source or 'DIR'}")
        return board
    index, records = read_index(board), str(records)
    folder = _at_hand(records, index)
    there, listed = set(_files(folder)), index.files.keys()
    if missing := listed - there:
        raise StsbenchError(f"{folder / min(missing)} is missing: {board / INDEX} lists it")
    if new := there - listed:
        raise StsbenchError(f"{folder / min(new)} is not in {board / INDEX}: `stsbench leaderboard index --records "
                            f"{records}` puts it there")
    for path, digest in index.files.items():
        if sha256_file(folder / path) != digest:
            raise StsbenchError(f"{folder / path} is not the file that {board / INDEX} lists (sha256 differs)")
    return folder


def write_index(board: Path, records: str) -> Index:
    """Write and return the index of the runs in `records`, a folder or hf:OWNER/DATASET. Raises StsbenchError for none."""
    folder = _at_hand(records, Index())
    if records.startswith(HUB):
        source = f"{records.partition('@')[0]}@{folder.name}"  # a snapshot's folder is named by its commit
    else:  # the folder may be a changed copy of the data set: its name is kept, its commit is not known yet
        source = read_index(board).source.partition("@")[0] if (board / INDEX).is_file() else ""
    index = Index(source, {path: sha256_file(folder / path) for path in _files(folder)})
    if not index.files:
        raise StsbenchError(f"{folder} holds no runs (measured/ENTRY/RUN/{RUN})")
    with atomic_write(board / INDEX) as stream:
        stream.write(f"# {index.source}\n" if index.source else "")
        stream.writelines(f"{digest}  {path}\n" for path, digest in sorted(index.files.items()))
    return index


def read_index(board: Path) -> Index:
    """Return a board's index. Raises StsbenchError where it is missing and, naming the line, where it is damaged."""
    path = board / INDEX
    if not path.is_file():
        raise StsbenchError(f"{path} is missing: `stsbench leaderboard index --records ...` writes it")
    source, files = "", {}
    for number, line in enumerate(read_text(path, _MOST).splitlines(), 1):
        if line.startswith("# "):
            source = line.removeprefix("# ").strip()
        elif match := _LINE.fullmatch(line):
            files[match[2]] = match[1]
        else:
            raise StsbenchError(f"{path}:{number} is not a sha256, two blanks and the path of a run")
    return Index(source, files)


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for pattern in PATTERNS for path in folder.glob(pattern))


def _at_hand(records: str, index: Index) -> Path:
    """Return the folder that `records` names; a data set of the Hub is downloaded first, at the revision that `records` or
    the index names."""
    if not records.startswith(HUB):
        if not Path(records).is_dir():
            raise StsbenchError(f"--records {records}: there is no such folder")
        return Path(records)
    name, _, revision = records.removeprefix(HUB).partition("@")
    known, _, commit = index.source.removeprefix(HUB).partition("@")
    return _fetched(name, revision or (commit if known == name else "") or None)


def _fetched(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    source = f"{HUB}{name}"
    with hub_errors(
        source, absent=f"--records {source}: there is no such data set on the Hub",
        no_revision=f"{source} has no revision {revision} on the Hub",
        unreachable=StsbenchError(f"--records {source}: not in the Hub's cache, and the Hub cannot be reached"),
    ):
        return Path(snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=list(PATTERNS)))
