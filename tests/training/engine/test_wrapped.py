"""The sections `matryoshka` and `guide` around every method, together and with `ranking`, or one line that says why not."""

import json
import re

import pytest
from method_options import effect
from method_runs import RUNS, StopAt, Stopped, cached_place, recipe_of, train

from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.finish import trained_as

WHOLE = {"sarcse": 15, "is-bert": 8}  # of learned poolers, or some of it; all others: 32
GUIDE = {"guide": {"model": "lexical:token-set", "margin": 0.7}}
RANKING = {"ranking.teachers": [{"model": "lexical:token-set"}]}
KEPT = {"options.head": "none"}
NO_PROJECTOR = {"options.projector": "none"}
# name in RUNS -> what it needs beside the section matryoshka
NESTED = {
    "simcse": KEPT, "simcse-given": {}, "simcse-semi": KEPT, "esimcse": KEPT, "diffcse": NO_PROJECTOR,
    "diffcse-rtd": NO_PROJECTOR, "rankcse": KEPT, "promptbert": KEPT, "promptbert-words": {}, "sarcse": {}, "consert": {},
    "mirror-bert": {}, "declutr": {},
}
LABELLED = ("cosent", "angle", "angle-triplets")  # every term of theirs is shortened, whatever it is called
NOT_SHARED = "compares no two views by the shared contrastive term"
NOT_NESTED = {
    "mlm": NOT_SHARED, "sbert": NOT_SHARED, "cmlm": NOT_SHARED, "is-bert": NOT_SHARED, "ct": NOT_SHARED,
    "simcse": "contrasts what its head makes of a vector", "diffcse": "contrasts what its projector makes",
    "sg-opt": "take a method without one", "diffaug": "take a method without one", "ct-in-batch": "takes dot products",
    "infocse": "contrasts what its projector makes", "tsdae": NOT_SHARED, "distil": NOT_SHARED,
    **{name: "contrasts what its head makes of a vector" for name in ("pcl", "whitenedcse", "sncse")},
}
GUIDED = ("simcse", "simcse-given", "simcse-semi", "esimcse", "diffcse", "diffcse-rtd", "rankcse", "promptbert", "sarcse",
          "diffaug", "mirror-bert", "infocse", "pcl", "whitenedcse", "sncse")
NOT_GUIDED = {
    "mlm": NOT_SHARED, "sbert": NOT_SHARED, "cmlm": NOT_SHARED, "is-bert": NOT_SHARED, "sg-opt": NOT_SHARED,
    "ct": "makes other texts of them", "declutr": "contrastive term compares other texts",
    "ct-in-batch": "set guide.contrast_anchors and", "consert": "labelled rows are contrasted", "tsdae": NOT_SHARED,
    "distil": NOT_SHARED, "cosent": NOT_SHARED, "angle": NOT_SHARED,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("wrapped"))


def dims(name, *more):
    return {"matryoshka": {"dims": [WHOLE.get(name, 32), *more]}}


def told(place, folder, name, changes):
    try:
        return effect(place, folder, name, changes)
    except StsbenchError as error:  # before there is a run: the plan refuses it
        return error


def first_terms(text):
    """term -> (weight, value, count) of the first stage that has a contrastive one."""
    parts = [part for part in re.findall(r"\{'[^{}]*\}", text) if "'contrastive" in part]
    return {name: tuple(map(float, values.split(", "))) for name, values in re.findall(r"'(\w+)': \(([^()]*)\)", parts[0])}


def all_terms(text):
    """term -> (weight, value, count) of the first stage."""
    part = re.findall(r"\{'[^{}]*\}", text)[0]
    return {name: tuple(map(float, values.split(", "))) for name, values in re.findall(r"'(\w+)': \(([^()]*)\)", part)}


def test_every_method_is_one_or_the_other():
    methods = {method for method, _ in RUNS.values()}
    for taken, refused in (((*NESTED, *LABELLED), NOT_NESTED), (GUIDED, NOT_GUIDED)):
        assert {RUNS[name][0] for name in (*taken, *refused)} == methods
    assert {RUNS[name][0] for name in LABELLED} == {"cosent", "angle"}


@pytest.mark.parametrize("name", NESTED)
def test_the_contrastive_term_alone_is_changed_by_shorter_vectors(place, tmp_path, name):
    plain, nested, whole = (told(place, tmp_path / "run", name, {**NESTED[name], **change}) for change in (
        {}, dims(name, 6), dims(name)))
    assert isinstance(nested, str), nested
    before, after = first_terms(plain), first_terms(nested)
    assert before.keys() == after.keys()
    for term in before:
        assert (before[term] == after[term]) != term.startswith("contrastive")
        assert before[term][::2] == after[term][::2]  # weight and count
    assert first_terms(whole) == before  # the whole vector with weight 1 is no change, to the last bit


