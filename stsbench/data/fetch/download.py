"""Downloads: of one file over HTTP, resumable and of limited size, and of all that `stsbench data fetch` can fetch."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from stsbench.data.fetch.install import FetchReport, alone, expected, extract, install, read_lock, workplace
from stsbench.data.fetch.mteb import pinned_revision
from stsbench.data.sets.catalog import (
    LANGUAGES,
    Entry,
    HubFile,
    MtebPairs,
    TrainingText,
    catalog,
    entries,
    entry,
    further_sources,
    is_copied,
)
from stsbench.errors import DataError
from stsbench.files import sha256_file
from stsbench.hub import hub_endpoint
from stsbench.parsing import MOST_JSON, parse_json, read_text

Progress = Callable[[int, int | None], None]  # called with bytes so far and bytes in all, None if unknown
_BLOCK = 1 << 20
WAYS = (
    "give the data by --data-dir DIR (a folder with SentEval's downstream/), "
    "by $STSBENCH_DATA or the user cache (`stsbench data fetch`; without network `stsbench data fetch --from BUNDLE`), "
    "or use --sample"
)
ARCHIVE_LIMIT = 512 << 20  # bytes; the archive had 90 MB when the catalog was written
RAW_LIMIT = 64 << 20
TRAINING_LIMIT = 512 << 20  # bytes; a million sentences take some 120 MB
LISTING = "listing.json"
LISTING_LIMIT = 8 << 20


class NoConnectionError(DataError):
    """Error of a download whose server cannot be reached, most likely because this machine is offline."""


class _CutError(Exception):
    """Error of a connection that ended early; received bytes are kept, and the next attempt resumes after them."""


def download(
    url: str, target: Path, *, limit: int, tries: int = 4, pause: float = 1.0, timeout: float = 30.0,
    progress: Progress | None = None,
) -> None:
    """Download `url` to `target` by way of `target`.part, which a later call resumes if the server's file is unchanged.

    tries: the number of consecutive attempts without new bytes after which it gives up; pause: seconds before the first
    new attempt, doubled each time; limit: bytes. Only one process at a time may write a target (install.alone). Raises
    DataError without a connection, for an HTTP error, for more than `limit` bytes, and if the connection keeps breaking."""
    if not url.startswith(("http://", "https://")):
        raise DataError(f"cannot download {url}: HF_ENDPOINT must start with http:// or https://")
    part = target.with_name(target.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        _until_complete(url, part, limit, tries, pause, timeout, progress)
        part.replace(target)
        _state(part).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"cannot write {part}: {error.strerror or error}") from error


def _until_complete(
    url: str, part: Path, limit: int, tries: int, pause: float, timeout: float, progress: Progress | None
) -> None:
    failures, best = 0, _size(part)
    while True:
        unreachable = False
        try:
            return _once(url, part, limit, timeout, progress)
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"HTTP {error.code} {error.reason}"
            if error.code == 416:  # the part does not fit what the server has now
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code not in (408, 429):
                raise DataError(f"cannot download {url}: {reason}") from error
        except urllib.error.URLError as error:
            reason = f"no connection ({error.reason})"
            unreachable = isinstance(error.reason, socket.gaierror | ConnectionRefusedError)
        except (TimeoutError, ConnectionError, http.client.HTTPException, _CutError) as error:
            reason = str(error) or type(error).__name__
        failures = 1 if _size(part) > best else failures + 1
        best = max(best, _size(part))
        if failures >= (min(2, tries) if unreachable else tries):  # when offline, do not keep the user waiting
            kind = NoConnectionError if unreachable else DataError
            raise kind(f"cannot download {url}: {reason}" + (
                f"; {best} bytes are kept in {part}; the next attempt resumes there" if best else ""))
        time.sleep(pause * 2 ** (failures - 1))


def _once(url: str, part: Path, limit: int, timeout: float, progress: Progress | None) -> None:
    """Send one request and return when `part` is complete. Raises _CutError where the server stopped early."""
    validator = _resumable(part, url)
    have = _size(part) if validator else 0
    request = urllib.request.Request(url, headers={"User-Agent": "stsbench", "Accept-Encoding": "identity"})
    if have and validator:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", validator)  # a changed file is sent whole (200), never appended to the old part
    with urllib.request.urlopen(request, timeout=timeout) as response:
        if response.status == 206:
            begin = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if not begin or int(begin[1]) != have:
                part.unlink(missing_ok=True)
                raise _CutError("the server sent a different byte range from the one requested")
        else:
            have = 0
            _note(part, url, response.headers)
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        if total is not None and total > limit:
            raise DataError(f"{url} is {total} bytes, more than the {limit} expected at most: refused")
        with part.open("ab" if have else "wb") as stream:
            have = _copy(response, stream, have, total, limit, url, progress)
    if total is not None and have != total:
        raise _CutError(f"the connection broke after {have} of {total} bytes")


def _copy(
    response: Any, stream: IO[bytes], have: int, total: int | None, limit: int, url: str, progress: Progress | None
) -> int:
    while block := _received(response):
        have += len(block)
        if have > limit:
            raise DataError(f"{url} is more than the {limit} bytes expected at most: refused")
        try:
            stream.write(block)
        except OSError as error:
            # An OSError would be taken for a network fault and retried.
            raise DataError(f"cannot write {stream.name}: {error.strerror or error}") from error
        if progress:
            progress(have, total)
    return have


def _received(response: Any) -> bytes:
    try:
        return bytes(response.read1(_BLOCK))
    except OSError as error:  # a reset, a timeout and broken TLS are all retried
        raise _CutError(f"the connection broke: {error}") from error


def _state(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _note(part: Path, url: str, headers: Any) -> None:
    """Store URL and validator of the file that `part` belongs to; a weak ETag does not identify bytes and is ignored."""
    tag = headers.get("ETag", "")
    validator = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
    _state(part).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")


def _resumable(part: Path, url: str) -> str:
    """Return the validator with which `part` may be resumed, or "" where the download must start again."""
    try:
        state = json.loads(_state(part).read_text(encoding="utf-8"))
        return str(state["validator"]) if state["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def hub_url(source: HubFile) -> str:
    """Return the URL of a Hub file."""
    return f"{hub_endpoint()}/datasets/{source.repo}/resolve/{source.revision}/{source.file}"


def fetch_archive(
    root: Path, *, force: bool = False, strict: bool = False, pause: float = 1.0, progress: Progress | None = None
) -> FetchReport:
    """Download SentEval's archive, install its files and return a report; do nothing where all files are present and known.

    Raises DataError without a connection, for an archive that is truncated, unsafe or without known files and, with
    `strict`, for any difference from the catalog."""
    known, source = catalog().files, catalog().archive
    archive = root / source.file
    with alone(root):
        if not force and all((root / name).is_file() and sha256_file(root / name) == known[name] for name in known):
            return FetchReport(root, ())
        download(hub_url(source), archive, limit=ARCHIVE_LIMIT, pause=pause, progress=progress)
        try:
            with workplace(root) as folder:
                return install(extract(archive, folder), root, source=hub_url(source), strict=strict)
        finally:
            archive.unlink(missing_ok=True)  # no longer needed, and a bad archive must not be used again


def fetch_file(
    item: Entry | TrainingText, root: Path, *, force: bool = False, strict: bool = False, pause: float = 1.0,
    progress: Progress | None = None,
) -> FetchReport:
    """Download the file of a raw text, or of a training text, and return a report.

    Its digest is stored in lock.json at the first fetch and compared later. Raises DataError as `fetch_archive` does and,
    with `strict`, for a file that changed since the first fetch.
    """
    if isinstance(item, TrainingText):
        source, name, limit = item.hub, item.path, TRAINING_LIMIT
    elif item.hub is None:
        raise DataError(f"{item.id} ({item.text_version} text) is not a single file on the Hub")
    else:
        source, (name,), limit = item.hub, item.files, RAW_LIMIT
    target = root / name
    with alone(root), workplace(root) as folder:
        if not force and target.is_file() and sha256_file(target) == expected(root)[name]:
            return FetchReport(root, ())
        # Downloaded beside the target, where a broken download can be resumed; the temporary folder gets the finished file.
        arrived = target.with_name(target.name + ".new")
        download(hub_url(source), arrived, limit=limit, pause=pause, progress=progress)
        inside = folder / "0"
        arrived.replace(inside)
        if strict and expected(root)[name] not in ("", sha256_file(inside)):
            raise DataError(f"{hub_url(source)} changed since its first fetch (see {root / 'lock.json'}; refused: --strict)")
        report = install({name: inside}, root, source=hub_url(source))
        return FetchReport(root, report.installed, report.changed)


def fetch_repository(
    repository: str, revision: str, root: Path, *, force: bool = False, strict: bool = False, pause: float = 1.0,
    progress: Progress | None = None,
) -> FetchReport:
    """Download a repository of `LANGUAGES` into `root`/OWNER/NAME, where `eval` looks for it; return a report.

    revision: the full commit; files whose name begins with a dot are left out. The files are installed all or not at all: a
    broken download is kept in a folder of its own, and the next call continues it. Raises DataError as `fetch_archive` does
    and, with `strict`, for a file that changed since the first fetch.
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
    """Return file in the repository -> its path below a data folder. Raises DataError for a listing that is unsafe."""
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


