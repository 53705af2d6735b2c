"""Checks of a record before it is admitted to a board: it is unedited, its provenance known, and its data are as named.

Parts of a record's observations follow from the data alone (gold answers, items, subsets), and their digests are known: a
record with the name of a catalog's set and other digests was not measured on it. Digests suffice, as the data are licensed.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import ValidationError

from stsbench.comparison.comparability import Measured
from stsbench.data.sets.catalog import BY_ID, catalog
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.measure import RESAMPLES, SEED, drawn_with
from stsbench.evaluation.protocol import Observations, Protocol
from stsbench.evaluation.provenance import why_not_repeatable
from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import reread
from stsbench.evaluation.run_file import load_records
from stsbench.files import atomic_write
from stsbench.metrics.similarity import SIMILARITIES
from stsbench.wording import format_counts, visible

from .paths import EXPECTED

HEAD = """\
# Protocol -> set -> part -> sha256 of what SentEval's data decide of a record's observations, as each protocol declares it
# (`Protocol.decided`). Written from runs that are known to be honest; again, for a new set or protocol:
# python -c "from stsbench.leaderboard.records.admission import learn; learn(['RUN', 'RUN'])"
"""
Digests = dict[str, dict[str, dict[str, str]]]
# Invisible characters besides control and format characters: Unicode's default ignorable ones, and Braille's blank.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
EMOJI = "\ufe0f"  # chooses the coloured form of the character before it
MOST_MARKS = 4  # the most accents over one letter
FIRST = datetime(2020, 1, 1, tzinfo=UTC)  # no record is older
LONGEST_NAME, LONGEST_TEXT = 300, 5000  # characters: of an encoder, a task, a set; of a template, an argument of a command
MOST_NAMES, LONGEST = 500, 200  # names among the observations, and characters of a name; texts of data have more


def decided(protocol: Protocol, observations: Observations) -> dict[str, str]:
    """Return name -> sha256 (hex) of the parts of the observations that the data determine, by the protocol."""
    return {part: _sha(values) for part, values in protocol.decided(observations).items()}


def comparable(record: Record) -> bool:
    """Return whether a record claims to be of a whole set of the catalog in SentEval's text, for which digests are known."""
    whole = not record.protocol.settings.get("without_overlap")
    return record.data.known and record.data.text_version == "senteval" and whole


def unexpected(protocol: Protocol, record: Record, observations: Observations) -> str:
    """Return the name of the first part whose digest is not that of the record's data; "" where all are right or no digests
    are known."""
    if not comparable(record):
        return ""
    known = expected().get(record.protocol.name, {}).get(record.data.id, {})
    return next((part for part, sha in decided(protocol, observations).items() if known.get(part, sha) != sha), "")


@cache
def expected() -> Digests:
    """Return the digests of expected.yaml, which is part of the package. The file is read once."""
    digests: Digests = yaml.safe_load(EXPECTED.read_text("utf-8"))
    return digests


def learn(runs: Iterable[str | Path], path: Path = EXPECTED) -> None:
    """Write the digests of trusted run folders to `path`. Raises StsbenchError, naming the file, where two runs disagree."""
    digests: Digests = {}
    for folder in map(Path, runs):
        for file, record in load_records(folder):
            if not comparable(record):
                continue
            protocol, _, observations = reread(file, record)
            parts = digests.setdefault(record.protocol.name, {}).setdefault(record.data.id, {})
            for part, sha in decided(protocol, observations).items():
                if parts.setdefault(part, sha) != sha:
                    raise StsbenchError(f"{file}: its {part} of {record.data.id} is not that of a run before")
    kept = {name: sets for name, sets in digests.items() if any(sets.values())}
    with atomic_write(path) as stream:
        stream.write(HEAD + yaml.safe_dump(kept, sort_keys=True, width=125))


def _sha(values: Iterable[NDArray[Any] | Sequence[str]]) -> str:
    """Return the sha256 (hex) of arrays, as shape and little-endian numbers of eight bytes, and of lists of names."""
    digest = hashlib.sha256()
    for part in values:
        if isinstance(part, np.ndarray):
            kind = "u" if part.dtype.kind == "b" else part.dtype.kind  # no boolean has eight bytes
            fixed = np.ascontiguousarray(part, dtype=f"<{kind}8")
            digest.update(f"{fixed.dtype.str}{fixed.shape}".encode())
            digest.update(fixed.tobytes())
        else:
            digest.update("\0".join(part).encode())
    return digest.hexdigest()


