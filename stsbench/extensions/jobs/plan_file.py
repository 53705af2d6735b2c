"""The format of a plan file: groups of trainings and evaluations, their defaults, and the folder of their runs."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, create_model, model_validator

from stsbench.config import read_yaml, shorten, validate
from stsbench.encoders.options import CoreArguments, EncoderOptions
from stsbench.errors import StsbenchError, UsageError
from stsbench.evaluation.options import DataOptions, MeasureOptions
from stsbench.registry import DEFAULT_PROTOCOL
from stsbench.settings import Settings, setting

JOB = "job:"  # job:NAME refers to the run of the group or job NAME
DATA_DIR = "{data_dir}"  # placeholder in paths for defaults.data_dir
Dtype = Literal["float32", "bf16", "fp16"]


def _several(value: Any) -> Any:
    """Return a list as a tuple, a single value as a tuple of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _json(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_several), Field(min_length=1)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_several), Field(min_length=1)]


class Defaults(Settings):
    """Options of all jobs, unless their group overrides them."""

    data_dir: str | None = setting(None, "--data-dir of each job, and what {data_dir} in a path stands for")
    sample: bool = setting(False, "--sample of each job")
    offline: bool = setting(False, "--offline of each job")
    device: str | None = setting(None, "--device of each job")
    dtype: Dtype | None = setting(None, "of trainings; an evaluation computes in float32 unless its group says otherwise")
    seeds: Seeds = setting((42,), "of trainings")
    set: dict[str, Any] = setting({}, "--set of trainings")


