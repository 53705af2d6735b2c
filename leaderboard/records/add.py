"""Adding runs to a board (`leaderboard add`): all records are checked first, and each run is written whole or not at all.

A board stores records in a compact form: arrays that the data determine (such as gold scores) are kept in one file for all
encoders, and the others are rounded where this changes no score.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import ValidationError

from stsbench.comparison.comparability import Measured
from stsbench.comparison.comparability import measured as as_measured
from stsbench.encoders.probe import has_identity
from stsbench.errors import StsbenchError
from stsbench.evaluation.columns import in_steps, observations_digest, split
from stsbench.evaluation.protocol import Observations, load_protocol
from stsbench.evaluation.provenance import merge_overlap
from stsbench.evaluation.records import Observed, Record, ScoreRow, SharedFile, record_name
from stsbench.evaluation.run_file import (
    RUN,
    load_records,
    prompt_runs,
    read_own_observations,
    read_shared,
    shared_bytes,
    tested_seeds,
    write_run,
)
from stsbench.files import create_whole, one_at_a_time

from .admission import check_decided, check_record, check_widths, decided, draw_many
from .board_settings import read_settings
from .copies import refuse_equal
from .entries import (
    DESCRIPTION,
    Entry,
    Prompts,
    check_copies,
    check_prompts,
    check_runs,
    first_records,
    not_prompted,
    read_entry,
    read_run,
    refuse_equal_names,
    run_folders,
    run_name,
)
from .paths import INDEX, records_folder, write_index

MOVED = 5e-7  # the most that rounding may change a score, in its unit: half the tolerance of a record's check
_AS_IN = "--method 'all-MiniLM-L6-v2, mean' --backbone MiniLM-L6 --setting sup --flag nli"  # example of a description


@dataclass(frozen=True)
class BoardRecord:
    """A record in the board's form. path: of the original record; observations: all of them; kept: those stored in its run
    file; shared: the others, stored in a file for all encoders of the data."""

    path: Path
    record: Record
    observations: Observations
    kept: Observations
    shared: Observations


def board_forms(items: list[tuple[Path, Record, Observations]]) -> list[BoardRecord]:
    """Return the records in the board's form. The bootstrap draws that show whether scores change are computed together."""
    rounded = [as_measured(path, record, _rounded(record, observations)) for path, record, observations in items]
    draw_many(rounded)
    return [_form(coarse, observations) for coarse, (_, _, observations) in zip(rounded, items, strict=True)]


def _rounded(record: Record, observations: Observations) -> Observations:
    arrays = observations.arrays
    declared = load_protocol(record.protocol.name).arrays
    coarse = {key: in_steps(array) for key, array in arrays.items()
              if declared[key].rounded and array.dtype == np.float64 and np.isfinite(array).all()}
    return Observations({**arrays, **coarse}, observations.names) if coarse else observations


def _form(coarse: Measured, observations: Observations) -> BoardRecord:
    record, stored = coarse.record, coarse.observed()
    again = coarse.protocol.score(stored, record.data.id, coarse.task)
    if not _largest_difference(again, record.scores) <= MOVED:  # NaN, too
        stored = observations
    kind = type(coarse.protocol)
    decided = [key for declared in (kind.arrays, kind.names) for key, part in declared.items() if part.shared]
    shared, kept = split(stored, decided)
    if not shared.arrays:
        shared, kept = Observations({}), stored
    observed = Observed(sha256=observations_digest(kept))
    if shared.arrays:
        digest = observations_digest(shared)
        name = re.sub(r"[^\w.-]+", "-", f"{record.protocol.name}.{record.data.id}.{digest[:12]}.parquet")
        observed.shared = SharedFile(file=f"../../../observations/{name}", sha256=digest)
    origin = Path(record.data.origin)  # a path on this machine is private: only its last part is kept
    data = record.data.model_copy(update={"origin": origin.name}) if origin.is_absolute() else record.data
    return BoardRecord(coarse.path, record.model_copy(update={"observations": observed, "data": data}), stored, kept, shared)


