"""PCL's recipes: the settings of its README, the figures of both sources, and what the clean form changes."""

import pytest
from shipped_recipes import (
    BERT,
    BERT_LARGE,
    ROBERTA,
    ROBERTA_LARGE,
    WAY_OF,
    changed,
    held,
    printed,
    recipe,
    rows_of,
    settings,
)

from stsbench.methods.pcl.options import PCLOptions
from stsbench.training.recipes.methods import card
from stsbench.training.recipes.recipes import default_recipe, recipe_names

MAIN = {"released-bert-base": BERT, "released-bert-large": BERT_LARGE, "released-roberta-base": ROBERTA,
        "released-roberta-large": ROBERTA_LARGE}
# The paper's, as Doragd/Awesome-Sentence-Embedding@e0c8e45:README.md prints them: STS12 to SICK-R and the mean
SECOND_HAND = {
    "released-bert-base": (72.74, 83.36, 76.05, 83.07, 79.26, 79.72, 72.75, 78.14),
    "released-bert-large": (74.89, 85.88, 78.33, 85.3, 80.13, 81.39, 73.66, 79.94),
    "released-roberta-base": (71.54, 82.7, 75.38, 83.31, 81.64, 81.61, 69.19, 77.91),
    "released-roberta-large": (73.76, 84.59, 76.81, 85.37, 81.66, 82.89, 70.33, 79.34),
}


def test_the_readme_s_rows_and_the_paper_s_stand_beside_one_another_and_are_not_mixed():
    assert {*recipe_names("pcl")} == {*MAIN, "released-bert-base-script", "clean-bert-base"}
    second_hand = set()
    for name, figures in SECOND_HAND.items():
        readme, transfer, paper = recipe(name, "pcl").published
        assert (readme.protocol, transfer.protocol, paper.protocol) == ("sts:all", "transfer", "sts:all")
        assert tuple(paper.scores.values()) == figures
        for row in (readme, transfer, paper):
            *tasks, mean = row.scores.values()
            assert sum(tasks) / 7 == pytest.approx(mean, abs=0.0051), name
        assert "second hand" in recipe(name, "pcl").source.note
        second_hand |= {(name, "sts:all", "spearman", task, score) for task, score in paper.scores.items()}
        assert f"{readme.scores['Avg']:.2f}" in card("pcl") and f"{figures[7]:.2f}" in card("pcl")
    assert held("pcl") - printed("pcl") <= second_hand and printed("pcl") <= held("pcl")
    rows = rows_of(("pcl-readme",), lambda row: True)
    assert len(rows) == 8 and all(WAY_OF[row.id].recipe for row in rows)
    for name in ("released-bert-base-script", "clean-bert-base"):
        assert recipe(name, "pcl").published == [] and "No published row" in recipe(name, "pcl").source.note


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_readme(name):
    expected = {
        "backbone.model": MAIN[name], "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 32,
        "options.temperature": 0.05, "options.head": "mlp_train_only",
        "options.augmentations": ["shuffle", "reverse", "delete", "repeat"] * 2,
        "options.peer": {"model": None, "frozen": False, "mask": False, "head": "shared"},
        "options.group_positive": "bce_of_softmax", "options.reduce": "element", "options.contrastive_weight": 1,
        "options.contrastive_peer_weight": 1, "options.group_weight": 1, "options.group_peer_weight": 1,
        "options.cross_weight": 1, "options.symmetric_weight": 1,
        "data.file": "wiki1m_for_simcse.txt", "data.drop_blank": False, "data.drop_duplicates": False, "data.held_out": 0,
        "training.batch_size": 64, "training.learning_rate": 3e-5, "training.epochs": 1, "training.schedule": "linear",
        "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999), "training.epsilon": 1e-8,
        "training.adam": "transformers", "training.clip": 1, "training.accumulate": 1, "training.gather": "exact",
        "selection.by": "sts-b dev", "selection.every": 125, "selection.at_end": False, "precision": "fp16", "seed": 42,
    }
    shipped = settings(recipe(name, "pcl"))
    assert {key: shipped[key] for key in expected} == expected
    assert {f"options.{key}" for key in PCLOptions.model_fields} <= set(expected)


def test_the_defaults_are_the_released_code_s():
    assert default_recipe("pcl") == "released-bert-base"
    assert PCLOptions(**recipe("released-bert-base", "pcl").options) == PCLOptions()


def test_what_the_script_and_the_clean_form_change():
    assert changed("released-bert-base", "released-bert-base-script", "pcl") == {"training.batch_size": 256, "seed": 1}
    assert changed("released-bert-base", "clean-bert-base", "pcl") == {
        "options.peer": {"model": None, "frozen": False, "mask": True, "head": "shared"},
        "options.group_positive": "bce", "options.reduce": "row",
    }
