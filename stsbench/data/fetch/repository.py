"""Downloading a whole repository of the Hub at one revision: the sets in other languages that mteb describes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from stsbench.data.fetch.download import Progress, download
from stsbench.data.fetch.fetch import TRAINING_LIMIT, hub_endpoint, hub_url
from stsbench.data.fetch.install import FetchReport, alone, expected, install
from stsbench.data.fetch.lock import read_lock
from stsbench.data.sets.catalog import HubFile
from stsbench.data.sets.languages import is_copied
from stsbench.errors import DataError
from stsbench.files import sha256_file
from stsbench.parsing import MOST_JSON, parse_json, read_text

LISTING = "listing.json"
LISTING_LIMIT = 8 << 20


def fetch_repository(
    repository: str, revision: str, root: Path, *, force: bool = False, strict: bool = False, pause: float = 1.0,
    progress: Progress | None = None,
) -> FetchReport:
    """Download the files of a repository of `LANGUAGES` into `root`/OWNER/NAME, where `eval` looks for them.

    revision: the full commit; files whose name begins with a dot are left out. All files are there or none: what a broken
    download has received waits in a folder of its own, and the next call goes on with it. Raises DataError as
    `fetch_archive`; with `strict` for a file that changed since the first fetch.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise DataError(f"{repository}: the revision {revision!r} is not a full commit: this version of mteb pins none")
    waiting = root / f".fetch-{repository.replace('/', '--')}-{revision[:12]}"
    with alone(root):
        listing = waiting / LISTING
        url = f"{hub_endpoint()}/api/datasets/{repository}/revision/{revision}"
        if not listing.is_file():
            download(url, listing, limit=LISTING_LIMIT, pause=pause)
        names = _names(listing, repository, url)
        locked = read_lock(root)
        there = all((root / name).is_file() and sha256_file(root / name) == locked.get(name) for name in names.values())
        if there and not force:
            shutil.rmtree(waiting, ignore_errors=True)
            return FetchReport(root, ())
        for file in names:
            arrived = waiting / "files" / file
            if not arrived.is_file():
                source = HubFile(repository, revision, file)
                download(hub_url(source), arrived, limit=TRAINING_LIMIT, pause=pause, progress=progress)
        arrived_files = {name: waiting / "files" / file for file, name in names.items()}
        known = expected(root)
        changed = [name for name, path in arrived_files.items() if known.get(name, "") not in ("", sha256_file(path))]
        if strict and changed:
            raise DataError(f"{changed[0]} changed since its first fetch (see {root / 'lock.json'}; refused: --strict)")
        report = install(arrived_files, root, source=url)
        shutil.rmtree(waiting, ignore_errors=True)
        return FetchReport(root, report.installed, report.changed)


def _names(listing: Path, repository: str, url: str) -> dict[str, str]:
    """File in the repository -> its name below a data folder."""
    try:
        files = [str(item["rfilename"]) for item in parse_json(read_text(listing, MOST_JSON))["siblings"]]
    except (OSError, ValueError, KeyError, TypeError, DataError) as error:
        listing.unlink(missing_ok=True)
        raise DataError(f"{url} does not list the repository's files: is it a Hub?") from error
    parts = {file: file.split("/") for file in files}
    if wrong := [file for file, its in parts.items() if not all(its) or ".." in its or "\\" in file]:
        listing.unlink(missing_ok=True)
        raise DataError(f"{url}: a file is called {wrong[0]!r}, which leaves its folder: refused")
    names = {file: name for file in files if is_copied(name := f"{repository}/{file}")}
    if not names:
        listing.unlink(missing_ok=True)
        raise DataError(f"{url} lists no file of {repository}")
    return names
