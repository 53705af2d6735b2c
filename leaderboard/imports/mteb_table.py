"""The table of MTEB's published STS results, made or renewed from a clone of the results repository or from a table of
it."""

from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.leaderboard.mteb.results import FOLDER, SOURCE, TABLE, Score, Source, source_yaml, table_bytes, wanted

from .mteb import REPOSITORY, Import

LICENCE = "CC0-1.0"
NAMES = ("cosine_spearman", "main_score")  # of a score, in the order of preference: mteb prints the same under both
SCHEMA = ("model", "revision", "task", "split", "subset", "metric", "value", "mteb_version", "dataset_revision")


def import_table(board: Path, source: Path, commit: str | None = None, date: str | None = None) -> Import:
    """Write as_published/mteb_sts.tsv.gz and source.yaml of a board; returns which changed.

    source: the clone's folder, or a table with the columns of SCHEMA (.tsv or .tsv.gz). commit, date: of the repository, as
    git says them of a clone; a table needs both. Raises StsbenchError, one line, for whatever is not such a source.
    """
    if source.is_dir():
        scores = list(_of_clone(source))
        commit, date = commit or _git(source, "%H"), date or _git(source, "%cs")
    elif source.is_file():
        scores = list(_of_table(source))
        if not commit or not date:
            raise StsbenchError(f"{source} names no commit: state that of the results repository by --commit and --date")
    else:
        raise StsbenchError(f"{source} is neither a clone of {REPOSITORY} nor a table made of it")
    if not scores:
        raise StsbenchError(f"{source} has no results of MTEB's STS tasks")
    if not re.fullmatch(r"[0-9a-f]{40}", commit) or not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise StsbenchError(f"--commit {commit} --date {date}: 40 hexadecimal digits and YEAR-MONTH-DAY are needed")
    kept = Source(repository=REPOSITORY, commit=commit, date=date, licence=LICENCE, scores=len(scores))
    made = {board / FOLDER / TABLE: table_bytes(scores), board / FOLDER / SOURCE: source_yaml(kept).encode()}
    changed = [path for path, content in made.items() if not path.is_file() or path.read_bytes() != content]
    for path in changed:
        with atomic_write(path, "wb") as stream:
            stream.write(made[path])
    return Import(tuple(changed), tuple(path for path in made if path not in changed), ())


def _of_table(path: Path) -> Iterator[Score]:
    try:
        with (gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")) as stream:
            lines = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            if tuple(lines.fieldnames or ()) != SCHEMA:
                raise StsbenchError(f"{path}: the columns must be {', '.join(SCHEMA)}")
            for line in lines:
                if line["metric"] in NAMES and wanted(line["task"], line["subset"], line["split"]):
                    yield Score(*(line[name] for name in ("model", "revision", "task", "subset", "value", "mteb_version",
                                                          "dataset_revision")))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StsbenchError(f"{path}: {error}") from error


def _of_clone(root: Path) -> Iterator[Score]:
    folder = root / "results" if (root / "results").is_dir() else root
    for path in sorted(folder.glob("*/*/*.json")):
        task = path.stem
        if any(wanted(task, subset, "test") for subset in ("default", "en")):
            yield from _of_file(path, task)


def _of_file(path: Path, task: str) -> Iterator[Score]:
    model, revision = path.parts[-3].replace("__", "/", 1), path.parts[-2]
    try:
        # Numbers stay as they are printed.
        result = json.loads(path.read_text("utf-8"), parse_float=str, parse_int=str)
        version, data = result.get("mteb_version") or "", result.get("dataset_revision") or ""
        if "scores" in result:
            entries = result["scores"].get("test", [])
        else:  # mteb before 1.11: {"test": {"cos_sim": {"spearman": 0.8}}}, or one such object a subset
            version, data = result.get("mteb_version") or "", result.get("mteb_dataset_revision") or data
            entries = _old(result.get("test", {}))
        for entry in entries:
            value = next((entry[name] for name in NAMES if entry.get(name) is not None), None)
            subset = entry.get("hf_subset", "default")
            if value is not None and wanted(task, subset, "test"):
                yield Score(model, revision, task, subset, str(value), str(entry.get("mteb_version") or version), str(data))
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise StsbenchError(f"{path} is not a result file of mteb: {error}") from error


def _old(test: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for subset, scores in ({"default": test} if "cos_sim" in test else test).items():
        if isinstance(scores, dict) and "cos_sim" in scores:
            yield {"hf_subset": subset, "cosine_spearman": scores["cos_sim"]["spearman"]}


def _git(folder: Path, form: str) -> str:
    command = ["git", "-C", str(folder), "log", "-1", f"--format={form}"]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise StsbenchError(f"{folder} is not a git clone: state its commit by --commit and --date") from error