def _largest_difference(again: list[ScoreRow], stored: list[ScoreRow]) -> float:
    """Return the largest difference between two lists' scores and interval ends; infinite where the rows do not match."""
    if len(again) != len(stored):
        return float("inf")
    numbers = [np.array([[row.value, row.low, row.high] for row in rows], dtype=float) for rows in (again, stored)]
    if (np.isnan(numbers[0]) != np.isnan(numbers[1])).any():
        return float("inf")
    return float(np.nanmax(np.abs(numbers[0] - numbers[1]), initial=0))


@dataclass(frozen=True)
class Added:
    """The result of `add`. written, present: paths of records added, and on the board before; warnings: for publishing."""

    written: tuple[Path, ...]
    present: tuple[Path, ...]
    warnings: tuple[str, ...]


def add(
    board: Path, runs: Sequence[Path], slug: str, entry: Entry | Prompts | None, outside: Path | None = None
) -> Added:
    """Add runs to the entry `slug` of `board`, which `entry` describes when it is new. outside: the folder of the board's
    runs, if not the board's own; their digests are then written into the board's index. Of a study of prompts, an entry of
    prompts takes the runs with prompts.

    All records are checked before the first is written. Additions by several processes wait for each other. A run that is
    on the board gains the records that it lacks; none is overwritten. Raises StsbenchError for what does not fit the board.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]{0,78}[a-z0-9_-])?", slug):
        raise StsbenchError(f"'{slug}' cannot name an entry: use small letters, digits, dots and dashes, at most 80")
    if re.fullmatch(r"(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?", slug):
        raise StsbenchError(f"'{slug}' cannot name an entry: Windows keeps it for a device, and no folder there can have it")
    about = board / "measured" / slug / DESCRIPTION
    is_of = entry if entry is not None or not about.is_file() else read_entry(about)
    records = [item for path in runs for run in _runs(path, isinstance(is_of, Prompts)) for item in load_records(run)]
    if not records:
        raise StsbenchError("no run was named")
    settings = read_settings(board)
    uncommitted = settings is not None and settings.uncommitted
    made = board_forms([(path, record, check_record(path, record, uncommitted=uncommitted)) for path, record in records])
    measured = (outside or board) / "measured"
    folder = measured / slug
    with one_at_a_time(board):
        if outside is None or (board / INDEX).is_file():
            records_folder(board, None if outside is None else str(outside))  # refuses a folder that a build would not read
        if isinstance(is_of, Prompts):
            _check_prompts(board / "measured", measured, is_of.prompt_of, records)
        else:
            check_runs(folder, {**first_records(folder), **{run_name(record): record for _, record in records}})
        _refuse_twins(measured, slug, records)
        _refuse_copies(measured, slug, made, isinstance(is_of, Prompts))
        _refuse_other_content(folder, made)
        _refuse_names(board / "measured", slug, entry)
        _describe(about, entry)
        written = _written(folder, made)
        if outside is not None:
            write_index(board, str(outside))
    targets = [_target(folder, item) for item in made]
    return Added(tuple(written), tuple(path for path in targets if path not in written), tuple(_doubts(records)))


def _runs(path: Path, of_prompts: bool) -> list[Path]:
    """Return the run folders of `path`: those of its prompts, those of its seeds, or itself."""
    behind = prompt_runs(path)
    if behind and not of_prompts:
        raise StsbenchError(f"{path} holds runs behind several prompts: say whose these are, --prompt-of ENTRY")
    return behind or tested_seeds(path) or [path]


def _check_prompts(described: Path, measured: Path, of: str, records: Sequence[tuple[Path, Record]]) -> None:
    """Raise StsbenchError unless the records are of the encoder of the entry `of`, measured with prompts. described: the
    folder of the entries' descriptions; measured: the folder of their runs."""
    path = described / of / DESCRIPTION
    if not path.is_file() or isinstance(read_entry(path), Prompts):
        raise StsbenchError(not_prompted(described, of))
    if not (seeds := first_records(measured / of)):
        raise StsbenchError(f"{measured / of} has no runs: add some before its prompts")
    check_prompts(seeds, {path.parents[1]: record for path, record in records})


def _target(folder: Path, record: BoardRecord) -> Path:
    """Return the path of a record in the entry `folder`: its run file, and the record's name in it."""
    return folder / run_name(record.record) / RUN / record_name(record.record)


