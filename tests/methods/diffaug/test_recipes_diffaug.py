"""DiffAug's recipes: the paper's scores, the settings of the main ones, a difference from the base that is the row's."""

import pytest
from recipe_runs import NLI, TRIPLES, session
from shipped_recipes import BERT, ROBERTA, WAY_OF, changed, held, one_of_each, printed, recipe, rows_of, settings
from training_runs import one_thread

from stsbench.methods.diffaug.options import DiffAugOptions
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

__all__ = ["one_thread"]

U, AUX, S = "bert-base-semi", "bert-base-semi-aux", "bert-base-sup"
RU, RAUX, RS = "roberta-base-semi", "roberta-base-semi-aux", "roberta-base-sup"
NAMES = recipe_names("diffaug")
OF, THIS = 'This sentence of "{}" means [MASK].', "This sentence : ' {} ' means [MASK]."


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    found = recipe(name, "diffaug")
    assert found.backbone.pooler == "mask" and found.backbone.max_length == 34
    assert found.labelled is not None and found.labelled.columns == TRIPLES and found.semi is None
    if found.data.columns:  # the same rows in both stages
        same = ("file", "columns", "share", "sample_seed")
        assert [getattr(found.data, key) for key in same] == [getattr(found.labelled, key) for key in same]


@pytest.mark.parametrize("name", NAMES)
def test_stage_prefix_is_as_long_as_it_says_however_few_rows_there_are(name):
    prefix = recipe(name, "diffaug").stage_training("prefix")
    assert prefix.max_steps is not None and prefix.epochs >= prefix.max_steps


# Published scores ------------------------------------------------------------------------------------------------

WITHOUT = {  # what could not be read; what a figure shows
    RU, RAUX, f"{S}-labels-1", f"{RS}-labels-1", f"{RAUX}-labels-1", f"{RAUX}-labels-10",
    *(f"prefix-length-{length}" for length in (1, 2, 4, 16, 32)),
    *(f"prefix-steps-{steps}" for steps in (500, 1000, 1500, 2500, 3000)),
}
RELEASED = {U, AUX, S, RS}  # the scores are presumably the released code's, whose recipes hold them


def own(row):
    return row.method.startswith("DiffAug")


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    assert held("diffaug") == printed("diffaug")
    assert {name for name in NAMES if not recipe(name, "diffaug").published} == WITHOUT | RELEASED


def test_every_printed_row_has_a_recipe():
    assert all(WAY_OF[row.id].recipes for row in rows_of(("diffaug", "diffaug-readme"), own))


def test_a_recipe_without_a_score_says_why():
    for name in WITHOUT:
        assert "could not be read" in recipe(name, "diffaug").source.note, name
    for name in RELEASED:
        assert f"{name}-released repeats it and holds" in recipe(name, "diffaug").source.note, name


def test_the_card_names_every_recipe_and_every_score_published():
    text = card("diffaug")
    for name in NAMES:
        assert f"`{name}`" in text or f"`-{name.split('-base-')[-1]}`" in text, name
        for row in recipe(name, "diffaug").published:
            score = row.scores.get("Avg", row.scores.get("STS-B"))
            assert (f"{score:.2f}" if "Avg" in row.scores else f"{score:.1f}") in text, name


def test_the_card_holds_the_cost_that_is_published():
    rows = [row for row in rows_of(("diffaug",), lambda row: row.heading.name.startswith("4/"))]
    assert len(rows) == 6 and all(f"{row.scores[0]:.0f} {row.heading.unit}" in card("diffaug") for row in rows)


# Settings --------------------------------------------------------------------------------------------------------

LABELLED = {
    "file": NLI, "format": "auto", "columns": TRIPLES, "where": {}, "drop_blank": False, "drop_duplicates": False,
    "held_out": 0, "sample": None, "share": 1.0, "sample_seed": None, "contiguous": False,
    "lines_per_row": 1, "min_characters": 0, "batch_size": 128,
}
MAIN = {  # model, template, steps of stage prefix, alpha
    U: (BERT, OF, 2000, 0), AUX: (BERT, OF, 1500, 1e-3), S: (BERT, OF, 1250, 0),
    RU: (ROBERTA, THIS, 2000, 0), RAUX: (ROBERTA, THIS, 1500, 1e-3), RS: (ROBERTA, THIS, 1250, 0),
}


def stages(steps, supervised, **released):
    """recipe.stages in full. released: further values of stage joint, if the recipe is the released code's."""
    prefix = {"batch_size": 128, "learning_rate": 1e-3, "epochs": max(2000, steps), "max_steps": steps}
    if supervised:
        joint = {"batch_size": 128, "learning_rate": 5e-5, "epochs": 3}
    else:
        joint = {"batch_size": 256, "learning_rate": 1e-5, "epochs": 1, "gather": "simcse"}
    return {"prefix": {"training": prefix}, "joint": {"training": {**joint, **released}}}


def as_released(steps, supervised, **joint):
    found = stages(steps, supervised, **joint)
    found["prefix"]["training"]["schedule_of"] = "joint"
    return {"options.denoise_offset": 8, "options.clip_frozen": True, "stages": found, "selection.over": "all"}


