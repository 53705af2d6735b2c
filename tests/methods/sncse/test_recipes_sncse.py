"""SNCSE's recipes: the settings of the released script, the figures that are printed, and what each other form changes."""

import pytest
from shipped_recipes import BERT, BERT_LARGE, ROBERTA, ROBERTA_LARGE, changed, recipe, settings

from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import recipe_names

BACKBONES = {"bert-base": BERT, "bert-large": BERT_LARGE, "roberta-base": ROBERTA, "roberta-large": ROBERTA_LARGE}
# Doragd/Awesome-Sentence-Embedding@e0c8e45:README.md, STS12 to SICK-R and the mean
PRINTED = {
    "bert-base": (70.67, 84.79, 76.99, 83.69, 80.51, 81.35, 74.77, 78.97),
    "bert-large": (71.94, 86.66, 78.84, 85.74, 80.72, 82.29, 75.11, 80.19),
    "roberta-base": (70.62, 84.42, 77.24, 84.85, 81.49, 83.07, 72.92, 79.23),
    "roberta-large": (73.71, 86.73, 80.35, 86.8, 83.06, 84.31, 77.43, 81.77),
}
OTHERS = {
    "bert-base-line": ("bert-base", {"options.lookup": "line"}),
    "bert-base-verbs": ("bert-base", {"options.lookup": "line", "options.negation": "verbs"}),
    "bert-base-no-soft-negative": ("bert-base", {"options.weight": 0}),
    "roberta-base-one-string": ("roberta-base", {"options.train_tokens": "test", "options.test_template": None}),
}


def test_the_figures_are_those_that_are_printed_and_said_to_be_second_hand():
    assert {*recipe_names("sncse")} == {*PRINTED, *OTHERS}
    for name, figures in PRINTED.items():
        [row] = recipe(name, "sncse").published
        assert (row.protocol, row.metric, tuple(row.scores.values())) == ("sts:all", "spearman", figures)
        assert sum(figures[:7]) / 7 == pytest.approx(figures[7], abs=0.0051), name
        assert "second hand" in recipe(name, "sncse").source.note and f"{figures[7]:.2f}" in card("sncse")
    assert all(recipe(name, "sncse").published == [] for name in OTHERS)


@pytest.mark.parametrize("name", PRINTED)
def test_the_settings_of_the_released_script(name):
    got = settings(recipe(name, "sncse"))
    large, roberta = name.endswith("large"), name.startswith("roberta")
    expected = {
        "backbone.model": BACKBONES[name], "backbone.pooler": "mask", "backbone.dropout": 0.1, "backbone.max_length": 32,
        "options.template": 'This sentence : " {} " means [MASK] .', "options.temperature": 0.05,
        "options.second_template": 'This sentence of " {} " means [MASK] .', "options.head": "mlp_train_only",
        "options.test_template": 'This sentence : " {} " means [MASK].' if roberta else None,
        "options.train_tokens": "released" if roberta else "test",
        "options.weight": 5e-4 if roberta else 1e-3, "options.alpha": 0.1, "options.beta": 0.3, "options.negation": "rule",
        "options.lookup": "after_full_stop", "options.full_stop": "punctuation32", "options.max_length_counts": "template",
        "data.file": "wiki1m_for_simcse.txt", "training.batch_size": 128 if large else 256,
        "training.learning_rate": 5e-6 if large else 1e-5, "training.epochs": 1, "training.schedule": "linear",
        "training.warmup": 0, "training.weight_decay": 0, "training.clip": 1, "training.adam": "transformers",
        "selection.by": "sts-b dev", "selection.every": 125, "precision": "float32", "seed": 42,
    }
    assert {key: got[key] for key in expected} == expected


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_other_forms_change(name):
    base, change = OTHERS[name]
    assert changed(base, name, "sncse") == change
