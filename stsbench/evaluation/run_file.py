"""Run files: one Parquet file with the records of a run and their observations, a row for each record, in order.

Columns: `name`; `created`; `encoder`, `protocol`, `data`, `counts` and `provenance`, each a JSON text; `scores`, a list of
the fields of ScoreRow; `observations`, digests as a JSON text; and the columns of `stsbench.evaluation.columns`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from stsbench.display.tabular import InFolder
from stsbench.errors import StsbenchError
from stsbench.evaluation import columns
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import Record, ScoreRow, check_json, parsed, record_name, validated
from stsbench.files import atomic_write, leftover
from stsbench.registry import names, resolve

RUN = "run.parquet"
READERS = "stsbench.run_readers"  # entry points: functions of a path that return the runs made of another tool's results
RUN_FORM, SHARED_FORM = b"run 1", b"observations 1"
_TEXTS = ("encoder", "protocol", "data", "observations", "counts", "provenance")  # JSON
_RECORD = ("name", "created", *_TEXTS, "scores")
_NAME = re.compile(r"[\w.-]{1,1000}")
_MOST_KEPT = 32_000_000  # bytes; a larger table is not kept in memory for the next record
Item = tuple[Record, Observations]  # a record and its observations


def run_folder(run: str | Path | InFolder) -> Path:
    """Return the folder of a run. Raises StsbenchError for what is neither a path nor has a `folder`."""
    folder = run if isinstance(run, str | Path) else getattr(run, "folder", None)
    if folder is None:
        raise StsbenchError(f"a run is a folder, or what made it, not of type {type(run).__name__}")
    return Path(folder)


def write_run(path: Path, items: Sequence[Item]) -> None:
    """Write the run file `path`, whole or not at all. Raises StsbenchError where a record is not valid."""
    content = run_bytes(items, path)
    with atomic_write(path, "wb") as stream:
        stream.write(content)


def run_bytes(items: Sequence[Item], path: Path) -> bytes:
    """Return the content of a run file. Raises StsbenchError, naming `path`, where a record is not valid."""
    import pyarrow as pa

    for record, _ in items:
        try:
            parsed(record.model_dump_json())  # a record may have been changed since: a score of NaN would be written as null
        except ValueError as error:
            name = record_name(record)
            raise StsbenchError(f"{path}: not written, since {name} is not a valid record: {error}") from error
    dumped = [record.model_dump(mode="json") for record, _ in items]
    made = {"name": pa.array([record_name(record) for record, _ in items], pa.string()),
            "created": pa.array([record["created"] for record in dumped], pa.string())}
    texts = {key: [json.dumps(record[key], ensure_ascii=False) for record in dumped] for key in _TEXTS}
    made |= {key: pa.array(listed, pa.string()) for key, listed in texts.items()}
    made["scores"] = pa.array([record["scores"] for record in dumped], _score_type())
    try:
        return columns.packed({**made, **columns.to_columns([observed for _, observed in items])}, RUN_FORM)
    except ValueError as error:
        raise StsbenchError(f"{path}: not written: {error}") from error


def _score_type() -> Any:
    import pyarrow as pa

    types = {"value": pa.float64(), "low": pa.float64(), "high": pa.float64(), "n": pa.int64()}
    return pa.list_(pa.struct([pa.field(name, types.get(name, pa.string())) for name in ScoreRow.model_fields]))


def run_file(run: str | Path) -> Path:
    """Return the path of the run file of a run: `run` itself, or the file in a run folder, or in eval/ of a training's
    folder. Raises StsbenchError where there is none."""
    folder = Path(run)
    if folder.name == RUN and folder.is_file():
        return folder
    if folder.is_file():
        raise StsbenchError(f"{folder} is a file: name the run folder, which holds a {RUN}")
    if not folder.is_dir():
        raise StsbenchError(
            f"{folder} is not a run folder: no such folder; a model is measured first: stsbench eval --model {folder} "
            f"--output runs/NAME (load_encoder({str(folder)!r}) loads it)"
        )
    if (folder / "begun.json").is_file() and (folder / "eval").is_dir():
        folder = folder / "eval"
    if not (folder / RUN).is_file():
        if trained := _trained(folder):
            raise StsbenchError(f"{folder} is a run of `stsbench train`, and holds no records itself: {trained}")
        raise StsbenchError(f"{folder} is not a run folder: it holds no {RUN}")
    return folder / RUN


def load_records(run: str | Path) -> list[tuple[Path, Record]]:
    """Return every record of a run (`run_file`), in the order of measuring, each with the path RUN/run.parquet/NAME.

    Raises StsbenchError, naming the file and the record, for a file that is damaged or whose records are not valid.

    >>> from stsbench import evaluate, load_records
    >>> result = evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0)
    >>> [(record.data.id, record.data.n, record.counts) for _, record in load_records(result.folder)]
    [('stsb/test', 42, {'zero_vectors': 0, 'truncated': 0})]
    """
    import pyarrow as pa

    path = run_file(run)
    with _naming(path):
        table = columns.opened(path, RUN_FORM, (*_RECORD, columns.LAYOUT)).read(columns=list(_RECORD), use_threads=False)
        for name in _RECORD:
            if table.schema.field(name).type != (_score_type() if name == "scores" else pa.string()):
                raise ValueError(f"its column {name} does not hold {'lists of scores' if name == 'scores' else 'texts'}")
            if table.column(name).null_count:
                raise ValueError(f"its column {name} has empty cells")
        rows = table.to_pylist()
        if not all(_NAME.fullmatch(row["name"]) for row in rows):
            raise ValueError("a name is not that of a record")
    if len({row["name"] for row in rows}) < len(rows):
        raise StsbenchError(f"{path} holds two records of one name")
    if not rows:
        raise StsbenchError(f"{path} holds no records")
    return [(path / row["name"], _record(path, row)) for row in rows]


def _record(path: Path, row: dict[str, Any]) -> Record:
    parts = ['"created": ' + json.dumps(row["created"]), *(f'"{key}": {row[key]}' for key in _TEXTS)]
    try:
        for key in _TEXTS:
            try:  # each text is parsed by itself, so that none can add fields outside of its own
                check_json(row[key])
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error
        record = validated(f'{{{", ".join(parts)}, "scores": {json.dumps(row["scores"])}}}')
    except ValueError as error:
        raise StsbenchError(f"{path / row['name']} is not a valid record: {_line(error)}") from error
    if record_name(record) != row["name"]:
        raise StsbenchError(f"{path / row['name']} was edited: its name does not fit what it says was measured")
    return record


def read_observations(run: str | Path, record: Record) -> Observations:
    """Return the observations of a record in a run (`run_file`). Raises StsbenchError, naming the file, where it is damaged
    or their digest is not the record's."""
    observations = read_own_observations(run, record)
    if (stored := record.observations.shared) is None:
        return observations
    path = run_file(run)
    shared = read_shared(path.parent / stored.file, stored.sha256)
    with _naming(path):
        return columns.joined(shared, observations)