@pytest.mark.parametrize("name", LABELLED)
def test_labelled_pairs_are_ranked_by_shorter_vectors_too(place, tmp_path, name):
    plain, nested, whole = (told(place, tmp_path / "run", name, change) for change in ({}, dims(name, 6), dims(name)))
    before, after = (all_terms(text) for text in (plain, nested))
    assert before.keys() == after.keys() >= {"cosent"} and all(before[term] != after[term] for term in before)
    assert all(before[term][::2] == after[term][::2] for term in before)  # weight and count
    assert all_terms(whole) == before


def test_a_guide_beside_shorter_vectors_is_refused_where_it_has_no_say(place, tmp_path):
    message = str(told(place, tmp_path / "run", "cosent", {**dims("cosent", 6), **GUIDE}))
    assert message.startswith("guide: cosent ") and NOT_SHARED in message and len(message.splitlines()) == 1


@pytest.mark.parametrize("name", NOT_NESTED)
def test_what_cannot_be_shortened_is_told_so(place, tmp_path, name):
    message = str(told(place, tmp_path / "run", name, dims(name, 6)))
    assert NOT_NESTED[name] in message and message.count("matryoshka") and len(message.splitlines()) == 1


@pytest.mark.parametrize("view", ["next", "next3"])
def test_a_view_of_another_row_is_neither_guided_nor_ranked(place, tmp_path, view):
    other = {"options.view": view, "data.contiguous": True}
    guided, ranked = (str(told(place, tmp_path / "run", "simcse", {**other, **section})) for section in (
        GUIDE, RANKING))
    assert "guide: a view of simcse is of another row, which it does not read: set it to null" in guided
    assert "ranking.teachers rank rows, and a view of this method is of another row" in ranked


def test_an_option_that_does_not_exist_is_not_advised(place, tmp_path):
    for name, fix in (("diffcse", "set options.projector to one that is kept"), ("infocse", "take a method without one")):
        assert fix in str(told(place, tmp_path / "run", name, dims(name, 6)))


@pytest.mark.parametrize("name", GUIDED)
def test_a_guide_changes_the_contrastive_term(place, tmp_path, name):
    plain, guided = (told(place, tmp_path / "run", name, change) for change in ({}, GUIDE))
    assert isinstance(guided, str), guided
    before, after = first_terms(plain), first_terms(guided)
    for term in before:
        assert (before[term] == after[term]) != term.startswith("contrastive"), term
        assert before[term][::2] == after[term][::2]
    weight, share, count = after["masked"]  # in the log, and no part of the loss
    assert weight == 0 and 0 < share <= 1 and count in {values[2] for values in before.values()}


@pytest.mark.parametrize("name", NOT_GUIDED)
def test_what_cannot_be_guided_is_told_so(place, tmp_path, name):
    message = str(told(place, tmp_path / "run", name, GUIDE))
    assert NOT_GUIDED[name] in message and "guide" in message and len(message.splitlines()) == 1


@pytest.mark.parametrize("name", ["simcse", "esimcse", "diffcse-rtd", "promptbert", "sarcse", "mirror-bert"])
def test_all_sections_go_together(place, tmp_path, name):
    needs = NESTED[name]
    ranked, all_three = (told(place, tmp_path / "run", name, {**needs, **RANKING, **more}) for more in (
        {}, {**dims(name, 6), **GUIDE}))
    before, after = first_terms(ranked), first_terms(all_three)
    assert {"contrastive", "ranking", "consistency"} <= before.keys() == after.keys() - {"masked"}
    assert all((before[term] == after[term]) != term.startswith("contrastive") for term in before)


MODEL = {"guide.model": "THE MODEL", "guide.settings": {"pooler": "mean"}}
SETTINGS = [
    ({}, {"guide.margin": 0.1}),
    ({"guide.threshold": "relative", "guide.margin": 0.3}, {"guide.threshold": "absolute", "guide.margin": 0.3}),
    ({"guide.threshold": "fixed", "guide.phi": 0.3, "guide.margin": 0.0},
     {"guide.threshold": "fixed", "guide.phi": 0.1, "guide.margin": 0.0}),
    ({}, {"guide.contrast_anchors": False}), ({}, {"guide.contrast_positives": False}), ({}, {"guide.masked": "zero"}),
    ({}, {"guide.loss": "bce_of_softmax"}),
    (MODEL, {**MODEL, "guide.dropout": True}), ({}, MODEL),
    ({"matryoshka.weights": [1, 1]}, {"matryoshka.weights": [1, 2]}), ({}, {"matryoshka.dims": [32, 7]}),
]


@pytest.mark.parametrize(("one", "other"), SETTINGS, ids=str)
def test_every_setting_of_the_sections_has_an_effect(place, tmp_path, one, other):
    start = {"guide.model": "lexical:token-set", "guide.margin": 0.0, "matryoshka.dims": [32, 6], "options.head": "none"}
    texts = [told(place, tmp_path / "run", "simcse-given", {**start, **{
        key: str(place / "model") if value == "THE MODEL" else value for key, value in change.items()}})
        for change in (one, other)]
    assert all(isinstance(text, str) for text in texts), texts
    assert texts[0] != texts[1]


