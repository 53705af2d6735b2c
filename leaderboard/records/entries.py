"""The measured entries of a board: their descriptions (entry.yaml) and their runs, with every record checked."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stsbench.comparison.comparability import Measured, measured
from stsbench.config import parse_yaml
from stsbench.encoders.probe import has_identity
from stsbench.errors import StsbenchError
from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import encoder_key, refuse_doubles
from stsbench.evaluation.run_file import RUN, load_records
from stsbench.files import leftover
from stsbench.parsing import MOST_YAML, read_text
from stsbench.training.recipes.recipe import CHANGED

from .admission import EMOJI, check_record, check_widths, first_problem, hidden_in
from .copies import Pair, refuse_equal, refuse_near
from .statements import HubName, Language, Month, SetName, Statement, TextName

DESCRIPTION = "entry.yaml"
# Cyrillic and Greek letters -> the Latin letters that they look like, in lower or upper case.
LIKE = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131\u0251\u0261",
    "abekmhopctyxijshdqwabezhikmnoptyxiag",
)
Url = Annotated[str, Field(pattern=r"^https?://\S+$", max_length=500)]


class Entry(BaseModel):
    """The description of an entry, as its submitter states it: what cannot be read off the records."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    method: str = Field(min_length=1, max_length=80)
    backbone: str = Field(min_length=1, max_length=80)
    setting: Literal["unsup", "semi", "sup", "unknown"]
    flags: tuple[Literal["nli", "sts", "transductive", "dev-selected"], ...] = ()
    best_of: int | None = Field(default=None, ge=2, le=10**6)  # the best of so many seeds: shown as such, never ranked
    recipe: str = Field(default="", max_length=200)
    paper: Url | None = None
    # An address, or a path in the repository; not one that begins with "//", which a browser takes for an address.
    card: str = Field(default="", pattern=r"^(https?://\S+|[^:/\\\s][^:\\\s]*)?$", max_length=500)
    note: str = Field(default="", max_length=4000)
    licence: str = Field(default="", max_length=80)  # of the weights, as SPDX writes it: Apache-2.0
    released: Month | None = None
    languages: tuple[Language, ...] = ()  # all that the makers name, by ISO 639: two-letter codes where they exist
    hub: HubName | None = None
    starts_from: str | None = Field(default=None, min_length=1, max_length=80)  # the entry of its training's first weights
    trained_on: tuple[TextName, ...] = ()  # texts that its makers name, by their names in training_texts.yaml
    # Set (sts12, ..., or all) -> whether it was trained on the set's sentences, where no field above and no record shows it.
    statements: dict[SetName, Statement] = Field(default={}, alias="seen")

    @model_validator(mode="after")
    def _is_visible(self) -> Self:
        for name in ("method", "backbone", "recipe", "paper", "card", "note", "licence"):
            if hidden := hidden_in(getattr(self, name) or "", allowed="\n\t" + EMOJI if name == "note" else ""):
                raise ValueError(f"{name} holds a character that is not seen ({hidden})")
        for name in ("method", "backbone"):
            if not any(map(str.isalnum, getattr(self, name))):
                raise ValueError(f"{name} needs a letter or a digit")
        return self


class Prompts(BaseModel):
    """The description of an entry of prompts: runs of another entry's encoder with one prompt each. It has no row."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    prompt_of: str = Field(min_length=1, max_length=80)
    note: str = Field(default="", max_length=4000)

    @model_validator(mode="after")
    def _is_visible(self) -> Self:
        if hidden := hidden_in(self.note, allowed="\n\t" + EMOJI):
            raise ValueError(f"note holds a character that is not seen ({hidden})")
        return self


@dataclass(frozen=True)
class EntryRun:
    """A run of an entry: the records of one encoder, which is one seed, or one seed with one prompt."""

    folder: Path
    records: tuple[Measured, ...]

    @property
    def spec(self) -> dict[str, Any]:
        """Return the encoder's spec; `fitted_on` is that of the first record."""
        return self.records[0].record.encoder.spec

    @property
    def prompt(self) -> str:
        """Return the prompt before every text; "" for none, and for prompts that depend on the task."""
        return self.spec.get("prefix") or ""


@dataclass(frozen=True)
class LoadedEntry:
    """An entry and its runs, in the order of their folders. `id` is the entry folder's name.

    changed: whether a record of these weights, in this entry or another, states that a changed recipe trained them (records
    of a post-processing fitted on trained weights do not state the training). twins: a sentence for each near-copy (see
    `near_copies`). prompts: runs of the same encoder with other prompts, held by the entries named `prompt_entries`.
    """

    id: str
    entry: Entry
    runs: tuple[EntryRun, ...]
    changed: bool = False
    twins: tuple[str, ...] = ()
    prompts: tuple[EntryRun, ...] = ()
    prompt_entries: tuple[str, ...] = ()