def read_own_observations(run: str | Path, record: Record) -> Observations:
    """Return the observations as `read_observations` does, without those in a shared file."""
    path = run_file(run)
    rows, table = _observed(path, _stamp(path))
    if table.nbytes > _MOST_KEPT:
        _observed.cache_clear()
    name = record_name(record)
    with _naming(path):
        if name not in rows:
            raise ValueError(f"it holds no record {name}")
        observations = columns.unpacked(table, rows[name])
    if columns.observations_digest(observations) != record.observations.sha256:
        raise StsbenchError(f"{path}: the observations of {name} are not what the record names (sha256 differs): damaged or "
                            "replaced")
    return observations


def read_shared(path: Path, digest: str) -> Observations:
    """Return the observations in a file of `shared_bytes`. Raises StsbenchError, naming the file, where it is damaged or has
    another digest."""
    path = path.resolve()
    shared = _shared(path, digest, _stamp(path))
    if sum(array.nbytes for array in shared.arrays.values()) > _MOST_KEPT // 16:
        _shared.cache_clear()
    return shared


def shared_bytes(observations: Observations) -> bytes:
    """Return the content of a file of observations that records share. Raises StsbenchError where it could not be read."""
    try:
        return columns.packed(columns.to_columns([observations]), SHARED_FORM)
    except ValueError as error:
        raise StsbenchError(f"observations cannot be written: {error}") from error


def _stamp(path: Path) -> tuple[int, int]:
    """Return a file's time and size, which change with its content. Raises StsbenchError for a missing file."""
    try:
        status = path.stat()
    except OSError:
        raise StsbenchError(f"{path} is missing: scores cannot be recomputed") from None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)  # few, as a table takes some megabytes and records are read one run after another
