"""What `stsbench eval` and `stsbench.evaluate` take: what is measured and how, on which data, and what is kept of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from stsbench.encoders.options import CacheOptions, EncoderOptions, ProcessOptions
from stsbench.errors import UsageError
from stsbench.files import temporary
from stsbench.options import GIVEN, OptionGroup, SetOptions, extensible, option
from stsbench.registry import DEFAULT_PROTOCOL, names, resolve

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder

STUDIES = "stsbench.studies"  # entry points: objects of the class Study


def split_names(value: Any) -> Any:
    """Return the names in a text between commas, each comma inside brackets being part of one: mteb:MTEB(eng, v2). What
    is not a text stays as it is."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", value) if part.strip())


def _columns(value: Any) -> Any:
    if isinstance(value, str | None):
        return value
    if not isinstance(value, Mapping):
        raise UsageError(f"columns={value!r}: write what each column holds, as in columns={{'sentence1': 'question'}}")
    several = {column: [name] if isinstance(name, str | int) else name for column, name in value.items()}
    return ",".join(f"{column}={name}" for column, names in several.items() for name in names)


Names = Annotated[Sequence[str], BeforeValidator(split_names)]
Columns = Annotated[str, BeforeValidator(_columns)]  # {"sentence1": "q"} or "sentence1=q"
_OWN = "protocol=sts:FILE, pairs:FILE, triplets:FILE, transfer:FILE or retrieval:FOLDER"


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(OptionGroup):
    """What is measured, and how."""

    post: str | None = option(
        None, "Post-processing of the vectors, several joined by +: whitening, all-but-the-top, standardise, renormalise "
        "and others (`stsbench list post`), which need --fit-on unless the model's own weights determine them.",
        metavar="NAME[:SETTING=VALUE,...]",
    )
    fit_on: str | Path | None = option(
        None, "What --post is fitted on: each set's own texts, or a file of sentences (.txt) or NLI pairs (.csv, .tsv, "
        ".jsonl).", metavar="target|FILE", goes_with={"post": GIVEN},
    )
    protocols: Names = option(
        (DEFAULT_PROTOCOL,), "What is measured: sts, regression, transfer, retrieval, geometry, mteb, a variant such as "
        "sts:wmean or transfer:exact, data of your own (sts:FILE, pairs:FILE, triplets:FILE, transfer:FILE, "
        "retrieval:FOLDER), a paper's name, several with commas, or all.", flag="--protocol", metavar="NAME,...",
        renamed={**dict.fromkeys(("data", "file", "dataset"), _OWN),
                 **dict.fromkeys(("queries", "corpus", "qrels"), "protocol=retrieval:FOLDER")},
    )
    tasks: Names | None = option(
        None, "STS12,STS13,... Default: every task of the protocol.", metavar="TASK,...", renamed={"task": "tasks"},
    )
    similarity: str | None = option(
        None, "How two vectors are compared: cosine (default), dot, euclidean, manhattan, or what an extension compares two "
        "texts by.",
        renamed=dict.fromkeys(("sim", "distance", "similarity_fn_name"), "similarity"),
    )
    columns: Columns | None = option(
        None, "The columns of your own file, by their names, or by positions from 1 where it has no header.",
        metavar="sentence1=NAME,...",
    )
    resamples: int | None = option(
        None, "Bootstrap resamples; default 1000, 0: no intervals.", least=0,
        renamed=dict.fromkeys(("bootstrap", "n_boot", "n_bootstrap", "n_resamples"), "resamples"),
    )
    settings: Mapping[str, Any] = option(  # "retrieval.ties" -> value
        dict, "One of a protocol's settings (`stsbench show protocol NAME` lists them); repeatable.", flag="--set",
        metavar="PROTOCOL.KEY=VALUE",
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions(SetOptions):
    """Of which data, and what of them is refused."""

    text_version: str = option(
        "senteval", "SentEval's tokenised files or the Hub's raw text.", flag="--text", choices=("senteval", "raw"),
        excludes={"sample": True}, why="it is its own text version",
    )
    without_overlap: Names = option(
        (), "Score without pairs that share a sentence with these sets, e.g. stsb/dev.", metavar="ID,ID", rare=True,
    )
    strict_data: bool = option(False, "Refuse data whose digest differs from the catalog's.", rare=True)
    strict: bool = option(False, "Refuse texts over the model's limit; without it they are cut.", rare=True)


@extensible("stsbench.record_options")
@dataclass(frozen=True, kw_only=True)
class RecordOptions(OptionGroup):
    """Where the records go, and what else they say: an extension's options override `on_loaded` and `facts`."""

    output: Path | None = option(  # None in Python: see `folder`
        None, "Run folder; default runs/<time>-<model>.", renamed={"o": "output", "output_dir": "output"},
    )
    command: Sequence[str] = ()
    extra_provenance: Mapping[str, Any] = field(default_factory=dict)  # a training's seed

    @property
    def folder(self) -> Path:
        """Return where the records go: without an output a temporary folder, until this process ends."""
        return temporary("run") if self.output is None else self.output

    def on_loaded(self, encoder: Encoder, began: float) -> Any:
        """Return what `facts` is to know of an encoder just loaded by its name. began: time.perf_counter() before that."""
        return None

    def facts(self, encoder: Encoder, loaded: Any, log: Callable[[str], None]) -> Mapping[str, Any]:
        """Return what records say of an encoder besides its scores. loaded: of `on_loaded`, None without a name."""
        return {}


class MeasureArguments(TypedDict, total=False):
    """What functions that measure several forms take of EvalOptions, for editors and type checkers; a test compares them."""

    similarity: str | None
    columns: str | Mapping[str, str] | None
    resamples: int | None
    settings: Mapping[str, Any]
    data_dir: str | Path | None
    text_version: str
    text: str
    sample: bool
    without_overlap: str | Sequence[str]
    strict_data: bool
    strict: bool
    cache_dir: str | Path | None
    cache: str | Path | None
    cache_limit: float
    no_cache: bool


@checked_dataclass(config=ConfigDict(arbitrary_types_allowed=True), frozen=True, kw_only=True)
class EvalOptions(EncoderOptions, CacheOptions, ProcessOptions, MeasureOptions, DataOptions, RecordOptions):
    """Everything `stsbench eval` takes, by the same names. Lists of names may be one string, with commas as there."""

    # A name or folder, an Encoder, a function, an object with `encode`.
    model: Annotated[Any, BeforeValidator(lambda value: os.fspath(value) if isinstance(value, os.PathLike) else value)]
    fingerprint: str | None = None  # identifies a function, and is to be changed whenever its vectors change


@dataclass(frozen=True, kw_only=True)
class Study:
    """What `eval` measures in the place of one run where an option of the study asks for it.

    options: a dataclass of `stsbench.options.option`, which `eval` takes, too; asked_by: those that ask for the study, and
    without which the others have no effect; subject: what is measured, in the plural; suffix: of the default folder; files:
    what is written beside the runs. measure: takes a function that loads the encoder, a value for each of the options, and
    arguments of `stsbench.evaluate` with `output` and `log`; what is wrong usage, it refuses before it loads. It returns a
    `Tabular` with `failures`, a line for each task without a score, and `save(folder)`, which writes files beside the runs.
    """

    options: type
    asked_by: Sequence[str]
    subject: str
    suffix: str
    files: str
    measure: Callable[..., Any]


def studies() -> list[Study]:
    """Return every study that is installed."""
    return [resolve(STUDIES, name) for name in names(STUDIES)]
