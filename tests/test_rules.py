"""What goes together is declared once: settings of models, and options of commands, refuse the rest in the same words."""

from dataclasses import dataclass, fields
from typing import Literal

import pytest

from stsbench.config import validate
from stsbench.errors import StsbenchError, UsageError
from stsbench.evaluation.options import EvalOptions
from stsbench.options import GIVEN, POSITIVE, OptionGroup, Where, check, option
from stsbench.registry import names, resolve
from stsbench.settings import Settings, described, setting, setting_defaults, setting_rules
from stsbench.training.recipes.methods import options_class
from stsbench.training.runs.options import TrainRequest


class Views(Settings):
    kind: Literal["dropout", "crop", "words", "file"] = setting("dropout", "what the positive is")
    rate: float | None = setting(None, "of words", goes_with={"kind": ("crop", "words")}, needed=True, gt=0, lt=1)
    path: str | None = setting(None, "its file", goes_with={"kind": "file"}, needed=True, why="one sentence a line")
    weight: float = setting(0.0, "of the second term", excludes={"kind": "file"}, ge=0)
    scale: float = setting(0.1, "of that term", goes_with={"weight": POSITIVE})
    seeds: tuple[int, ...] = setting((), "drawn", goes_with=Where(lambda all_: all_.weight + 1 > 1, "a second term"))
    single: bool = setting(False, "one network", excludes=("seeds",), why="it draws nothing")
    last: int | None = setting(None, "a number", goes_with=({"single": GIVEN}, {"kind": "dropout"}))


@pytest.mark.parametrize(("settings", "line"), [
    ({"rate": 0.1}, "rate 0.1 has no effect with kind dropout: it goes with kind crop or words; leave it at null"),
    ({"kind": "file"}, "kind file needs path: one sentence a line"),
    ({"kind": "file", "path": "x", "weight": 1}, "weight 1 and kind file exclude each other"),
    ({"scale": 0.2}, "scale 0.2 has no effect with weight 0: it goes with weight above 0; leave it at 0.1"),
    ({"weight": 1, "seeds": [1], "single": True}, "single and seeds exclude each other: it draws nothing"),
    ({"last": 1}, "last 1 has no effect without single; leave it at null"),
    ({"last": 1, "single": True, "kind": "crop", "rate": 0.5},
     "last 1 has no effect with kind crop: it goes with kind dropout; leave it at null")])
def test_a_setting_that_breaks_a_rule_is_one_line(settings, line):
    with pytest.raises(StsbenchError) as caught:
        validate(Views, settings, "x.yaml", "options.")
    assert str(caught.value) == f"x.yaml: options.{line}"


@pytest.mark.parametrize("settings", [
    {}, {"kind": "crop", "rate": 0.2}, {"kind": "file", "path": "x"}, {"weight": 1, "scale": 2, "seeds": [3]},
    {"single": True, "last": 4}, {"rate": None, "scale": 0.1}])
def test_settings_at_their_defaults_break_none(settings):
    assert validate(Views, settings, "x.yaml").model_dump() == {**setting_defaults(Views), **settings} | {
        "seeds": tuple(settings.get("seeds", ()))}


def test_lists_say_what_goes_with_what():
    assert {entry.name: entry.goes_with for entry in described(Views, setting_defaults(Views)) if entry.goes_with} == {
        "rate": "kind crop or words", "path": "kind file", "scale": "weight above 0", "seeds": "a second term",
        "last": "single; kind dropout"}


@dataclass(frozen=True)
class Asked:
    kind: str = option("random", "", choices=("random", "grid"))
    trials: int | None = option(None, "", least=1, goes_with={"kind": "random"})
    sample: bool = option(False, "", excludes=("data_dir",))
    data_dir: str | None = option(None, "")
    commit: str | None = option(None, "", goes_with={"every": GIVEN})
    every: bool = option(False, "", flag="--all-models")
    tied: bool | None = option(None, "", excludes={"kind": "grid"})
    depth: int | None = option(None, "")
    width: int | None = option(None, "", goes_with={"depth": GIVEN})


@pytest.mark.parametrize(("options", "line"), [
    ({"kind": "gird"}, "--kind gird is unknown; did you mean grid?"),
    ({"trials": 3, "kind": "grid"}, "--trials 3 has no effect with --kind grid: it goes with --kind random; leave it out"),
    ({"sample": True, "data_dir": "x"}, "--sample and --data-dir exclude each other"),
    ({"commit": "abc"}, "--commit needs --all-models"),
    ({"tied": False, "kind": "grid"}, "--no-tied and --kind grid exclude each other")])
def test_an_option_that_breaks_a_rule_is_one_line(options, line):
    with pytest.raises(UsageError) as caught:
        check(Asked(**options))
    assert str(caught.value) == line
    check(Asked(commit="abc", every=True, trials=3, sample=True))
    check(Asked(depth=0, width=3))  # 0 is given


def test_every_rule_names_options_that_there_are():
    for name in names("stsbench.methods"):
        options_class(name)
    for name in names("stsbench.protocols"):
        resolve("stsbench.protocols", name)
    models, groups = [Settings], [OptionGroup]
    for kinds in (models, groups):
        for kind in kinds:
            kinds += kind.__subclasses__()
    assert len(models) > 40 and len(groups) > 10
    asked = [(model.__name__, {*model.model_fields}, setting_rules(model)[0].values()) for model in models]
    whole = (EvalOptions, TrainRequest, *groups[1:])
    there = {entry.name for group in whole for entry in fields(group)}  # a part may name another part's
    asked += [(group.__name__, there, [entry.metadata["rule"] for entry in fields(group) if "rule" in entry.metadata])
              for group in whole]
    assert sum(len(rules) for _, _, rules in asked) > 100
    for owner, there, rules in asked:
        for rule in rules:
            named = {*rule.excluded, *(name for part in rule.conditions if not isinstance(part, Where) for name in part)}
            assert named <= there, (owner, named - there)
