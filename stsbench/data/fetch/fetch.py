"""Downloading from the Hub into a data folder: SimCSE's archive of the SentEval files, and single raw files."""

from __future__ import annotations

import os
from pathlib import Path

from stsbench.data.fetch.archive import extract
from stsbench.data.fetch.download import Progress, download
from stsbench.data.fetch.install import FetchReport, alone, expected, install, workplace
from stsbench.data.sets.catalog import Entry, HubFile, TrainingText, catalog
from stsbench.errors import DataError
from stsbench.files import sha256_file

ARCHIVE_LIMIT = 512 << 20  # the archive was 90 MB when the catalog was written
RAW_LIMIT = 64 << 20
TRAINING_LIMIT = 512 << 20  # a million sentences are some 120 MB


def hub_url(source: HubFile) -> str:
    """Where a Hub file lies."""
    return f"{hub_endpoint()}/datasets/{source.repo}/resolve/{source.revision}/{source.file}"


def hub_endpoint() -> str:
    """The Hub's address; $HF_ENDPOINT replaces https://huggingface.co, as in huggingface_hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def fetch_archive(
    root: Path, *, force: bool = False, strict: bool = False, pause: float = 1.0, progress: Progress | None = None
) -> FetchReport:
    """Download, unpack and compare SentEval's text; nothing is downloaded where every file is present and known.

    Raises DataError: no connection, a truncated or escaping archive, nothing known in it, with `strict` any difference.
    """
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
            archive.unlink(missing_ok=True)  # only the unpacked files are needed; a bad archive must not be used again


def fetch_raw(
    item: Entry, root: Path, *, force: bool = False, strict: bool = False, pause: float = 1.0,
    progress: Progress | None = None,
) -> FetchReport:
    """Download the one file of a raw text. Its digest goes into lock.json at the first fetch and is compared later.

    Raises DataError as `fetch_archive`; with `strict` a file that changed since the first fetch is refused.
    """
    if item.hub is None:
        raise DataError(f"{item.id} ({item.text_version} text) is not a single file on the Hub")
    (name,) = item.files
    return _fetch_file(item.hub, name, root, RAW_LIMIT, force, strict, pause, progress)


def fetch_training(
    text: TrainingText, root: Path, *, force: bool = False, strict: bool = False, pause: float = 1.0,
    progress: Progress | None = None,
) -> FetchReport:
    """Download a training text; digests and errors as for `fetch_raw`."""
    return _fetch_file(text.hub, text.path, root, TRAINING_LIMIT, force, strict, pause, progress)


def _fetch_file(
    source: HubFile, name: str, root: Path, limit: int, force: bool, strict: bool, pause: float, progress: Progress | None
) -> FetchReport:
    target = root / name
    with alone(root), workplace(root) as folder:
        if not force and target.is_file() and sha256_file(target) == expected(root)[name]:
            return FetchReport(root, ())
        # The .part stays beside the target, so a broken download is resumed; only the finished file moves through here.
        arrived = target.with_name(target.name + ".new")
        download(hub_url(source), arrived, limit=limit, pause=pause, progress=progress)
        inside = folder / "0"
        arrived.replace(inside)
        if strict and expected(root)[name] not in ("", sha256_file(inside)):
            raise DataError(f"{hub_url(source)} changed since its first fetch (see {root / 'lock.json'}; refused: --strict)")
        report = install({name: inside}, root, source=hub_url(source))
        return FetchReport(root, report.installed, report.changed)
