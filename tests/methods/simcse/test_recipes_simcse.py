"""Every shipped recipe: it validates, holds the published scores, and differs from its base in what its row changes."""

import json

import pytest
import yaml
from shipped_recipes import (
    BERT,
    BERT_LARGE,
    EVERY,
    LATER,
    METHODS,
    ROBERTA,
    ROBERTA_LARGE,
    WAY_OF,
    S,
    U,
    changed,
    held,
    printed,
    recipe,
    rows_of,
    settings,
)

from stsbench import registry
from stsbench.encoders.prompt.modules import check_head
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training.recipes import methods
from stsbench.training.recipes.methods import GROUP, options_of
from stsbench.training.recipes.recipe import resolved_yaml
from stsbench.training.recipes.recipes import default_recipe, find_recipe, load_recipe, recipe_names

# All of them -----------------------------------------------------------------------------------------------------

OWN = [name for name in recipe_names("simcse") if not LATER.search(name)]
# printed average -> mean of the columns: of ten runs; SBERT's own
OTHER_MEANS = {
    ("promptbert", "unsup-promptbert-base", 78.54): 78.52, ("sbert", "nli-bert-base", 74.89): 74.86,
    ("consert", "joint-bert-large", 79.44): 79.45, ("consert", "unsup-bert-large-released", 76.45): 76.44,
    ("mirror-bert", "bert-base", 74.4): 74.386,
}


def test_the_built_in_methods_are_registered():
    assert {"simcse", "mlm", "diffcse", "sarcse", "promptbert", "diffaug", "sbert"} <= set(METHODS) and len(EVERY) > 180


@pytest.mark.parametrize(("method", "name"), EVERY)
def test_a_recipe_validates_says_where_it_comes_from_and_round_trips(method, name, tmp_path):
    found, raw = find_recipe(method, name)
    assert (found.name, found.method) == (name, method) and found.description and found.source and "extends" not in raw
    assert found.options == options_of(method)(**found.options).model_dump(mode="json")  # complete
    path = tmp_path / "recipe.yaml"
    path.write_text(resolved_yaml(found), "utf-8")
    assert find_recipe(method, str(path))[0] == found == load_recipe(method, str(path))
    flat = yaml.safe_load(path.read_text("utf-8"))  # another reader of YAML finds the same numbers
    assert flat == json.loads(found.model_dump_json())


@pytest.mark.parametrize(("method", "name"), EVERY)
def test_a_printed_average_is_the_mean_of_its_scores(method, name):
    for row in recipe(name, method).published:
        scores = {task: score for task, score in row.scores.items() if task != "Avg"}
        if "Avg" in row.scores and scores:
            assert len(scores) == 7
            expected = OTHER_MEANS.get((method, name, row.scores["Avg"]), row.scores["Avg"])
            assert abs(sum(scores.values()) / 7 - expected) <= 0.0051, row


@pytest.mark.parametrize("method", METHODS)
def test_what_is_read_without_torch_is_what_the_class_says(method):
    loaded = registry.resolve(GROUP, method)
    assert default_recipe(method) == loaded.Options.default_recipe in recipe_names(method)
    assert options_of(method) is loaded.Options
    assert [option.name for option in methods.options(method)] == list(loaded.Options.model_fields)
    assert load_recipe(method) == recipe(loaded.Options.default_recipe, method)


@pytest.mark.parametrize("name", recipe_names("simcse"))
def test_the_head_of_a_simcse_recipe_fits_its_pooler(name):
    found = recipe(name)
    check_head(SimCSEOptions(**found.options).head, found.backbone.pooler)


# Published scores ------------------------------------------------------------------------------------------------

def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    found = printed("simcse", "simcse") | printed("simcse", "simcse-readme")
    dev = ("sts-b dev", "spearman", "STS-B", 84.9)  # the same model, printed in both tables
    assert (f"{S}-no-hard-negative", *dev) in found
    assert {each for each in held("simcse") if each[0] in OWN} == found | {(f"{S}-nli-entailment", *dev)}
    assert all(recipe(name).published for name in OWN)
    rows = rows_of(("simcse", "simcse-readme"), lambda row: "SimCSE" in row.method)
    assert all(WAY_OF[row.id].recipes for row in rows)


# Settings --------------------------------------------------------------------------------------------------------

