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
    S,
    U,
    changed,
    held,
    printed,
    recipe,
    settings,
)

from stsbench import registry
from stsbench.methods.simcse.checks import check_head, check_options
from stsbench.methods.simcse.method import SimCSE
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training.recipes import describe
from stsbench.training.recipes.methods import GROUP, options_of, stages_of
from stsbench.training.recipes.recipes import (
    default_recipe,
    find_recipe,
    load_recipe,
    recipe_names,
    resolved_yaml,
)

# All of them -----------------------------------------------------------------------------------------------------

OWN = [name for name in recipe_names("simcse") if not LATER.search(name)]
# printed average -> mean of the columns: of ten runs; SBERT's own
OTHER_MEANS = {("promptbert", "unsup-promptbert-base", 78.54): 78.52, ("sbert", "nli-bert-base", 74.89): 74.86}


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
    assert default_recipe(method) == loaded.default_recipe in recipe_names(method)
    assert options_of(method) is loaded.Options
    assert stages_of(method) == loaded.stages
    assert [option.name for option in describe.options(method)] == list(loaded.Options.model_fields)
    assert load_recipe(method) == recipe(loaded.default_recipe, method)


@pytest.mark.parametrize("name", recipe_names("simcse"))
def test_the_options_of_a_simcse_recipe_go_together(name):
    found = recipe(name)
    options = SimCSEOptions(**found.options)
    check_options(options)
    check_head(options, found.backbone.pooler)
    given = tuple(found.data.columns) or ("sentence",)
    assert set(SimCSE.roles(options, given)) == set(given)


# Published scores ------------------------------------------------------------------------------------------------