def test_the_diagonals_by_the_guide_are_the_library_s(place, tmp_path):
    """Where an anchor's cosine with its positive is 1 - margin or more: of plain sentences with a fixed threshold of 1 none
    is masked, so that a negative margin keeps every text among its kind."""
    start = {"guide.model": "lexical:token-set", "guide.margin": -2.0}
    texts = [told(place, tmp_path / "run", "simcse-given", {**start, "guide.diagonals": kind})
             for kind in ("masked", "by_guide")]
    assert all(isinstance(text, str) for text in texts) and texts[0] != texts[1]


@pytest.mark.parametrize(("settings", "message"), [
    ({"guide.model": "python:some.module:encoder"}, "guide.model python:some.module:encoder would run code"),
    ({"guide.model": "m", "guide.settings": {"trust_remote_code": True}}, "would run code"),
    ({"guide.model": "m", "guide.threshold": "fixed"}, "guide.threshold fixed needs phi: e.g. 0.95"),
    ({"guide.model": "m", "guide.phi": 0.9}, "guide.phi 0.9 has no effect with threshold absolute: it goes with thresh"),
    ({"guide.model": "m", "guide.threshold": "fixed", "guide.phi": 0.9, "guide.margin": 0.1},
     "guide.margin 0.1 has no effect with threshold fixed"),
    ({"guide.model": "m", "guide.diagonals": "by_guide", "guide.contrast_anchors": False,
      "guide.contrast_positives": False}, "guide.diagonals by_guide has no effect without contrast_anchors or contrast_p"),
    ({"matryoshka.dims": [4, 4]}, "different numbers"), ({"matryoshka.dims": [0]}, "different numbers"),
    ({"matryoshka.dims": [4, 2], "matryoshka.weights": [1]}, "matryoshka.weights must be 2 numbers"),
    ({"matryoshka.dims": []}, "matryoshka.dims"), ({"matryoshka.weights": [1]}, "matryoshka.dims"),
])
def test_what_the_plan_refuses(settings, message):
    with pytest.raises(StsbenchError, match=message) as error:
        plan_of(load_recipe("simcse", None, [f"{key}={json.dumps(value)}" for key, value in settings.items()]))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("changes", "message"), [
    ({"matryoshka.dims": [64, 8]}, "matryoshka.dims 64 is more than the 32 numbers"),
    ({"guide": {"model": "lexical:token-set"}}, "guide.margin 0 masks nothing"),
    ({"guide": {"model": "lexical:nothing"}}, "guide.model"),
    ({"guide": {"model": "lexical:token-set", "margin": 0.5, "dropout": True}}, "guide.model: lexical:token-set has no"),
])
def test_what_a_run_refuses(place, tmp_path, changes, message):
    error = told(place, tmp_path / "run", "simcse", {**KEPT, **changes})
    assert message in str(error) and len(str(error).splitlines()) == 1


def test_a_run_knows_its_guide_and_exports_neither_it_nor_a_dimension(place, tmp_path):
    recipe = recipe_of(place, "simcse-wrapped")
    summary, _ = train(recipe, tmp_path / "run", place)
    fingerprint = load_encoder(str(place / "model"), pooler="mean").identity.fingerprint()
    assert summary["teachers"] == {"guide": fingerprint, "teacher 1": fingerprint}
    plain, _ = train(recipe_of(place, "simcse-given", **KEPT, **{"options.alpha": 1.0}), tmp_path / "plain", place)
    names = [{path.name for path in (tmp_path / run / "best").rglob("*")} for run in ("run", "plain")]
    assert names[0] == names[1] and "teachers" not in plain
    stored = "".join(path.read_text("utf-8") for path in (tmp_path / "run" / "best").rglob("*.json"))
    assert "truncate_dim" not in stored


def test_another_guide_is_no_resumption(place, tmp_path):
    changed = place / "guide"
    changed.mkdir()
    for path in (place / "model").iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    guide = {"model": str(changed), "settings": {"pooler": "mean"}, "margin": 0.05}
    recipe = recipe_of(place, "simcse-wrapped", **{"training.accumulate": 1, "guide": guide})
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", place, callback=StopAt(2))
    config = json.loads((changed / "config.json").read_text("utf-8"))
    (changed / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-6}), "utf-8")
    with pytest.raises(StsbenchError, match="the guide is not what"):
        train(recipe, tmp_path / "run", place, resume=True)


def test_the_sections_make_another_training():
    recipe = load_recipe("simcse")
    nested = load_recipe("simcse", None, ["matryoshka.dims=[32, 8]"])
    assert trained_as(nested)["settings"] != trained_as(recipe)["settings"]
    model = [trained_as(load_recipe("simcse", None, [f"guide={{model: {name}, margin: 0.1}}"]))["settings"]
             for name in ("/one/model", "/two/model", "/two/other")]
    assert model[0] == model[1] != model[2]
