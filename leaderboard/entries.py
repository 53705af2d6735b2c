"""The measured entries of a board: what each is (entry.yaml), and its runs, with every record checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stsbench.comparability import Measured, measured
from stsbench.errors import StsbenchError
from stsbench.evaluation import encoder_key
from stsbench.leaderboard.admission import check_record
from stsbench.records import load_records

DESCRIPTION = "entry.yaml"
SEEDED = ("name", "weights", "fitted_on")  # what may differ between an entry's runs: the seeds of one recipe
Url = Annotated[str, Field(pattern=r"^https?://\S+$")]


class Entry(BaseModel):
    """What an entry is, as its submitter states it; everything that can be read off the records is not in here."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    method: str = Field(min_length=1, max_length=80)
    backbone: str = Field(min_length=1, max_length=80)
    setting: Literal["unsup", "semi", "sup"]
    flags: tuple[Literal["nli", "sts", "transductive", "dev-selected"], ...] = ()
    best_of: int | None = Field(default=None, ge=2)  # the best of so many seeds: shown as such, never ranked
    recipe: str = ""
    paper: Url | None = None
    card: str = ""
    note: str = ""


@dataclass(frozen=True)
class Run:
    """One encoder's records in an entry: one seed."""

    folder: Path
    records: tuple[Measured, ...]

    @property
    def spec(self) -> dict[str, Any]:
        """The encoder's spec; `fitted_on` is that of the first record."""
        return self.records[0].record.encoder.spec


@dataclass(frozen=True)
class LoadedEntry:
    """An entry and its runs, in the order of their folders. `id` is the entry folder's name."""

    id: str
    entry: Entry
    runs: tuple[Run, ...]


def read_entry(path: Path) -> Entry:
    """Read and validate an entry.yaml. Raises StsbenchError naming the file and the first field at fault."""
    try:
        return Entry.model_validate(yaml.safe_load(path.read_text("utf-8")) or {})
    except ValidationError as error:
        first = error.errors()[0]
        raise StsbenchError(f"{path}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from error
    except yaml.YAMLError as error:
        raise StsbenchError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StsbenchError(f"cannot read {path}: {error}") from error


def load_entries(folder: Path) -> list[LoadedEntry]:
    """Every entry below `folder` (a board's measured/), by name, with each record's scores recomputed.

    Raises StsbenchError, naming the file, for whatever does not belong or does not hold.
    """
    if not folder.is_dir():
        return []
    return [_load(each) for each in sorted(folder.iterdir()) if not each.name.startswith(".")]


def _load(folder: Path) -> LoadedEntry:
    if not folder.is_dir():
        raise StsbenchError(f"{folder} is no entry: a board's measured/ holds one folder an entry")
    entry = read_entry(folder / DESCRIPTION)
    runs = tuple(_run(each) for each in sorted(folder.iterdir()) if each.is_dir() and not each.name.startswith("."))
    if not runs:
        raise StsbenchError(f"{folder} has no runs: add records to it (stsbench leaderboard add)")
    specs = {json.dumps({**run.spec, **dict.fromkeys(SEEDED)}, sort_keys=True) for run in runs}
    if len(specs) > 1:
        raise StsbenchError(f"{folder} mixes encoders that differ in more than their seed: give each an entry of its own")
    return LoadedEntry(folder.name, entry, runs)


def _run(folder: Path) -> Run:
    found = load_records(folder)
    if len({encoder_key(record) for _, record in found}) > 1:
        raise StsbenchError(f"{folder} holds records of several encoders: a run is of one")
    records = []
    for path, record in sorted(found, key=lambda item: (item[1].provenance.get("position", 0), item[0].name)):
        records.append(measured(path, record, check_record(path, record)))
    return Run(folder, tuple(records))