class BoardEntry(Settings):
    """The options of `stsbench leaderboard add` for a group's runs, by the same names; `name` is --entry."""

    name: str = setting(..., "--entry", pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")
    method: str = setting(..., "--method")
    backbone: str = setting(..., "--backbone")
    flags: tuple[str, ...] = setting((), "--flag, one each")
    recipe: str | None = setting(None, "--recipe")
    paper: str | None = setting(None, "--paper")
    note: str | None = setting(None, "--note")
    setting: Literal["unsup", "semi", "sup"] = setting(..., "--setting")  # last: below it `setting` is this key


class TrainGroup(Settings):
    """Trainings: one for each method x recipe x backbone x seed. Keys are the options of `stsbench train`."""

    method: Texts = setting(..., "methods")
    recipe: Texts | None = setting(None, "names or files; null: each method's default")
    backbone: Texts | None = setting(None, "models, or job:NAME")
    data: str | None = setting(None, "--data")
    labelled: str | None = setting(None, "--labelled")
    stage: str | None = setting(None, "--stage")
    start_from: str | None = setting(None, "--from: a run, or job:NAME")
    seeds: Seeds | None = setting(None, "instead of those of the defaults")
    max_steps: int | None = setting(None, "--max-steps", ge=1)
    set: dict[str, Any] = setting({}, "--set, over that of the defaults")
    default_set: bool = setting(True, "false: without the set of the defaults")
    device: str | None = setting(None, "--device")
    dtype: Dtype | None = setting(None, "--dtype")
    entry: BoardEntry | None = setting(None, "of the evaluations of these trainings in groups without an entry")


class EvalGroup(Settings):
    """Evaluations: one for each model x protocols. All other keys are options of `stsbench eval`, as they are declared."""

    model: Texts = setting(..., "models, or job:NAME for each training of a group")
    protocols: Texts = setting((DEFAULT_PROTOCOL,), 'one evaluation each; "sts,geometry" is one evaluation by both')
    set: dict[str, Any] = setting({}, "--set")
    device: str | None = setting(None, "--device")
    entry: BoardEntry | None = setting(None, "what these evaluations are a row of")

    @property
    def options(self) -> dict[str, Any]:
        """Return option -> the group's value for all other options, None where it is unset, in the command's order."""
        return {key: getattr(self, key) for key in sorted(_OPTIONS, key=_position)}

    @model_validator(mode="after")
    def _names_protocols(self) -> EvalGroup:
        if "all" in {name.strip() for listed in self.protocols for name in listed.split(",")}:
            raise ValueError("'all' measures what data are at hand: name the protocols, so that it is known what is missing")
        if code := next((name for name in self.protocols if ".py:" in name), None):
            raise ValueError(f"{code} would run code that a plan names: install the protocol by an entry point")
        return self


def _declared() -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """Return key -> field and type of each encoder and evaluation option that a group may set."""
    entries: dict[str, tuple[dataclasses.Field[Any], Any]] = {}
    for options in (EncoderOptions, MeasureOptions, DataOptions):
        types = get_type_hints(options)
        entries |= {_key(entry): (entry, types[entry.name])
                    for entry in dataclasses.fields(options) if entry.name not in _ELSEWHERE}
    return entries


def _key(entry: dataclasses.Field[Any]) -> str:
    """Return an option's name on the command line."""
    return (entry.metadata["flag"] or entry.name).removeprefix("--").replace("-", "_")


def _position(key: str) -> int:
    """Return a key's rank among a command's words: options of extensions that change vectors follow the template."""
    entry, _ = _OPTIONS[key]
    return _POSITIONS.get(key, -1 if entry.metadata["changes_vectors"] and key not in CoreArguments.__annotations__ else 0)


def _type(entry: dataclasses.Field[Any], kind: Any) -> Any:
    """Return the type of a key's value in a plan, derived from the option's declaration."""
    kinds = [get_origin(part) or part for part in get_args(kind) or (kind,)]
    if choices := entry.metadata["choices"]:
        return Literal[tuple(choices)]
    if Mapping in kinds:
        return Annotated[str, BeforeValidator(_json), Field(pattern=r"^\{")]  # a JSON object, not the path of a file
    if get_origin(kind) is Sequence or Sequence in kinds:
        return Texts
    if kind is bool:
        return Literal[True]  # commands have no --no-NAME form of these flags
    return str if str in kinds else Annotated[kinds[0], Field(ge=entry.metadata["least"])]


# Not options of a group: it has keys of these names, the defaults have, or a plan by another author must not set them.
_ELSEWHERE = {"model", "protocols", "settings", "device", "offline", "data_dir", "sample", "strict_data", "strict",
              "trust_remote_code"}
# Ranks of keys among a command's words, else 0: fixed, so that a job's id does not depend on the order of declarations.
_POSITIONS = {"tasks": -3, "pooler": -2, "template": -2, "batch_tokens": 1, "attention": 1, "dtype": 2}
_OPTIONS = _declared()
OF_FILES = {f"--{key.replace('_', '-')}" for key, (_, kind) in _OPTIONS.items() if Path in get_args(kind)}
_RENAMED: dict[str, list[str]] = {}  # key of an earlier version -> its present spellings
for _entry, _ in _OPTIONS.values():
    for _old, _new in _entry.metadata["renamed"].items():
        _RENAMED.setdefault(_old, []).append(_new.replace("=", ": "))
_KEYS: dict[str, Any] = {
    key: (_type(entry, kind) | None, setting(None, entry.metadata["help"])) for key, (entry, kind) in _OPTIONS.items()
}
EvalGroup = create_model("EvalGroup", __base__=EvalGroup, **_KEYS)  # type: ignore[misc]  # the class above with more keys


class Plan(Settings):
    """The content of a plan file."""

    output: str = setting(..., "where run folders go")
    defaults: Defaults = setting(Defaults(), "what all jobs share")
    files: dict[str, str] = setting({}, "a file that jobs read and somebody has to make first -> the command that makes it")
    train: dict[str, TrainGroup] = setting({}, "name of a group -> its trainings")
    eval: dict[str, EvalGroup] = setting({}, "name of a group -> its evaluations")

    @model_validator(mode="after")
    def _names_are_of_folders(self) -> Plan:
        for name in (*self.train, *self.eval):
            if not re.fullmatch(r"\w[\w.-]{0,79}", name):
                raise ValueError(f"a group's name, {shorten(name)}, must be letters, digits, _ . -: run folders have it")
        return self


def read_plan(path: Path, overrides: dict[str, Any] | None = None, output: str | None = None) -> Plan:
    """Return the plan in a YAML file. Raises StsbenchError, one line that names the file and the key.

    overrides: data_dir, device, dtype, offline of the command line (None: unset), which override groups and defaults.
    output: folder of the runs, overrides the file's.
    """
    return made_plan(read_yaml(path), str(path), overrides, output)


def made_plan(raw: dict[str, Any], where: str, overrides: dict[str, Any] | None = None, output: str | None = None) -> Plan:
    """Return the plan in the parsed content of a file. Raises StsbenchError, which begins with `where`."""
    _refuse_old_keys(raw.get("eval"), where)
    plan = validate(Plan, raw if output is None else {**raw, "output": output}, where)
    if not plan.train and not plan.eval:
        raise StsbenchError(f"{where}: it names no job: write groups below train or eval")
    if twice := sorted({*plan.train} & {*plan.eval}):
        raise StsbenchError(f"{where}: eval.{twice[0]} has the name of a group of trainings: give it another one")
    plan = _overridden(plan, {key: value for key, value in (overrides or {}).items() if value is not None})
    for name, group in plan.eval.items():
        stated: dict[str, Any] = {_OPTIONS[key][0].name: value for key, value in group.options.items() if value is not None}
        stated |= {"data_dir": plan.defaults.data_dir, "sample": plan.defaults.sample,
                   "device": group.device or plan.defaults.device}
        try:
            for model in group.model:
                _Evaluation(model=model, **stated)
        except UsageError as error:
            raise StsbenchError(f"{where}: eval.{name}: {error}") from error
    return plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Evaluation(EncoderOptions, MeasureOptions, DataOptions):
    """All options of an evaluation, which refuses the same combinations as `stsbench eval`."""


def _refuse_old_keys(groups: Any, where: str) -> None:
    """Raise StsbenchError for an evaluation key of an earlier version. groups: the file's `eval`, not validated yet."""
    for name, group in groups.items() if isinstance(groups, dict) else ():
        for key in _RENAMED.keys() & group if isinstance(group, dict) else ():
            raise StsbenchError(f"{where}: eval.{name} has no key '{key}': write {' or '.join(_RENAMED[key])}")


def _overridden(plan: Plan, chosen: dict[str, Any]) -> Plan:
    """Return the plan with the command line's values in place of those of its defaults and groups."""
    defaults = plan.defaults.model_copy(update={**chosen, **({"sample": False} if "data_dir" in chosen else {})})
    options = {key: value for key, value in chosen.items() if key in ("device", "dtype")}
    train = {name: group.model_copy(update=options) for name, group in plan.train.items()}
    device = {key: value for key, value in options.items() if key == "device"}
    evals = {name: group.model_copy(update=device) for name, group in plan.eval.items()}
    return plan.model_copy(update={"defaults": defaults, "train": train, "eval": evals})