def first_records(folder: Path) -> dict[str, Record]:
    """Return run folder's name -> one of its records, for an entry's folder; {} where it does not exist."""
    return {run.name: load_records(run)[0][1] for run in run_folders(folder)}


def run_folders(entry: Path) -> list[Path]:
    """Return the run folders of an entry's folder, without those that an interrupted addition left empty; [] where it does
    not exist."""
    folders = sorted(entry.iterdir()) if entry.is_dir() else []
    return [folder for folder in folders if folder.is_dir() and not folder.name.startswith(".")
            and not all(map(leftover, folder.iterdir()))]


def read_entry(path: Path) -> Entry | Prompts:
    """Read and validate an entry.yaml. Raises StsbenchError naming the file and the first field at fault."""
    stated = parse_yaml(read_text(path, MOST_YAML), str(path)) or {}
    try:
        return (Prompts if isinstance(stated, dict) and "prompt_of" in stated else Entry).model_validate(stated)
    except ValidationError as error:
        raise StsbenchError(f"{path}: {first_problem(error)}") from error


def read_entries(folder: Path, runs: Path | None = None) -> list[LoadedEntry]:
    """Return every entry below `folder` (a board's measured/), by name. Observations and scores are not checked (see
    `checked_run`), nor whether an entry's runs belong together (see `check_seeds`). runs: the folder with a folder of runs
    for each entry, if not `folder`. Raises StsbenchError, naming the file, for files that do not belong on a board."""
    if not folder.is_dir():
        return []
    described = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    with_runs = {path.parents[1].name for path in runs.glob(f"*/*/{RUN}")} if runs is not None else set()
    if unknown := with_runs - {path.name for path in described}:
        raise StsbenchError(f"{folder / min(unknown) / DESCRIPTION} is missing, of which there are runs")
    entries = _with_prompts(folder, [_read(path, (runs or folder) / path.name) for path in described])
    weights = {run.spec.get("weights") for entry in entries for run in entry.runs if _by_changed_recipe(run)} - {None, ""}
    return [replace(entry, changed=any(_by_changed_recipe(run) or run.spec.get("weights") in weights for run in entry.runs))
            for entry in entries]


def _by_changed_recipe(run: EntryRun) -> bool:
    return any(str(item.record.provenance.get("recipe", "")).endswith(CHANGED) for item in run.records)


def _with_prompts(folder: Path, read: Sequence[tuple[str, Entry | Prompts, tuple[EntryRun, ...]]]) -> list[LoadedEntry]:
    """Return the entries of a board's measured/, with the runs of entries of prompts added to the entries of their encoders.
    Raises StsbenchError for prompts of an unknown entry."""
    entries = {slug: LoadedEntry(slug, entry, runs) for slug, entry, runs in read if isinstance(entry, Entry)}
    for slug, entry, runs in read:
        if isinstance(entry, Prompts):
            of = entries.get(entry.prompt_of)
            if of is None:
                raise StsbenchError(f"{folder / slug / DESCRIPTION}: {not_prompted(folder, entry.prompt_of)}")
            entries[of.id] = replace(of, prompts=of.prompts + runs, prompt_entries=(*of.prompt_entries, slug))
    return list(entries.values())


def not_prompted(folder: Path, slug: str) -> str:
    """Return the message that the entry `slug` cannot have prompts: it is one of prompts itself, or does not exist."""
    there = (folder / slug / DESCRIPTION).is_file()
    why = "is of prompts itself: name the entry of its encoder" if there else "is no entry of this board"
    return f"prompt_of: {slug} {why}"


def _read(folder: Path, runs: Path) -> tuple[str, Entry | Prompts, tuple[EntryRun, ...]]:
    if not folder.is_dir():
        raise StsbenchError(f"{folder} is not an entry: a board's measured/ holds one folder an entry")
    # Only links within an entry are refused: `submit` tries an addition on a board whose other entries are links.
    if link := next((path for path in sorted([*folder.iterdir(), *folder.glob("*/*")]) if path.is_symlink()), None):
        raise StsbenchError(f"{link} is a link: a board holds its records themselves")
    entry = read_entry(folder / DESCRIPTION)
    if runs != folder and (inside := run_folders(folder)):
        raise StsbenchError(f"{inside[0]} is a run: those of this board lie in {runs.parents[1]}")
    loaded = tuple(map(read_run, run_folders(runs)))
    if not loaded:
        raise StsbenchError(f"{folder} has no runs: add some (stsbench leaderboard add)")
    return folder.name, entry, loaded