def few(supervised):
    """Recipe's ending -> what differs."""
    found = {}
    for percent, share in (("1", 0.01), ("10", 0.1)):
        change = {"labelled": {**LABELLED, "share": share, "sample_seed": 0}}
        more = {"data.share": share, "data.sample_seed": 0} if supervised else {}
        found[f"-labels-{percent}"] = {**change, **more}
    return found


CHANGES = {  # recipe -> what differs from its base, and nothing else
    U: {
        "-released": as_released(2000, False), "prefix-same": {"options.views": "same"},
        "prefix-fixed": {"options.joint_trains": "model"}, "prefix-tuning": {"options.joint_trains": "module"},
        **{f"{module}-{rank}": {"options.module": module, **({"options.rank": rank} if rank != 4 else {})}
           for module in ("adapter", "lora") for rank in (4, 64)},
        **{f"prefix-length-{length}": {"options.prefix_length": length} for length in (1, 2, 4, 16, 32)},
        **{f"prefix-steps-{steps}": {"stages": stages(steps, False)} for steps in (500, 1000, 1500, 2500, 3000)},
    },
    RAUX: few(False),
    AUX: {
        "-released": as_released(1500, False),
        **{f"alpha-{alpha}": {"options.aux_weight": float(alpha)} for alpha in ("0.0001", "0.01", "0.1")}, **few(False),
    },
    S: {"-released": as_released(1250, True, accumulate=4), **few(True)},
    RS: {"-released": {**as_released(1250, True, accumulate=4), "options.denoise_start": "zero"}, **few(True)},
}
PAIRS = [(base, f"{base}{name}" if name.startswith("-") else name, name) for base in CHANGES for name in CHANGES[base]]


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_main_recipes(name):
    model, template, steps, alpha = MAIN[name]
    supervised = name.endswith("-sup")
    expected = {
        "stages": stages(steps, supervised), "labelled": LABELLED, "semi": None,
        "training.schedule": "linear", "training.schedule_of": None, "training.warmup": 0, "training.weight_decay": 0,
        "training.betas": (0.9, 0.999), "training.epsilon": 1e-8,
        "training.adam": "transformers",
        "training.clip": 1, "training.drop_last": False,
        "training.accumulate": 1, "training.order": "random", "training.max_steps": None,
        "backbone.model": model, "backbone.pooler": "mask", "backbone.dropout": 0.1, "backbone.max_length": 34,
        "options.template": template, "options.module": "prefix", "options.views": "different", "options.prefix_length": 8,
        "options.rank": 4, "options.adapter_activation": "relu", "options.lora_scale": 1, "options.joint_trains": "all",
        "options.view": "given" if supervised else "dropout", "options.similarity": "cosine", "options.temperature": 0.05,
        "options.aux_weight": alpha, "options.denoise": True, "options.denoise_offset": 0, "options.denoise_start": "own",
        "options.clip_frozen": False, "options.at_test": "both", "options.text": "pieces", "options.full_stop": False,
        "options.diagnose": 256,
        "data.file": NLI if supervised else "wiki1m_for_simcse.txt", "data.columns": TRIPLES if supervised else {},
        "data.drop_blank": False, "data.drop_duplicates": False, "data.held_out": 0, "data.share": 1,
        "selection.by": "sts-b dev", "selection.every": 50, "selection.over": "last", "selection.at_end": False,
        "precision": "fp16", "seed": 0,
    }
    got = settings(recipe(name, "diffaug"))
    assert {key: got[key] for key in expected} == expected
    assert {f"options.{key}" for key in DiffAugOptions.model_fields} <= set(expected)


def test_the_default_is_the_papers_model():
    assert default_recipe("diffaug") == U
    assert DiffAugOptions(**recipe(U, "diffaug").options) == DiffAugOptions()


@pytest.mark.parametrize(("base", "name", "key"), PAIRS)
def test_a_recipe_changes_what_its_row_says_and_nothing_else(base, name, key):
    assert changed(base, name, "diffaug") == CHANGES[base][key]


def test_no_recipe_is_untested():
    assert set(NAMES) == {*MAIN, *(name for _, name, _ in PAIRS)}


# A few steps -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from session(tmp_path_factory)


BASE_OF = {name: base for base, name, _ in PAIRS}
# The test has steps of its own, and its model no room for a long prefix.
FIT = [name for name in NAMES if "prefix-steps" not in name and name != "prefix-length-32"]


@pytest.mark.parametrize("name", one_of_each("diffaug", FIT, BASE_OF.get))
def test_a_few_steps(run, name):
    found, alpha = run("diffaug", name), recipe(name, "diffaug").options["aux_weight"]
    joint = {"contrastive", "nli"} if alpha else {"contrastive"}
    assert {stage: set(line["terms"]) for stage, line in found.items()} == {"prefix": {"nli"}, "joint": joint}
    assert found["prefix"]["loss"] == pytest.approx(found["prefix"]["terms"]["nli"], rel=1e-5)
    terms = found["joint"]["terms"]
    assert found["joint"]["loss"] == pytest.approx(terms["contrastive"] + alpha * terms.get("nli", 0), rel=1e-5)
    if name not in MAIN:  # what the recipe changes reaches the loss
        assert found["joint"]["loss"] != run("diffaug", BASE_OF[name])["joint"]["loss"]
