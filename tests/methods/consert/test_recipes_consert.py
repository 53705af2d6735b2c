"""ConSERT's recipes: the papers' scores, the settings of the main ones, a difference from the base that is the row's."""

import json
import math

import nli_files
import pytest
from shipped_recipes import BERT, WAY_OF, changed, held, printed, recipe, rows_of, settings
from tiny_models import build
from training_runs import make_text, one_thread

import stsbench
from stsbench.methods.consert.method import ConSERT
from stsbench.methods.consert.options import ConSERTOptions
from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

__all__ = ["one_thread"]
NAMES = recipe_names("consert")
U, LARGE = "unsup-bert-base", "google-bert/bert-large-uncased"
SETTINGS = ("joint", "sup-unsup", "joint-unsup")
SIZES = {"base": BERT, "large": LARGE}


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together_and_its_stages_are_there(name):
    shipped = recipe(name, "consert")
    options = ConSERTOptions(**shipped.options)
    stages = plan_of(shipped).stages
    assert set(shipped.stages) <= set(stages)
    every = ConSERT.Options.stages
    assert [stage for stage in stages if stage in every] == list(ConSERT.stages_for(options)) or "sup" in stages
    labelled = shipped.semi is not None or options.setting != "unsup"
    assert (shipped.labelled is not None) == labelled
    assert shipped.backbone.pooler == "mean" and options.test_pooler == "last2"


# Published scores ------------------------------------------------------------------------------------------------

IN_TEXT = {f"{U}-none": 63.84, f"{U}-batch-16": 72.63, f"{U}-batch-48": 72.60, f"{U}-batch-192": 72.86,
           f"{U}-batch-288": 72.98}


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    in_text = {(name, "sts:all", "spearman", "Avg", score) for name, score in IN_TEXT.items()}
    assert held("consert") == printed("consert") | in_text


def test_the_printed_rows_are_all_there_and_transductive_where_sts_is_the_text():
    rows = rows_of(("consert", "consert-readme", "diffaug"), lambda row: row.method.startswith("ConSERT"))
    assert len(rows) == 21
    for row in rows:
        shipped = recipe(WAY_OF[row.id].recipe.removeprefix("consert/"), "consert")
        transductive = shipped.data.file == "sts-texts" and "unsup" in plan_of(shipped).stages
        assert ("transductive" in row.flags) == transductive, row.id


def test_no_recipe_is_without_scores_and_the_card_names_all():
    text = card("consert")
    for name in NAMES:
        shipped = recipe(name, "consert")
        assert shipped.published and shipped.source.table, name
        base = name.removesuffix("-released")
        assert f"`{name}`" in text or f"`{base}`" in text or f"`-{name.split('-base-')[-1]}`" in text, name
        for row in shipped.published:
            assert f"{row.scores['Avg']:.2f}" in text, name


# Settings --------------------------------------------------------------------------------------------------------


def test_the_settings_of_the_default_recipe():
    expected = {
        "training.batch_size": 96, "training.learning_rate": 5e-7, "training.epochs": 10, "training.gather": "exact",
        "training.schedule": "linear", "training.warmup": 0.1, "training.weight_decay": 0.01, "training.betas": (0.9, 0.999),
        "training.epsilon": 1e-6, "training.adam": "uncorrected", "training.clip": 1, "training.drop_last": False,
        "training.accumulate": 1, "training.max_steps": None, "backbone.model": BERT, "backbone.pooler": "mean",
        "backbone.dropout": 0, "backbone.max_length": 67, "data.file": "sts-texts", "data.drop_duplicates": False,
        "labelled": None, "semi": None, "stages": {}, "selection.by": "sts-b dev", "selection.every": 200,
        "selection.at_end": True, "precision": "fp16", "seed": 1,
    }
    got = settings(recipe(U, "consert"))
    assert {key: got[key] for key in expected} == expected
    assert default_recipe("consert") == U
    assert ConSERTOptions(**recipe(U, "consert").options) == ConSERTOptions()