# Row of leaderboard/published -> recipe; a dict: column -> recipe.
HOLDERS = {
    "simcse:5:7": U, "simcse:5:11": "unsup-roberta-base", "simcse:5:12": "unsup-roberta-large",
    "simcse:5:19": S, "simcse:5:22": "sup-roberta-base", "simcse:5:23": "sup-roberta-large",
    "simcse:B.3:6": U, "simcse:B.3:12": S,
    "simcse:E.1:6": U, "simcse:E.1:7": f"{U}-mlm", "simcse:E.1:8": "unsup-roberta-base",
    "simcse:E.1:9": "unsup-roberta-base-mlm", "simcse:E.1:10": "unsup-roberta-large",
    "simcse:E.1:11": "unsup-roberta-large-mlm", "simcse:E.1:15": S, "simcse:E.1:16": f"{S}-mlm",
    "simcse:E.1:18": "sup-roberta-base", "simcse:E.1:19": "sup-roberta-base-mlm", "simcse:E.1:20": "sup-roberta-large",
    "simcse:E.1:21": "sup-roberta-large-mlm",
    "simcse:1:1": U, "simcse:1:2": f"{U}-crop-10", "simcse:1:3": f"{U}-crop-20", "simcse:1:4": f"{U}-crop-30",
    "simcse:1:5": f"{U}-delete-words-10", "simcse:1:6": f"{U}-delete-words-20", "simcse:1:7": f"{U}-delete-words-30",
    "simcse:1:8": f"{U}-delete-one-word", "simcse:1:9": f"{U}-delete-one-word-no-dropout", "simcse:1:10": f"{U}-synonym",
    "simcse:1:11": f"{U}-replace-words-15",
    "simcse:2:1": {"one encoder": f"{U}-next", "two encoders": f"{U}-next-two-encoders"},
    "simcse:2:2": {"one encoder": f"{U}-next3", "two encoders": f"{U}-next3-two-encoders"},
    "simcse:2:3": {"one encoder": f"{U}-delete-one-word", "two encoders": f"{U}-delete-one-word-two-encoders"},
    "simcse:2:4": {"one encoder": U, "two encoders": f"{U}-two-encoders"},
    "simcse:3:1": f"{U}-dropout-0.0", "simcse:3:2": f"{U}-dropout-0.01", "simcse:3:3": f"{U}-dropout-0.05", "simcse:3:4": U,
    "simcse:3:5": f"{U}-dropout-0.15", "simcse:3:6": f"{U}-dropout-0.2", "simcse:3:7": f"{U}-dropout-0.5",
    "simcse:3:8": f"{U}-fixed-dropout",
    "simcse:4:1": {"full": U}, "simcse:4:2": {"134k sample": f"{S}-qqp", "full": f"{S}-qqp"},
    **{f"simcse:4:{row}": {"134k sample": f"{S}-{name}-134k", "full": f"{S}-{name}"}
       for row, name in ((3, "flickr30k"), (4, "paranmt"), (5, "nli-entailment"), (6, "nli-neutral"),
                         (7, "nli-contradiction"), (8, "nli-all"))},
    "simcse:4:9": {"full": S}, "simcse:4:10": {"full": f"{S}-anli"},
    "simcse:6/unsup:1": f"{U}-mlp", "simcse:6/unsup:2": U, "simcse:6/unsup:3": f"{U}-no-mlp",
    "simcse:6/unsup:4": f"{U}-first-last", "simcse:6/sup:1": S, "simcse:6/sup:2": f"{S}-mlp-train-only",
    "simcse:6/sup:3": f"{S}-no-mlp", "simcse:6/sup:4": f"{S}-first-last",
    "simcse:7:1": f"{S}-no-hard-negative", "simcse:7:2": f"{S}-alpha-0.5", "simcse:7:3": S, "simcse:7:4": f"{S}-alpha-2",
    "simcse:7:5": f"{S}-neutral",
    "simcse:D.1:1": f"{S}-dot", "simcse:D.1:2": f"{S}-temperature-0.001", "simcse:D.1:3": f"{S}-temperature-0.01",
    "simcse:D.1:4": S, "simcse:D.1:5": f"{S}-temperature-0.1", "simcse:D.1:6": f"{S}-temperature-1",
    **{f"simcse:D.2/{part}:{row}": name for part in ("sts", "transfer")
       for row, name in ((1, S), (2, f"{S}-mlm-0.01"), (3, f"{S}-mlm"), (4, f"{S}-mlm-1"))},
    "simcse:text:1": f"{S}-two-encoders",
    "simcse-readme:README:1": U, "simcse-readme:README:2": "unsup-bert-large",
    "simcse-readme:README:3": "unsup-roberta-base", "simcse-readme:README:4": "unsup-roberta-large",
    "simcse-readme:README:5": S, "simcse-readme:README:6": "sup-bert-large",
    "simcse-readme:README:7": "sup-roberta-base", "simcse-readme:README:8": "sup-roberta-large",
}  # fmt: skip


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    found = printed(("simcse", "simcse-readme"), lambda row: "SimCSE" in row.method, HOLDERS)
    dev = ("sts-b dev", "spearman", "STS-B")
    found[(f"{S}-nli-entailment", *dev)] = found[(f"{S}-no-hard-negative", *dev)]  # the same model, printed in both tables
    assert {key: score for key, score in held("simcse").items() if key[0] in OWN} == found
    assert all(recipe(name).published for name in OWN)


# Settings --------------------------------------------------------------------------------------------------------

MAIN = {  # batch, learning rate, epochs (Table A.1), model
    "unsup-bert-base": (64, 3e-5, 1, BERT), "unsup-bert-large": (64, 1e-5, 1, BERT_LARGE),
    "unsup-roberta-base": (512, 1e-5, 1, ROBERTA), "unsup-roberta-large": (512, 3e-5, 1, ROBERTA_LARGE),
    "sup-bert-base": (512, 5e-5, 3, BERT), "sup-bert-large": (512, 1e-5, 3, BERT_LARGE),
    "sup-roberta-base": (512, 5e-5, 3, ROBERTA), "sup-roberta-large": (512, 1e-5, 3, ROBERTA_LARGE),
}  # fmt: skip
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
}  # fmt: skip


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
    }  # fmt: skip
    got = settings(recipe(name))
    assert {key: got[key] for key in expected} == expected


@pytest.mark.parametrize(("base", "name"), [(base, name) for base in CHANGES for name in CHANGES[base]])
def test_an_ablation_changes_what_its_row_says_and_nothing_else(base, name):
    assert changed(base, f"{base}-{name}", "simcse") == CHANGES[base][name]


def test_no_recipe_is_untested():
    assert set(OWN) == {*MAIN, *(f"{base}-{name}" for base in CHANGES for name in CHANGES[base])}
