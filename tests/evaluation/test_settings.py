"""Settings: each wrong value is one line that names protocol and key, before anything is encoded; defaults pass."""

import json
import math
import re
from typing import Literal

import pytest
from clirun import cli, evaluate, fails, place, record  # noqa: F401
from core_protocols import core_protocols
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from stsbench.cli.eval import _setting
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import plan, presets
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.run_file import load_records, observations_of
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
    described,
    setting,
)
from stsbench.metrics.aggregation import AGGREGATIONS
from stsbench.metrics.ranking import TIES
from stsbench.metrics.similarity import SIMILARITIES
from stsbench.protocols.geometry import SPLITS
from stsbench.protocols.regression import METRICS

NOT_WHOLE = ("x", -1, 1.5, True, None, 2**32, [1])
NOT_POSITIVE = ("x", 0, -0.5, math.nan, math.inf, True, None, 10**400)
NO_LIST = ([], {}, None)

WRONG = {  # (protocol, setting): values that cannot be used
    ("sts", "aggregations"): (*NO_LIST, "men", ["all", "all"], [1]),
    ("sts", "metrics"): (*NO_LIST, "spearmen", ["pearson", 3], ["pearson", "pearson"]),
    ("sts", "similarity"): ("cosin", 3, ["cosine"], None),
    ("sts", "resamples"): NOT_WHOLE, ("sts", "seed"): NOT_WHOLE,
    ("sts", "pearson_interval"): ("bca", None, 1),
    ("sts", "without_overlap"): ([3], None, ["stsb/dev", "stsb/dev"]),
    ("regression", "seed"): NOT_WHOLE, ("regression", "batch"): (0, *NOT_WHOLE),
    ("regression", "round_epochs"): (0, *NOT_WHOLE), ("regression", "tenacity"): NOT_WHOLE,
    ("regression", "max_epoch"): (0, *NOT_WHOLE), ("regression", "entailment_max_epoch"): (0, *NOT_WHOLE),
    ("regression", "soft_labels"): ("exact", 1, None), ("regression", "learning_rate"): (*NOT_POSITIVE, "1e-4", 1e300),
    ("regression", "entailment_regs"): (*NO_LIST, [0], ["1e-4"], [1, 1.0]),
    ("regression", "entailment_optimizer"): ("sgd", None), ("regression", "entailment_batch"): (0, *NOT_WHOLE),
    ("regression", "entailment_epoch_size"): (0, *NOT_WHOLE), ("regression", "entailment_tenacity"): NOT_WHOLE,
    ("regression", "resamples"): NOT_WHOLE, ("regression", "bootstrap_seed"): NOT_WHOLE,
    ("regression", "metrics"): (*NO_LIST, "accuracy", ["mse", "mse"]),
    ("transfer", "classifier"): ("sklern", None, ["torch"]), ("transfer", "k"): (1, *NOT_WHOLE),
    ("transfer", "seed"): NOT_WHOLE, ("transfer", "grid"): (*NO_LIST, [0], 1e300, ["1e-4"], "1"),
    ("transfer", "grid_kfold"): (*NO_LIST, [-1.0], [1, 1]), ("transfer", "blank"): (None, 5, ["."]),
    ("transfer", "optimizer"): ("sgd", 1), ("transfer", "batch"): (0, *NOT_WHOLE), ("transfer", "tenacity"): NOT_WHOLE,
    ("transfer", "epoch_size"): (0, *NOT_WHOLE), ("transfer", "max_epoch"): (0, *NOT_WHOLE),
    ("transfer", "validation"): (*NOT_POSITIVE, 1, 1.5), ("transfer", "dtype"): ("float16", 32),
    ("retrieval", "duplicates"): ("remove", None), ("retrieval", "ties"): ("best", 1),
    ("retrieval", "ks"): (*NO_LIST, 0, [0], [True], ["1"], [5, 5, 1], [1.0]), ("retrieval", "resamples"): NOT_WHOLE,
    ("retrieval", "seed"): NOT_WHOLE, ("retrieval", "folder"): (5, "", None),
    **{(name, "similarity"): ("cosin", None) for name in ("pairs", "triplets")}, ("pairs", "positive"): ([5], ""),
    **{(name, key): NOT_WHOLE for name in ("pairs", "triplets") for key in ("resamples", "seed")},
    **{(name, "columns"): (5, "", ["a"]) for name in ("pairs", "triplets")},
    **{(name, "file"): (5, "", None) for name in ("pairs", "triplets", "transfer")},
    ("geometry", "split"): ("tset", 1), ("geometry", "alpha"): (*NOT_POSITIVE, 1e308),
    ("geometry", "t"): (*NOT_POSITIVE, 1e308), ("geometry", "positive_above"): ("x", math.nan, math.inf, None, True),
    ("geometry", "texts"): ("some", 1), ("geometry", "centre"): ("maybe", 1, None), ("geometry", "resamples"): NOT_WHOLE,
    ("geometry", "seed"): (-3, *NOT_WHOLE),
    ("mteb", "tasks"): ("STS12", {}, {"STS12": "elsewhere/test"}, {"STS12": 5}, None), ("mteb", "benchmark"): (5, ""),
}


