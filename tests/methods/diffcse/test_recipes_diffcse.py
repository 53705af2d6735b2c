"""DiffCSE's recipes: options that go together, the paper's scores, a difference from the base that is the row's alone."""

import pytest
from shipped_recipes import BERT, BERT_LARGE, ROBERTA, WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.diffcse.options import DiffCSEOptions, generates
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

BASE, TRANSFER = "bert-base-sts", "bert-base-transfer"
DISTILBERT, DISTILROBERTA = "distilbert/distilbert-base-uncased", "distilbert/distilroberta-base"
NAMES = recipe_names("diffcse")


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    found = recipe(name, "diffcse")
    options = DiffCSEOptions(**found.options)
    assert MethodPlan(DiffCSE, options).roles(("sentence",)) == ("sentence",) and found.data.columns == {}
    assert (options.generator is not None) == generates(options)
    assert found.data.contiguous == (options.sentence != "same")


# Published scores ------------------------------------------------------------------------------------------------

def own(row):
    return "CSE" in row.method and row.copied_from is None


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    assert held("diffcse") == printed("diffcse")
    without = {name for name in NAMES if not recipe(name, "diffcse").published}
    assert without == {"bert-base-sts-text-cnn"}
    assert "No published row" in recipe("bert-base-sts-text-cnn", "diffcse").source.note


def test_every_printed_row_has_a_recipe_or_says_why_not():
    for row in rows_of(("diffcse",), own):
        way = WAY_OF[row.id]
        assert way.recipes or ("/transfer" in row.id and "settings for transfer tasks" in way.missing), row.id


def test_an_ablation_without_a_score_on_transfer_dev_says_so():
    for name in set(NAMES) - {BASE, TRANSFER, "roberta-base-sts", "roberta-base-transfer", "bert-base-sts-text-cnn"}:
        found = recipe(name, "diffcse")
        assert [row.protocol for row in found.published] == ["sts-b dev"]
        one_column = all(part.strip().startswith(("Table 7,", "Table 8,")) for part in found.source.table.split(";"))
        assert one_column or "mean dev score of the transfer tasks" in found.source.note, name


def test_the_card_holds_the_geometry_that_is_published():
    rows = [row for row in rows_of(("diffcse",), own) if row.heading.protocol == "geometry" and row.method == "DiffCSE"]
    assert len(rows) == 2 and all(f"{row.scores[0]:.3f}" in card("diffcse") for row in rows)


# Settings --------------------------------------------------------------------------------------------------------

