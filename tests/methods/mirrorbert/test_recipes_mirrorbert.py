"""Mirror-BERT's recipes: every published row has one, and the settings are those of the scripts."""

import pytest
from shipped_recipes import BERT, ROBERTA, WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.methods.mirrorbert.method import MirrorBERT
from stsbench.methods.mirrorbert.options import MirrorBERTOptions
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipes import recipe_names

METHOD = "mirror-bert"
NAMES = recipe_names(METHOD)
RELEASED = {"options.first_occurrence": True}
RELEASED_ROBERTA = {**RELEASED, "options.literal_mask": True}
UNTESTED = {"bert-base-drophead", "roberta-base", "roberta-base-drophead", "bert-base-mean", "bert-base-words",
            "roberta-base-pairs"}


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    shipped = printed(METHOD)
    assert held(METHOD) == shipped and {name for name, *_ in shipped} == set(NAMES) - UNTESTED
    rows = rows_of(("mirror-bert-readme", "promcse-readme"), lambda row: row.method.startswith("Mirror-BERT"))
    assert len(rows) == 5 and all(WAY_OF[row.id].recipe for row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    shipped = recipe(name, METHOD)
    options = MirrorBERTOptions(**shipped.options)
    roles = MethodPlan(MirrorBERT, options).roles(tuple(shipped.data.columns) or ("sentence",))
    assert roles == (("anchor", "positive") if name == "roberta-base-pairs" else ("sentence",))
    assert (options.drophead > 0) == (shipped.backbone.dropout == 0)


def test_the_settings_of_the_script_and_the_defaults():
    expected = {
        "backbone.model": BERT, "backbone.pooler": "mean_padded:50", "backbone.dropout": 0.1, "backbone.max_length": 50,
        "options.temperature": 0.04, "options.span_chars": 5, "options.min_chars": 30, "options.first_occurrence": False,
        "options.literal_mask": False, "options.drophead": 0, "options.test_length": 64, "data.file": "stsb-train-texts",
        "data.sample": 10_000, "data.sample_seed": 0, "training.batch_size": 200, "training.epochs": 1,
        "training.learning_rate": 2e-5, "training.schedule": "constant", "training.warmup": 0,
        "training.weight_decay": 0.01, "training.weight_decay_on": "all", "training.adam": "torch", "training.clip": None,
        "training.drop_last": True, "training.gather": "exact", "selection.by": "none", "precision": "fp16", "seed": 42,
    }
    shipped = settings(recipe("bert-base", METHOD))
    assert {key: shipped[key] for key in expected} == expected
    options = {**recipe("bert-base", METHOD).options, "test_length": None}
    assert MirrorBERTOptions(**options) == MirrorBERTOptions()


@pytest.mark.parametrize(("base", "name", "expected"), [
    ("bert-base", "bert-base-released", RELEASED),
    ("bert-base", "bert-base-drophead", {"backbone.dropout": 0, "options.drophead": 0.2}),
    ("bert-base-drophead", "bert-base-drophead-released", RELEASED),
    ("bert-base", "bert-base-mean", {"backbone.pooler": "mean", "options.test_length": None}),
    ("bert-base", "roberta-base", {"backbone.model": ROBERTA, "backbone.pooler": "cls", "options.test_length": None}),
    ("roberta-base", "roberta-base-released", RELEASED_ROBERTA),
    ("roberta-base", "roberta-base-drophead", {"backbone.dropout": 0, "options.drophead": 0.05}),
    ("roberta-base-drophead", "roberta-base-drophead-released", RELEASED_ROBERTA),
    ("roberta-base", "bert-base-words", {
        "backbone.model": BERT, "backbone.max_length": 25, "data.file": "en_words_top_10k.txt", "data.sample": None,
        "data.sample_seed": None, "options.span_chars": 0, "options.temperature": 0.2, "training.epochs": 2,
    }),
    ("roberta-base", "roberta-base-pairs", {
        "backbone.model": "cambridgeltl/mirror-roberta-base-sentence-drophead",
        "data.file": "amazon_qa_pairs_1172000.tsv", "data.columns": {"anchor": "question", "positive": "answer"},
        "data.sample": None, "data.sample_seed": None, "options.span_chars": 0, "training.epochs": 3,
    }),
])
def test_what_differs(base, name, expected):
    assert changed(base, name, METHOD) == expected
