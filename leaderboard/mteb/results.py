"""The committed table of MTEB's published STS results (one line per score, as printed), its source and models' facts."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stsbench.config import parse_yaml
from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.admission import first_problem
from stsbench.parsing import MOST_YAML, read_text

FOLDER = "as_published"  # below a board's folder
TABLE, SOURCE, SAME, TRAINING = "mteb_sts.tsv.gz", "source.yaml", "measured_here.yaml", "training.yaml"
MODELS = "models.yaml"
# The fields of a model in MODELS, from mteb's registry: licence, by SPDX; width of a vector, the largest of several;
# max_tokens, of the longest text; weights_mb; open, whether the weights are; languages, those with tables on the board;
# languages_n, the number of all; card, if not the model's page of the Hub; holds, its training sets that hold sentences of
# the tests, though none of their pairs (leaderboard/training_texts.yaml).
FACTS = (
    "licence", "released", "parameters", "width", "max_tokens", "weights_mb", "open", "languages", "languages_n", "card",
    "holds",
)
HOLD_SENTENCES = ("AllNLI", "Flickr30k", "SNLI", "simcse_sup_nli")
_KIN = re.compile(r"STS1[2-7]|STSB|STS-B|SICK")  # beginnings of names of sets with pairs of the seven tasks, in any split
ITEMS = {  # the seven tasks -> their pairs in MTEB; SICK-R is all pairs, not the 4,927 of SentEval's test
    "STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STSBenchmark": 1379, "SICK-R": 9927,
}
TASKS = {  # mteb's name of a task -> our column; mteb's SICK-R is all 9,927 pairs, not the 4,927 of the literature
    "STS12": "STS12", "STS13": "STS13", "STS14": "STS14", "STS15": "STS15", "STS16": "STS16", "STSBenchmark": "STS-B",
    "SICK-R": "SICK-R-MTEB",
}
TWIN = "STSBenchmarkMultilingualSTS", "en"  # STSBenchmark's test sentences under another name
BY_LANGUAGE = ("STS17", "STS22.v2")
COLUMNS = ("model", "revision", "task", "subset", "value", "mteb_version", "dataset_revision")
MOST_BYTES = 32_000_000  # the most bytes of the unpacked table


@dataclass(frozen=True, order=True)
class Score:
    """A printed main score of a test split. value: the text as printed; in all these tasks a Spearman correlation.

    revision: the name of the result's folder; mteb_version, dataset_revision: "" where the file names none.
    """

    model: str
    revision: str
    task: str
    subset: str
    value: str
    mteb_version: str = ""
    dataset_revision: str = ""

    @property
    def number(self) -> float:
        return float(self.value)


class Source(BaseModel):
    """The source of the table: the results repository, its commit and date, its licence, and the number of scores."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    repository: str
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]
    licence: str
    scores: Annotated[int, Field(gt=0)]


@dataclass(frozen=True)
class Published:
    """All published scores with their source. measured_here: entry -> the model that it measures as its authors use it.

    training: model -> its training sets, by mteb's registry, that hold pairs of the seven tasks; models with unknown
    training sets are missing. facts: model -> some of FACTS.
    """

    scores: tuple[Score, ...]
    source: Source
    measured_here: dict[str, str]
    training: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)


def is_ranked(task: str, subset: str, split: str) -> bool:
    """Return whether a score of the results repository belongs in the table."""
    return split == "test" and (task in BY_LANGUAGE or (task, subset) == TWIN or (task in ITEMS and subset == "default"))


def load_published(board: Path) -> Published | None:
    """Return the published results in as_published/ of a board; None without that folder. Raises StsbenchError, naming file
    and line, for invalid content."""
    folder = board / FOLDER
    if not folder.is_dir():
        return None
    stated = parse_yaml(read_text(folder / SOURCE, MOST_YAML), str(folder / SOURCE))
    try:
        source = Source.model_validate(stated)
    except ValidationError as error:
        raise StsbenchError(f"{folder / SOURCE}: {first_problem(error)}") from error
    scores = tuple(read_table(folder / TABLE))
    if len(scores) != source.scores:
        raise StsbenchError(f"{folder / TABLE} has {len(scores)} scores, and {SOURCE} says {source.scores}")
    same = folder / SAME
    linked = parse_yaml(read_text(same, MOST_YAML), str(same)) if same.is_file() else {}
    models = {score.model for score in scores}
    if not isinstance(linked, dict) or not set(linked.values()) <= models:
        raise StsbenchError(f"{same}: must name for entries of the board a model of {TABLE}")
    training = _read_by_model(folder / TRAINING, list, "the sets that it was trained on")
    facts = _read_by_model(folder / MODELS, dict, f"some of {', '.join(FACTS)}")
    if unknown := [f"{model}: {name}" for model, stated in facts.items() for name in stated if name not in FACTS]:
        raise StsbenchError(f"{folder / MODELS}: {unknown[0]}: a model has some of {', '.join(FACTS)}")
    return Published(scores, source, linked, training, facts)


def _read_by_model(path: Path, kind: type, contents: str) -> dict[str, Any]:
    """Return model -> value of type `kind` from a YAML file; {} without the file. contents: names the values in errors."""
    stated = parse_yaml(read_text(path, MOST_YAML), str(path)) if path.is_file() else {}
    if not isinstance(stated, dict) or not all(isinstance(value, kind) for value in stated.values()):
        raise StsbenchError(f"{path}: must name for a model {contents}")
    return stated


def kin_of_tasks(sets: Iterable[str]) -> list[str]:
    """Return the sets, by mteb's names, that hold pairs of the seven tasks, sorted.

    >>> kin_of_tasks(["STSBenchmark", "NQ", "STS12", "STS22"])
    ['STS12', 'STSBenchmark']
    """
    return sorted(name for name in sets if _KIN.match(name))


def read_table(path: Path) -> list[Score]:
    """Return the scores of a table that `table_bytes` wrote, in its order. Raises StsbenchError for an invalid table."""
    try:
        with gzip.open(path, "rb") as stream:
            text = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise StsbenchError(f"{path}: {error}") from error
    if len(text) > MOST_BYTES:
        raise StsbenchError(f"{path} has more than {MOST_BYTES:,} bytes, unpacked")
    lines = list(csv.reader(io.StringIO(text.decode("utf-8", "replace")), delimiter="\t", quoting=csv.QUOTE_NONE))
    if not lines or tuple(lines[0]) != COLUMNS:
        raise StsbenchError(f"{path}: the columns must be {', '.join(COLUMNS)}")
    scores = []
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(COLUMNS):
            raise StsbenchError(f"{path}: line {number}: {len(line)} columns instead of {len(COLUMNS)}")
        score = Score(*line)
        if not _is_correlation(score.value):
            raise StsbenchError(f"{path}: line {number}: {score.value!r} is not a correlation")
        scores.append(score)
    return scores


def table_bytes(scores: Iterable[Score]) -> bytes:
    """Return the table's file: sorted and compressed, with the same bytes for the same scores."""
    lines = [COLUMNS, *(tuple(vars(score).values()) for score in sorted(scores))]
    text = "".join("\t".join(line) + "\n" for line in lines)
    return gzip.compress(text.encode(), 9, mtime=0)


def source_yaml(source: Source) -> str:
    """Return the text of source.yaml."""
    head = "# Written by `stsbench leaderboard import mteb --all-models`: where mteb_sts.tsv.gz comes from.\n"
    return head + yaml.safe_dump(source.model_dump(mode="json"), sort_keys=False, width=120)


def _is_correlation(text: str) -> bool:
    try:
        return -1 <= float(text) <= 1
    except ValueError:
        return False
