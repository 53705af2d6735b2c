"""Import of mteb's result files of the STS tasks: one model's as an unchecked, unranked row, or all models' as one table.

The files are parsed here, not by `mteb.TaskResult`, because importing mteb loads torch. The format is that of mteb 1.11 and
later: a JSON object with `task_name`, `dataset_revision`, `mteb_version` and `scores`: split -> list of objects by subset.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import subprocess
import tempfile
import urllib.error
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from pydantic import BaseModel, ValidationError

from stsbench.data.fetch.download import download
from stsbench.errors import DataError, StsbenchError
from stsbench.files import atomic_write, create_whole, sha256_file
from stsbench.leaderboard.mteb.results import (
    FACTS,
    HOLD_SENTENCES,
    MODELS,
    SOURCE,
    TABLE,
    TASKS,
    TRAINING,
    Score,
    Source,
    is_ranked,
    kin_of_tasks,
    source_yaml,
    table_bytes,
)
from stsbench.leaderboard.mteb.results import FOLDER as AS_PUBLISHED
from stsbench.leaderboard.records.admission import first_problem
from stsbench.parsing import read_json, read_json_object

from .section import FOLDER, Correlation, Imported, ImportedTask, as_yaml

META = "model_meta.json"
MODEL = re.compile(r"[\w.-]+/[\w.-]+")
LICENCE = "CC0-1.0"
LICENCES = {"mit": "MIT", "apache-2.0": "Apache-2.0", "cc-by-nc-4.0": "CC-BY-NC-4.0", "cc-by-nc-sa-4.0": "CC-BY-NC-SA-4.0",
            "not specified": None}
# The languages of the board's tables: mteb's codes -> two-letter codes, where ISO 639 has them.
SHORT = {
    "afr": "af", "amh": "am", "ara": "ar", "arb": "ar", "arq": "arq", "ary": "ary", "cmn": "zh", "deu": "de",
    "eng": "en", "fra": "fr", "hau": "ha", "hin": "hi", "ind": "id", "ita": "it", "jpn": "ja", "kin": "rw", "kor":
    "ko", "mar": "mr", "nld": "nl", "pol": "pl", "por": "pt", "rus": "ru", "spa": "es", "tel": "te", "tur": "tr",
    "zho": "zh",
}
NAMES = ("cosine_spearman", "main_score")  # names of a score, preferred first: mteb prints the same under both
SCHEMA = ("model", "revision", "task", "split", "subset", "metric", "value", "mteb_version", "dataset_revision")


@dataclass(frozen=True)
class Import:
    """The result of an import. written: new files; present: existing files of equal results; notes: what was left out."""

    written: tuple[Path, ...]
    present: tuple[Path, ...]
    notes: tuple[str, ...]


class _Scores(BaseModel):
    hf_subset: str
    cosine_spearman: Correlation
    cosine_pearson: Correlation


class _Result(BaseModel):
    task_name: str
    dataset_revision: str
    mteb_version: str | None = None
    scores: dict[str, list[dict[str, Any]]]


def import_results(board: Path, source: str, name: str | None = None, revision: str | None = None) -> Import:
    """Import the STS results of `source` (a result file, a folder of them, or a model's name) into the board's imported/.

    All files are read and checked before the first is written. Raises StsbenchError, naming the file, for what is not a
    result of mteb, for several revisions of one model unless `revision` chooses one, and where the board holds other results
    of that model.
    """
    with _located(source, revision) as (folder, address):
        groups = _groups(folder, name, revision)
        if not groups:
            raise StsbenchError(f"{source} has no results of mteb's STS tasks ({', '.join(TASKS)}): nothing to import")
        left_out: list[str] = []
        made = [_imported(model, paths, address, left_out) for model, paths in groups.items()]
    written: list[Path] = []
    present: list[Path] = []
    targets = [(board / FOLDER / imported.file, as_yaml(imported).encode()) for imported in made if imported is not None]
    if not targets:
        raise StsbenchError(f"{source}: nothing to import: {'; '.join(left_out)}")
    for path, content in targets:
        if path.exists() and path.read_bytes() != content:
            raise StsbenchError(f"{path} holds other results of this model: delete it to import these")
    for path, content in targets:
        (written if create_whole(path, content) else present).append(path)
    return Import(tuple(written), tuple(present), tuple(left_out))


@contextmanager
def _located(source: str, revision: str | None) -> Iterator[tuple[Path, str]]:
    """Yield (file or folder, address): `source` itself with "", or the results repository's files of a model, downloaded."""
    path = Path(source)
    if path.exists():
        yield path, ""
    elif MODEL.fullmatch(source):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder), fetch_results(source, list(TASKS), revision, Path(folder))
    else:
        raise StsbenchError(f"{source} is neither a file or folder nor the name of a model, such as org/model")


