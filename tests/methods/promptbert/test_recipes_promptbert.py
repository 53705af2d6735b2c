"""PromptBERT's recipes: its papers' scores, the settings of the main ones, a difference from the base that is the row's."""

import pytest
from recipe_runs import NLI, TRIPLES, session
from shipped_recipes import BERT, ROBERTA, WAY_OF, changed, held, one_of_each, printed, recipe, rows_of, settings
from training_runs import one_thread

from stsbench.methods.promptbert.options import PromptBERTOptions
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

__all__ = ["one_thread"]

U, S, RU, RS = "unsup-promptbert-base", "sup-promptbert-base", "unsup-promptroberta-base", "sup-promptroberta-base"
NAMES = recipe_names("promptbert")
OF, COLON = 'This sentence of "{}" means [MASK].', 'This sentence : "{}" means [MASK].'
THIS, THE = "This sentence : ' {} ' means [MASK].", "The sentence : ' {} ' means [MASK]."


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    found = recipe(name, "promptbert")
    assert (found.labelled is None) == (found.semi is None)
    assert found.backbone.pooler == "mask" and found.backbone.max_length == 34


# Published scores ------------------------------------------------------------------------------------------------

WITHOUT = {  # recipes whose score could not be read or checked, is no score, or is that of the released code
    "optiprompt-bert-base", "optiprompt-bert-base-released", f"{U}-joint", f"{U}-sup-unsup", f"{S}-labels-1",
    f"{RS}-labels-1", RU, RS, f"{S}-batch-128", f"{RU}-joint", f"{RU}-joint-labels-1", f"{RU}-joint-labels-10",
    *(f"{base}-{name}" for base in (U, RU) for name in ("no-denoise", "same-template")),
}


def own(row):
    return row.method.startswith("Prompt")


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    assert held("promptbert") == printed("promptbert")
    assert {name for name in NAMES if not recipe(name, "promptbert").published} == WITHOUT


def test_every_printed_row_has_a_recipe():
    assert all(WAY_OF[row.id].recipes for row in rows_of(("diffaug", "promptbert-readme"), own))


def test_a_recipe_without_a_score_says_why():
    for name in WITHOUT:
        note = recipe(name, "promptbert").source.note
        assert any(words in note for words in ("could not be", "no score is held", "No score", "holds them")), name


def test_figures_that_contradict_one_another_stand_in_the_notes():
    rows = {row.id: row for row in rows_of(("diffaug",), own)}
    for id, name in (("diffaug:6:7", f"{U}-joint"), ("diffaug:6:8", f"{U}-sup-unsup"), ("diffaug:1:6", U)):
        note = recipe(name, "promptbert").source.note
        assert rows[id].disagrees and f"{rows[id].recomputed:.2f}" in note
        assert f"{rows[id].average:.2f}" in note or id == "diffaug:1:6"


def test_the_card_names_every_recipe_and_the_averages_published():
    text = card("promptbert")
    for name in NAMES:
        assert f"`{name}`" in text or f"`-{name.split('-base-')[-1]}`" in text, name
        for row in recipe(name, "promptbert").published:
            assert f"{row.scores['Avg']:.2f}" in text, name


# Settings --------------------------------------------------------------------------------------------------------

