"""SimCSE's semi-supervised recipes and those of few labels: DiffAug's scores of them, and what differs from their base."""

import pytest
from recipe_runs import NLI, TRIPLES, session
from shipped_recipes import LATER, METHODS, S, U, changed, held, printed, recipe
from training_runs import one_thread

from stsbench.leaderboard.publications.load import load_publications
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.methods.simcse.checks import check_options
from stsbench.methods.simcse.method import SimCSE
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training.recipes.describe import card
from stsbench.training.recipes.recipes import recipe_names

__all__ = ["one_thread"]

RS = "sup-roberta-base"
LABELLED = {
    "file": NLI, "format": "auto", "columns": TRIPLES, "where": {}, "drop_blank": False, "drop_duplicates": False,
    "held_out": 0, "sample": None, "share": 1.0, "sample_seed": None, "contiguous": False, "batch_size": 128,
}  # fmt: skip
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
}  # fmt: skip
NAMES = [f"{base}-{name}" for base in CHANGES for name in CHANGES[base]]


def test_these_are_the_recipes_that_stand_beside_simcses_own():
    assert set(NAMES) == {name for name in recipe_names("simcse") if LATER.search(name)}


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    found = recipe(name)
    options = SimCSEOptions(**found.options)
    check_options(options)
    given = tuple(found.data.columns) or ("sentence",)
    assert SimCSE.roles(options, given) == given
    assert found.source.paper == "Wang and Lu 2022 (DiffAug)"


@pytest.mark.parametrize(("base", "name"), [(base, name) for base in CHANGES for name in CHANGES[base]])
def test_a_recipe_changes_what_its_row_says_and_nothing_else(base, name):
    assert changed(base, f"{base}-{name}", "simcse") == CHANGES[base][name]


HOLDERS = {
    "diffaug:1:5": U, "diffaug:1:13": S,  # copied, and the same
    "diffaug:3/sts:1": None, "diffaug:3/sts:2": None,  # SimCSE's own tables
    "diffaug:2:1": {"0 %": U, "1 %": f"{U}-joint-labels-1", "10 %": f"{U}-joint-labels-10"},
    "diffaug:2:4": {"10 %": f"{S}-labels-10"},
    "diffaug:6:4": f"{U}-joint", "diffaug:6:5": f"{U}-sup-unsup", "diffaug:6:6": f"{U}-sup-joint",
    "diffaug:7:1": {"10 %": f"{RS}-labels-10", "100 %": None},  # 100 %: trained again; SimCSE's own score is held
}  # fmt: skip
WITHOUT = {f"{S}-labels-1", f"{RS}-labels-1"}  # could not be read


def own(row):
    return row.method.startswith("SimCSE")


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    found = printed(("diffaug",), own, HOLDERS)
    mine = held("simcse")
    assert all(mine[key] == score for key, score in found.items())
    assert {key for key in mine if key[0] in NAMES} == {key for key in found if key[0] in NAMES}
    assert {name for name in NAMES if not recipe(name).published} == WITHOUT
    assert all("could not be read" in recipe(name).source.note for name in WITHOUT)


def test_the_printed_rows_are_all_there():
    rows = {row.id for each in load_publications(PUBLISHED) if each.paper.id == "diffaug" for row in each.rows
            if own(row) and row.heading.protocol != "cost"}  # fmt: skip
    assert rows == set(HOLDERS)


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


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps(run, name):
    found, semi = run("simcse", name), recipe(name).semi
    procedure = semi.procedure if semi else None
    terms = {"contrastive", "nli"} if procedure in ("joint", "sup-joint") else {"contrastive"}
    expected = {"main": terms} | ({"sup": {"nli"}} if procedure in ("sup-unsup", "sup-joint") else {})
    assert {stage: set(line["terms"]) for stage, line in found.items()} == expected
    main, alpha = found["main"], semi.alpha if semi else 0
    assert main["loss"] == pytest.approx(main["terms"]["contrastive"] + alpha * main["terms"].get("nli", 0), rel=1e-5)
