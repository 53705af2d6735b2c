"""DeCLUTR's recipes: every published row has one, and the settings are those of the released configuration."""

import pytest
from shipped_recipes import ROBERTA, WAY_OF, changed, held, printed, recipe, rows_of, settings

from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.leaderboard.records.publications import load_publications
from stsbench.leaderboard.reproduce.ways import resolve
from stsbench.methods.declutr.options import DeCLUTROptions
from stsbench.training.recipes.recipes import recipe_names

NAMES = recipe_names("declutr")
RELEASED = {"options.contrastive_weight": 0.25, "options.spans": "retokenised", "options.short": "refuse"}


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    shipped = printed("declutr")
    assert held("declutr") == shipped
    assert {name for name, *_ in shipped} == {"roberta-base-released", "distilroberta-released"}
    own = rows_of(("declutr", "simcse", "diffcse", "sarcse"), lambda row: row.method.startswith("DeCLUTR"))
    ways = resolve(load_publications(PUBLISHED), WAY_OF)
    trained = [row for row in own if row.heading.part not in ("retrieval", "downstream")]
    assert len(own) == 13 and len(trained) == 9
    for row in trained:
        size, name = ("small", "distilroberta") if row.method.endswith("small") else ("base", "roberta-base")
        assert ways[row.id].recipe == f"declutr/{name}-released"
        assert ways[row.id].checkpoint == f"--model johngiorgi/declutr-{size} --pooler mean"
    assert all(WAY_OF[row.id].missing for row in own if row not in trained)


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_recipe_go_together(name):
    shipped = recipe(name, "declutr")
    options = DeCLUTROptions(**shipped.options)
    assert options.l_max <= shipped.backbone.max_length


def test_the_settings_of_the_released_configuration():
    expected = {
        "backbone.model": ROBERTA, "backbone.pooler": "mean", "backbone.dropout": None, "backbone.max_length": 512,
        "options.anchors": 2, "options.positives": 2, "options.l_min": 32, "options.l_max": 512,
        "options.sampling": "default", "options.temperature": 0.05, "options.mlm_weight": 1, "options.mlm_probability": 0.15,
        "training.batch_size": 16, "training.epochs": 1, "training.learning_rate": 5e-5, "training.schedule": "slanted",
        "training.warmup": 0.1, "training.optimizer": "adamw", "training.adam": "uncorrected", "training.epsilon": 1e-6,
        "training.betas": (0.9, 0.999), "training.weight_decay": 0.1, "training.clip": 1, "training.drop_last": True,
        "data.lines_per_row": 1, "selection.by": "none", "precision": "fp16",
    }
    shipped = settings(recipe("roberta-base", "declutr"))
    assert {key: shipped[key] for key in expected} == expected
    assert DeCLUTROptions(**recipe("roberta-base", "declutr").options) == DeCLUTROptions()  # they are the defaults


@pytest.mark.parametrize(("base", "name", "expected"), [
    ("roberta-base", "distilroberta", {"backbone.model": "distilbert/distilroberta-base"}),
    ("roberta-base", "roberta-base-released", RELEASED), ("distilroberta", "distilroberta-released", RELEASED),
    ("roberta-base", "scaled", {
        "backbone.max_length": 66, "options.l_min": 8, "options.l_max": 64, "data.file": "wiki-lines.txt",
        "data.lines_per_row": 16, "selection.by": "sts-b dev", "selection.at_end": True,
        "precision": "float32", "seed": 42, "checkpoint_every": None,
    }),
])
def test_what_differs(base, name, expected):
    assert changed(base, name, "declutr") == expected
    assert sorted(NAMES) == ["distilroberta", "distilroberta-released", "roberta-base", "roberta-base-released", "scaled"]
    if name == "scaled":
        assert "Not the paper's" in recipe(name, "declutr").source.note and recipe(name, "declutr").published == []