MAX_SQUARE = ["u", "v", "difference", "max_square"]
SCRIPT = {"options.weigh_unsup": True, "options.nt_xent": "sum"}
CLASSIFIED = {"options.features": MAX_SQUARE, "options.nt_xent": "sum", "backbone.dropout": 0.1}
CHANGES = {  # recipe -> base, what differs
    f"{U}-released": (U, SCRIPT),
    f"{U}-none": (U, {"options.views": ["none", "none"], "options.rates": [None, None]}),
    **{f"{U}-batch-{size}": (U, {"training.batch_size": size}) for size in (16, 48, 192, 288)},
    f"{U}-wiki": (U, {"data.file": "wiki1m_for_simcse.txt", "training.epochs": 1}),
    "unsup-bert-large": (U, {
        "backbone.model": LARGE, "options.views": ["none", "shuffle"], "options.rates": [None, None], "training.epochs": 25,
        "selection.every": 100,
    }),
    "unsup-bert-large-released": ("unsup-bert-large", {**SCRIPT, "backbone.dropout": 0.1, "backbone.max_length": 43}),
    **{f"{setting}-bert-large": (f"{setting}-bert-base", {"backbone.model": LARGE, **(
        {} if setting == "joint" else {"stages": {"unsup": {"training": {"epochs": 10, "learning_rate": 5e-7}}}}
    )}) for setting in SETTINGS},
    **{f"{setting}-bert-{size}-released": (f"{setting}-bert-{size}", {
        **CLASSIFIED, **({"backbone.max_length": 43} if size == "large" else {}),
        **({"options.rates": [None, 0.1]} if setting == "sup-unsup" else {"options.joint_rates": [None, 0.1]}),
        **({} if setting == "joint" else {"options.weigh_unsup": True}),
    }) for setting in SETTINGS for size in SIZES},
}
MAIN = {  # recipe -> views, rates of its stages
    "joint-bert-base": {"joint": (["none", "token_cutoff"], [None, 0.15])},
    "sup-unsup-bert-base": {"unsup": (["none", "feature_cutoff"], [None, 0.2])},
    "joint-unsup-bert-base": {
        "joint": (["none", "token_cutoff"], [None, 0.15]), "unsup": (["none", "shuffle"], [None, None]),
    },
}
WIKI = {f"{U}-wiki-{procedure}": procedure for procedure in ("joint", "sup-unsup", "sup-joint")}


@pytest.mark.parametrize("name", CHANGES)
def test_a_recipe_changes_what_its_row_says_and_nothing_else(name):
    base, expected = CHANGES[name]
    assert changed(base, name, "consert") == expected


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_supervised_recipes(name):
    shipped = recipe(name, "consert")
    assert shipped.options["setting"] == name.removesuffix("-bert-base")
    assert shipped.options["contrastive_weight"] == 0.15 and shipped.options["features"] == MAX_SQUARE[:3]
    for stage, (views, rates) in MAIN[name].items():
        prefix = "joint_" if stage == "joint" else ""
        assert (shipped.options[f"{prefix}views"], shipped.options[f"{prefix}rates"]) == (views, rates)
    for stage in plan_of(shipped).stages:
        training = shipped.stage_training(stage)
        assert (training.learning_rate, training.epochs) == ((5e-7, 25) if stage == "unsup" else (2e-5, 1))
        assert training.batch_size == 96 and training.adam == "uncorrected"
    assert shipped.labelled.file == "AllNLI.tsv"
    assert shipped.data.file == (None if name == "joint-bert-base" else "sts-texts")


def test_wikipedia_is_made_semi_supervised_by_diffaugs_procedures():
    for name, procedure in WIKI.items():
        shipped = recipe(name, "consert")
        assert shipped.semi.procedure == procedure and shipped.data.file == "wiki1m_for_simcse.txt"


def test_no_recipe_is_untested():
    assert set(NAMES) == {U, *MAIN, *CHANGES, *WIKI}


# A few steps -----------------------------------------------------------------------------------------------------

RUN = {  # recipe -> the terms of its stages
    U: {"unsup": {"contrastive"}}, "joint-bert-base": {"joint": {"nli", "contrastive"}},
    "joint-unsup-bert-base-released": {"joint": {"nli", "contrastive"}, "unsup": {"contrastive"}},
    "sup-unsup-bert-base": {"sup": {"nli"}, "unsup": {"contrastive"}},
    f"{U}-wiki-sup-joint": {"sup": {"nli"}, "unsup": {"nli", "contrastive"}},
}


@pytest.mark.parametrize("name", RUN)
def test_a_few_steps(name, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    shipped = recipe(name, "consert")
    values = {
        "backbone.model": str(build(tmp_path / "model", pooler=False)), "training.batch_size": 8, "training.max_steps": 2,
        "selection.by": "none", "precision": "float32", "backbone.max_length": 12, "training.gather": "exact",
    }
    if shipped.data.file == "wiki1m_for_simcse.txt":
        values["data.file"] = str(make_text(tmp_path))
    for stage in shipped.stages:
        values |= {f"stages.{stage}.training.batch_size": 8, f"stages.{stage}.training.max_steps": 2}
    if shipped.labelled is not None:
        make = nli_files.triplets if shipped.semi else nli_files.pairs
        values |= {"labelled.file": str(make(tmp_path)), "labelled.batch_size": 4}
    stsbench.train("consert", recipe=name, output=tmp_path / "run", settings=values, device="cpu", sample=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()]
    logged = {line["stage"]: line for line in lines if line["kind"] == "train"}
    assert {stage: set(line["terms"]) for stage, line in logged.items()} == RUN[name]
    assert all(math.isfinite(line["loss"]) and line["gradient_norm"] > 0 for line in logged.values())