@pytest.mark.parametrize(("name", "key"), WRONG)
def test_wrong_values_are_one_line(name, key):
    for value in WRONG[name, key]:
        with pytest.raises(StsbenchError) as caught:
            kinds()[name]({key: value})
        line = str(caught.value)
        assert re.match(rf"{name}: {key}(\.\w+)? must be ", line) and ", not " in line, line
        assert "\n" not in line and len(line) < 250, line


@pytest.mark.parametrize("name", core_protocols())
def test_every_setting_is_checked(name):
    kind = kinds()[name]
    of_variants = {key for form in kind.variants for key in kind.variant(form)}
    assert {key for known, key in WRONG if known == name} >= {*kind({}).settings, *of_variants}
    with pytest.raises(StsbenchError, match=f"protocol {name} has no setting 'sede'"):
        kind({"sede": 1})


def test_defaults_variants_and_presets_pass_and_come_back_from_json_as_they_are():
    for kind in kinds().values():
        for own in ({}, *map(kind.variant, kind.variants)):
            settings = kind(own).settings
            again = kind(json.loads(json.dumps(settings))).settings
            assert json.dumps(again) == json.dumps(settings)
            assert all(settings[key] == value for key, value in own.items())
    for name in presets():
        assert plan([name], None, {})[0]


def test_two_objects_share_no_list():
    for kind in kinds().values():
        one, other = kind({}).settings, kind({}).settings
        shared = [key for key, value in one.items() if isinstance(value, list | dict) and value is other[key]]
        assert not shared, (kind.name, shared)


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
    """A model with one setting, `key`, of that type."""
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


def test_hints():
    similarity = of(Literal["cosine", "dot", "l2"])
    for wrong, line in (
        ("cosin", "sts: key must be 'cosine', 'dot' or 'l2', not 'cosin'; did you mean cosine?"),
        ("qqq", "sts: key must be 'cosine', 'dot' or 'l2', not 'qqq'"),
    ):
        with pytest.raises(StsbenchError) as caught:
            checked(similarity, {"key": wrong}, "sts")
        assert str(caught.value) == line
    with pytest.raises(StsbenchError, match=r"^p: key\.1 must be 'a' or 'better', not 'bettr'; did you mean better\?$"):
        checked(of(SomeOf[Literal["a", "better"]]), {"key": ["a", "bettr"]}, "p")
    with pytest.raises(StsbenchError, match="protocol p has no setting 'kye'; did you mean key"):
        checked(of(Whole), {"kye": 1}, "p")
    with pytest.raises(StsbenchError, match="p: needs a value for key"):
        checked(of(Whole), {}, "p")


@pytest.mark.parametrize("name", kinds())
def test_every_setting_is_described(name):
    """Type, default, meaning and source; the models hold the words that the code knows."""
    kind = kinds()[name]
    for form in ("", *kind.variants):
        settings = kind(kind.variant(form) if form else {}).settings
        lines = described(kind({}).settings_model(settings), settings)
        assert [each.name for each in lines] == list(settings)
        assert all(each.values and each.meaning and each.source for each in lines)
        assert [json.loads(each.default) for each in lines] == list(settings.values())


