"""Settings of protocols: their types, the words that they take, how the command line reads them, and
what is measured: protocols, tasks and settings that are asked for, and what is left out."""

import json
import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import create_model

from stsbench.cli.eval import _setting
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import plan, split_names
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.schema import (
    LARGEST,
    AnyOf,
    Count,
    Factor,
    Fraction,
    Settings,
    SomeOf,
    Text,
    Whole,
    checked,
    setting,
)


def test_one_value_is_a_list_of_one_and_whole_numbers_are_floats_where_floats_are_meant():
    made = {name: kinds()[name] for name in ("sts", "retrieval", "geometry", "transfer")}
    assert made["sts"]({"metrics": "spearman", "aggregations": "all"}).settings["aggregations"] == ["all"]
    assert made["retrieval"]({"ks": 5}).settings["ks"] == [5]
    assert json.dumps(made["geometry"]({"t": 2, "alpha": 2}).settings) == json.dumps(made["geometry"]({}).settings)
    assert [type(reg) for reg in made["transfer"]({"grid": (1, 2)}).settings["grid"]] == [float, float]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["a", "b", LARGEST]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2), max_leaves=5,
)


def of(annotation):
    return create_model("Made", __base__=Settings, key=(annotation, setting(..., "a setting of the test", "nowhere")))


@hypothesis_settings(max_examples=60)
@given(anything, st.sampled_from([of(each) for each in (
    Whole, Count, float, Factor, Fraction, Literal["a", "b"], Text, str, bool, bool | None, Text | None,
    SomeOf[Literal["a", "b"]], SomeOf[Count], SomeOf[Factor], AnyOf[Text], dict[str, str],
)]))
def test_a_value_is_taken_for_good_or_refused_in_one_line(value, model):
    try:
        found = checked(model, {"key": value}, "p")
    except StsbenchError as error:
        assert re.match(r"p: key(\..*)? must be .*, not ", str(error)) and "\n" not in str(error)
        return
    assert checked(model, found, "p") == found  # a record's settings pass again, unchanged
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(("text", "value"), [
    ("[1e-5,1e-4]", [1e-5, 1e-4]), ("-2E+3", -2000.0), (".5e1", 5.0), ("1.e2", 100.0), ("{a: [1e3]}", {"a": [1000.0]}),
    ("'1e-4'", "1e-4"), ("1e", "1e"), ("e4", "e4"), ("2e4 b", "2e4 b"), ("7", 7), ("no", False), ("", None),
])
def test_values_are_read_as_yaml_with_numbers_as_people_write_them(text, value):
    key, found = _setting(f"transfer.blank={text}")
    assert (key, found) == ("transfer.blank", value) and type(found) is type(value)


def test_settings_reach_the_protocols_that_have_them():
    planned, _ = plan(["all"], None, {"": {"resamples": 7}, "transfer": {"k": 3, "batch": 32}})
    settings = {each.label: each.protocol.settings for each in planned}
    assert settings["sts"]["resamples"] == settings["retrieval"]["resamples"] == 7
    assert settings["transfer"]["batch"] == 32 and "batch" not in settings["transfer:exact"]
    assert {settings[label]["k"] for label in ("transfer", "transfer:sklearn", "transfer:exact")} == {3}
    with pytest.raises(StsbenchError):
        plan(["all"], None, {"transfer": {"bach": 32}})


def test_tasks_of_several_named_protocols():
    planned, left_out = plan(["sts", "transfer:exact", "infersent", "retrieval"], ["STS12", "CR"], {})
    assert [(each.label, list(each.tasks)) for each in planned] == [
        ("sts", ["STS12"]), ("transfer:exact", ["CR"]), ("infersent", ["STS12"])
    ]
    assert left_out == {"retrieval": "it has none of the tasks STS12, CR"}
    planned, _ = plan(["sts", "all"], None, {})
    labels = [each.label for each in planned]
    assert len(labels) == len(set(labels)) and labels[0] == "sts"


def test_a_preset_and_a_form_have_their_own_settings():
    planned, left_out = plan(["sts:wmean", "simcse"], ["sts12"], {"": {"resamples": 5}})
    assert [(p.label, p.protocol.label, p.tasks) for p in planned] == [
        ("sts:wmean", "sts", {"STS12": "sts12/test"}), ("simcse", "simcse", {"STS12": "sts12/test"}),
    ]
    assert all(p.protocol.settings["resamples"] == 5 for p in planned) and left_out == {}
    assert planned[0].protocol.settings["aggregations"] == ["wmean"]
    assert planned[1].protocol.settings["metrics"] == ["spearman"]


def test_a_task_on_request_runs_only_where_it_is_named():
    for protocol in ("sts:mean", "simcse", "all"):
        chosen, _ = plan([protocol], None, {})
        assert not [each.label for each in chosen if each.protocol.name == "sts" and "SICK-R-MTEB" in each.tasks]
    named, _ = plan(["sts"], ["sick-r-mteb"], {})
    assert [each.tasks for each in named] == [{"SICK-R-MTEB": "sick-r/mteb"}]


def test_names_hold_commas_in_brackets():
    assert split_names("mteb:MTEB(eng, v2), sts") == ("mteb:MTEB(eng, v2)", "sts")
