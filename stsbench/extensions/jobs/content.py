"""Check that jobs' inputs are unchanged, so that all results in a folder are of the same texts, models and dev data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stsbench.data.fetch import sources
from stsbench.data.own.sets import read_labelled_pairs, read_scored_pairs
from stsbench.encoders.forward.identity import folder_digest
from stsbench.encoders.load import kinds
from stsbench.encoders.transformer.find import backbone_folder, resolve_base
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.plan import user_protocol
from stsbench.evaluation.protocol import load_protocol
from stsbench.extensions.jobs.expand import Job
from stsbench.extensions.jobs.plan_file import OF_FILES, Defaults
from stsbench.extensions.jobs.state import BESIDE, alone
from stsbench.files import atomic_write, sha256_file
from stsbench.parsing import read_json_object
from stsbench.training.recipes.sections import AVG_STS, AVG_STS_SETS, LABELLED_PAIRS, OWN_PAIRS, DataSettings
from stsbench.training.rows.files import SetPlace, training_file

READ = "read.json"  # in .jobs: name of a text, a model or dev data -> digest of its content when jobs read it


def check_read(output: Path, now: Mapping[str, str], used: Collection[str] | None = None) -> None:
    """Store `now`, the digests of inputs by name. Raises StsbenchError for an input of existing results whose digest has
    changed since. used: names of the inputs of results in `output`, None: all."""
    path = output / BESIDE / READ
    with alone(output):
        before = read_json_object(path) if path.is_file() else {}
        for name, digest in now.items():
            if name in before and before[name] != digest and (used is None or name in used):
                raise StsbenchError(
                    f"{name} is not what it was when jobs in {output} read it: put it back, or choose another --output"
                )
        if {**before, **now} != before:
            with atomic_write(path) as stream:
                stream.write(json.dumps({**before, **now}, indent=1) + "\n")


def check_jobs(jobs: Sequence[Job], output: Path, defaults: Defaults) -> None:
    """Check the inputs of a plan's jobs by `check_read`: what jobs that have begun have read must be unchanged."""
    now: dict[str, str] = {}
    used: set[str] = set()
    for job in jobs:
        read = digests(job.reads, [job.backbone] if job.backbone else [], defaults, now)
        read |= {name: digest for name in _tested(job) if (digest := now.get(name) or _file_or_folder(name))}
        now |= read
        used |= read.keys() if job.folder(output).exists() else set()
    check_read(output, now, used)


def _tested(job: Job) -> Iterator[str]:
    """Yield the files and folders that an evaluation names: model, pairs, corpora, and values of options."""
    if job.kind == "eval":
        model = job.words[job.words.index("--model") + 1]
        of_kind = [model.partition(":")[2].partition("?")[0]] if model.partition(":")[0] in kinds() else []
        of_user = (user_protocol(name, {}) for name in job.protocols)
        yield from (model, *of_kind, *(str(protocol.user_path) for protocol in of_user if protocol is not None))
        yield from (value for word, value in pairwise(job.words) if word in OF_FILES)


def digests(
    texts: Iterable[str], models: Iterable[str], defaults: Defaults, known: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return name -> digest of the text or model on this machine, without those that do not exist or are not fetched yet."""
    every = {name: known.get(name) or _text(name, defaults) for name in texts}
    every |= {name: known.get(name) or _model(name) for name in models}
    return {name: digest for name, digest in every.items() if digest is not None}


def dev_digests(by: str, defaults: Defaults) -> dict[str, str]:
    """Return selection.by -> digest of its development data, {} where it needs none. Raises StsbenchError if unreadable."""
    if by in ("held-out", "none"):
        return {}
    if by.startswith((OWN_PAIRS, LABELLED_PAIRS)):
        read = read_scored_pairs if by.startswith(OWN_PAIRS) else read_labelled_pairs
        try:
            return {by: read(Path(by.partition(":")[2]).expanduser()).digest}
        except DataError as error:
            raise StsbenchError(f"no dev data, by which trials are compared: {error}") from error
    named = {"sts-b dev": ["stsb/dev"], AVG_STS: [*AVG_STS_SETS]}
    ids = named[by] if by in named else load_protocol("transfer")({}).tasks().values()
    location = _location(defaults)
    try:
        where: dict[str, Any] = {"data_dir": location.data_dir, "sample": location.sample, "offline": location.offline}
        sets = [sources.load_data(id, **where) for id in ids]
    except DataError as error:
        raise StsbenchError(f"no dev data, by which trials are compared: {error}") from error
    return {by: hashlib.sha256(" ".join(data_set.digest for data_set in sets).encode()).hexdigest()}


def _location(defaults: Defaults) -> SetPlace:
    data_dir = None if defaults.data_dir is None else Path(defaults.data_dir)
    return SetPlace(data_dir, defaults.sample, defaults.offline)


def _text(name: str, defaults: Defaults) -> str | None:
    try:
        return sha256_file(training_file(DataSettings(file=name), "data", replace(_location(defaults), offline=True)))
    except StsbenchError:
        return None


def _file_or_folder(name: str) -> str | None:
    path = Path(name).expanduser()
    return sha256_file(path) if path.is_file() else folder_digest(path) if path.is_dir() else None


def _model(name: str) -> str | None:
    try:
        folder = backbone_folder(name, offline=True)
        base = resolve_base(folder, offline=True)
        return folder_digest(folder, [base] if base else [])
    except StsbenchError:
        return None
