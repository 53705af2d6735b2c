"""`leaderboard add`: records and their observations into a board, checked first, each written whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from stsbench.encoders.probe import has_identity
from stsbench.errors import StsbenchError
from stsbench.evaluation.comparability import measured as as_measured
from stsbench.evaluation.load import load_protocol
from stsbench.evaluation.records import Record, load_records, read_record, record_text, tested_seeds
from stsbench.files import create_whole

from .admission import check_decided, check_record, check_widths
from .board_form import BoardRecord, board_forms, write_observations
from .copies import refuse_equal
from .entries import (
    DESCRIPTION,
    Entry,
    check_copies,
    check_runs,
    read_entry,
    read_run,
    refuse_equal_names,
    run_folders,
    run_name,
    runs_of,
)
from .expected import decided

_AS_IN = "--method 'all-MiniLM-L6-v2, mean' --backbone MiniLM-L6 --setting sup --flag nli"  # what describes a new entry


@dataclass(frozen=True)
class Added:
    """What an addition did: the records now on the board, by path; those that were there already; what to think about."""

    written: tuple[Path, ...]
    present: tuple[Path, ...]
    warnings: tuple[str, ...]


def add(board: Path, paths: Sequence[Path], slug: str, entry: Entry | None) -> Added:
    """Add run folders or single records to the entry `slug` of `board`, which `entry` describes when it is new.

    All records are checked before the first is written. Several processes may add at once: a record is one file, made
    under another name and linked into place, so that none is lost and none overwritten.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]{0,78}[a-z0-9_-])?", slug):
        raise StsbenchError(f"'{slug}' cannot name an entry: use small letters, digits, dots and dashes, at most 80")
    if re.fullmatch(r"(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?", slug):
        raise StsbenchError(f"'{slug}' cannot name an entry: Windows keeps it for a device, and no folder there can have it")
    runs = [run for path in paths for run in tested_seeds(path) or [path]]
    records = [item for run in runs for item in (load_records(run) if run.is_dir() else [(run, read_record(run))])]
    if not records:
        raise StsbenchError("no record was named")
    made = board_forms([(path, record, check_record(path, record)) for path, record in records])
    folder = board / "measured" / slug
    check_runs(folder, {**runs_of(folder), **{run_name(record): record for _, record in records}})
    _refuse_twins(board / "measured", slug, records)
    _refuse_copies(board / "measured", slug, made)
    _refuse_others(folder, made)
    _refuse_names(board / "measured", slug, entry)
    _describe(folder / DESCRIPTION, entry)
    written: list[Path] = []
    present: list[Path] = []
    for each in made:
        target = folder / run_name(each.record) / each.path.name
        if target.exists():
            present.append(target)
            continue
        write_observations(target.parent, each)  # first: a record is never without them
        (written if _create(target, record_text(each.record).encode()) else present).append(target)
    return Added(tuple(written), tuple(present), tuple(_doubts(records)))


def _refuse_copies(measured: Path, slug: str, made: Sequence[BoardRecord]) -> None:
    """Raises StsbenchError where the entry would have one run twice, or another entry's run."""
    folder = measured / slug
    runs = {each.name: list(read_run(each).records) for each in run_folders(folder) if any(each.glob("*.json"))}
    for each in made:
        item = as_measured(each.path, each.record, each.observations)
        runs.setdefault(run_name(each.record), []).append(item)
    check_copies([(str(folder / name), records) for name, records in runs.items()])
    others = [entry for entry in sorted(measured.iterdir()) if entry.name != slug] if measured.is_dir() else []
    equal = [each.record.observations.sha256.encode() for each in made]
    equal += [f'"value": {each.record.scores[0].value!r}'.encode() for each in made
              if load_protocol(each.record.protocol.name).main_metric]
    theirs = [(str(entry), path) for entry in others for run in run_folders(entry) for path in sorted(run.glob("*.json"))]
    check_widths([*((path, read_record(path)) for run in run_folders(folder) for path in run.glob("*.json")),
                  *((each.path, each.record) for each in made)])
    _check_decided(made, [*(path for _, path in theirs), *folder.glob("*/*.json")])
    same = [(entry, as_measured(path, read_record(path))) for entry, path in theirs
            if any(map(path.read_bytes().__contains__, equal))]
    mine = [(str(folder), as_measured(each.path, each.record, each.observations)) for each in made]
    refuse_equal([*same, *mine])