def check_seeds(entries: Sequence[LoadedEntry], near: Sequence[Pair] | None = None) -> None:
    """Raise StsbenchError unless the runs of each entry are seeds of one encoder, which no other entry holds, and its runs
    with prompts are of this encoder. near: the result of `near_pairs` for the seeds of all entries; without it all seeds of
    an entry are compared."""
    inside: dict[str, list[Pair]] = {}
    for pair in near or ():
        if pair[0][0] == pair[1][0]:
            inside.setdefault(pair[0][0], []).append(pair)
    holders: dict[str, Path] = {}
    for entry in entries:
        for run in (*entry.runs, *entry.prompts):
            if (other := holders.setdefault(run.folder.name, run.folder)) is not run.folder:
                problem = f"the entry {other.parent.name} holds this encoder already: one encoder is one entry"
                raise StsbenchError(f"{run.folder}: {problem}")
        folder = entry.runs[0].folder.parent
        seeds = {run.folder.name: run.records[0].record for run in entry.runs}
        check_runs(folder, seeds)
        prompts = {run.folder: run.records[0].record for run in entry.prompts}
        for path, record in prompts.items():
            _check_name(path, record)
        check_prompts(seeds, prompts)
        its = None if near is None else inside.get(entry.id, [])
        check_copies([(str(run.folder), run.records) for run in entry.runs], its)
    owned = [(run.folder.parent, run) for entry in entries for run in entry.runs]
    owned += [(run.folder, run) for entry in entries for run in entry.prompts]  # some prompts are equal to a tokenizer
    refuse_equal((str(owner), item) for owner, run in owned for item in run.records)
    refuse_equal_names((str(entry.runs[0].folder.parent), entry.entry) for entry in entries)


def refuse_equal_names(entries: Iterable[tuple[str, Entry]]) -> None:
    """Raise StsbenchError where two entries (folder, description) have the same method, backbone and setting, so that their
    rows would look the same."""
    folders: dict[tuple[str, ...], str] = {}
    for folder, entry in entries:
        key = _looks(entry.method), _looks(entry.backbone), entry.setting
        if (other := folders.setdefault(key, folder)) != folder:
            same = f"one method, backbone and setting ({entry.method}; {entry.backbone}; {entry.setting})"
            advice = "say in the method how they differ, or add to the one entry"
            raise StsbenchError(f"{folder} and {other} have {same}: {advice}")


def _looks(text: str) -> str:
    """Return the text in a form that is equal for look-alikes: of other case, blanks, dashes, width or alphabet."""
    plain = unicodedata.normalize("NFKC", text).casefold().translate(LIKE)
    return " ".join("".join("-" if unicodedata.category(letter) == "Pd" else letter for letter in plain).split())


def check_copies(runs: Sequence[tuple[str, Sequence[Measured]]], near: Collection[Pair] | None = None) -> None:
    """Raise StsbenchError where two runs of an entry (folder, records) are one run measured twice, which would count as a
    second seed. near: as in `refuse_near`."""
    refuse_equal((folder, record) for folder, records in runs for record in records)
    refuse_near(runs, near)


def run_name(record: Record) -> str:
    """Return the name of a run's folder: twelve hex digits of the sha256 of the encoder's spec without its display name."""
    return hashlib.sha256(json.dumps(_without(record, "name")).encode()).hexdigest()[:12]


def _without(record: Record, *names: str) -> dict[str, Any]:
    """Return the encoder's spec without the fields `names`, and without `fitted_on` where that is the tested set."""
    return {key: value for key, value in json.loads(encoder_key(record)).items() if key not in names}


