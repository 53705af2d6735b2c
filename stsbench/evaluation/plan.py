"""Resolution of `--protocol`, `--tasks` and `--set`: registered protocols, variants of them (`sts:wmean`), papers' presets,
or `all`; and which of a record's settings are not the default of its form, what is declared of a row's metric."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stsbench.config import parse_yaml
from stsbench.data.sets.sets import DataSet
from stsbench.errors import StsbenchError
from stsbench.evaluation.options import split_names as split_names
from stsbench.evaluation.own_data import offers
from stsbench.evaluation.protocol import GROUP, MTEB_NAMES, Protocol, kinds, load_protocol, protocol_name, task_meant
from stsbench.evaluation.records import ProtocolIdentity, ScoreRow
from stsbench.evaluation.schema import UNDECLARED, Metric, find_metric, no_such_setting
from stsbench.registry import did_you_mean, match_name, names, namesakes
from stsbench.settings import choosing_setting

Settings = Mapping[str, Mapping[str, Any]]  # protocol name, or "" for every protocol that has the setting -> settings


@dataclass(frozen=True)
class Planned:
    """One protocol to run. label: as the user named it; tasks: task -> set id; note: what the preset leaves out;
    named: whether the preset lists its tasks, which are then run although they are measured on request only."""

    label: str
    protocol: Protocol
    tasks: dict[str, str]
    note: str = ""
    named: bool = False


def presets() -> dict[str, dict[str, Any]]:
    """Return name -> preset of each paper: its citation, what it leaves out, and its parts (protocol, settings, tasks)."""
    return deepcopy(_shipped_presets())


@cache
def _shipped_presets() -> dict[str, dict[str, Any]]:
    papers = {}
    for file in sorted(resources.files("stsbench.protocols").joinpath("presets").iterdir(), key=lambda item: item.name):
        if file.name.endswith(".yaml"):
            read = parse_yaml(file.read_text("utf-8"), file.name)
            if "parts" not in read:
                read["parts"] = [{key: read.pop(key) for key in ("protocol", "tasks", "settings") if key in read}]
            papers[file.name.removesuffix(".yaml")] = read
    return papers


def list_protocols() -> list[str]:
    """Return the names that `evaluate` takes as a protocol: protocols, variants such as sts:mean, and papers' presets.

    >>> import stsbench
    >>> {"sts", "sts:mean", "transfer:fast"} <= set(stsbench.list_protocols())
    True
    """
    forms = [form for name, kind in kinds().items() for form in (name, *(f"{name}:{word}" for word in kind.variants))]
    return [*forms, *presets()]


def plan(
    protocols: Sequence[str], tasks: Sequence[str] | None, requested: Settings,
    defaults: Mapping[str, Any] = MappingProxyType({}), absent: bool = False,
) -> tuple[list[Planned], dict[str, str]]:
    """Return the protocols to run, and those left out with the reason. `requested` settings override those of presets and
    variants, and `defaults`, which apply to every protocol that has them. absent: a user's file or folder may be missing.

    Raises StsbenchError, with a suggestion, for an unknown protocol, variant, task or setting.
    """
    if not protocols:
        raise StsbenchError("no protocol was named")
    protocols = [_matched(protocol_name(name)) for name in protocols]
    settings = {**requested, "": {**defaults, **requested.get("", {})}}
    parts: dict[str, Planned] = {}
    papers = presets()
    left_out: dict[str, str] = {}
    for name in protocols:
        of_user = user_protocol(name, settings) if absent else None
        named = _parts(name, settings, left_out) if of_user is None else [Planned(name, of_user, of_user.tasks())]
        for number, part in enumerate(named):
            parts[f"{name}#{number}" if name in papers else part.label] = part
    _all_used(requested, [part.protocol for part in parts.values()])
    _check_names(parts.values())
    # A name may stand for several protocols (`all`, a paper): a task has to belong to one of them, not to each.
    everything = {task: id for part in parts.values() for task, id in part.tasks.items()}
    owner = f"protocol {protocols[0]}" if len(protocols) == 1 and protocols != ["all"] else "any protocol named"
    wanted = pick_tasks(everything, tasks, owner)
    chosen = []
    for part in parts.values():
        unasked = part.protocol.on_request if tasks is None and not part.named else ()
        if tasks_wanted := {task: id for task, id in part.tasks.items() if task in wanted and task not in unasked}:
            chosen.append(replace(part, tasks=tasks_wanted))
        elif part.label not in papers:
            left_out[part.label] = f"it has none of the tasks {', '.join(tasks or ())}"
    return chosen, left_out


def _matched(name: str) -> str:
    """Return a protocol's name, and the variant after its colon, in the spelling that is registered."""
    base, colon, word = name.partition(":")
    base = match_name(base, [*names(GROUP), *presets(), "all"])
    if colon and base in names(GROUP) and not Path(word).exists():
        word = match_name(word, load_protocol(base).variants)
    return f"{base}{colon}{word}"


