"""What the benchmark knows about every data set: files with digests, counts, licence, citation, where to get it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stsbench.errors import DataError
from stsbench.parsing import SafeLoader


@dataclass(frozen=True)
class HubFile:
    """A file in a data set repository on the Hub, at a fixed revision."""

    repo: str  # "mteb/sts12-sts"
    revision: str  # a commit
    file: str  # "test.jsonl.gz"


@dataclass(frozen=True)
class Entry:
    """One set in one text version. `files` maps paths below a data folder to sha256 ("" where none is known yet)."""

    id: str  # "sts12/test"
    task: str  # "STS12"
    kind: str  # which reader: "sts-year", "stsb", "sick", "raw", or of labels "classes", "sst", "trec", "mrpc", "sick-e"
    split: str
    text_version: str  # "senteval" or "raw"
    counts: Mapping[str, int]  # items per subset, split or (kind "classes") class, in the official order
    total: int
    licence: str
    citation: str
    sources: tuple[str, ...]
    files: Mapping[str, str]
    digest: str = ""  # DataSet.digest, "" where unknown
    hub: HubFile | None = None  # where the one file of a raw text is fetched from


@dataclass(frozen=True)
class TrainingText:
    """A file of training text that papers share, by its name. rows: those of the published file."""

    name: str  # "nli_for_simcse.csv"
    rows: int
    licence: str
    citation: str
    hub: HubFile

    @property
    def path(self) -> str:
        """Where it lies below a data folder."""
        return f"train/{self.name}"


@dataclass(frozen=True)
class Catalog:
    """All entries by (id, text version), the archive of SentEval's files, the documents (licences) with the data, and
    training texts by name."""

    archive: HubFile
    entries: Mapping[tuple[str, str], Entry]
    documents: Mapping[str, str]
    training: Mapping[str, TrainingText]

    @property
    def files(self) -> dict[str, str]:
        """Every file of SentEval's text, documents included: path below a data folder -> sha256."""
        known: dict[str, str] = {}
        for item in self.entries.values():
            if item.text_version == "senteval":
                known.update(item.files)
        return known | dict(self.documents)


@cache
def catalog() -> Catalog:
    """The catalog shipped with the package, read once."""
    raw: dict[str, Any] = yaml.load(
        (Path(__file__).resolve().parents[1] / "catalog.yaml").read_text(encoding="utf-8"),
        Loader=SafeLoader,
    )
    sets = [_entry(item, raw["licences"], raw["citations"]) for item in raw["sets"]]
    texts = [TrainingText(**{**item, "hub": HubFile(**item["hub"])}) for item in raw["training"]]
    return Catalog(
        HubFile(**raw["archive"]), {(item.id, item.text_version): item for item in sets}, raw["documents"],
        {text.name: text for text in texts},
    )


def entries(text_version: str | None = None) -> tuple[Entry, ...]:
    """Every entry in catalog order, or those of one text version."""
    return tuple(item for item in catalog().entries.values() if text_version in (None, item.text_version))


def entry(set_id: str, text_version: str = "senteval") -> Entry:
    """The entry of one set; raises DataError with the nearest name, or with the text versions the set has."""
    known = catalog().entries.get((set_id, text_version))
    if known is not None:
        return known
    versions = [item.text_version for item in entries() if item.id == set_id]
    if versions:
        raise DataError(f"{set_id} has no text version {text_version!r}: it has {', '.join(versions)}")
    names = list(dict.fromkeys(item.id for item in entries()))
    near = difflib.get_close_matches(set_id.lower(), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
    raise DataError(f"no data set is called {set_id!r}; {hint}")


def _entry(item: dict[str, Any], licences: dict[str, str], citations: dict[str, str]) -> Entry:
    hub = item.get("hub")
    return Entry(
        id=item["id"], task=item["task"], kind=item["kind"], split=item["split"], text_version=item["view"],
        counts=item["counts"], total=item["total"], licence=licences[item["licence"]],
        citation=citations[item["citation"]], sources=tuple(item["sources"]), files=item["files"],
        digest=item.get("digest", ""), hub=HubFile(**hub) if hub else None,
    )