def check_record(
    path: Path, record: Record, observations: Observations | None = None, *, uncommitted: bool = False
) -> Observations:
    """Check a record and return its observations, read if not given. uncommitted: accept records of uncommitted code. Raises
    StsbenchError, naming the file, unless the scores follow from the observations and data and provenance are valid.

    Without the model, the similarities and predictions themselves, the counts of zero vectors and truncated texts, and the
    provenance cannot be verified: a consistent forgery of all of them passes.
    """
    _check_texts(path, record)
    _check_provenance(path, record)
    if not uncommitted:
        check_repeatable(path, record)
    _check_encoder(path, record)
    _check_data(path, record)
    try:
        protocol, _, observations = reread(path, record, observations)
    except ScoreError as error:
        raise StsbenchError(f"{path}: its observations cannot be scored: {error}") from error
    _check_names(path, observations)
    if part := unexpected(protocol, record, observations):
        raise StsbenchError(
            f"{path} calls its data known, but its observations are not of {record.data.id}: right answers, items, subsets "
            f"or folds are others ({part})"
        )
    return observations


def first_problem(error: ValidationError) -> str:
    """Return "FIELD: problem" for the first invalid field, or "file: problem" where the whole is invalid."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg'].removeprefix('Value error, ')}"


def proven(record: Record) -> bool:
    """Return whether an admitted record is proven to be on the data it names: their digest is the catalog's, or they are in
    no catalog, or they are one of mteb's sets with as many pairs as mteb counts.

    False also where the catalog has no digest, and for a part of a set (without_overlap), which cannot be recomputed here.
    """
    data = record.data
    if data.id in BY_ID:  # mteb states the number of pairs of each subset, and no digest is known
        return data.known
    if data.text_version in ("sample", "own"):
        return True
    item = catalog().entries.get((data.id, data.text_version))
    if item is None or not item.digest or record.protocol.settings.get("without_overlap"):
        return False
    return data.known and item.digest == data.digest


def _check_provenance(path: Path, record: Record) -> None:
    provenance = record.provenance
    versions = provenance.get("versions")
    if not isinstance(versions, dict) or not {"stsbench", "numpy"} <= versions.keys():
        raise StsbenchError(f"{path}: its provenance names no versions of stsbench and numpy: measure it with stsbench eval")
    if record.created.tzinfo is None:
        raise StsbenchError(f"{path}: created: the time has no zone")
    if not FIRST < record.created < datetime.now(UTC) + timedelta(hours=1):
        problem = "is long past" if record.created < FIRST else "has not come yet"
        moment = f"{record.created:%Y-%m-%d %H:%M %Z}"
        raise StsbenchError(f"{path}: created: {moment} {problem}: was the clock of the machine right?")
    seed = provenance.get("seed")
    if seed is not None and (type(seed) is not int or seed < 0):
        raise StsbenchError(f"{path} was edited: seed of its provenance is {seed!r}, not a whole number")


def check_repeatable(path: Path, record: Record) -> None:
    """Raise StsbenchError, naming the file, where a record was measured by uncommitted code."""
    if reason := why_not_repeatable(record.provenance.get("git")):
        raise StsbenchError(f"{path} was measured by {reason}; commit them and measure again")


def _check_texts(path: Path, record: Record) -> None:
    """Raise StsbenchError where a text of the record is too long or has invisible characters: escape codes, bidi overrides,
    zero-width spaces. A template or a command may have several lines."""
    for text in _strings(record.model_dump(mode="json")):
        if hidden := hidden_in(text, allowed="\n\t" + EMOJI):
            raise StsbenchError(f"{path} holds a character that is not seen ({hidden}): {visible(text)[:80]}")
        if len(text) > LONGEST_TEXT:
            raise StsbenchError(f"{path} holds a text of {len(text):,} characters, at most {LONGEST_TEXT:,}: {text[:80]}")
    data, encoder = record.data, record.encoder
    for name in (data.task, data.id, encoder.spec["name"], record.protocol.label, *data.subsets, *record.counts):
        if not 0 < len(name) <= LONGEST_NAME:
            raise StsbenchError(f"{path} holds a name of {len(name):,} characters, at most {LONGEST_NAME}: '{name[:80]}'")
    # The catalog's items have at most two texts; a user's corpus may have more texts than queries
    if data.known and max(record.counts.values(), default=0) > 2 * data.n:
        raise StsbenchError(f"{path} was edited: counts: {data.n} items have no {max(record.counts.values())} texts")


def hidden_in(text: str, allowed: str = "") -> str:
    """Return the first invisible character, as "U+202E", or the first of too many accents over one letter; "" where every
    character is visible."""
    if text.isascii() and text.isprintable():
        return ""
    for is_mark, marks in groupby(text, lambda letter: unicodedata.category(letter) in ("Mn", "Me")):
        if is_mark and len(over := list(marks)) > MOST_MARKS:
            return f"U+{ord(over[0]):04X} and {len(over) - 1} more over one letter"
    hidden = (letter for letter in text if letter not in allowed and (visible(letter) != letter or letter in BLANK))
    return next((f"U+{ord(letter):04X}" for letter in hidden), "")


def _check_encoder(path: Path, record: Record) -> None:
    """Raise StsbenchError where the fingerprint is not that of the spec, since the page shows the spec."""
    spec = {key: value for key, value in record.encoder.spec.items() if key != "name"}
    if hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest() != record.encoder.fingerprint:
        raise StsbenchError(f"{path} was edited: the encoder's fingerprint is not that of its spec")


def _check_data(path: Path, record: Record) -> None:
    """Raise StsbenchError where a record calls its data known, and their digest or size is not the catalog's."""
    data = record.data
    if not data.known or data.text_version in ("sample", "own"):
        return
    item = catalog().entries.get((data.id, data.text_version))
    if item is None:
        raise StsbenchError(
            f"{path} calls its data known, but the catalog has no {data.id} in the text version {data.text_version}"
        )
    whole = not record.protocol.settings.get("without_overlap")  # else the record is on a part of the set
    if whole and item.digest and item.digest != data.digest:
        raise StsbenchError(
            f"{path} calls its data known, but its digest is not the catalog's for {data.id} ({data.text_version})"
        )
    if whole and item.digest and (data.n != item.total or data.subsets not in (item.counts, {"all": item.total})):
        raise StsbenchError(f"{path} was edited: data: {data.id} has {item.total} items, {format_counts(item.counts)}")