MAIN = {  # learning rate, mask ratio, lambda, model, generator
    BASE: (7e-6, 0.30, 0.005, BERT, DISTILBERT), TRANSFER: (2e-6, 0.15, 0.05, BERT, DISTILBERT),
    "roberta-base-sts": (1e-5, 0.20, 0.005, ROBERTA, DISTILROBERTA),
    "roberta-base-transfer": (3e-6, 0.15, 0.05, ROBERTA, DISTILROBERTA),
}
OFF = {"options.rtd_weight": 0, "options.generator": None}
DOCUMENTS = {"data.file": "wiki_documents.txt", "data.contiguous": True}
MLM = {"options.task": "conditional_mlm", "options.generator": None}
SIZES = {"kernels": (3, 4, 5), "channels": 500, "fusion_channels": 3, "fusion_width": 2, "activation": "relu"}
WAYS = {
    "mlm": {"options.mask_ratio": 0.15, "options.generator": DISTILBERT},
    "insert": {"options.operators": ["insert"], "options.generator": DISTILBERT},
    "delete": {"options.operators": ["delete"]},
}
CHANGES = {  # ablation -> what differs from its base, and nothing else
    BASE: {
        "no-contrastive": {"options.contrastive": False}, "no-rtd": OFF, "simcse": {**OFF, "options.projector": "tanh"},
        "tanh": {"options.projector": "tanh"},
        "next": {"options.sentence": "next", **DOCUMENTS}, "same-next": {"options.sentence": "same+next", **DOCUMENTS},
        "conditional-mlm": MLM, "conditional-mlm-next": {**MLM, "options.sentence": "next", **DOCUMENTS},
        "conditional-mlm-same-next": {**MLM, "options.sentence": "same+next", **DOCUMENTS},
        "corrective-lm": {"options.task": "corrective_lm"},
        "mlm-15": {"options.mask_ratio": 0.15}, "insert": {"options.operators": ["insert"]},
        "delete": {"options.operators": ["delete"], "options.generator": None},
        "all-operators": {"options.operators": ["replace", "insert", "delete"], "options.mask_ratio": 0.15},
        "generator-large": {"options.generator": BERT_LARGE}, "generator-base": {"options.generator": BERT},
        **{f"generator-{size}": {"options.generator": f"google/bert_uncased_L-{layers}_H-{width}_A-{width // 64}"}
           for size, layers, width in (("medium", 8, 512), ("small", 4, 512), ("mini", 4, 256), ("tiny", 2, 128))},
        **{f"mask-{ratio}": {"options.mask_ratio": float(ratio)} for ratio in ("0.20", "0.25", "0.40", "0.50")},
        **{f"lambda-{weight}": {"options.rtd_weight": float(weight)}
           for weight in ("0.0001", "0.0005", "0.001", "0.01", "0.05", "0.1")},
        "bert-base-sts-text-cnn": {"backbone.pooler": "text_cnn", "backbone.text_cnn": SIZES},
    },
    "simcse": {f"{kind}-{made}": {"options.augmented_as": kind, **WAYS[made]}
               for kind in ("positive", "negative") for made in WAYS},
}


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_main_recipes(name):
    rate, ratio, weight, model, generator = MAIN[name]
    expected = {
        "training.batch_size": 64, "training.learning_rate": rate, "training.epochs": 2, "backbone.model": model,
        "training.schedule": "linear", "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999),
        "training.epsilon": 1e-8,
        "training.adam": "transformers",
        "training.clip": 1, "training.drop_last": False, "training.accumulate": 1,
        "training.order": "random", "training.max_steps": None, "training.gather": "exact",
        "backbone.pooler": "cls", "backbone.text_cnn": None, "backbone.dropout": 0.1, "backbone.max_length": 32,
        "options.view": "dropout", "options.similarity": "cosine", "options.temperature": 0.05, "options.contrastive": True,
        "options.projector": "batchnorm", "options.rtd_weight": weight, "options.task": "rtd", "options.sentence": "same",
        "options.operators": ["replace"], "options.combine": "sum", "options.augmented_as": None,
        "options.mask_ratio": ratio, "options.masked": 0.8, "options.random": 0.1, "options.edit_ratio": 0.15,
        "options.generator": generator, "options.generator_mode": "train", "options.replacement": "argmax",
        "options.repeat": None, "options.queue": None,
        "options.replace": "all", "options.condition": "projected", "options.detach": False, "options.rtd_mean": "all",
        "data.file": "wiki1m_for_simcse.txt", "data.columns": {}, "data.contiguous": False, "data.drop_blank": False,
        "data.drop_duplicates": False, "data.held_out": 0, "selection.by": "sts-b dev", "selection.every": 125,
        "selection.at_end": False, "precision": "fp16", "seed": 42,
    }
    got = settings(recipe(name, "diffcse"))
    assert {key: got[key] for key in expected} == expected
    assert {f"options.{key}" for key in DiffCSEOptions.model_fields} <= set(expected)


def test_the_default_is_the_papers_model_for_sts():
    assert default_recipe("diffcse") == BASE
    options = DiffCSEOptions(**recipe(BASE, "diffcse").options)
    assert options.model_copy(update={"generator": None}) == DiffCSEOptions()  # the defaults are the published choices


@pytest.mark.parametrize(("base", "name"), [(base, name) for base in CHANGES for name in CHANGES[base]])
def test_an_ablation_changes_what_its_row_says_and_nothing_else(base, name):
    assert changed(base, name, "diffcse") == CHANGES[base][name]


def test_no_recipe_is_untested():
    assert set(NAMES) == {*MAIN, *CHANGES[BASE], *CHANGES["simcse"]}
