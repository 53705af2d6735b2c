"""The data sets of sources.yaml: their description, their download into a data folder, and the conversion of their authors'
files to rows as in a user's tables."""

from __future__ import annotations

import csv
import io
import json
import shlex
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import quote

from stsbench.config import read_yaml
from stsbench.data.fetch.download import Progress, download
from stsbench.data.fetch.install import FetchReport, alone, workplace
from stsbench.errors import DataError
from stsbench.files import sha256_file

GITHUB = "https://raw.githubusercontent.com"
LARGEST = 16 << 20  # most bytes of a file; the largest has 1 MB

Row = dict[str, str | float]
_CSTS = "dataset/csts_validation_reannotated.csv"  # the archive holds the training split, too


def _columns(content: bytes) -> Iterator[Row]:
    """Yield the pairs of a CSV file without a header: two sentences and a score."""
    for first, second, score in csv.reader(io.StringIO(content.decode("utf-8"), newline="")):
        yield {"sentence1": first, "sentence2": second, "score": float(score)}


def _semrel(content: bytes) -> Iterator[Row]:
    """Yield SemRel's pairs: both sentences are in one cell, separated by a line break or, in Afrikaans, by a tab."""
    for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")):
        first, second = row["Text"].replace("\t", "\n").split("\n")
        yield {"sentence1": first.strip(), "sentence2": second.strip(), "score": float(row["Score"])}


def _jsts(content: bytes) -> Iterator[Row]:
    for row in map(json.loads, content.decode("utf-8").splitlines()):
        yield {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": float(row["label"])}


def _korsts(content: bytes) -> Iterator[Row]:
    """Yield KorSTS' pairs; quotation marks in this file are plain characters."""
    for row in csv.DictReader(io.StringIO(content.decode("utf-8")), delimiter="\t", quoting=csv.QUOTE_NONE):
        yield {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": float(row["score"])}


def _choices(content: bytes) -> Iterator[Row]:
    """Yield a text, the right one of its choices and the others, in their order."""
    for row in map(json.loads, content.decode("utf-8").splitlines()):
        choices = list(row["sentences"])
        right = choices.pop(row["label"])
        negatives = {f"negative_{number}": text for number, text in enumerate(choices, start=1)}
        yield {"anchor": row["input"], "positive": right, **negatives}


def _csts(content: bytes) -> Iterator[Row]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        table = archive.read(_CSTS).decode("utf-8")
    for row in csv.DictReader(io.StringIO(table, newline="")):
        yield {**{name: row[name] for name in ("sentence1", "sentence2", "condition")}, "score": float(row["label"])}


SHAPES: dict[str, Callable[[bytes], Iterator[Row]]] = {
    "columns": _columns, "semrel": _semrel, "jsts": _jsts, "korsts": _korsts, "choices": _choices, "csts": _csts,
}


@dataclass(frozen=True)
class Source:
    """A set of sources.yaml, whose head says what its fields are. files: language -> path in the repository and sha256."""

    name: str
    id: str
    title: str
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
        what = shlex.quote(f"{self.protocol}:{self.path(root)}")
        return f"stsbench eval --model M --protocol {what} {self.options}".strip()

    def fetch(
        self, root: Path, *, force: bool = False, strict: bool = True, progress: Progress | None = None, host: str = GITHUB,
    ) -> FetchReport:
        """Download the set into a data folder; nothing is left where that fails, nothing done where it is there already.

        Raises DataError: no connection, a file that is not the one whose digest is known (`strict` or not), or rows that
        are not as many.
        """
        target, report = self.path(root), FetchReport(self.path(root), (), note=f"measure it: {self.command(root)}")
        with alone(root), workplace(root) as scratch:
            if target.exists() and not force:
                return report
            made, rows = scratch / target.name, 0
            made.mkdir()
            for language, (path, digest) in self.files.items():
                content = self._download(path, digest, scratch, host, progress)
                lines = [json.dumps(row, ensure_ascii=False) for row in SHAPES[self.shape](content)]
                (made / f"{language}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
                rows += len(lines)
            if rows != self.rows:
                raise DataError(f"{self.name}: {rows:,} rows in its files, not {self.rows:,}")
            target.parent.mkdir(exist_ok=True)
            if target.exists():
                target.replace(scratch / "before")
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
    """Return name -> set."""
    stated = read_yaml(Path(__file__).with_name("sources.yaml"))
    return {name: Source(name, **{**item, "files": {part: tuple(file) for part, file in item["files"].items()}})
            for name, item in stated.items()}
