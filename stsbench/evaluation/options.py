"""Options of `stsbench eval` and `stsbench.evaluate`: encoder, protocols and their settings, data, and the run folder."""

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
    """Return the names that commas separate in a text, as a tuple; a comma inside brackets belongs to the name, as in
    mteb:MTEB(eng, v2). Any other value is returned unchanged."""
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
    """Options for the protocols, their settings and the post-processing of vectors."""

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
    """Options for the data: text version, left-out pairs, and what is refused."""

    text_version: str = option(
        "senteval", "SentEval's tokenised files or the Hub's raw text.", flag="--text", choices=("senteval", "raw"),
        excludes={"sample": True}, why="it is its own text version",
    )
    without_overlap: Names = option(
        (), "Score without pairs that share a sentence with these sets, e.g. stsb/dev.", metavar="ID,ID", advanced=True,
    )
    strict_data: bool = option(False, "Refuse data whose digest differs from the catalog's.", advanced=True)
    strict: bool = option(False, "Refuse texts over the model's limit; without it they are cut.", advanced=True)


@extensible("stsbench.record_options")
@dataclass(frozen=True, kw_only=True)
class RecordOptions(OptionGroup):
    """Options for the run folder and what records say beside scores; an extension's override `on_loaded` and `facts`."""

    output: Path | None = option(  # in Python, None is a temporary folder
        None, "Run folder; default runs/<time>-<model>.", renamed={"o": "output", "output_dir": "output"},
    )
    command: Sequence[str] = ()
    extra_provenance: Mapping[str, Any] = field(default_factory=dict)  # such as a training's seed

    @property
    def folder(self) -> Path:
        """Return the run folder; without `output` a temporary one, which exists until this process ends."""
        return temporary("run") if self.output is None else self.output

    def on_loaded(self, encoder: Encoder, began: float) -> Any:
        """Return what `facts` gets as `loaded`, of an encoder just loaded by name. began: perf_counter() before loading."""
        return None

    def facts(self, encoder: Encoder, loaded: Any, log: Callable[[str], None]) -> Mapping[str, Any]:
        """Return entries for the provenance of the records. loaded: of `on_loaded`; None for an encoder without a name."""
        return {}


class MeasureArguments(TypedDict, total=False):
    """Keyword arguments of functions that measure several forms of an encoder; a test compares them with EvalOptions."""

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
    """All options of `stsbench eval`, by the same names. A list of names may be one string, separated by commas."""

    # The name or folder of a model, an Encoder, a function, or an object with `encode`.
    model: Annotated[Any, BeforeValidator(lambda value: os.fspath(value) if isinstance(value, os.PathLike) else value)]
    fingerprint: str | None = None  # identifies a function, and is to be changed whenever its vectors change


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study that `stsbench eval` runs instead of one measurement where one of the study's options is given.

    options: a dataclass of `stsbench.options.option`, which `eval` takes, too; asked_by: those that start the study, without
    which the others have no effect; subject: what is measured, in the plural; suffix: of the default folder's name; files:
    what is written beside the runs. measure: takes a function that loads the encoder, a value for each of the options, and
    arguments of `stsbench.evaluate` with `output` and `log`, and refuses wrong usage before it loads the encoder. It returns
    a `Tabular` with `failures`, a line for each task without a score, and `save(folder)`, which writes the files.
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
