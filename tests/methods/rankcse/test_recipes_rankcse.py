"""RankCSE's recipes: the settings of the community command, the figures that are printed, and what the forms change."""

import pytest
from shipped_recipes import BERT, BERT_LARGE, ROBERTA, ROBERTA_LARGE, changed, recipe, settings

from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import recipe_names

NAMES = recipe_names("rankcse")
BACKBONES = {"bert-base": BERT, "bert-large": BERT_LARGE, "roberta-base": ROBERTA, "roberta-large": ROBERTA_LARGE}
# Doragd/Awesome-Sentence-Embedding@e0c8e45:README.md, STS12 to SICK-R and the mean
PRINTED = {
    "listmle-bert-base": (75.66, 86.27, 77.81, 84.74, 81.1, 81.8, 75.13, 80.36),
    "listnet-bert-base": (74.38, 85.97, 77.51, 84.46, 81.31, 81.46, 75.26, 80.05),
    "listmle-bert-large": (75.48, 86.5, 78.6, 85.45, 81.09, 81.58, 75.53, 80.6),
    "listnet-bert-large": (74.75, 86.46, 78.52, 85.41, 80.62, 81.4, 76.12, 80.47),
    "listmle-roberta-base": (72.74, 84.24, 75.99, 84.68, 82.88, 83.16, 71.77, 79.35),
    "listnet-roberta-base": (72.88, 84.5, 76.46, 84.67, 83.0, 83.24, 71.67, 79.49),
    "listmle-roberta-large": (73.4, 85.34, 77.25, 85.45, 82.64, 84.14, 72.92, 80.16),
    "listnet-roberta-large": (73.23, 85.08, 77.5, 85.67, 82.99, 84.2, 72.98, 80.24),
}
COMMUNITY = {"listmle-bert-base-community", "listnet-bert-base-community"}


def test_the_figures_are_those_that_are_printed_and_said_to_be_second_hand():
    assert {*NAMES} == {*PRINTED} | COMMUNITY
    for name, figures in PRINTED.items():
        [row] = recipe(name, "rankcse").published
        assert (row.protocol, row.metric, tuple(row.scores.values())) == ("sts:all", "spearman", figures)
        assert sum(figures[:7]) / 7 == pytest.approx(figures[7], abs=0.0051), name
        assert "second hand" in recipe(name, "rankcse").source.note and f"{figures[7]:.2f}" in card("rankcse")
    assert all(recipe(name, "rankcse").published == [] for name in COMMUNITY)


@pytest.mark.parametrize("name", PRINTED)
def test_the_settings_of_the_community_command(name):
    loss, _, backbone = name.partition("-")
    got = settings(recipe(name, "rankcse"))
    assert got["backbone.model"] == BACKBONES[backbone]
    first, second = got["options.teachers"]
    family = backbone.partition("-")[0]
    assert family in first["model"] and "diffcse" in first["model"] and f"unsup-simcse-{family}-large" in second["model"]
    assert (first["weight"], second["weight"]) == (0.33, 0.67)
    assert first["settings"] == second["settings"] == {"pooler": "cls", "max_length": 32}
    expected = {
        "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 32,
        "options.loss": loss, "options.temperature": 0.05, "options.student_temperature": 0.05,
        "options.teacher_temperature": 0.05 if loss == "listmle" else 0.025, "options.gamma": 1, "options.beta": 1,
        "options.consistency": "js", "options.eps": 0, "options.ranks": "sum", "options.self_column": "auto",
        "options.head": "mlp_train_only", "options.view": "dropout", "data.file": "wiki1m_for_simcse.txt",
        "training.batch_size": 128, "training.learning_rate": 3e-5, "training.epochs": 1, "training.schedule": "linear",
        "training.warmup": 0, "training.adam": "transformers", "training.clip": 1, "selection.by": "sts-b dev",
        "selection.every": 125, "precision": "fp16", "seed": 42,
    }
    assert {key: got[key] for key in expected} == expected


def test_what_the_community_code_changes():
    assert changed("listmle-bert-base", "listmle-bert-base-community", "rankcse") == {
        "options.consistency": "entropy", "options.eps": 1e-7}
    assert changed("listnet-bert-base", "listnet-bert-base-community", "rankcse") == {
        "options.consistency": "entropy", "options.teacher_temperature": 0.05}