def _check_names(path: Path, observations: Observations) -> None:
    """Raise StsbenchError where observations are not numbers and a few short names, such as sentences of the data."""
    for name in (*observations.arrays, *observations.names, *chain.from_iterable(observations.names.values())):
        if hidden := hidden_in(name, allowed="\n\t" + EMOJI):
            problem = f"a character that is not seen ({hidden}): {visible(name)[:80]}"
            raise StsbenchError(f"{path}: the observations hold {problem}")
    for key, array in observations.arrays.items():
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise StsbenchError(f"{path}: its observations hold something that is not a number: {key}")
    for key, names in observations.names.items():
        if key == "task_result":
            for text in names:
                _check_result(path, text)
        elif len(names) > MOST_NAMES or max(map(len, names), default=0) > LONGEST:
            raise StsbenchError(f"{path}: the observations hold texts ({key}): only numbers and a few names belong")


def _check_result(path: Path, text: str) -> None:
    """Raise StsbenchError unless `text` is a task's result as mteb writes it, JSON of scores and short names."""
    try:
        result = json.loads(text)
        scores = result["scores"].values() if isinstance(result["task_name"], str) else ()
        good = bool(scores) and all(isinstance(row, dict) and "main_score" in row for part in scores for row in part)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        raise StsbenchError(f"{path}: task_result of the observations is not a result of mteb")
    if any(len(string) > LONGEST for string in _strings(result)):
        raise StsbenchError(f"{path}: the observations hold texts (task_result): only numbers and a few names belong")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in (*value, *value.values()):
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def compares_vectors(settings: Mapping[str, Any]) -> bool:
    """Return whether a protocol with these settings compares one vector per text, unlike a cross-encoder's, a judge's or
    a token-level similarity."""
    return settings.get("similarity", SIMILARITIES[0]) in SIMILARITIES


def check_widths(records: Iterable[tuple[Path, Record]]) -> None:
    """Raise StsbenchError where two records of one encoder differ in the width of its vectors. Lexical encoders, such as
    tf-idf, whose width depends on the data, and those without a vector per text (width 0) are not checked."""
    widths: dict[str, tuple[int, Path]] = {}
    for path, record in records:
        if record.encoder.spec.get("kind") == "lexical" or not compares_vectors(record.protocol.settings):
            continue
        width, other = widths.setdefault(record.encoder.fingerprint, (record.encoder.dimension, path))
        if width != record.encoder.dimension:
            raise StsbenchError(f"{path} was edited: dimension is {record.encoder.dimension}, in {other} it is {width}")


def check_decided(records: Iterable[tuple[Path, Record, Mapping[str, str]]]) -> None:
    """Raise StsbenchError where two records with the same data digest disagree about the data: gold answers, subsets, items.
    records: path, record and `decided` of it."""
    known: dict[tuple[str, str, int, str], tuple[str, Path]] = {}
    for path, record, parts in records:
        for part, sha in parts.items():
            first, other = known.setdefault((record.protocol.name, record.data.digest, record.data.n, part), (sha, path))
            if first != sha:
                raise StsbenchError(f"{path}: {part} of its observations is not that of {other}, on the same data")


def draw_many(records: Iterable[Measured]) -> None:
    """Compute the bootstrap draws for checking and scoring these records, all encoders of a data set together."""
    groups: dict[tuple[str, ...], tuple[int, int, list[Measured]]] = {}
    for record in records:
        with suppress(StsbenchError):  # a damaged record: its own check reports it
            record.observed()  # read in this order, in which the records of one run file follow each other
        for resamples, seed in {(RESAMPLES, SEED), drawn_with(record.protocol)}:
            key = (record.protocol.name, repr(record.protocol.settings), record.set_id, record.digest, f"{resamples} {seed}")
            groups.setdefault(key, (resamples, seed, []))[2].append(record)
    for resamples, seed, members in groups.values():
        try:
            observed = [record.observed() for record in members]
            members[0].protocol.draw_all(observed, members[0].set_id, resamples, seed)
        except Exception:  # a record is damaged or forged: each is drawn by itself later, and its check names the file
            continue
