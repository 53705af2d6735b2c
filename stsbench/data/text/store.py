"""Training text on disk: read once from the user's file, then accessed by row through memory maps."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.cache import Ragged, RowNumbers, built_folder, checked, file_digest, forget, mapped
from stsbench.data.text.rows import LABEL, SCORE, VALUES, file_format, is_known_header
from stsbench.data.text.store_writer import META, ReadSettings, StoreMeta, write_store
from stsbench.errors import DataError
from stsbench.files import training_cache
from stsbench.wording import counted, sized

# Marks of rows without a label in SNLI, `datasets`, pandas and MultiNLI's test set, and in files that people write.
_UNLABELLED = {
    "-", "--", "-1.0", "nan", "na", "<na>", "n/a", "#n/a", "#na", "n.a.", "nil", "none", "null", "\\n", "hidden", "?",
    "unlabeled", "unlabelled", "no label",
}
_MINUS = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")  # spreadsheets turn hyphens into these
_BETWEEN = re.compile(r"(?<=[^\W_])[-_ ]+(?=[^\W_])")  # separators between the words of a name
_TRUTHS = {"true": "1.0", "false": "0.0"}
_LOOKED_AT = 100  # rows that are examined to tell a table from text
_VERSION = 1  # raised when the folder's layout or the counts change, so that older folders are not used


def open_store(
    file: Path, *, format: str = "auto", columns: Mapping[str, str] | None = None, where: Mapping[str, str] | None = None,
    drop_blank: bool = False, drop_duplicates: bool = False, contiguous: bool = False, lines_per_row: int = 1,
    min_characters: int = 0, cache: Path | None = None, log: Callable[[str], None] | None = None,
) -> TextStore:
    """Return the store of the rows of a text, CSV, TSV or JSON-lines file of any size (see stsbench.data.text.rows for the
    formats).

    The file is read once, in bounded memory, and its rows are kept under its sha256, which is computed again only when the
    file has changed. drop_blank, drop_duplicates: leave out rows with an empty text, rows equal to an earlier one; both are
    counted in any case. contiguous: rows follow one another in documents; an empty line (in plain text: one of white space)
    ends a document and is not a row. lines_per_row: number of consecutive lines of plain text that are joined by spaces
    into a row; a line of white space ends a row early and is not part of it. min_characters: leave out rows with a shorter
    text, not counting white space at its ends. log: called with one line when a file has to be read. Raises DataError, one
    line.
    """
    cache = cache or training_cache()
    settings = ReadSettings(
        file_format(file, format), dict(columns or {}), dict(where or {}), drop_blank, drop_duplicates, contiguous,
        lines_per_row, min_characters,
    )
    digest = file_digest(file, cache)
    read_by = asdict(settings)
    for later, before in (("lines_per_row", 1), ("min_characters", 0)):
        if read_by[later] == before:
            del read_by[later]  # keeps the key of versions without this setting, so that existing folders stay in use
    key = hashlib.sha256(json.dumps([_VERSION, digest, read_by], sort_keys=True).encode()).hexdigest()

    def build(folder: Path) -> None:
        if log is not None:
            log(f"reading {file} ({sized(file.stat().st_size)}) once; later runs use the rows kept in {cache}")
        sha = hashlib.sha256()
        write_store(file, folder, settings, sha.update)
        if sha.hexdigest() != digest:
            forget(file, cache)
            raise DataError(f"{file} changed while it was being read: run again when it is complete")

    return TextStore(file, built_folder(cache / "text", key, build), settings)


class TextStore:
    """Rows 0 ... n-1 of a training file, each with one text per role.

    path: the user's file; meta: counts from reading it; digest: sha256 of the rows' content, whatever the file's name and
    format.
    """

    def __init__(self, path: Path, folder: Path, settings: ReadSettings) -> None:
        self.path, self.settings = path, settings
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        self.meta = StoreMeta(**{**meta, "roles": tuple(meta["roles"]), "labels": tuple(meta["labels"])})
        self._texts = {
            role: Ragged(folder, f"text{i}", "u1") for i, role in enumerate(self.meta.roles) if role not in VALUES
        }
        self.lines = mapped(folder / "lines", "<i8")  # the file's line, from 1, on which each row starts
        self._labels = mapped(folder / "labels", "<i4")
        self._scores = mapped(folder / "scores", "<f8") if SCORE in self.meta.roles else None
        self._documents = mapped(folder / "documents", "<i8")

    def __len__(self) -> int:
        return self.meta.kept

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of a row's values: "sentence", or "anchor", "positive" ..., and perhaps "label" or "score"."""
        return self.meta.roles

    @property
    def digest(self) -> str:
        return self.meta.digest

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the names of the classes; a label is an index into them."""
        return self.meta.labels

    def text(self, role: str, row: int) -> str:
        """Return a row's text, exactly as in the file; for the role "label" the class's name, for "score" the number."""
        if role == SCORE and SCORE in self.roles:
            return repr(float(self.scores([row])[0]))
        if role == LABEL and LABEL in self.roles:
            return self.label_names[int(self.labels([row])[0])]
        return self._role(role)[row].tobytes().decode("utf-8")

    def texts(self, role: str, rows: RowNumbers) -> list[str]:
        """Return the role's texts, one per row."""
        return [self.text(role, int(row)) for row in rows]

    def sizes(self, role: str) -> NDArray[np.int64]:
        """Return int64 (n,), the size of each row's text in bytes."""
        return self._role(role).lengths()

    def labels(self, rows: RowNumbers) -> NDArray[np.int64]:
        """Return int64 (n,), the class numbers of n rows. Raises DataError where the file has no labels."""
        if LABEL not in self.roles:
            raise DataError(f"{self.path} has no role 'label' (its roles are {', '.join(self.roles)}); see data.columns")
        return self._labels[self._numbers(rows)].astype(np.int64)

    def classes(self) -> dict[str, int]:
        """Return class name -> number of rows. Raises DataError, one line with the first row, for a name that marks rows
        without a label, and for names that differ only in case, white space or the spelling of a number, as they are
        hardly meant as two classes."""
        spelled: dict[str, str] = {}
        for number, name in enumerate(self.label_names):
            plain = _plain_label(name)
            line = self.line(int(np.argmax(self._labels == number)))
            if plain in _UNLABELLED:
                count = int(np.count_nonzero(self._labels == number))
                raise DataError(
                    f"{self.path}:{line}: the label {name!r} marks rows without a label ({count:,} of {len(self):,}): take "
                    "these rows out of the file; if it is a class, give it another name"
                )
            if (other := spelled.setdefault(plain, name)) != name:
                raise DataError(
                    f"{self.path}:{line}: the labels {other!r} and {name!r} would be two classes: write them the same way"
                )
        counts = np.bincount(self._labels, minlength=len(self.label_names)).tolist()
        return dict(zip(self.label_names, counts, strict=True))

    def scores(self, rows: RowNumbers) -> NDArray[np.float64]:
        """Return float64 (n,), the scores of n rows. Raises DataError where the file has no scores."""
        if self._scores is None:
            raise DataError(f"{self.path} has no role 'score' (its roles are {', '.join(self.roles)}); see data.columns")
        return self._scores[self._numbers(rows)].astype(np.float64)

    def line(self, row: int) -> int:
        """Return the line of the file, from 1, on which a row starts."""
        return int(self.lines[self._numbers([row])[0]])

    def following(self, rows: RowNumbers, k: int = 1) -> NDArray[np.int64]:
        """Return int64 (n,), the k-th row after each of n rows, -1 beyond the document's end; dropped rows do not count.
        Raises DataError unless the file was read as contiguous."""
        if not self.settings.contiguous:
            raise DataError(f"{self.path} was read as separate rows: to use the next sentence, set data.contiguous=true")
        at = self._numbers(rows)
        after = np.minimum(at + k, len(self) - 1)
        return np.where((at + k < len(self)) & (self._documents[after] == self._documents[at]), at + k, -1)

    def report(self) -> str:
        """Return one line on the rows read, the blank and duplicate rows, whether they were dropped, and the rows kept."""
        meta, settings = self.meta, self.settings
        left = f", {meta.left_out:,} left out by data.where" if settings.where else ""
        documents = "" if meta.documents is None else f" in {counted(meta.documents, 'document')}"
        blank = f"{meta.blank:,} blank ({_fate(settings.drop_blank)})"
        duplicates = f"{meta.duplicates:,} duplicate ({_fate(settings.drop_duplicates)})"
        fewest = settings.min_characters
        short = f", {meta.short:,} of fewer than {counted(fewest, 'character')} (left out)" if fewest else ""
        kept = f"{counted(meta.kept, 'row')}{documents}"
        return f"{counted(meta.rows, 'row')} read{left}, {blank}, {duplicates}{short}: {kept}"

    def doubt(self) -> str:
        """Return a warning where a plain-text file looks like a table, whose separators and scores would be read as text;
        else "". Raises DataError where the first line is a known header of a table of training text."""
        if self.settings.format != "text" or self.path.suffix.lower() in (".csv", ".tsv", ".jsonl") or not len(self):
            return ""
        first = self.text("sentence", 0)
        rows = self.texts("sentence", range(min(len(self), _LOOKED_AT)))
        for separator, what, kind in (("\t", "a tab", "tsv"), (",", "a comma", "csv"), (";", "a semicolon", "csv")):
            if is_known_header([name.strip(' "') for name in first.split(separator)]):
                raise DataError(
                    f"{self.path}:{self.line(0)}: {shorten(first, 60)!r} is the header of a table, and by the file's name "
                    f"whole lines are sentences: call it {self.path.stem}.{kind}, or --set data.format={kind}"
                )
            fields = {row.count(separator) for row in rows}
            table = separator in first if separator == "\t" else len(rows) > 4 and len(fields) == 1 and min(fields) > 0
            if table:
                return (
                    f"warning: {self.path.name}:{self.line(0)} contains {what}, and whole lines are taken for sentences: of "
                    f"a table to be read by its columns, the name ends in .{kind}"
                )
        if first.startswith("{") and all(row.startswith("{") and row.rstrip().endswith("}") for row in rows):
            return (
                f"warning: {self.path.name}:{self.line(0)} looks like JSON, and whole lines are taken for sentences: of a "
                "table of JSON lines, the name ends in .jsonl"
            )
        return ""

    def _numbers(self, rows: RowNumbers) -> NDArray[np.int64]:
        return checked(rows, len(self))

    def _role(self, role: str) -> Ragged:
        if role not in self._texts:
            raise DataError(f"{self.path} has no role {role!r} (its roles are {', '.join(self.roles)}); see data.columns")
        return self._texts[role]


def _plain_label(name: str) -> str:
    """Return a label normalised for comparison: case, white space, hyphens and the spelling of numbers do not count."""
    visible = [c for c in unicodedata.normalize("NFKC", name) if c.isspace() or unicodedata.category(c) not in ("Cf", "Cc")]
    plain = " ".join("".join(visible).translate(_MINUS).split()).casefold()
    plain = _TRUTHS.get(plain, plain)
    try:
        return repr(float(plain) + 0.0) if plain.lstrip("+-")[:1].isdigit() else _BETWEEN.sub(" ", plain)  # -0.0 + 0.0 = 0.0
    except ValueError:
        return _BETWEEN.sub(" ", plain)


def _fate(dropped: bool) -> str:
    return "dropped" if dropped else "kept"
