"""A plan file: trainings and evaluations in groups, what they share, and where their run folders go."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from stsbench.config import read_yaml, shown, validate
from stsbench.errors import StsbenchError
from stsbench.registry import DEFAULT_PROTOCOL

JOB = "job:"  # before the name of a group, or of one job of it, whose run is meant
DATA_DIR = "{data_dir}"  # in paths: defaults.data_dir
Dtype = Literal["float32", "bf16", "fp16"]


def _several(value: Any) -> Any:
    """One value is a list of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _json(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_several), Field(min_length=1)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_several), Field(min_length=1)]


class Section(BaseModel):
    """A part of a plan; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Defaults(Section):
    """What all jobs share, unless their group says otherwise."""

    data_dir: str | None = None  # --data-dir of each job, and what {data_dir} in a path stands for
    sample: bool = False  # --sample of each job
    offline: bool = False
    device: str | None = None
    dtype: Dtype | None = None  # of trainings; an evaluation computes in float32 unless its group says otherwise
    seeds: Seeds = (42,)  # of trainings
    set: dict[str, Any] = {}  # --set of trainings


class BoardEntry(Section):
    """What `stsbench leaderboard add` is told of a group's runs: its options by the same names, `name` being --entry."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")
    method: str
    backbone: str
    setting: Literal["unsup", "semi", "sup"]
    flags: tuple[str, ...] = ()
    recipe: str | None = None
    paper: str | None = None
    note: str | None = None


class TrainGroup(Section):
    """Trainings: one for each method x recipe x backbone x seed. Keys are the options of `stsbench train`."""

    method: Texts
    recipe: Texts | None = None  # names or files; None: each method's default
    backbone: Texts | None = None  # models, or job:NAME
    data: str | None = None
    labelled: str | None = None
    stage: str | None = None
    start_from: str | None = None  # --from: a run, or job:NAME
    seeds: Seeds | None = None
    max_steps: int | None = Field(default=None, ge=1)
    set: dict[str, Any] = {}
    default_set: bool = True  # false: without the `set` of the defaults
    device: str | None = None
    dtype: Dtype | None = None
    entry: BoardEntry | None = None  # of the evaluations of these trainings in groups without an entry


class EvalGroup(Section):
    """Evaluations: one for each model x protocols. Keys are the options of `stsbench eval`."""

    model: Texts  # models, or job:NAME for each training of a group
    protocols: Texts = (DEFAULT_PROTOCOL,)  # one evaluation each; "sts,geometry" is one evaluation by both
    tasks: Texts | None = None
    pooler: str | None = None
    template: str | None = None
    preset: str | None = None
    layer: int | None = None
    full_stop: bool | None = None
    max_length: int | None = Field(default=None, ge=1)
    normalize: bool | None = None
    truncate_dim: int | None = Field(default=None, ge=1)
    prompt: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    extra_body: Annotated[str | None, BeforeValidator(_json), Field(pattern=r"^\{")] = None  # a mapping: no file's content
    base_url: str | None = None
    dimensions: int | None = Field(default=None, ge=1)
    task: str | None = None
    revision: str | None = None
    post: str | None = None
    fit_on: str | None = None
    similarity: str | None = None
    columns: str | None = None
    resamples: int | None = Field(default=None, ge=0)
    text: Literal["senteval", "raw"] | None = None
    without_overlap: Texts | None = None
    batch_tokens: int | None = Field(default=None, ge=1)
    attention: Literal["auto", "varlen", "padded", "eager"] | None = None
    set: dict[str, Any] = {}
    device: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    entry: BoardEntry | None = None

    @model_validator(mode="after")
    def _names_protocols(self) -> EvalGroup:
        if "all" in {name.strip() for listed in self.protocols for name in listed.split(",")}:
            raise ValueError("'all' measures what data are at hand: name the protocols, so that it is known what is missing")
        return self


class Plan(Section):
    """Everything a plan file says. train, eval: name of a group -> the group."""

    output: str  # where run folders go
    defaults: Defaults = Defaults()
    files: dict[str, str] = {}  # a file that jobs read and somebody has to make first -> the command that makes it
    train: dict[str, TrainGroup] = {}
    eval: dict[str, EvalGroup] = {}

    @model_validator(mode="after")
    def _names_are_of_folders(self) -> Plan:
        for name in (*self.train, *self.eval):
            if not re.fullmatch(r"\w[\w.-]{0,79}", name):
                raise ValueError(f"a group's name, {shown(name)}, must be letters, digits, _ . -: run folders have it")
        return self


def read_plan(path: Path, overrides: dict[str, Any] | None = None, output: str | None = None) -> Plan:
    """The plan in a YAML file. Raises StsbenchError, one line that names the file and the key.

    overrides: data_dir, device, dtype, offline of the command line (None: not said); they count before groups and
    defaults. output: where run folders go, before the file's.
    """
    return made_plan(read_yaml(path), str(path), overrides, output)


def made_plan(raw: dict[str, Any], where: str, overrides: dict[str, Any] | None = None, output: str | None = None) -> Plan:
    """The same of what a plan file holds. where: what errors begin with."""
    plan = validate(Plan, raw if output is None else {**raw, "output": output}, where)
    if not plan.train and not plan.eval:
        raise StsbenchError(f"{where}: it names no job: write groups below train or eval")
    if twice := sorted({*plan.train} & {*plan.eval}):
        raise StsbenchError(f"{where}: eval.{twice[0]} has the name of a group of trainings: give it another one")
    return _overridden(plan, {key: value for key, value in (overrides or {}).items() if value is not None})


def _overridden(plan: Plan, chosen: dict[str, Any]) -> Plan:
    """The plan with the command line's values in the place of those of defaults and groups."""
    defaults = plan.defaults.model_copy(update={**chosen, **({"sample": False} if "data_dir" in chosen else {})})
    options = {key: value for key, value in chosen.items() if key in ("device", "dtype")}
    train = {name: group.model_copy(update=options) for name, group in plan.train.items()}
    device = {key: value for key, value in options.items() if key == "device"}
    evals = {name: group.model_copy(update=device) for name, group in plan.eval.items()}
    return plan.model_copy(update={"defaults": defaults, "train": train, "eval": evals})
