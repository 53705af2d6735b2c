"""SimCSE's recipes of other papers, semi-supervised and of few labels among them: scores, what differs from their base."""

import re

import pytest
from recipe_runs import NLI, TRIPLES, session
from shipped_recipes import LATER, METHODS, WAY_OF, S, U, changed, held, one_of_each, printed, recipe, rows_of
from training_runs import one_thread

from stsbench.methods.simcse.method import SimCSE
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import recipe_names

__all__ = ["one_thread"]

RS, RU = "sup-roberta-base", "unsup-roberta-base"
LABELLED = {
    "file": NLI, "format": "auto", "columns": TRIPLES, "where": {}, "drop_blank": False, "drop_duplicates": False,
    "held_out": 0, "sample": None, "share": 1.0, "sample_seed": None, "contiguous": False,
    "lines_per_row": 1, "min_characters": 0, "batch_size": 128,
}
JOINT = {"labelled": LABELLED, "semi": {"procedure": "joint", "alpha": 1e-3}}
STAGE = {"stages": {"sup": {"training": {"batch_size": 128, "learning_rate": 2e-5, "epochs": 1}}}}
SHARES = {"1": 0.01, "10": 0.1}
CHANGES = {  # recipe -> what differs from its base, and nothing else
    U: {
        "joint": JOINT, "sup-unsup": {**JOINT, **STAGE, "semi": {"procedure": "sup-unsup", "alpha": 1e-3}},
        "sup-joint": {**JOINT, **STAGE, "semi": {"procedure": "sup-joint", "alpha": 1e-3}},
        **{f"joint-labels-{percent}": {**JOINT, "labelled": {**LABELLED, "share": share, "sample_seed": 0}}
           for percent, share in SHARES.items()},
    },
    **{base: {
        f"labels-{percent}": {"data.share": share, "data.sample_seed": 0, "selection.every": 50}
        for percent, share in SHARES.items()
    } for base in (S, RS)},
    RU: {
        "joint": JOINT, "reproduced": {},
        **{f"joint-labels-{percent}": {**JOINT, "labelled": {**LABELLED, "share": share, "sample_seed": 0}}
           for percent, share in SHARES.items()},
        **{f"batch-{size}": {"training.batch_size": size} for size in (32, 64, 128, 192, 256)},
    },
}
CHANGES[U]["reproduced"] = {}
CHANGES[S]["batch-128"] = {"training.batch_size": 128}
CHANGES[RS]["labels-100"] = {"selection.every": 50}
NAMES = [f"{base}-{name}" for base in CHANGES for name in CHANGES[base]]


def base_of(name):
    return next(base for base in CHANGES if name.removeprefix(f"{base}-") in CHANGES[base])


def test_these_are_the_recipes_that_stand_beside_simcses_own():
    llm = ("syncse-", "sumcse-", "multicsr-")  # of texts that a language model wrote: tests/methods/simcse
    assert set(NAMES) == {name for name in recipe_names("simcse") if LATER.search(name) and not name.startswith(llm)}


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    found = recipe(name)
    options = SimCSEOptions(**found.options)
    given = tuple(found.data.columns) or ("sentence",)
    assert MethodPlan(SimCSE, options).roles(given) == given
    papers = {"reproduced": "Chuang et al. 2022 (DiffCSE)", "batch": "Liu et al. 2024 (SARCSE)"}
    paper = next((papers[word] for word in papers if word in name and base_of(name) != S), "Wang and Lu 2022 (DiffAug)")
    assert found.source.paper == paper


@pytest.mark.parametrize(("base", "name"), [(base, name) for base in CHANGES for name in CHANGES[base]])
def test_a_recipe_changes_what_its_row_says_and_nothing_else(base, name):
    assert changed(base, f"{base}-{name}", "simcse") == CHANGES[base][name]


WITHOUT = {  # could not be read; no score
    f"{S}-labels-1", f"{RS}-labels-1", f"{RU}-joint", f"{RU}-joint-labels-1", f"{RU}-joint-labels-10", f"{S}-batch-128",
}


def own(row):
    return row.method.startswith("SimCSE")


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    found, mine = printed("simcse"), held("simcse")
    assert found <= mine
    assert {each for each in mine if each[0] in NAMES} == {each for each in found if each[0] in NAMES}
    assert {name for name in NAMES if not recipe(name).published} == WITHOUT
    assert all(re.search("could not be read|No score", recipe(name).source.note) for name in WITHOUT)


def test_every_printed_row_has_a_recipe():
    rows = rows_of(("diffaug", "sarcse", "diffcse"), own)
    assert all(WAY_OF[row.id].recipes for row in rows if row.copied_from is None and "/transfer" not in row.id)


def test_the_card_holds_the_averages_published():
    for name in set(NAMES) - WITHOUT:
        [score] = [row.scores["Avg"] for row in recipe(name).published if "Avg" in row.scores]
        assert f"{score:.2f}" in card("simcse"), name


@pytest.mark.parametrize("method", METHODS)
def test_a_share_of_the_labels_is_drawn_by_a_seed_of_its_own(method):
    """Else the subsets of one draw would differ from seed to seed."""
    for name in recipe_names(method):
        found = recipe(name, method)
        for rows in (found.data, found.labelled):
            assert rows is None or rows.share == 1 or rows.sample_seed == 0, name


# A few steps -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from session(tmp_path_factory)


# What the others change, the test changes, too.
RUN = [name for name in NAMES if not re.search("batch|reproduced|labels-100", name)]


@pytest.mark.parametrize("name", one_of_each("simcse", RUN, base_of))
def test_a_few_steps(run, name):
    found, semi = run("simcse", name), recipe(name).semi
    procedure = semi.procedure if semi else None
    terms = {"contrastive", "nli"} if procedure in ("joint", "sup-joint") else {"contrastive"}
    expected = {"main": terms} | ({"sup": {"nli"}} if procedure in ("sup-unsup", "sup-joint") else {})
    assert {stage: set(line["terms"]) for stage, line in found.items()} == expected
    main, alpha = found["main"], semi.alpha if semi else 0
    assert main["loss"] == pytest.approx(main["terms"]["contrastive"] + alpha * main["terms"].get("nli", 0), rel=1e-5)