def check_runs(folder: Path, records: Mapping[str, Record]) -> None:
    """Raise StsbenchError unless the runs of an entry are seeds of one encoder, which differ in their weights only. records:
    run folder's name -> one of its records."""
    for name, record in records.items():
        _check_name(folder / name, record)
    if len(records) > 1 and not all(has_identity(record.encoder.spec) for record in records.values()):
        raise StsbenchError(f"{folder}: nobody knows whether encoders without an identity are several seeds: measure them "
                            "with a fingerprint (fingerprint=), or use separate entries")
    specs = [_without(record, "name", "weights") for record in records.values()]
    differing = [key for key in specs[0] if any(spec.get(key) != specs[0][key] for spec in specs)]
    if len({record.encoder.dimension for record in records.values()}) > 1 and specs[0].get("kind") != "lexical":
        differing.append("dimension")
    if differing:
        raise StsbenchError(
            f"{folder}: its encoders differ in more than their seed ({', '.join(differing)}): put each into a separate entry"
        )
    provenances = {name: record.provenance for name, record in records.items()}
    for key in ("recipe", "settings", "stage"):
        if len(values := {json.dumps(about.get(key)) for about in provenances.values()}) > 1:
            listed = ", ".join(sorted(values))
            kind = key.removesuffix("s") + "s"
            raise StsbenchError(f"{folder}: its encoders have different {kind} of training ({listed}): use separate entries")
    for key in ("backbone", "method_file", "data"):  # digests; records of a fitted post-processing lack them
        stated = {json.dumps(about[key], sort_keys=True) for about in provenances.values()
                  if about.get(key) and not about.get("from") and about.get("subset") is None}
        if len(stated) > 1:
            what = {"backbone": "start from different backbones", "data": "were trained on different data",
                    "method_file": "were trained by different code"}[key]
            raise StsbenchError(f"{folder}: its encoders {what}: they are not seeds of one method; use separate entries")
    of_seed: dict[tuple[Any, Any], str] = {}
    starts: dict[str, str] = {}
    for name, provenance in provenances.items():
        seed = provenance.get("seed"), provenance.get("subset")
        if seed[0] is not None and (other := of_seed.setdefault(seed, name)) != name:
            raise StsbenchError(f"{folder}: {other} and {name} are both of seed {seed[0]}: leave one out")
        weights = (provenance.get("from") or {}).get("weights")
        if weights is not None and (other := starts.setdefault(weights, name)) != name:
            stage = provenance["from"]["stage"]
            raise StsbenchError(
                f"{folder}: {other} and {name} went on from one run of stage {stage}: their spread leaves that stage out; "
                "leave one out, or train the stage anew with each seed"
            )


def _check_name(folder: Path, record: Record) -> None:
    if folder.name != (right := run_name(record)):
        raise StsbenchError(f"{folder} holds an encoder whose folder `leaderboard add` would call {right}")


def check_prompts(seeds: Mapping[str, Record], prompts: Mapping[Path, Record]) -> None:
    """Raise StsbenchError unless each run of `prompts` (folder -> one of its records) is of the encoder of one of the
    `seeds`, with one prompt: they may differ in the prompt only."""
    known = [_but_prompts(record) for record in seeds.values()]
    for folder, record in prompts.items():
        if not has_identity(record.encoder.spec):
            raise StsbenchError(f"{folder}: nobody knows whose prompt an encoder without an identity is: measure it with a "
                                "fingerprint (fingerprint=)")
        if not record.encoder.spec.get("prefix"):
            raise StsbenchError(f"{folder} was not read behind one prompt: leave it out (none at all is a control)")
        spec = _but_prompts(record)
        differing = [[key for key in {**other, **spec} if spec.get(key) != other.get(key)] for other in known]
        if fewest := min(differing, key=len):
            raise StsbenchError(f"{folder}: its encoder differs from that of the entry in more than its prompt "
                                f"({', '.join(fewest)}): put it into a separate entry")


def _but_prompts(record: Record) -> dict[str, Any]:
    """Return the encoder's spec without its prompts, with the width of its vectors (False for lexical encoders)."""
    spec = _without(record, "name", "prefix")
    options = {key: value for key, value in (spec.get("options") or {}).items() if key != "prompts"}
    return {**spec, "options": options, "dimension": spec.get("kind") != "lexical" and record.encoder.dimension}


def read_run(folder: Path) -> EntryRun:
    """Return a run's records in the order of measurement; observations and scores are not checked. Raises StsbenchError for
    records of several encoders."""
    loaded = load_records(folder)
    check_widths(loaded)
    if len({run_name(record) for _, record in loaded}) > 1:
        raise StsbenchError(f"{folder} holds records of several encoders: a run is of one")
    return EntryRun(folder, tuple(measured(path, record) for path, record in loaded))


def checked_run(run: EntryRun, *, uncommitted: bool = False) -> EntryRun:
    """Return the run with its observations read and each record checked against them. uncommitted: as in `check_record`.
    Raises StsbenchError, naming the file, for a record that is not valid."""
    records = tuple(
        measured(item.path, item.record, check_record(item.path, item.record, item.read, uncommitted=uncommitted))
        for item in run.records
    )
    refuse_doubles([(item.path, item.protocol, item.record) for item in records])
    return EntryRun(run.folder, records)