def _observed(path: Path, stamp: tuple[int, int]) -> tuple[dict[str, int], Any]:
    """Return record name -> row number, and the table of observations, of a run file."""
    with _naming(path):
        table = columns.whole_table(columns.opened(path, RUN_FORM, (*_RECORD, columns.LAYOUT)))
        names = table.column("name").to_pylist()
        table = table.drop_columns(list(_RECORD))
        columns.check_columns(table)
    return {name: row for row, name in enumerate(names)}, table


@lru_cache(maxsize=64)  # thousands of records share the files of a few dozen sets
def _shared(path: Path, digest: str, stamp: tuple[int, int]) -> Observations:
    with _naming(path):
        table = columns.whole_table(columns.opened(path, SHARED_FORM))
        columns.check_columns(table)
        if len(table) != 1:
            raise ValueError(f"it has {len(table)} rows")
        shared = columns.unpacked(table, 0)
    if columns.observations_digest(shared) != digest:
        raise StsbenchError(f"{path} does not hold what its record names (sha256 differs): damaged or replaced")
    for array in shared.arrays.values():
        array.flags.writeable = False
    return shared


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn any error that pyarrow and numpy raise for a damaged file into a StsbenchError that names the file."""
    try:
        yield
    except StsbenchError:
        raise
    except Exception as error:  # pyarrow has its own kinds of errors, and passes on numpy's
        if isinstance(error, OSError) and error.errno is not None:  # pyarrow's OSError for a damaged file has no errno
            raise StsbenchError(f"{path} cannot be read: {_line(error)}") from error
        kind = "run file" if path.name == RUN else "file of observations"
        raise StsbenchError(f"{path} is not a valid {kind}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def runs_below(folder: Path, *patterns: str) -> list[Path]:
    """Return the run folders below `folder` that match the patterns, without incomplete ones that a killed process left."""
    files = (path for pattern in patterns for path in folder.glob(f"{pattern}/{RUN}" if pattern else RUN))
    return sorted({path.parent for path in files if not leftover(path.parent)})


def tested_seeds(folder: Path) -> list[Path]:
    """Return the tested training runs in a folder of `stsbench train --seeds`; [] for any other folder."""
    if not (folder / "seeds.json").is_file():
        return []
    return sorted(path.parents[1] for path in folder.glob(f"seed-*/eval/{RUN}"))


def prompt_runs(folder: Path) -> list[Path]:
    """Return the runs of a prompt study's folder, one for each prompt, without those of the default prompt and the controls;
    [] for any other folder."""
    return sorted(path.parent for path in folder.glob(f"*-prompt/{RUN}") if path.parent.name.partition("-")[0].isdigit()
                  and not path.parent.name.endswith(("-no-prompt", "-neutral-prompt")))


def run_folders(side: Any) -> list[Path]:
    """Return the run folders of one side of a comparison: a run folder, a folder of runs (an entry of the leaderboard, a
    training with several seeds), several of them separated by commas or in a list, or what `evaluate` returned. Raises
    StsbenchError for the name of a leaderboard entry that is not a path."""
    if isinstance(side, list | tuple):
        # A Path in a list is a run: `compare` accepts what this function returned, and refuses a run that is listed twice.
        return [run for part in side for run in ([part] if isinstance(part, Path) else run_folders(part))]
    folder = Path(getattr(side, "folder", side))
    text = str(folder)
    runs: list[Path] = []
    for name in [folder] if folder.exists() or "," not in text else [Path(name.strip()) for name in text.split(",")]:
        if not name.exists() and (entry := Path("leaderboard/measured") / name).is_dir():
            raise StsbenchError(f"{name} is not a run folder: no such folder; the board's entry is {entry}")
        if seeds := tested_seeds(name):
            runs += seeds
        elif (name / "eval" / RUN).is_file():
            runs.append(name / "eval")
        elif (name / RUN).is_file():
            runs.append(name)
        else:
            of_other_tools = filter(None, (resolve(READERS, reader)(name) for reader in names(READERS)))
            runs += runs_below(name, "*") or next(of_other_tools, [name])
    return list(dict.fromkeys(runs))


def _trained(folder: Path) -> str:
    """Return a hint on where the records of a training's folder are, or how to get them; "" for any other folder."""
    if (folder / "begun.json").is_file():
        return f"stsbench eval --model {folder / 'best'} --output {folder / 'eval'} gives some"
    if any((folder / f"{name}.json").is_file() for name in ("seeds", "subsets")):
        tested = sorted(path.parent for path in folder.glob("**/seed-*/eval") if path.is_dir())
        return f"name the run of one seed, as {tested[0]}" if tested else "its seeds were not tested"
    return ""