@dataclass(frozen=True)
class Wanted:
    """Selection of data to fetch: SentEval's archive as a whole, raw sets, training texts, sets in other languages, and sets
    that extensions fetch."""

    archive: bool
    raw: list[Entry]
    training: list[TrainingText]
    languages: list[MtebPairs] = field(default_factory=list)
    further: list[Any] = field(default_factory=list)


def select_sources(sets: Sequence[str] = (), *, training: bool = False, raw: bool = False) -> Wanted:
    """Return what `stsbench data fetch` fetches: the named sets and training texts, or without names all that the options
    select. A set in SentEval's text selects the whole archive.

    Raises DataError for an unknown name."""
    known = catalog().training
    texts = list(known.values()) if training else [known[name] for name in sets if name in known]
    of_task = {name: item for item in LANGUAGES for name in (item.task, item.id)}
    languages = [of_task[name] for name in sets if name in of_task]
    others = [name for name in sets if name not in known and name not in of_task and name not in further_sources()]
    further = [further_sources()[name] for name in sets if name in further_sources()]
    if not raw:
        for name in others:
            entry(name)
    raw_sets = ([entry(name, "raw") for name in others] if sets else list(entries("raw"))) if raw else []
    archive = (bool(others) and not raw) if sets else not training
    return Wanted(archive, raw_sets, texts, list(dict.fromkeys(languages)), further)


def fetch(
    what: Wanted, root: Path, *, force: bool = False, strict: bool = False, progress: Progress | None = None
) -> list[FetchReport]:
    """Download the selected data into the data folder `root`; return the reports. Raises DataError as `fetch_archive`."""
    options: dict[str, Any] = {"force": force, "strict": strict, "progress": progress}
    try:
        reports = [fetch_archive(root, **options)] if what.archive else []
        reports += [fetch_file(item, root, **options) for item in what.raw]
        reports += [fetch_file(text, root, **options) for text in what.training]
        reports += [fetch_repository(item.repository, pinned_revision(item), root, **options) for item in what.languages]
        reports += [source.fetch(root, **options) for source in what.further]
    except NoConnectionError as error:
        raise DataError(f"{error}; {WAYS}") from error
    return reports
