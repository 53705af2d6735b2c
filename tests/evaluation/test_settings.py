"""Settings of protocols: their types, the words that they take, and how the command line gives them."""

import json
import re
from typing import Literal

import pytest
from clirun import cli, evaluate, fails, place, record  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from stsbench.cli.eval import _setting
from stsbench.errors import StsbenchError
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


def test_a_setting_without_a_default_is_needed():
    with pytest.raises(StsbenchError):
        checked(of(Whole), {}, "p")


@pytest.mark.parametrize(("text", "value"), [("1e-4", 1e-4), ("[1e-5,1e-4]", [1e-5, 1e-4]), ("4e0", 4.0), ("-2E+3", -2000.0),
                                             (".5e1", 5.0), ("1.e2", 100.0), ("{a: [1e3]}", {"a": [1000.0]}),
                                             ("'1e-4'", "1e-4"), ('"1e-4"', "1e-4"), ("1e", "1e"), ("e4", "e4"),
                                             ("1e-4x", "1e-4x"), ("word", "word"), ("2e4 b", "2e4 b"), ("7", 7),
                                             ("0.5", 0.5), ("no", False), ("", None), ("dev spearman", "dev spearman")])
def test_values_are_read_as_yaml_with_numbers_as_people_write_them(text, value):
    key, found = _setting(f"transfer.blank={text}")
    assert (key, found) == ("transfer.blank", value) and type(found) is type(value)


@pytest.mark.parametrize(("words", "settings"), [
    (["sts.metrics=spearman", "--set", "sts.aggregations=all"], {"metrics": ["spearman"], "aggregations": ["all"]}),
    (["geometry.positive_above=4e0", "--protocol", "geometry"], {"positive_above": 4.0}),
    (["retrieval.ks=5", "--protocol", "retrieval"], {"ks": [5]}),
    (["regression.learning_rate=1e-4", "--set", "regression.max_epoch=1", "--set", "regression.metrics=pearson",
      "--protocol", "regression"], {"learning_rate": 1e-4, "metrics": ["pearson"]}),
])
def test_settings_reach_the_record(evaluate, words, settings):
    code, _, err = evaluate("lexical:token-set", "--set", *words)
    assert code == 0, err
    kept = record()["protocol"]["settings"]
    assert {key: kept[key] for key in settings} == settings