MAIN = {  # model, first and second template, head
    U: (BERT, OF, COLON, "mlp_train_only"), RU: (ROBERTA, THIS, THE, "mlp_train_only"),
    S: (BERT, OF, None, "transform"), RS: (ROBERTA, THIS, None, "mlp"),
}
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
        "no-denoise": {"options.denoise": False},
        "same-template": {"options.second_template": None, "options.denoise": False},
        "joint": JOINT, "sup-unsup": {**JOINT, **STAGE, "semi": {"procedure": "sup-unsup", "alpha": 1e-3}},
        "sup-joint": {**JOINT, **STAGE, "semi": {"procedure": "sup-joint", "alpha": 1e-3}},
        **{f"joint-labels-{percent}": {**JOINT, "labelled": {**LABELLED, "share": share, "sample_seed": 0}}
           for percent, share in SHARES.items()},
    },
    RU: {
        "no-denoise": {"options.denoise": False},
        "same-template": {"options.second_template": None, "options.denoise": False},
        "released": {"options.denoise_start": "zero"}, "joint": JOINT,
        **{f"joint-labels-{percent}": {**JOINT, "labelled": {**LABELLED, "share": share, "sample_seed": 0}}
           for percent, share in SHARES.items()},
    },
    **{base: {
        f"labels-{percent}": {"data.share": share, "data.sample_seed": 0, "selection.every": 50}
        for percent, share in SHARES.items()
    } for base in (S, RS)},
}
CHANGES[RS] |= {"released": {"options.denoise_start": "zero"}, "labels-100": {"selection.every": 50}}
CHANGES[S]["batch-128"] = {"training.batch_size": 128}
OPTIPROMPT = {
    "options.template": COLON, "options.second_template": None, "options.head": "transform", "options.denoise": False,
    "options.trained": "prompt", "training.learning_rate": 3e-5, "training.epochs": 5, "selection.every": 1000,
}


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_main_recipes(name):
    model, first, second, head = MAIN[name]
    supervised = name.startswith("sup")
    expected = {
        "training.batch_size": 512 if supervised else 256, "training.learning_rate": 5e-5 if supervised else 1e-5,
        "training.epochs": 3 if supervised else 1, "training.gather": "simcse" if supervised else "exact",
        "training.schedule": "linear", "training.schedule_of": None, "training.warmup": 0, "training.weight_decay": 0,
        "training.betas": (0.9, 0.999), "training.epsilon": 1e-8,
        "training.adam": "transformers",
        "training.clip": 1, "training.drop_last": False,
        "training.accumulate": 1, "training.order": "random", "training.max_steps": None,
        "backbone.model": model, "backbone.pooler": "mask", "backbone.dropout": 0.1, "backbone.max_length": 34,
        "options.template": first, "options.second_template": second, "options.head": head,
        "options.view": "given" if supervised else "dropout", "options.similarity": "cosine", "options.temperature": 0.05,
        "options.denoise": True, "options.denoise_positions": "matched", "options.denoise_start": "own",
        "options.denoise_second_shift": "own", "options.denoise_gradient": True, "options.test_denoise": supervised,
        "options.text": "pieces", "options.dev": "released", "options.full_stop": True, "options.trained": "all",
        "data.file": NLI if supervised else "wiki1m_for_simcse.txt", "data.columns": TRIPLES if supervised else {},
        "data.drop_blank": False, "data.drop_duplicates": False, "data.held_out": 0, "data.share": 1, "labelled": None,
        "semi": None, "stages": {}, "selection.by": "sts-b dev", "selection.every": 125, "selection.over": "last",
        "selection.at_end": False, "precision": "fp16", "seed": 42,
    }
    got = settings(recipe(name, "promptbert"))
    assert {key: got[key] for key in expected} == expected
    assert {f"options.{key}" for key in PromptBERTOptions.model_fields} <= set(expected)


def test_the_default_is_the_papers_model():
    assert default_recipe("promptbert") == U
    assert PromptBERTOptions(**recipe(U, "promptbert").options) == PromptBERTOptions()


@pytest.mark.parametrize(("base", "name"), [(base, name) for base in CHANGES for name in CHANGES[base]])
def test_a_recipe_changes_what_its_row_says_and_nothing_else(base, name):
    assert changed(base, f"{base}-{name}", "promptbert") == CHANGES[base][name]


def test_optiprompt_trains_the_template_alone():
    assert changed(U, "optiprompt-bert-base", "promptbert") == OPTIPROMPT


def test_optiprompt_as_released():
    assert changed("optiprompt-bert-base", "optiprompt-bert-base-released", "promptbert") == {
        "options.head": "transform_train_only", "options.trained": "prompt_rightmost",
    }


def test_no_recipe_is_untested():
    optiprompt = {"optiprompt-bert-base", "optiprompt-bert-base-released"}
    assert set(NAMES) == {*MAIN, *optiprompt, *(f"{base}-{name}" for base in CHANGES for name in CHANGES[base])}


# A few steps -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from session(tmp_path_factory)


SAME = {f"{RS}-labels-100", f"{S}-batch-128"}  # what they change is changed in the test, too


def base_of(name):
    return name if name in MAIN else next((base for base in MAIN if name.startswith(f"{base}-")), U)


@pytest.mark.parametrize("name", one_of_each("promptbert", sorted(set(NAMES) - SAME), base_of))
def test_a_few_steps(run, name):
    found, made = run("promptbert", name), recipe(name, "promptbert")
    procedure = made.semi.procedure if made.semi else None
    terms = {"contrastive", "nli"} if procedure in ("joint", "sup-joint") else {"contrastive"}
    expected = {"main": terms} | ({"sup": {"nli"}} if procedure in ("sup-unsup", "sup-joint") else {})
    assert {stage: set(line["terms"]) for stage, line in found.items()} == expected
    main = found["main"]
    alpha = made.semi.alpha if made.semi else 0
    assert main["loss"] == pytest.approx(main["terms"]["contrastive"] + alpha * main["terms"].get("nli", 0), rel=1e-5)
    if name not in MAIN:  # the option reaches the loss
        assert main["loss"] != run("promptbert", base_of(name))["main"]["loss"]
