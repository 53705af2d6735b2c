"""Sentence-BERT's recipes: options that go together, published scores, a difference from the base that is the row's."""

import pytest
from shipped_recipes import BERT, BERT_LARGE, ROBERTA, ROBERTA_LARGE, changed, held, printed, recipe, settings

from stsbench.methods.sbert.method import SBERT, STAGES
from stsbench.methods.sbert.options import SBERTOptions
from stsbench.training.recipes.recipes import default_recipe, recipe_names

MODELS = {"bert-base": BERT, "bert-large": BERT_LARGE, "roberta-base": ROBERTA, "roberta-large": ROBERTA_LARGE}
NAMES = recipe_names("sbert")
N, S = "nli-bert-base", "stsb-bert-base"


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    shipped = recipe(name, "sbert")
    options = SBERTOptions(**shipped.options)
    stages = SBERT.stages_for(options)
    assert set(shipped.stages) <= set(stages) and stages == STAGES[options.objective]
    assert ("nli" in stages) == (shipped.labelled is not None)
    assert ("sts" in stages) == (shipped.data.file == "stsb/train") and (options.objective != "nli" or not shipped.data.file)


def test_the_default_recipe():
    assert default_recipe("sbert") == N


# Published scores ------------------------------------------------------------------------------------------------

# Table 6, on STS-B dev
ABLATIONS = {
    N: 80.78, f"{N}-max": 79.07, f"{N}-cls": 79.80, S: 87.44, f"{S}-max": 69.92, f"{S}-cls": 86.62,
    f"{N}-u-v": 66.04, f"{N}-difference": 69.78, f"{N}-product": 70.54, f"{N}-difference-product": 78.37,
    f"{N}-u-v-product": 77.44, f"{N}-u-v-difference-product": 80.44,
}


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    ablations = {(name, "sts-b dev", "spearman", "STS-B", score) for name, score in ABLATIONS.items()}
    assert held("sbert") == printed("sbert") | ablations
    assert {name for name in NAMES if not recipe(name, "sbert").published} == {"wiki-sections-bert-base"}


# Settings --------------------------------------------------------------------------------------------------------

LIBRARY = {  # of all that the authors trained
    "training.batch_size": 16, "training.accumulate": 1, "training.learning_rate": 2e-5, "training.schedule": "linear",
    "training.warmup": 0.1, "training.weight_decay": 0.01, "training.betas": (0.9, 0.999), "training.epsilon": 1e-6,
    "training.adam": "uncorrected", "training.clip": 1.0, "training.order": "random", "training.drop_last": False,
    "backbone.pooler": "mean", "backbone.dropout": 0.1, "backbone.max_length": 130, "options.test_pooler": None,
    "precision": "float32", "seed": 42,
}
OF_DATA = {
    "nli": {"options.objective": "nli", "options.features": ["u", "v", "difference"], "options.bias": True,
            "options.classifier_init": "torch", "training.epochs": 1, "selection.every": 1000, "selection.at_end": True},
    "stsb": {"options.objective": "sts", "options.scale": [0.0, 5.0], "options.similarity": "cosine", "training.epochs": 4,
             "selection.every": 360, "selection.at_end": False, "data.file": "stsb/train"},
    "nli-stsb": {"options.objective": "nli-sts", "training.epochs": 1, "stages": {"sts": {"training": {"epochs": 4}}},
                 "selection.every": 360, "data.file": "stsb/train"},
}
MAIN = [(data, size) for data in OF_DATA for size in MODELS]
CONSERT = {"training.batch_size": 96, "backbone.max_length": 67, "options.test_pooler": "last2", "selection.every": 200,
           "precision": "fp16", "seed": 1}
PORT = {"backbone.max_length": 64, "options.bias": False, "options.classifier_init": "truncated_normal",
        "selection.by": "none", "selection.at_end": False}
FIRST_LAST = {**PORT, "options.test_pooler": "first_last:layer1"}
CHANGES = {
    **{f"{base}-{pooler}": {"backbone.pooler": pooler} for base in (N, S) for pooler in ("max", "cls")},
    **{f"{N}-{'-'.join(blocks)}": {"options.features": blocks} for blocks in (
        ["u", "v"], ["difference"], ["product"], ["difference", "product"], ["u", "v", "product"],
        ["u", "v", "difference", "product"])},
    **{f"nli-{size}{ending}": values for size in ("bert-base", "bert-large") for ending, values in {
        "-consert": CONSERT,
        "-consert-released": {**CONSERT, "options.features": ["u", "v", "difference", "max_square"]},
        "-flow": PORT, "-flow-first-last": FIRST_LAST,
        "-whitening": {**FIRST_LAST, "training.adam": "transformers", "training.clip": None},
    }.items()},
}


@pytest.mark.parametrize(("data", "size"), MAIN)
def test_the_settings_of_the_main_recipes(data, size):
    expected = {**LIBRARY, **OF_DATA[data], "backbone.model": MODELS[size], "selection.by": "sts-b dev"}
    shipped = recipe(f"{data}-{size}", "sbert")
    got = settings(shipped)
    assert {key: got[key] for key in expected} == expected
    assert (shipped.labelled.file if shipped.labelled else None) == (None if data == "stsb" else "AllNLI.tsv")


@pytest.mark.parametrize("name", CHANGES)
def test_another_recipe_changes_what_its_row_says_and_nothing_else(name):
    base = S if name.startswith(S) else "nli-bert-large" if "large" in name else N
    differs = changed(base, name, "sbert")
    if name.endswith("-whitening"):
        assert differs.pop("labelled")["file"] == "AllNLI_with_SNLI_dev_test.tsv"
    assert differs == CHANGES[name]


def test_no_recipe_is_untested():
    assert set(NAMES) == {*(f"{data}-{size}" for data, size in MAIN), *CHANGES, "wiki-sections-bert-base"}
    triplets = settings(recipe("wiki-sections-bert-base", "sbert"))
    expected = {**LIBRARY, "options.objective": "triplet", "options.margin": 1.0, "training.epochs": 1,
                "selection.by": "none"}
    assert {key: triplets[key] for key in expected} == expected


def test_stsb_is_scored_at_the_end_of_each_epoch():
    assert recipe(S, "sbert").selection.every == -(-5749 // 16)