def test_the_words_of_the_models_are_those_of_the_code():
    words = {each.name: each.values for name in ("sts", "geometry", "retrieval", "regression")
             for each in described(kinds()[name].Settings, kinds()[name]({}).settings)}
    assert words["similarity"] == ", ".join(map(repr, SIMILARITIES)) and words["ties"] == ", ".join(map(repr, TIES))
    assert words["aggregations"] == "list of " + ", ".join(map(repr, AGGREGATIONS))
    assert words["split"] == ", ".join(map(repr, SPLITS))
    assert words["metrics"] == "list of " + ", ".join(map(repr, METRICS))


# --set, from the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [
    ("1e-4", 1e-4), ("[1e-5,1e-4]", [1e-5, 1e-4]), ("4e0", 4.0), ("-2E+3", -2000.0), (".5e1", 5.0), ("1.e2", 100.0),
    ("{a: [1e3]}", {"a": [1000.0]}),
    ("'1e-4'", "1e-4"), ('"1e-4"', "1e-4"), ("1e", "1e"), ("e4", "e4"), ("1e-4x", "1e-4x"),
    ("word", "word"), ("2e4 b", "2e4 b"), ("7", 7), ("0.5", 0.5), ("no", False), ("", None),
    ("dev spearman", "dev spearman"),
])
def test_values_are_read_as_yaml_with_numbers_as_people_write_them(text, value):
    key, found = _setting(f"transfer.blank={text}")
    assert (key, found) == ("transfer.blank", value) and type(found) is type(value)


@pytest.mark.parametrize(("words", "parts"), [
    (["sts.seed=x"], ["sts: seed must be a whole number", "'x'"]), (["sts.resamples=-1"], ["sts: resamples", "-1"]),
    (["sts.metrics=[]"], ["sts: metrics must be a list"]), (["sts.metrics=[spearmen]"], ["did you mean spearman"]),
    (["sts.without_overlap=stsb/dev"], ["use --without-overlap"]),
    (["transfer.classifier=exact", "--protocol", "sts,transfer"], ["use --protocol transfer:exact"]),
    (["geometry.split=dev", "--protocol", "geometry"], ["use --protocol geometry:dev"]),
    (["mteb.benchmark=B", "--protocol", "mteb"], ["use --protocol mteb:NAME"]),
    (["retrieval.folder=x", "--protocol", "retrieval"], ["use --protocol retrieval:FOLDER"]),
    (["geometry.centre=maybe", "--protocol", "geometry"], ["geometry: centre must be true or false, not 'maybe'"]),
    (["retrieval.ks=[5,5,1]", "--protocol", "retrieval"], ["retrieval: ks must be", "[5, 5, 1]"]),
    (["retrieval.duplicates=drop", "--protocol", "retrieval:keep"],
     ["duplicates must be keep in retrieval:keep, not 'drop'"]),
    (["transfer.blank=1e-4", "--protocol", "transfer", "--tasks", "CR"], ["transfer: blank must be a text, not 0.0001"]),
])
def test_the_command_line_refuses_in_one_line(evaluate, words, parts):
    fails(evaluate("python:mine_cli:no_such_function", "--set", *words), *parts)  # before the encoder is looked at


def test_a_value_that_is_no_yaml_is_one_line(evaluate):
    for value in ("[1", "2001-99-99", "{[a]: 1}"):
        code, out, err = evaluate("lexical:token-set", "--set", f"sts.seed={value}")
        assert (code, out) == (2, "") and "the value cannot be read" in err and "Traceback" not in err


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


def test_a_grid_of_exponents_reaches_the_fits(cli):
    code, _, err = cli(
        "eval", "--model", "python:mine_cli:hashed", "--protocol", "transfer:exact", "--tasks", "MRPC", "--sample",
        "--set", "transfer.grid_kfold=[1e-5,1e-4]", "--set", "transfer.k=2", "--output", "run",
    )
    assert code == 0, err
    [(_, only)] = load_records("run")
    seen = observations_of("run", only).arrays
    assert seen["regs"].tolist() == [1e-5, 1e-4] and seen["grid"].shape == (1, 2)
    assert record()["protocol"]["settings"]["grid_kfold"] == [1e-5, 1e-4]
