"""The section `ranking` around every method: its two terms, or one line that says why not."""

import pytest
from method_options import effect
from method_runs import RUNS, make_place

WORDS = {"ranking.teachers": [{"model": "lexical:token-set"}]}
NOT_SHARED = "compares no two views by the shared contrastive term"
REFUSED = {
    "mlm": NOT_SHARED, "sbert": NOT_SHARED, "sg-opt": NOT_SHARED, "cmlm": NOT_SHARED, "is-bert": NOT_SHARED,
    "tsdae": NOT_SHARED,
    "ct": "makes other texts of them", "declutr": "contrasts other texts than the rows",
    "distil": NOT_SHARED, "rankcse": "ranks by its own options", "cosent": NOT_SHARED, "angle": NOT_SHARED,
}
TAKEN = ("simcse", "simcse-given", "simcse-semi", "esimcse", "infocse", "pcl", "diffcse", "promptbert", "sarcse", "diffaug",
         "consert", "ct-in-batch", "mirror-bert", "whitenedcse", "sncse")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("ranked"))


def test_every_method_is_one_or_the_other():
    assert {RUNS[name][0] for name in TAKEN} | {*REFUSED} == {method for method, _ in RUNS.values()}


@pytest.mark.parametrize("name", TAKEN)
def test_the_terms_come_to_those_of_the_method(place, tmp_path, name):
    plain, ranked = (effect(place, tmp_path / "run", name, changes) for changes in ({}, WORDS))
    assert "'ranking'" not in plain and "'ranking': (1.0, " in ranked and "'consistency': (1.0, " in ranked
    first = plain.partition("'contrastive': ")[2].partition("), '")[0].partition(")}")[0]
    assert first in ranked  # its own term is what it was, to the last bit


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_ranked_is_told_so(place, tmp_path, name):
    try:
        told = str(effect(place, tmp_path / "run", name, WORDS))
    except Exception as error:  # before there is a run: the plan refuses it
        told = str(error)
    assert REFUSED[name] in told and len(told.splitlines()) == 1