def _written(folder: Path, records: Sequence[BoardRecord]) -> list[Path]:
    """Write the records that the entry's runs lack, and return their paths."""
    written: dict[Path, BoardRecord] = {}
    for run in dict.fromkeys(_target(folder, item).parent for item in records):
        there = [record for _, record in load_records(run)] if run.is_file() else []
        known = set(map(record_name, there))
        new = {path: item for item in records if (path := _target(folder, item)).parent == run and path.name not in known}
        if not new:
            continue
        for item in new.values():
            _share(run.parent, item)
        kept = [(record, read_own_observations(run, record)) for record in there]
        write_run(run, [*kept, *((item.record, item.kept) for item in new.values())])
        written |= new
    return list(written)


def _share(folder: Path, record: BoardRecord) -> None:
    """Write a record's shared observations, unless their file exists. Raises StsbenchError if its content differs."""
    if (stored := record.record.observations.shared) is None:
        return
    path = folder / stored.file
    path = path.parent.resolve() / path.name  # resolved, as the path leads through a run folder that may not exist yet
    if path.exists() or not create_whole(path, shared_bytes(record.shared)):
        try:
            read_shared(path, stored.sha256)
        except StsbenchError as error:
            raise StsbenchError(f"{error}; nothing is overwritten: remove that file if it belongs to no record") from error


def _refuse_copies(measured: Path, slug: str, made: Sequence[BoardRecord], of_prompts: bool) -> None:
    """Raise StsbenchError where the entry would have one run twice, or another entry's run. of_prompts: whether its runs
    may be nearly equal, as runs with several prompts are."""
    folder = measured / slug
    runs = {run.name: list(read_run(run).records) for run in run_folders(folder)}
    there = [item for records in runs.values() for item in records]
    for item in made:
        runs.setdefault(run_name(item.record), []).append(as_measured(item.path, item.record, item.observations))
    check_copies([(str(folder / name), records) for name, records in runs.items()], [] if of_prompts else None)
    check_widths([*((item.path, item.record) for item in there), *((item.path, item.record) for item in made)])
    others = [entry for entry in sorted(measured.iterdir()) if entry.name != slug] if measured.is_dir() else []
    stored = [(str(entry), *item) for entry in others for run in run_folders(entry) for item in load_records(run)]
    _check_decided(made, [*((path, record) for _, path, record in stored), *((item.path, item.record) for item in there)])
    digests = {item.record.observations.sha256 for item in made}
    scored = {item.record.scores[0].value for item in made if load_protocol(item.record.protocol.name).main_metric}
    same = [(entry, as_measured(path, record)) for entry, path, record in stored
            if record.observations.sha256 in digests or (record.scores and record.scores[0].value in scored)]
    refuse_equal([*same, *((str(folder), as_measured(item.path, item.record, item.observations)) for item in made)])


def _check_decided(records: Sequence[BoardRecord], stored: Sequence[tuple[Path, Record]]) -> None:
    """Raise StsbenchError where a record's data differ from those of a record on the board with the same data digest."""
    known = {(record.protocol.name, record.data.digest): (path, record) for path, record in reversed(stored)}
    for item in records:
        if first := known.get((item.record.protocol.name, item.record.data.digest)):
            both = as_measured(*first), as_measured(item.path, item.record, item.observations)
            check_decided((one.path, one.record, decided(one.protocol, one.observed())) for one in both)


def _refuse_twins(measured: Path, slug: str, records: Sequence[tuple[Path, Record]]) -> None:
    """Raise StsbenchError where another entry holds one of the encoders: a row twice would widen every rank interval."""
    added = {run_name(record) for _, record in records if has_identity(record.encoder.spec)}
    for other in sorted(measured.iterdir()) if measured.is_dir() else []:
        if other.name != slug and (same := added & {run.name for run in run_folders(other)}):
            raise StsbenchError(f"{other / min(same)} holds this encoder already: add the records to the entry {other.name}")