def user_sets(protocols: Sequence[str]) -> list[DataSet]:
    """Return the sets of users' files among `protocols`. Raises StsbenchError as `plan` does, and for unreadable files."""
    parts = plan(protocols, None, {})[0]
    loaded = [part.protocol.load(id) for part in parts if part.protocol.user_path for id in part.tasks.values()]
    return [data for data in loaded if data is not None]


def _check_names(parts: Iterable[Planned]) -> None:
    """Raise StsbenchError where two of a user's sets have the same name, as their rows would have the same task."""
    ids: dict[tuple[str, str], str] = {}
    for part in parts:
        if part.protocol.user_path is None:
            continue
        for task, id in part.tasks.items():
            if (other := ids.setdefault((part.protocol.label, task), id)) != id:
                one, two = (name.removeprefix("own:") for name in (other, id))
                raise StsbenchError(f"{one} and {two} have one name, {task}: rename one, or measure each in its own run")


def named_settings(stated: Mapping[str, Any], every: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings by protocol. stated: "retrieval.ties" -> value; every: settings for each protocol that has them, under
    "". Raises StsbenchError for a setting without a protocol, or one that an option sets."""
    settings: dict[str, dict[str, Any]] = {"": dict(every)}
    for key, value in stated.items():
        protocol, dot, name = key.rpartition(".")
        if protocol in names(GROUP) and (by := _option_name(load_protocol(protocol), name)):
            raise StsbenchError(f"{key} cannot be changed by itself: use {by}")
        if not dot or not name or not protocol:
            raise StsbenchError(f"the setting '{key}' names no protocol: write PROTOCOL.SETTING, as in retrieval.ties")
        if ":" in protocol:
            base = protocol.partition(":")[0]
            raise StsbenchError(f"the setting '{key}' is one of all variants of {base}: write {base}.{name}")
        settings.setdefault(protocol, {})[name] = value
    return settings


def _option_name(kind: type[Protocol], name: str) -> str:
    """Return the option or variant that determines a setting; "" for a setting that can be changed by itself."""
    of_users = kind.settings_model({kind.path_setting: ""}) if kind.path_setting else kind.Settings
    return choosing_setting(kind.Settings, name) or choosing_setting(of_users, name)


def shadowed_files(protocols: Iterable[str]) -> Iterator[str]:
    """Yield a line for each file or folder with the name of a variant, where the variant is used instead of it."""
    for protocol in protocols:
        base, _, word = protocol.partition(":")
        if base in names(GROUP) and (kind := load_protocol(base)).path_setting and word in kind.variants:
            yield from namesakes(word, f"a variant of {base}", f"{base}:")


def find_protocol(name: str, settings: Settings) -> Protocol:
    """Return the protocol called `name`, such as sts or transfer:exact. Raises StsbenchError, with a suggestion, for an
    unknown name."""
    base, colon, word = name.partition(":")
    if base not in names(GROUP):
        if Path(name).is_file():
            raise offers(Path(name))
        forms = (f"{name}:{word}" for name, kind in kinds().items() for word in kind.variants)
        known = [*names(GROUP), *forms, "all", *presets()]
        hint = task_meant(name) or f"{did_you_mean(name, known)}, or FILE.py:CLASS"
        raise StsbenchError(f"unknown protocol '{name}'{hint}")
    kind = load_protocol(base)
    return _built(name, kind, kind.variant(word) if colon else {}, settings)


def user_protocol(name: str, settings: Settings) -> Protocol | None:
    """Return the protocol of a `name` with a user's file or folder after the colon, which need not exist; None for any
    other name."""
    base, _, word = name.partition(":")
    kind = load_protocol(base) if word and base in names(GROUP) else None
    form, _, path = word.partition(":")
    of_form: Mapping[str, Any] = {}
    if kind is not None and path and form in kind.variants:
        word, of_form = path, kind.variants[form]
    if kind is None or not kind.path_setting or word in kind.variants:
        return None
    # A word without a suffix, such as sts:maen, is more likely a misspelt variant than a file.
    if kind.path_setting == "folder" or Path(word).suffix or kind.reads_hub(word) or Path(word).is_dir():
        there = kind.variant(".")  # the settings of any path: "." exists, while the user's path may not
        return _built(name, kind, {**of_form, **there, kind.path_setting: word}, settings)
    return None


def pick_tasks(known: Mapping[str, str], chosen: Sequence[str] | None, owner: str) -> dict[str, str]:
    """Return task -> set id of the `chosen` tasks, in the order of `known`; names are matched regardless of case
    and marks, and may be mteb's.

    None wants them all. Raises StsbenchError, with a suggestion, for a task that `owner` does not have.
    """
    if chosen is None:
        return dict(known)
    asked = set()
    for name in chosen:
        task = match_name(name, known)
        elsewhere = (*MTEB_NAMES.items(), ("SICK-R", "SICKRelatedness"))  # the latter is SentEval's name
        of_mteb = [key for key, value in elsewhere if key in known and match_name(name, [value]) == value]
        other = next((key for key, value in MTEB_NAMES.items() if key in known and value == name), task)
        if name not in known and task in known and other != task:  # STSB is STS-B by case and marks, but STS-B-zh in mteb
            raise StsbenchError(f"the task '{name}' of {owner} may be {task} or, as in mteb, {other}: write one of these")
        if task not in known and not of_mteb:
            every = name.lower() == owner.split()[-1].lower()
            hint = "; without tasks all are measured" if every else did_you_mean(name, known)
            raise StsbenchError(f"unknown task '{name}' of {owner}{hint}")
        asked.add(task if task in known else of_mteb[0])
    return {name: id for name, id in known.items() if name in asked}


def _parts(name: str, settings: Settings, left_out: dict[str, str]) -> Iterator[Planned]:
    """Yield the protocols that one name of `--protocol` stands for, each with all its tasks."""
    if name == "all":
        for base, kind in kinds().items():
            for word in kind.in_all:
                label = f"{base}:{word}" if word else base
                protocol = _built(label, kind, kind.variant(word) if word else {}, settings)
                yield Planned(label, protocol, protocol.tasks())
            for word in kind.variants:
                if kind.labels_variants and word not in kind.in_all:
                    left_out[f"{base}:{word}"] = f"another form of {base}: run by name only"
    elif paper := presets().get(name):
        for part in paper["parts"]:
            protocol = _built(name, load_protocol(part["protocol"]), part.get("settings", {}), settings)
            within = pick_tasks(protocol.tasks(), part.get("tasks"), f"protocol {name}")
            yield Planned(name, protocol, within, paper.get("left_out", ""), "tasks" in part)
    else:
        protocol = find_protocol(name, settings)
        if not protocol.tasks():
            data = f" data of your own: {name}:{protocol.path_setting.upper()}" if protocol.path_setting else " no model"
            raise StsbenchError(f"{name} measures{data}")
        yield Planned(name, protocol, protocol.tasks())


def _built(label: str, kind: type[Protocol], form: Mapping[str, Any], settings: Settings) -> Protocol:
    """Return the protocol with the settings of a variant or a paper's preset, overridden by the user's where it has them."""
    known = kind(form).settings
    asked = {**settings.get("", {}), **settings.get(kind.name, {})}
    own_settings = {key: value for key, value in asked.items() if key in known}  # `_all_used` refuses the rest
    base, colon, _ = label.partition(":")
    # Rows of `sts:mean` are labelled `sts`, as they have a column for the aggregation; those of a preset, by the paper.
    return kind({**form, **own_settings}, label if colon and kind.labels_variants else base)


def _all_used(settings: Settings, protocols: Sequence[Protocol]) -> None:
    """Raise StsbenchError for a setting that no protocol of the plan has: it would be ignored."""
    for owner, asked in settings.items():
        takers = [protocol for protocol in protocols if owner in ("", protocol.name)]
        known = {key for protocol in takers for key in protocol.settings}
        for key in asked:
            if key in known:
                continue
            if owner and takers:
                raise no_such_setting(owner, key, known)
            run = ", ".join(dict.fromkeys(protocol.name for protocol in protocols))
            option = f"{owner}.{key}" if owner else "--" + key.replace("_", "-")
            raise StsbenchError(f"{option} does not apply to protocol {run}")


def changed_settings(protocol: ProtocolIdentity) -> str:
    """Return 'similarity dot, ...': settings that are not the default of this form of the protocol, or of this paper's
    preset."""
    kind = load_protocol(protocol.name)
    # The task already names a user's file or folder, and pages describe left-out pairs in their own words.
    unsaid = kind.cosmetic | {kind.path_setting, "without_overlap"}

    def against(form: Any) -> dict[str, Any]:
        defaults = kind(form).settings
        # A key without a default is a change, whatever its value.
        return {key: value for key, value in protocol.settings.items()
                if key not in unsaid and (key not in defaults or value != defaults[key])}

    changes = min((against(form) for form in _candidate_settings(kind, protocol)), key=len)
    return ", ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in changes.items())


def _candidate_settings(kind: Any, protocol: ProtocolIdentity) -> list[Any]:
    """Return the settings of each variant or part of a preset that a record with this label may be of."""
    base, _, word = protocol.label.partition(":")
    if base != protocol.name and (paper := presets().get(protocol.label)):
        return [part.get("settings", {}) for part in paper["parts"] if part["protocol"] == protocol.name] or [{}]
    if word in kind.variants:
        return [kind.variants[word]]
    if kind.labels_variants and not word:
        return [{}]
    return [{}, *kind.variants.values()]  # records do not name the variant: that of `geometry:dev` says `geometry`


def declared_metric(row: ScoreRow) -> Metric:
    """Return the metric of a row as its protocol declares it, UNDECLARED for an unknown one; the row's label may be the name
    of a protocol, a variant or a paper."""
    return metric_under(row.protocol, row.metric)


def metric_under(label: str, metric: str) -> Metric:
    """Return the declaration of a metric in rows with this label, as `declared_metric` does."""
    base = label.partition(":")[0]
    for name in [base] if base in names(GROUP) else _preset_protocols(label):
        if (declared := find_metric(load_protocol(name).metrics, metric)) is not None:
            return declared
    return UNDECLARED


@cache
def _preset_protocols(paper: str) -> tuple[str, ...]:
    """Return the protocols of a paper's preset."""
    return tuple(dict.fromkeys(part["protocol"] for part in presets().get(paper, {}).get("parts", ())))