def _groups(root: Path, name: str | None, revision: str | None) -> dict[tuple[str, str], list[Path]]:
    """Return (model, revision) -> result files, in TASKS' order. Raises StsbenchError for several revisions of a model."""
    if root.is_file():
        paths = [root]
    else:
        paths = [path for task in TASKS for path in sorted(root.rglob(f"{task}.json")) if "experiments" not in path.parts]
    groups: dict[tuple[str, str], list[Path]] = {}
    for path in paths:
        whose = _model_and_revision(path, name)
        if revision is None or whose[1] == revision:
            groups.setdefault(whose, []).append(path)
    models = [model for model, _ in groups]
    for model in models:
        if models.count(model) > 1:
            listed = ", ".join(sorted(candidate for other, candidate in groups if other == model))
            raise StsbenchError(f"{root} has several revisions of {model}: choose one with --revision ({listed})")
    for whose, files in groups.items():
        if len({path.name for path in files}) < len(files):
            raise StsbenchError(f"{root} has two files of one task of {whose[0]}: name the folder of one revision")
    return groups


def _model_and_revision(path: Path, name: str | None) -> tuple[str, str]:
    """Return (model, revision) of a result file, from model_meta.json beside it or the folders ORG__MODEL/REVISION above."""
    meta = path.parent / META
    stated = read_json_object(meta) if meta.is_file() else {}
    folders = path.resolve().parts[-3:-1]
    laid_out = "__" in folders[0] if len(folders) == 2 else False
    model = name or stated.get("name") or (folders[0].replace("__", "/", 1) if laid_out else None)
    if not isinstance(model, str) or not MODEL.fullmatch(model):
        raise StsbenchError(f"{path}: nothing says which model's result this is: name it with --name ORG/MODEL")
    revision = stated.get("revision") or (folders[1] if laid_out else None)
    return model, str(revision or "unknown")


def _imported(whose: tuple[str, str], paths: Sequence[Path], address: str, notes: list[str]) -> Imported | None:
    """Return the results of one model; None, with lines added to `notes`, if no file has test scores on MTEB's data."""
    tasks = [task for path in paths if (task := _task(path, notes))]
    model, revision = whose
    if not tasks:
        return None
    try:
        return Imported(tool="mteb", model=model, revision=revision, source=address, tasks=tuple(tasks))
    except ValidationError as error:
        raise StsbenchError(f"{paths[0]}: {first_problem(error)}") from error


def _task(path: Path, notes: list[str]) -> ImportedTask | None:
    try:
        result = _Result.model_validate(read_json_object(path))
    except ValidationError as error:
        raise StsbenchError(f"{path} is not a result file of mteb 1.11 or later: {first_problem(error)}") from error
    if result.task_name not in TASKS:
        raise StsbenchError(f"{path} is of {result.task_name}: imported are {', '.join(TASKS)}")
    if not re.fullmatch(r"[0-9a-f]{40}", result.dataset_revision):
        notes.append(f"{path.name} left out: it names no revision of MTEB's data ({result.dataset_revision})")
        return None
    subsets = [subset for subset in result.scores.get("test", []) if subset.get("hf_subset") == "default"]
    if len(subsets) != 1:
        notes.append(f"{path.name} left out: it has no scores of the test split")
        return None
    try:
        scores = _Scores.model_validate(subsets[0])
        return ImportedTask.model_validate({
            "task": result.task_name, "cosine_spearman": scores.cosine_spearman, "cosine_pearson": scores.cosine_pearson,
            "dataset_revision": result.dataset_revision, "mteb_version": result.mteb_version, "sha256": sha256_file(path),
        })
    except ValidationError as error:
        raise StsbenchError(f"{path}: {first_problem(error)}") from error


REPOSITORY = "https://github.com/embeddings-benchmark/results"
LISTING = "https://api.github.com/repos/embeddings-benchmark/results/contents/results"
FILES = "https://raw.githubusercontent.com/embeddings-benchmark/results/main/results"
MOST = 4_000_000  # the most bytes of a file; results of STS tasks have about 1,000


def fetch_results(model: str, tasks: Sequence[str], revision: str | None, folder: Path) -> str:
    """Download the results of `model` on `tasks` from the repository to `folder`/ORG__MODEL/REVISION/TASK.json.

    revision: None for all revisions of the model. Returns the address of the model's folder as a web page. Raises
    StsbenchError for an unknown model or revision, DataError where the network fails.
    """
    name = model.replace("/", "__")
    listed = folder / "listing.json"
    if not _fetched(f"{LISTING}/{quote(name)}", listed):
        raise StsbenchError(f"mteb's results repository ({REPOSITORY}) has no model {model}")
    revisions = _folders(listed)
    listed.unlink()
    if revision is not None and revision not in revisions:
        raise StsbenchError(f"the results repository has no revision {revision} of {model}; it has {', '.join(revisions)}")
    for version in revisions if revision is None else [revision]:
        for task in tasks:
            path = f"{name}/{version}/{task}.json"
            _fetched(f"{FILES}/{quote(path)}", folder / path)
    return f"{REPOSITORY}/tree/main/results/{name}"


def _folders(listing: Path) -> list[str]:
    answer = read_json(listing)
    if not isinstance(answer, list) or not all(isinstance(entry, dict) for entry in answer):
        raise StsbenchError(f"{LISTING} answered with something that is not a list of folders")
    names = [str(entry.get("name")) for entry in answer if entry.get("type") == "dir"]
    return sorted(name for name in names if "/" not in name and not name.startswith("."))


