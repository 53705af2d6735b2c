"""Runs of the toy method of two stages: its folder, its recipe, a run of both stages, and one of each."""

import json

import pytest
import tiny_models

from stsbench import registry
from stsbench.config import put
from stsbench.errors import StsbenchError
from stsbench.training.recipes import methods
from stsbench.training.recipes.recipe import checked
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """A folder with a tiny model, two texts and a recipe; the toy method is installed as a plugin's would be."""
    place = tmp_path_factory.mktemp("stages")
    facts = place / "site" / "toy_stages-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-stages\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[stsbench.methods]\ntoy = toy_stages.method:Toy\n")
    tiny_models.build(place / "tiny", pooler=False, layers=1)
    for number, name in enumerate(("first", "second")):
        (place / f"{name}.txt").write_text("\n".join(tiny_models.sentences(30, longest=9, seed=number)) + "\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        patch.syspath_prepend(str(place / "site"))
        registry._points.cache_clear()
        yield place
    registry._points.cache_clear()
    methods.find_method.cache_clear()


def recipe_of(place, *, stages=None, **settings):
    """6 steps in stage first, 3 in stage second; a dev score and a checkpoint every 2."""
    values = {
        "name": "toy", "method": "toy", "backbone": {"model": str(place / "tiny"), "dropout": 0.1, "max_length": 16},
        "training": {"batch_size": 10, "learning_rate": 1e-3}, "selection": {"every": 2}, "checkpoint_every": 2,
        "stages": {"first": {"data": {"file": str(place / "first.txt")}, "training": {"epochs": 2.0}},
                   "second": {"data": {"file": str(place / "second.txt")}}}}
    for key, value in settings.items():
        put(values, key.replace("__", "."), value, "test")
    for key, value in (stages or {}).items():
        put(values, f"stages.{key}", value, "test")
    return checked(values, "test")


def run(place, name, recipe=None, **options):
    said = []
    options = {"device": "cpu", "sample": True, **options}
    return train(TrainOptions(recipe=recipe or recipe_of(place), output=place / name, **options), said.append), said


def refused(place, name="refused", recipe=None, **options):
    """The one line; nothing is left behind."""
    with pytest.raises(StsbenchError) as error:
        run(place, name, recipe, **options)
    assert "\n" not in str(error.value) and not (place / name).exists()
    return str(error.value)


@pytest.fixture(scope="module")
def whole(place):
    run(place, "whole")
    return place / "whole"


@pytest.fixture(scope="module")
def one(place):
    """Stage first alone; the data of the other are not there."""
    run(place, "one", recipe_of(place, stages={"second.data.file": str(place / "nowhere.txt")}), stage=1)
    return place / "one"


@pytest.fixture(scope="module")
def two(place, one):
    """Stage second alone; the data of the first are gone."""
    (place / "first.txt").rename(place / "away.txt")
    try:
        run(place, "two", stage="second", start_from=one)
    finally:
        (place / "away.txt").rename(place / "first.txt")
    return place / "two"


def summary(folder):
    return json.loads((folder / "train.json").read_text())
