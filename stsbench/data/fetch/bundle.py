"""The data folder as one file, to carry to a machine without network."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from stsbench.data.fetch.archive import extract
from stsbench.data.fetch.install import FetchReport, alone, expected, install, workplace
from stsbench.data.fetch.sources import path_in
from stsbench.errors import DataError
from stsbench.files import atomic_write, sha256_file
from stsbench.parsing import MOST_JSON, parse_json, read_text

MANIFEST = "manifest.json"


def write_bundle(root: Path, target: Path) -> list[str]:
    """Pack every known file below `root` with a manifest of sha256 digests; returns the names packed.

    `.gz` or `.tgz` at the end of the name compresses. The same files give the same bytes. Raises DataError when `root`
    contains none of them.
    """
    files = {name: path for name in sorted(expected(root)) if (path := path_in(root, name)).is_file()}
    if not files:
        raise DataError(f"{root} contains none of the benchmark's files: nothing to bundle")
    digests = {name: sha256_file(path) for name, path in files.items()}
    manifest = json.dumps({"stsbench_bundle": 1, "files": digests}, indent=1).encode()
    with atomic_write(target, "wb") as stream:
        if target.suffix in (".gz", ".tgz"):
            import gzip

            with gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as packed:
                _pack(packed, manifest, files)
        else:
            _pack(stream, manifest, files)
    return list(files)


def install_bundle(bundle: Path, root: Path, *, strict: bool = False) -> FetchReport:
    """Unpack a bundle into the data folder `root`, through the same checks as a download.

    Raises DataError when it is not a bundle, is damaged (a file is not what its manifest says), or, with `strict`, when a
    file differs from the catalog.
    """
    if not bundle.is_file():
        raise DataError(f"{bundle} does not exist")
    with alone(root), workplace(root) as folder:
        files = extract(bundle, folder)
        for name, digest in _manifest(bundle, files).items():
            if name not in files or sha256_file(files[name]) != digest:
                raise DataError(f"{bundle} is damaged: {name} is not the file its manifest lists")
        del files[MANIFEST]
        return install(files, root, source=str(bundle), strict=strict)


def _pack(stream: object, manifest: bytes, files: dict[str, Path]) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        _add(tar, MANIFEST, manifest)
        for name, path in files.items():
            _add(tar, name, path.read_bytes())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # time 0, owner 0: nothing of this machine goes into the bundle
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _manifest(bundle: Path, files: Mapping[str, Path]) -> dict[str, str]:
    try:
        manifest = parse_json(read_text(files[MANIFEST], MOST_JSON))
        if manifest["stsbench_bundle"] != 1:
            raise DataError(f"{bundle} was written by another version of stsbench (format {manifest['stsbench_bundle']})")
        return dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{bundle} is not a stsbench bundle: it has no readable {MANIFEST}") from error