def _fetched(url: str, target: Path) -> bool:
    """Download `url` to `target` and return True; False where the server has no such file."""
    try:
        download(url, target, limit=MOST)
    except DataError as error:
        if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code == 404:
            return False
        raise
    return True


def import_table(board: Path, source: Path, commit: str | None = None, date: str | None = None) -> Import:
    """Write as_published/mteb_sts.tsv.gz, source.yaml, training.yaml and models.yaml of a board; return which changed.

    source: the clone's folder, or a table with the columns of SCHEMA (.tsv or .tsv.gz). commit, date: of the repository, by
    default those of the clone; required for a table. Raises StsbenchError for any other source.
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
    folder, models = board / AS_PUBLISHED, {score.model for score in scores}
    made = {folder / TABLE: table_bytes(scores), folder / SOURCE: source_yaml(kept).encode(),
            folder / TRAINING: declared_training(models), folder / MODELS: model_facts(models)}
    changed = [path for path, content in made.items() if not path.is_file() or path.read_bytes() != content]
    for path in changed:
        with atomic_write(path, "wb") as stream:
            stream.write(made[path])
    return Import(tuple(changed), tuple(path for path in made if path not in changed), ())


def declared_training(models: Collection[str]) -> bytes:
    """Return the content of training.yaml: model -> its training sets that hold pairs of the seven tasks, for those of
    `models` whose training sets mteb's registry knows."""
    import mteb

    known = {meta.name: meta.get_training_datasets() for meta in mteb.get_model_metas() if meta.name in models}
    declared = {name: kin_of_tasks(sets) for name, sets in sorted(known.items()) if sets is not None}
    about = (f"# What mteb {mteb.__version__} knows of the models' training sets: those that hold pairs of the seven tasks, "
             "in any split.\n# Of a model that is not here nothing is known. Written by `stsbench leaderboard import mteb "
             "--all-models`.\n")
    return (about + yaml.safe_dump(declared, default_flow_style=None, width=120, allow_unicode=True)).encode()


def model_facts(models: Collection[str]) -> bytes:
    """Return the content of models.yaml: model -> FACTS, for those of `models` that mteb's registry has."""
    import mteb

    facts = {meta.name: _facts(meta) for meta in mteb.get_model_metas() if meta.name in models}
    lines = [f"{name}: {yaml.safe_dump(stated, default_flow_style=True, width=math.inf, sort_keys=False)}"
             for name, stated in sorted(facts.items())]
    return (f"# What mteb {mteb.__version__} knows of the models, in the terms of mteb/results.py. Written by\n"
            f"# `stsbench leaderboard import mteb --all-models`.\n{''.join(lines) or '{}'}").encode()


def _facts(meta: Any) -> dict[str, Any]:
    """Return the FACTS of one model that mteb's registry knows."""
    codes = {code.partition("-")[0] for code in meta.languages or ()}
    width = meta.embed_dim
    facts = {
        "licence": LICENCES.get(str(meta.license), meta.license),
        "released": meta.release_date and str(meta.release_date)[:7],
        "parameters": meta.n_parameters, "width": max(width) if isinstance(width, list) else width,
        "max_tokens": meta.max_tokens and (int(meta.max_tokens) if math.isfinite(meta.max_tokens) else "no limit"),
        "weights_mb": meta.memory_usage_mb and round(meta.memory_usage_mb * 2**20 / 1e6), "open": meta.open_weights,
        "languages": sorted({SHORT[code] for code in codes & SHORT.keys()}), "languages_n": len(codes) or None,
        "card": None if meta.reference == f"https://huggingface.co/{meta.name}" else meta.reference,
        "holds": sorted({*HOLD_SENTENCES} & {*(meta.get_training_datasets() or ())}),
    }
    return {name: facts[name] for name in FACTS if facts[name] not in (None, [])}


def _of_table(path: Path) -> Iterator[Score]:
    try:
        with (gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")) as stream:
            lines = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            if tuple(lines.fieldnames or ()) != SCHEMA:
                raise StsbenchError(f"{path}: the columns must be {', '.join(SCHEMA)}")
            for line in lines:
                if line["metric"] in NAMES and is_ranked(line["task"], line["subset"], line["split"]):
                    yield Score(*(line[name] for name in ("model", "revision", "task", "subset", "value", "mteb_version",
                                                          "dataset_revision")))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StsbenchError(f"{path}: {error}") from error


def _of_clone(root: Path) -> Iterator[Score]:
    folder = root / "results" if (root / "results").is_dir() else root
    for path in sorted(folder.glob("*/*/*.json")):
        task = path.stem
        if any(is_ranked(task, subset, "test") for subset in ("default", "en")):
            yield from _of_file(path, task)


def _of_file(path: Path, task: str) -> Iterator[Score]:
    model, revision = path.parts[-3].replace("__", "/", 1), path.parts[-2]
    try:
        # Numbers are kept as text, as they are printed.
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
            if value is not None and is_ranked(task, subset, "test"):
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