MAIN = {  # batch, learning rate, epochs (Table A.1), model
    "unsup-bert-base": (64, 3e-5, 1, BERT), "unsup-bert-large": (64, 1e-5, 1, BERT_LARGE),
    "unsup-roberta-base": (512, 1e-5, 1, ROBERTA), "unsup-roberta-large": (512, 3e-5, 1, ROBERTA_LARGE),
    "sup-bert-base": (512, 5e-5, 3, BERT), "sup-bert-large": (512, 1e-5, 3, BERT_LARGE),
    "sup-roberta-base": (512, 5e-5, 3, ROBERTA), "sup-roberta-large": (512, 1e-5, 3, ROBERTA_LARGE),
}
TRIPLES = {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg"}
SAMPLE = {"": {}, "-134k": {"data.sample": 134_000}}  # the ending of a name and what it stands for
PAIRS = {"anchor": "sent0", "positive": "sent1"}
NLI = {"anchor": "premise", "positive": "hypothesis"}
ONE_WORD = {"options.view": "delete_one_word"}
CHANGES = {  # ablation -> what differs from its base, and nothing else
    U: {
        **{f"crop-{k}": {"options.view": "crop", "options.rate": k / 100} for k in (10, 20, 30)},
        **{f"delete-words-{k}": {"options.view": "delete_words", "options.rate": k / 100} for k in (10, 20, 30)},
        "delete-one-word": ONE_WORD, "delete-one-word-no-dropout": {**ONE_WORD, "backbone.dropout": 0.0},
        "delete-one-word-two-encoders": {**ONE_WORD, "options.encoders": 2},
        "synonym": {"options.view": "synonym", "options.thesaurus": "wordnet_synonyms.tsv"},
        "replace-words-15": {"options.view": "mlm", "options.rate": 0.15, "options.replacer": BERT},
        **{f"{view}{two}": {"options.view": view, "data.file": "wiki_documents.txt", "data.contiguous": True,
                            **({"options.encoders": 2} if two else {})}
           for view in ("next", "next3") for two in ("", "-two-encoders")},
        "two-encoders": {"options.encoders": 2}, "fixed-dropout": {"options.fixed_dropout_mask": True},
        **{f"dropout-{p}": {"backbone.dropout": p} for p in (0.0, 0.01, 0.05, 0.15, 0.2, 0.5)},
        "mlp": {"options.head": "mlp"}, "no-mlp": {"options.head": "none"},
        "first-last": {"options.head": "none", "backbone.pooler": "first_last:embeddings"},
        "mlm": {"options.mlm_weight": 0.1},
    },
    S: {
        "mlp-train-only": {"options.head": "mlp_train_only"}, "no-mlp": {"options.head": "none"},
        "first-last": {"options.head": "none", "backbone.pooler": "first_last:embeddings"},
        "no-hard-negative": {"data.columns": PAIRS}, "alpha-0.5": {"options.alpha": 0.5}, "alpha-2": {"options.alpha": 2.0},
        "neutral": {"data.file": "nli_with_neutral.csv", "data.columns": {**TRIPLES, "negative2": "neutral"}},
        "anli": {"data.file": "nli_and_anli_for_simcse.csv"}, "dot": {"options.similarity": "dot"},
        **{f"temperature-{t}": {"options.temperature": float(t)} for t in ("0.001", "0.01", "0.1", "1")},
        "mlm-0.01": {"options.mlm_weight": 0.01}, "mlm": {"options.mlm_weight": 0.1}, "mlm-1": {"options.mlm_weight": 1.0},
        "two-encoders": {"options.encoders": 2},
        "qqp": {"data.file": "QQP/train.tsv", "data.columns": {"anchor": "question1", "positive": "question2"},
                "data.where": {"is_duplicate": "1"}},
        **{f"{name}{size}": {"data.file": f"{name}_pairs.csv", "data.columns": PAIRS, **SAMPLE[size]}
           for name in ("flickr30k", "paranmt") for size in SAMPLE},
        **{f"nli-{label}{size}": {"data.file": "nli_pairs.tsv", "data.columns": NLI, "data.where": {"label": label},
                                  **SAMPLE[size]}
           for label in ("entailment", "neutral", "contradiction") for size in SAMPLE},
        **{f"nli-all{size}": {"data.file": "nli_pairs.tsv", "data.columns": NLI, **SAMPLE[size]} for size in SAMPLE},
    },
    "unsup-roberta-base": {"mlm": {"options.mlm_weight": 0.1}}, "unsup-roberta-large": {"mlm": {"options.mlm_weight": 0.1}},
    "sup-roberta-base": {"mlm": {"options.mlm_weight": 0.1}}, "sup-roberta-large": {"mlm": {"options.mlm_weight": 0.1}},
}


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_main_recipes(name):
    batch, rate, epochs, model = MAIN[name]
    supervised = name.startswith("sup")
    expected = {
        "training.batch_size": batch, "training.learning_rate": rate, "training.epochs": epochs, "backbone.model": model,
        "training.schedule": "linear", "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999),
        "training.epsilon": 1e-8,
        "training.adam": "transformers",
        "training.clip": 1, "training.drop_last": False, "training.accumulate": 1,
        "training.order": "random", "training.max_steps": None, "training.gather": "simcse" if supervised else "exact",
        "backbone.pooler": "cls", "backbone.dropout": 0.1, "backbone.max_length": 32,
        "options.temperature": 0.05, "options.similarity": "cosine", "options.view": "given" if supervised else "dropout",
        "options.alpha": 1,
        "options.head": "mlp" if supervised else "mlp_train_only", "options.mlm_weight": 0, "options.encoders": 1,
        "data.file": "nli_for_simcse.csv" if supervised else "wiki1m_for_simcse.txt",
        "data.columns": TRIPLES if supervised else {},
        "data.drop_blank": False, "data.drop_duplicates": False, "data.held_out": 0, "selection.by": "sts-b dev",
        "selection.every": 250, "selection.at_end": False, "precision": "fp16", "seed": 42,
    }
    got = settings(recipe(name))
    assert {key: got[key] for key in expected} == expected


@pytest.mark.parametrize(("base", "name"), [(base, name) for base in CHANGES for name in CHANGES[base]])
def test_an_ablation_changes_what_its_row_says_and_nothing_else(base, name):
    assert changed(base, f"{base}-{name}", "simcse") == CHANGES[base][name]


def test_no_recipe_is_untested():
    assert set(OWN) == {*MAIN, *(f"{base}-{name}" for base in CHANGES for name in CHANGES[base])}
