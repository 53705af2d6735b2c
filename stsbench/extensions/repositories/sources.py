"""The sets of sources.yaml: what each is, and how it comes into a data folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import quote

from stsbench.config import read_yaml
from stsbench.data.fetch.download import Progress, download
from stsbench.data.fetch.install import FetchReport, alone
from stsbench.errors import DataError
from stsbench.files import sha256_file

from .files import SHAPES

GITHUB = "https://raw.githubusercontent.com"
LARGEST = 16 << 20  # bytes of a file; the largest is of 1 MB


@dataclass(frozen=True)
class Source:
    """A set of sources.yaml, whose head says what its fields are. files: language -> path in the repository and sha256."""

    name: str
    id: str
    about: str
    protocol: str
    rows: int
    licence: str
    citation: str
    repository: str
    commit: str
    shape: str
    files: Mapping[str, tuple[str, str]]
    options: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        """Return the languages of scored pairs, ISO 639; other data have a table of their own."""
        return tuple(self.files) if self.protocol == "sts" else ()

    def path(self, root: Path) -> Path:
        """Return the folder of the set below a data folder, with a file for each language."""
        return root / "repositories" / self.name

    def command(self, root: Path) -> str:
        """Return the command that measures an encoder on the set."""
        return f"stsbench eval --model M --protocol {self.protocol}:{self.path(root)} {self.options}".strip()

    def fetch(
        self, root: Path, *, force: bool = False, strict: bool = True, progress: Progress | None = None, host: str = GITHUB,
    ) -> FetchReport:
        """Download the set into a data folder; nothing is left where that fails, nothing done where it is there already.

        Raises DataError: no connection, a file that is not the one whose digest is known (`strict` or not), or rows that
        are not as many.
        """
        target, report = self.path(root), FetchReport(self.path(root), (), note=f"measure it: {self.command(root)}")
        if target.exists() and not force:
            return report
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(root), tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as scratch:
            made, rows = Path(scratch) / target.name, 0
            for language, (path, digest) in self.files.items():
                content = self._download(path, digest, Path(scratch), host, progress)
                file = made / f"{language}.jsonl"
                made.mkdir(exist_ok=True)
                lines = [json.dumps(row, ensure_ascii=False) for row in SHAPES[self.shape](content)]
                file.write_text("\n".join(lines) + "\n", encoding="utf-8")
                rows += len(lines)
            if rows != self.rows:
                raise DataError(f"{self.name}: {rows:,} rows in its files, not {self.rows:,}")
            if target.is_dir():
                shutil.rmtree(target)
            made.replace(target)
        return replace(report, installed=tuple(self.files))

    def _download(self, path: str, digest: str, scratch: Path, host: str, progress: Progress | None) -> bytes:
        """Return the bytes of a file of the repository. Raises DataError where they are not those of its digest."""
        file, url = scratch / "download", f"{host}/{self.repository}/{self.commit}/{quote(path)}"
        download(url, file, limit=LARGEST, progress=progress)
        if sha256_file(file) != digest:
            raise DataError(f"{url} is not the file that {self.name} was made of: its sha256 differs")
        return file.read_bytes()


@cache
def sources() -> Mapping[str, Source]:
    """Return the sets by name."""
    stated = read_yaml(Path(__file__).with_name("sources.yaml"))
    return {name: Source(name, **{**item, "files": {part: tuple(file) for part, file in item["files"].items()}})
            for name, item in stated.items()}
