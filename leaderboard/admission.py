"""What a record must be to stand on a board: unedited, of known origin, on data that are what they are called."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from stsbench.data.catalog import catalog
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation import reread
from stsbench.protocol import Observations
from stsbench.records import Record

MOST_NAMES, LONGEST = 500, 200  # names among the observations, and characters of one: a data set's texts are far more


def check_record(path: Path, record: Record) -> Observations:
    """The record's observations. Raises StsbenchError, naming the file, unless its scores follow from them, and its data
    and provenance hold.
    """
    _check_provenance(path, record)
    _check_encoder(path, record)
    _check_data(path, record)
    try:
        _, _, observations = reread(path, record)
    except ScoreError as error:
        raise StsbenchError(f"{path}: its observations give no score: {error}") from error
    _check_names(path, observations)
    return observations


def _check_provenance(path: Path, record: Record) -> None:
    origin = record.provenance
    versions = origin.get("versions")
    if not isinstance(versions, dict) or not {"stsbench", "numpy"} <= versions.keys():
        raise StsbenchError(f"{path}: its provenance names no versions of stsbench and numpy: measure it with stsbench eval")
    revision = origin.get("git")
    if isinstance(revision, str) and revision.endswith("+changes"):
        raise StsbenchError(
            f"{path} was measured by a checkout with uncommitted changes ({revision[:12]}): nobody can repeat it; commit "
            "them and measure again"
        )
    if record.created.tzinfo is None:
        raise StsbenchError(f"{path}: created: the time has no zone")


def _check_encoder(path: Path, record: Record) -> None:
    """The fingerprint must be that of the spec: it names the record, and the spec is what people read."""
    spec = {key: value for key, value in record.encoder.spec.items() if key != "name"}
    if hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest() != record.encoder.fingerprint:
        raise StsbenchError(f"{path} was edited: the encoder's fingerprint is not that of its spec")


def _check_data(path: Path, record: Record) -> None:
    """A record that calls its data known must carry the digest that the catalog has for them."""
    data = record.data
    if not data.known or data.view in ("sample", "own"):
        return
    item = catalog().entries.get((data.id, data.view))
    if item is None:
        raise StsbenchError(f"{path} calls its data known, but the catalog has no {data.id} in the view {data.view}")
    whole = not record.protocol.settings.get("without_overlap")  # else it is a part of the set
    if whole and item.digest and item.digest != data.digest:
        raise StsbenchError(f"{path} calls its data known, but its digest is not the catalog's for {data.id} ({data.view})")


def _check_names(path: Path, observations: Observations) -> None:
    """Observations are numbers and a few names. Raises StsbenchError where one could be a sentence of the data."""
    for key, array in observations.arrays.items():
        if array.dtype.kind not in "biuf":
            raise StsbenchError(f"{path}: its observations hold something that is no number: {key}")
    for key, names in observations.names.items():
        if key == "task_result":  # mteb's own JSON: scores and settings
            continue
        if len(names) > MOST_NAMES or max(map(len, names), default=0) > LONGEST:
            raise StsbenchError(f"{path}: the observations hold texts ({key}): only numbers and a few names belong")