def _check_decided(made: Sequence[BoardRecord], there: Sequence[Path]) -> None:
    """Raises StsbenchError where a record's data are not those that the board has under the same digest."""
    for each in made:
        key = each.record.protocol.name, each.record.data.digest
        for path in there:
            if key[1].encode() not in path.read_bytes():
                continue
            known = read_record(path)
            if (known.protocol.name, known.data.digest) == key:
                both = as_measured(path, known), as_measured(each.path, each.record, each.observations)
                check_decided((one.path, one.record, decided(one.protocol, one.observed())) for one in both)
                break


def _refuse_twins(measured: Path, slug: str, records: Sequence[tuple[Path, Record]]) -> None:
    """One encoder is one entry: the same row twice would widen every rank interval."""
    mine = {run_name(record) for _, record in records if has_identity(record.encoder.spec)}
    for other in sorted(measured.iterdir()) if measured.is_dir() else []:
        if other.name != slug and other.is_dir() and (same := mine & {each.name for each in other.iterdir()}):
            raise StsbenchError(f"{other / min(same)} holds this encoder already: add the records to the entry {other.name}")


def _refuse_names(measured: Path, slug: str, entry: Entry | None) -> None:
    """Raises StsbenchError where the new entry would say of itself what another says."""
    if entry is not None and not (measured / slug / DESCRIPTION).exists():
        others = sorted(measured.glob(f"*/{DESCRIPTION}"))
        refuse_equal_names([*((str(path.parent), read_entry(path)) for path in others), (str(measured / slug), entry)])


def _refuse_others(folder: Path, made: Sequence[BoardRecord]) -> None:
    """Raises StsbenchError where a record of that name is there, or named twice, with other content."""
    contents: dict[Path, bytes] = {}
    for each in made:
        target = folder / run_name(each.record) / each.path.name
        mine = record_text(each.record).encode()
        content = target.read_bytes() if target.exists() else mine
        # Boards from before records had a form of their own hold them as they were measured.
        if contents.setdefault(target, content) not in (mine, each.path.read_bytes()):
            raise StsbenchError(
                f"{target} is already there with other content than {each.path}: records are never overwritten"
            )


def described(stated: Mapping[str, Any]) -> Entry | None:
    """The entry that options describe; None where nothing was said. Raises StsbenchError for what is missing or wrong."""
    description = {key: value for key, value in stated.items() if value not in (None, "", ())}
    if not description:
        return None
    if missing := [f"--{name}" for name in ("method", "backbone", "setting") if name not in description]:
        raise StsbenchError(f"a description needs {', '.join(missing)} too")
    try:
        return Entry.model_validate(description)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise StsbenchError(f"--{first['msg'].removeprefix('Value error, ')}") from error
        option = str(first["loc"][0]).replace("_", "-")
        wanted = {"paper": "an address that begins with http:// or https://", "card": "an address or a path",
                  "method": "1 to 80 characters", "backbone": "1 to 80 characters"}
        raise StsbenchError(f"--{option}: {wanted.get(option, first['msg'])}") from error


def _describe(path: Path, entry: Entry | None) -> None:
    """Write entry.yaml, or check that the one there says the same."""
    if entry is None:
        if not path.exists():
            raise StsbenchError(f"{path.parent} is a new entry: say what it is, as in {_AS_IN}")
        read_entry(path)
        return
    stated = {key: value for key, value in entry.model_dump(mode="json").items() if value not in (None, "", [])}
    text = yaml.safe_dump(stated, sort_keys=False, allow_unicode=True, width=120)
    if not create_whole(path, text.encode()) and read_entry(path) != entry:
        raise StsbenchError(f"{path} describes the entry otherwise: leave the description out, or edit that file")


def _create(path: Path, content: bytes) -> bool:
    """Make `path`, whole; False when it is there as it should be. Raises StsbenchError when it is there and differs."""
    if create_whole(path, content):
        return True
    if path.read_bytes() != content:
        raise StsbenchError(f"{path} is already there with other content: records are never overwritten")
    return False


def _doubts(records: Sequence[tuple[Path, Record]]) -> list[str]:
    """What the submitter should think about before publishing: data off the catalog, the sample, paths of this machine."""
    doubts = []
    data = [record.data for _, record in records]
    unknown = sorted({each.id for each in data if not each.known and each.text_version != "own"})
    if unknown:
        doubts.append(f"{', '.join(unknown)}: not the catalog's data; ranked separately from it")
    if any(record.data.text_version == "sample" for _, record in records):
        doubts.append("sample data: a tab of its own, labelled as not comparable with published numbers")
    texts = {json.dumps(record.provenance) + record.data.origin + json.dumps(record.encoder.spec) for _, record in records}
    if any(re.search(r'(?<![\w.])/(home|root|Users|tmp)/', text) for text in texts):
        doubts.append("the records name folders of this machine (command, data or model), which the page will show")
    return doubts