def _refuse_names(measured: Path, slug: str, entry: Entry | Prompts | None) -> None:
    """Raise StsbenchError where the new entry has the method, backbone and setting of another entry."""
    if entry is not None and not (measured / slug / DESCRIPTION).exists():
        others = [(str(path.parent), read_entry(path)) for path in sorted(measured.glob(f"*/{DESCRIPTION}"))]
        refuse_equal_names((name, stated) for name, stated in [*others, (str(measured / slug), entry)]
                           if isinstance(stated, Entry))


def _refuse_other_content(folder: Path, records: Sequence[BoardRecord]) -> None:
    """Raise StsbenchError where a record has the name of another in `folder` or `records`, and different content."""
    there = {path: record for run in run_folders(folder) for path, record in load_records(run)}
    for item in records:
        if there.setdefault(target := _target(folder, item), item.record) != item.record:
            raise StsbenchError(
                f"{target} is already there with other content than {item.path}: records are never overwritten"
            )


def described(stated: Mapping[str, Any]) -> Entry | Prompts | None:
    """Return the entry that the options describe; None where no option is set. Raises StsbenchError for missing or invalid
    options."""
    description = {"flags" if key == "flag" else key: value for key, value in stated.items() if value not in (None, "", ())}
    if not description:
        return None
    of_prompts = "prompt_of" in description
    if of_prompts and (more := [name for name in description if name not in Prompts.model_fields]):
        options = ", ".join(f"--{'flag' if name == 'flags' else name.replace('_', '-')}" for name in more)
        raise StsbenchError(f"--prompt-of: the other entry has the row, and says {options}: leave that out")
    needed = () if of_prompts else ("method", "backbone", "setting")
    if missing := [f"--{name}" for name in needed if name not in description]:
        raise StsbenchError(f"a description needs {', '.join(missing)} too")
    try:
        return Prompts.model_validate(description) if of_prompts else Entry.model_validate(description)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise StsbenchError(f"--{first['msg'].removeprefix('Value error, ')}") from error
        option = str(first["loc"][0]).replace("_", "-")
        wanted = {"paper": "an address that begins with http:// or https://", "card": "an address or a path",
                  "method": "1 to 80 characters", "backbone": "1 to 80 characters"}
        raise StsbenchError(f"--{option}: {wanted.get(option, first['msg'])}") from error


def _describe(path: Path, entry: Entry | Prompts | None) -> None:
    """Write entry.yaml. Raises StsbenchError where the existing file differs, or a new entry has no description."""
    if entry is None:
        if not path.exists():
            raise StsbenchError(f"{path.parent} is a new entry: say what it is, as in {_AS_IN}")
        read_entry(path)
        return
    stated = {key: value for key, value in entry.model_dump(mode="json", by_alias=True).items()
              if value not in (None, "", [], {})}
    text = yaml.safe_dump(stated, sort_keys=False, allow_unicode=True, width=120)
    if not create_whole(path, text.encode()) and read_entry(path) != entry:
        raise StsbenchError(f"{path} describes the entry otherwise: leave the description out, or edit that file")


def _doubts(records: Sequence[tuple[Path, Record]]) -> list[str]:
    """Return a sentence for each thing to consider before publishing: data outside the catalog, the sample, paths of this
    machine, texts shared with test sets."""
    doubts = []
    data = [record.data for _, record in records]
    for whose, other in (("the catalog's data", False), ("as many pairs as mteb counts", True)):
        unknown = sorted({part.id for part in data if not part.known and (part.text_version == "own") == other})
        if unknown:
            doubts.append(f"{', '.join(unknown)}: not {whose}; ranked separately")
    if any(record.data.text_version == "sample" for _, record in records):
        doubts.append("sample data: a tab of its own, labelled as not comparable with published numbers")
    texts = {json.dumps(record.provenance) + record.data.origin + json.dumps(record.encoder.spec) for _, record in records}
    if any(re.search(r'(?<![\w.])/(home|root|Users|tmp)/', text) for text in texts):
        doubts.append("the records name folders of this machine (command, data or model), which the page will show")
    overlap = merge_overlap(record for _, record in records)
    flagged = "flagged 'shares test texts' in the tabs of these sets: " if overlap.shared else ""
    return [*doubts, *(f"{flagged if number < len(overlap.shared) else ''}{line}"
                       for number, line in enumerate(overlap.sentences()))]
