"""Settings: each wrong value is one line that names protocol and key, before anything is encoded; defaults pass."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, evaluate, fails, place, record  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from stsbench.cli.eval import _setting
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import kinds, plan, presets
from stsbench.settings import MOST, checked, optional, real, several, string, truth, whole, word

NOT_WHOLE = ("x", -1, 1.5, True, None, 2**32, [1])
NOT_POSITIVE = ("x", 0, -0.5, math.nan, math.inf, True, None, 10**400)
NO_LIST = ([], {}, None)

WRONG = {  # (protocol, setting): values that cannot be used
    ("sts", "aggregations"): (*NO_LIST, "men", ["all", "all"], [1]),
    ("sts", "metrics"): (*NO_LIST, "spearmen", ["pearson", 3], ["pearson", "pearson"]),
    ("sts", "similarity"): ("cosin", 3, ["cosine"], None),
    ("sts", "resamples"): NOT_WHOLE, ("sts", "seed"): NOT_WHOLE,
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
    ("geometry", "split"): ("tset", 1), ("geometry", "alpha"): (*NOT_POSITIVE, 1e308),
    ("geometry", "t"): (*NOT_POSITIVE, 1e308), ("geometry", "positive_above"): ("x", math.nan, math.inf, None, True),
    ("geometry", "texts"): ("some", 1), ("geometry", "centre"): ("maybe", 1, None), ("geometry", "resamples"): NOT_WHOLE,
    ("geometry", "seed"): (-3, *NOT_WHOLE),
    ("mteb", "tasks"): ("STS12", {}, {"STS12": "elsewhere/test"}, {"STS12": 5}, None), ("mteb", "benchmark"): (5, ""),
}  # fmt: skip


@pytest.mark.parametrize(("name", "key"), WRONG)
def test_wrong_values_are_one_line(name, key):
    for value in WRONG[name, key]:
        with pytest.raises(StsbenchError) as caught:
            kinds()[name]({key: value})
        line = str(caught.value)
        assert line.startswith(f"{name}: {key} must be ") and ", not " in line and "\n" not in line and len(line) < 250, line


@pytest.mark.parametrize("name", kinds())
def test_every_setting_is_checked(name):
    kind = kinds()[name]
    own = {key for form in kind.variants for key in kind.variant(form)}
    assert {key for known, key in WRONG if known == name} >= {*kind({}).settings, *own}
    with pytest.raises(StsbenchError, match=f"setting 'sede' .*{name}|protocol {name} has no setting 'sede'"):
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
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["a", "b", MOST]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2), max_leaves=5,
)  # fmt: skip


@given(anything, st.sampled_from([
    whole(), whole(3), real(), real(above=0), real(above=0, below=1), word(["a", "b"]), string(), truth(),
    several(word(["a", "b"])), several(whole(1)), several(real(above=0)), several(string(), none=True), optional(truth()),
]))  # fmt: skip
def test_a_value_is_taken_for_good_or_refused_in_one_line(value, kind):
    try:
        found = checked("p", {"key": value}, {"key": kind})
    except StsbenchError as error:
        assert str(error).startswith(f"p: key must be {kind.what}, not ") and "\n" not in str(error)
        return
    assert checked("p", found, {"key": kind}) == found  # a record's settings pass again, unchanged
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_hints():
    for wrong, line in (
        ("cosin", "sts: similarity must be cosine, dot or l2, not 'cosin'; did you mean cosine?"),
        ("qqq", "sts: similarity must be cosine, dot or l2, not 'qqq'"),
    ):
        with pytest.raises(StsbenchError) as caught:
            checked("sts", {"similarity": wrong}, {"similarity": word(["cosine", "dot", "l2"])})
        assert str(caught.value) == line
    with pytest.raises(StsbenchError, match=r"not \['a', 'bettr'\]; did you mean better\?$"):
        checked("p", {"ws": ["a", "bettr"]}, {"ws": several(word(["a", "better"]))})
    with pytest.raises(StsbenchError, match="protocol p has no setting 'sed'; did you mean seed"):
        checked("p", {"sed": 1}, {"seed": whole()})


# --set, from the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [
    ("1e-4", 1e-4), ("[1e-5,1e-4]", [1e-5, 1e-4]), ("4e0", 4.0), ("-2E+3", -2000.0), (".5e1", 5.0), ("1.e2", 100.0),
    ("{a: [1e3]}", {"a": [1000.0]}),
    ("'1e-4'", "1e-4"), ('"1e-4"', "1e-4"), ("1e", "1e"), ("e4", "e4"), ("1e-4x", "1e-4x"),
    ("word", "word"), ("2e4 b", "2e4 b"), ("7", 7), ("0.5", 0.5), ("no", False), ("", None),
    ("dev spearman", "dev spearman"),
])  # fmt: skip
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
])  # fmt: skip
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
])  # fmt: skip
def test_settings_reach_the_record(evaluate, words, settings):
    code, _, err = evaluate("lexical:token-set", "--set", *words)
    assert code == 0, err
    kept = record()["protocol"]["settings"]
    assert {key: kept[key] for key in settings} == settings


def test_a_grid_of_exponents_reaches_the_fits(cli):
    code, _, err = cli(
        "eval", "--model", "python:mine_cli:hashed", "--protocol", "transfer:exact", "--tasks", "MRPC", "--sample",
        "--set", "transfer.grid_kfold=[1e-5,1e-4]", "--set", "transfer.k=2", "--output", "run",
    )  # fmt: skip
    assert code == 0, err
    with np.load(Path("run") / record()["observations"]["file"]) as seen:
        assert seen["regs"].tolist() == [1e-5, 1e-4] and seen["grid"].shape == (1, 2)
    assert record()["protocol"]["settings"]["grid_kfold"] == [1e-5, 1e-4]
