"""Every shipped recipe: it validates, holds the published scores, and differs from its base in what its row changes."""

import json
import re
import sys

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from stsbench import registry
from stsbench.cli.show import list_, show
from stsbench.errors import StsbenchError
from stsbench.leaderboard.publications import PUBLISHED, load_publications
from stsbench.methods.simcse.checks import check_head, check_options, roles_of
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training import describe
from stsbench.training.recipes import (
    GROUP,
    changes,
    default_recipe,
    find_recipe,
    load_recipe,
    options_model,
    package_of,
    recipe_names,
    resolved_yaml,
)

METHODS = registry.names(GROUP)
EVERY = [(method, name) for method in METHODS for name in recipe_names(method)]
U, S = "unsup-bert-base", "sup-bert-base"
BERT, BERT_LARGE = "google-bert/bert-base-uncased", "google-bert/bert-large-uncased"
ROBERTA, ROBERTA_LARGE = "FacebookAI/roberta-base", "FacebookAI/roberta-large"


def recipe(name, method="simcse"):
    return find_recipe(method, name)[0]


def one_line(call, *parts):
    with pytest.raises(StsbenchError) as caught:
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    for part in parts:
        assert part in text, (part, text)
    return text


# All of them -----------------------------------------------------------------------------------------------------


def test_the_built_in_methods_are_registered():
    assert {"simcse", "mlm"} <= set(METHODS) and len(EVERY) > 60


@pytest.mark.parametrize(("method", "name"), EVERY)
def test_a_recipe_validates_says_where_it_comes_from_and_round_trips(method, name, tmp_path):
    found, raw = find_recipe(method, name)
    assert (found.name, found.method) == (name, method) and found.description and found.source and "extends" not in raw
    assert found.options == options_model(method)(**found.options).model_dump(mode="json")  # complete
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
            assert abs(sum(scores.values()) / 7 - row.scores["Avg"]) <= 0.0051, row


@pytest.mark.parametrize("method", METHODS)
def test_what_is_read_without_torch_is_what_the_class_says(method):
    loaded = registry.resolve(GROUP, method)
    assert default_recipe(method) == loaded.default_recipe in recipe_names(method)
    assert options_model(method) is loaded.Options
    assert describe.stages(method) == loaded.stages
    assert [option.name for option in describe.options(method)] == list(loaded.Options.model_fields)
    assert load_recipe(method) == recipe(loaded.default_recipe, method)


@pytest.mark.parametrize("name", recipe_names("simcse"))
def test_the_options_of_a_simcse_recipe_go_together(name):
    found = recipe(name)
    options = SimCSEOptions(**found.options)
    check_options(options)
    check_head(options, found.backbone.pooler)
    given = tuple(found.data.columns) or ("sentence",)
    assert set(roles_of(options, given)) == set(given)


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


def printed():
    """(recipe, protocol, metric, task) -> score, from the committed tables of SimCSE's own rows."""
    found = {}
    for publication in load_publications(PUBLISHED):
        if publication.paper.id not in ("simcse", "simcse-readme"):
            continue
        for row in publication.rows:
            if "SimCSE" not in row.method:
                continue
            heading = row.heading
            if heading.protocol == "dev":
                protocol = "transfer dev" if heading.task == "transfer" else "sts-b dev"
            else:
                protocol = "transfer" if heading.protocol == "transfer" else f"sts:{heading.aggregation}"
            cells = [*zip(heading.columns, row.scores, strict=True), ("Avg", row.average)]
            for column, score in cells:
                if score is None:
                    continue
                holder = HOLDERS[row.id]  # a row that nobody thought of fails here
                name = holder[column] if isinstance(holder, dict) else holder
                task = column if heading.protocol != "dev" else "STS-B" if protocol == "sts-b dev" else "Avg"
                key = (name, protocol, heading.metric, task)
                if key == (f"{S}-no-hard-negative", "sts-b dev", "spearman", "STS-B"):
                    found[(f"{S}-nli-entailment", *key[1:])] = score
                assert found.setdefault(key, score) == score, key
    return found


def test_every_published_row_has_a_recipe_with_its_scores_and_no_recipe_has_others():
    held = {
        (name, row.protocol, row.metric, task): score
        for name in recipe_names("simcse") for row in recipe(name).published for task, score in row.scores.items()
    }  # fmt: skip
    assert held == printed()
    assert all(recipe(name).published for name in recipe_names("simcse"))


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


def settings(found):
    dump = found.model_dump(exclude={"name", "description", "source", "published"})
    sections = ("backbone", "options", "data", "training", "selection")
    inner = {f"{key}.{name}": value for key in sections for name, value in dump.pop(key).items()}
    return {**dump, **inner}


@pytest.mark.parametrize("name", MAIN)
def test_the_settings_of_the_main_recipes(name):
    batch, rate, epochs, model = MAIN[name]
    supervised = name.startswith("sup")
    expected = {
        "training.batch_size": batch, "training.learning_rate": rate, "training.epochs": epochs, "backbone.model": model,
        "training.schedule": "linear", "training.warmup": 0, "training.weight_decay": 0, "training.betas": (0.9, 0.999),
        "training.epsilon": 1e-8, "training.clip": 1, "training.drop_last": False, "training.accumulate": 1,
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
    before, after = settings(recipe(base)), settings(recipe(f"{base}-{name}"))
    assert {key: after[key] for key in after if after[key] != before[key]} == CHANGES[base][name]


def test_no_recipe_is_untested():
    assert set(recipe_names("simcse")) == {*MAIN, *(f"{base}-{name}" for base in CHANGES for name in CHANGES[base])}


# Loading ---------------------------------------------------------------------------------------------------------


def test_sets_then_overrides():
    got = load_recipe("simcse", None, ["training.learning_rate=1e-4", "seed=1"], {"seed": 2, "training.clip": None})
    assert (got.training.learning_rate, got.seed, got.training.clip) == (1e-4, 2, None)
    one_line(lambda: load_recipe("simcse", None, [], {"training.clipp": 1}), "options: unknown key", "did you mean clip?")


def test_a_changed_recipe_makes_no_claim_to_published_scores():
    shipped = recipe(U)
    same = load_recipe("simcse", U, ["seed=7", "checkpoint_every=5"], {"data.file": f"/some/where/{shipped.data.file}"})
    facts = ("name", "description", "source", "published")
    assert [getattr(same, each) for each in facts] == [getattr(shipped, each) for each in facts] and changes(same) is None
    changed = load_recipe("simcse", U, ["training.learning_rate=1e-4"], {"backbone.model": "some/model"})
    keys = "backbone.model, training.learning_rate"
    assert (changed.name, changed.description, changed.published) == (f"{U}-changed", f"{U} with other {keys}", [])
    assert changed.source.note == f"{shipped.source.note or ''} Changed from {U}: {keys}.".strip()
    assert changes(changed) == (U, keys.split(", "))
    assert load_recipe("simcse", U, ["options.temperature=0.05"]) == shipped  # set to what it was


@pytest.mark.parametrize(
    "setting", ["precision=float32", "data.file=mine.txt", "data.format=text", "data.columns={sentence: x}", "data.sample=9"]
)
def test_other_text_and_another_precision_are_changes(setting):
    got = load_recipe("simcse", U, [setting])
    assert got.published == [] and changes(got) == (U, [setting.partition("=")[0]])


def test_text_for_a_recipe_that_names_none_is_no_change():
    assert load_recipe("mlm", "bert", [], {"data.file": "mine.txt"}).name == "bert"


SETS = st.lists(st.sampled_from([
    "training.learning_rate=1e-4", "training.max_steps=7", "data.file=mine.txt", "data.file=/x/wiki1m_for_simcse.txt",
    "seed=3", "precision=bf16", "options.temperature=0.1", "options.temperature=0.05", "name=own", "description=of my own",
    "data.columns={sentence: x}", "stages.main.training.epochs=2", f"name={U}",
    "source={paper: a paper}", "source=null",
]), max_size=4)  # fmt: skip


@settings_of(deadline=None, max_examples=60)
@given(name=st.sampled_from([U, f"{U}-mlm", "mine"]), sets=SETS, more=SETS)
def test_a_changed_recipe_is_found_again(tmp_path_factory, name, sets, more):
    folder = tmp_path_factory.mktemp("recipe")
    if name == "mine":
        (folder / "mine.yaml").write_text(f"extends: {U}\ntraining: {{batch_size: 32}}\n")
        name = str(folder / "mine.yaml")
    first = load_recipe("simcse", name, sets)
    stored = folder / "recipe.yaml"
    stored.write_text(resolved_yaml(first), "utf-8")
    assert first == load_recipe("simcse", name, sets) == load_recipe("simcse", str(stored), sets)
    assert load_recipe("simcse", str(stored)) == first
    again = load_recipe("simcse", str(stored), more)
    text = again.model_dump_json()
    assert "changed-changed" not in text and text.count("Changed from") <= 1
    if first.name.endswith("-changed") and changes(first):
        assert again.published == [] and (again.name == first.name or any(word.startswith("name=") for word in more))


def test_what_was_changed_twice_is_said_once(tmp_path):
    stored = tmp_path / "recipe.yaml"
    stored.write_text(resolved_yaml(load_recipe("simcse", U, ["training.clip=2"])), "utf-8")
    both = load_recipe("simcse", str(stored), ["backbone.pooler=mean"])
    assert both == load_recipe("simcse", U, ["training.clip=2", "backbone.pooler=mean"])
    assert changes(both) == (U, ["backbone.pooler", "training.clip"])
    assert load_recipe("simcse", str(stored), ["published=[{protocol: transfer, scores: {Avg: 99.0}}]"]).published == []


def test_a_recipe_of_ones_own(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: unsup-bert-base\ntraining: {batch_size: 128}\n")
    got = load_recipe("simcse", str(mine))
    assert (got.name, got.training.batch_size, got.published, got.source) == ("mine", 128, [], None)
    assert settings(got) == {**settings(recipe(U)), "training.batch_size": 128}
    mine.write_text("method: mlm\nbackbone: {model: x}\n")
    one_line(lambda: load_recipe("simcse", str(mine)), str(mine), "method 'mlm', not of 'simcse'")


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("sead=1", ["'sead'", "did you mean seed?"]),
        ("backbone.poler=cls", ["'backbone.poler'", "did you mean pooler"]),
        ("backbone.pooler=clss", ["backbone.pooler", "did you mean cls?"]),
        ("data.fiel=x", ["'data.fiel'", "did you mean file"]),
        ("data.format=txet", ["data.format", "did you mean text?"]),
        ("training.learnig_rate=1", ["'training.learnig_rate'", "did you mean learning_rate?"]),
        ("training.schedule=liner", ["training.schedule", "did you mean linear?"]),
        ("training.batch_size=0", ["training.batch_size must be at least 1, not 0"]),
        ("selection.evry=5", ["'selection.evry'", "did you mean every?"]),
        ("selection.by=sts-b-dev", ["selection.by", "did you mean sts-b dev?"]),
        ("options.temprature=1", ["'options.temprature'", "did you mean temperature?"]),
        ("options.view=dropuot", ["options.view", "did you mean dropout?"]),
        ("options.temperature=0", ["options.temperature must be above 0"]),
        ("source.papr=x", ["'source.papr'", "did you mean paper?"]),
        ("stages.main.trainig.epochs=1", ["'stages.main.trainig'", "did you mean training?"]),
        ("stages.main.training.epocs=1", ["'stages.main.training.epocs'", "did you mean epochs?"]),
        ("stages.main.training.epochs=0", ["stages.main.training.epochs must be above 0"]),
        ("stages.main=1", ["stages.main must be a mapping"]),
        ("stages.main.data=1", ["stages.main.data must be a mapping"]),
        ("precision=float16", ["precision", "did you mean"]),
        ("method=mlm", ["method must be 'simcse', not 'mlm'"]),
        ("seed=4294967296", ["seed must be at most 4294967295"]),
    ],
)
def test_misspelt_and_wrong_settings(setting, parts, tmp_path):
    one_line(lambda: load_recipe("simcse", None, [setting]), "--set: ", *parts)
    if not setting.startswith("method"):
        key, _, value = setting.partition("=")
        nested = f"{key.split('.')[-1]}: {value}"
        for part in reversed(key.split(".")[:-1]):
            nested = f"{part}: {{{nested}}}"
        path = tmp_path / "mine.yaml"
        path.write_text(f"extends: unsup-bert-base\n{nested}\n")
        one_line(lambda: load_recipe("simcse", str(path)), f"{path}: ", *parts)


def test_unknown_names(tmp_path):
    one_line(lambda: load_recipe("simsce"), "unknown method 'simsce'; did you mean simcse?")
    one_line(lambda: load_recipe("simcse", "unsup-bert-bsae"), "no recipe 'unsup-bert-bsae'", "did you mean unsup-bert-base")
    one_line(lambda: load_recipe("simcse", "zzz"), "no recipe 'zzz'; see stsbench list recipes")
    one_line(lambda: load_recipe("simcse", "_base"), "no recipe '_base'")
    one_line(lambda: load_recipe("simcse", str(tmp_path / "none.yaml")), "none.yaml", "no such file")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A third party's method, installed beside us; its module cannot be imported, and need not be."""
    package = tmp_path / "someones_plugin"
    (package / "recipes").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "method.py").write_text("raise RuntimeError('must not be loaded')\n")
    (package / "options.py").write_text(
        "from stsbench.training.options import Options\n\n\n"
        "class Theirs(Options):\n    margin: float = 0.5  # of the triplet loss\n"
    )
    (package / "recipes" / "small.yaml").write_text("backbone: {model: some/model}\noptions: {margin: 0.25}\n")
    (package / "recipes" / "_default.yaml").write_text("extends: small\n")
    facts = tmp_path / "someones_plugin-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-plugin\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{GROUP}]\ntriplet = someones_plugin.method:Triplet\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._points.cache_clear()
    yield package
    registry._points.cache_clear()
    package_of.cache_clear()
    for name in [name for name in sys.modules if name.startswith("someones_plugin")]:
        del sys.modules[name]


def test_a_plugins_recipes_are_found_alike(plugin):
    assert recipe_names("triplet") == ["small"]
    got = load_recipe("triplet")
    assert (got.name, got.method, got.options) == ("small", "triplet", {"margin": 0.25})
    one_line(lambda: load_recipe("triplet", None, ["options.margn=1"]), "did you mean margin?")
    [option] = describe.options("triplet")
    assert (option.name, option.default, option.meaning) == ("margin", 0.5, "of the triplet loss")
    listed = CliRunner().invoke(list_, ["recipes", "--method", "triplet"])
    assert listed.exit_code == 0 and listed.output.split() == ["triplet/small", "some/model", "-"]
    one_line(lambda: describe.card("triplet"), "'triplet' has no card")


def test_a_plugin_without_recipes_or_with_a_wrong_default(plugin):
    (plugin / "recipes" / "_default.yaml").write_text("extends: smal\n")
    one_line(lambda: load_recipe("triplet"), "_default.yaml", "'smal'")
    (plugin / "recipes" / "_default.yaml").unlink()
    one_line(lambda: load_recipe("triplet"), "'triplet' has no default recipe")


# Command line ----------------------------------------------------------------------------------------------------


def run(command, *words):
    return CliRunner().invoke(command, words, catch_exceptions=False)


def test_list_recipes():
    lines = run(list_, "recipes").output.splitlines()
    assert len(lines) == len(EVERY)
    [line] = [line for line in lines if line.startswith("simcse/sup-roberta-large ")]
    assert line.split()[:4] == ["simcse/sup-roberta-large", ROBERTA_LARGE, "sts:all", "83.76"]
    [line] = [line for line in lines if line.startswith("simcse/unsup-bert-base-crop-10 ")]
    assert "sts-b dev 77.8 " in line
    assert all(line.startswith("mlm/") for line in run(list_, "recipes", "--method", "mlm").output.splitlines())


def test_list_recipes_as_json(tmp_path):
    rows = json.loads(run(list_, "recipes", "--json", "-").output)
    assert [(row["method"], row["name"]) for row in rows] == EVERY
    [row] = [row for row in rows if row["name"] == "sup-bert-large"]
    assert (row["backbone"], row["published"][0]["scores"]) == (BERT_LARGE, {"Avg": 82.21})
    run(list_, "recipes", "--json", str(tmp_path / "rows.json"))
    assert json.loads((tmp_path / "rows.json").read_text()) == rows


def test_list_methods_and_options_that_do_not_apply():
    assert [line.split()[0] for line in run(list_, "methods").output.splitlines()] == METHODS
    for words in (["methods", "--json", "-"], ["data", "--method", "simcse"]):
        assert run(list_, *words).exit_code == 2


def test_show_recipe():
    for name in (U, f"simcse/{U}"):
        shown = yaml.safe_load(run(show, "recipe", name).output)
        assert shown == json.loads(recipe(U).model_dump_json())
    one_line(lambda: run(show, "recipe", "unsup-bert-bsae"), "did you mean unsup-bert-base")
    one_line(lambda: run(show, "recipe", "simcs/unsup-bert-base"), "unknown method 'simcs'; did you mean simcse?")


def test_show_recipe_of_several_methods(plugin, tmp_path):
    (plugin / "recipes" / "bert.yaml").write_text("backbone: {model: some/model}\n")
    one_line(lambda: run(show, "recipe", "bert"), "mlm/bert", "triplet/bert")
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: bert\n")
    one_line(lambda: run(show, "recipe", str(mine)), f"{mine}: several methods have a recipe 'bert' (mlm, triplet)")
    mine.write_text("extends: bert\nmethod: triplet\n")
    assert yaml.safe_load(run(show, "recipe", str(mine)).output)["backbone"]["model"] == "some/model"


@pytest.mark.parametrize(
    ("text", "method"),
    [
        (f"extends: {U}\n", "simcse"), ("extends: bert\n", "mlm"), ("extends: between\nseed: 3\n", "mlm"),
        ("method: mlm\nbackbone: {model: x}\n", "mlm"), ("extends: ./between.yaml\n", "mlm"),
        ("extends: _sup\nbackbone: {model: x}\n", "simcse"),
    ],
)
def test_show_a_recipe_of_ones_own(text, method, tmp_path):
    (tmp_path / "between.yaml").write_text("extends: bert\n")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    found = yaml.safe_load(run(show, "recipe", str(mine)).output)
    assert found == json.loads(load_recipe(method, str(mine)).model_dump_json())


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"extends: {U}\ntraining: {{batch_sise: 1}}\n", "did you mean batch_size?"),
        ("seed: 1\n", "neither 'method: NAME'"),
        ("extends: unsup-bert-bsae\n", "did you mean unsup-bert-base"), ("extends: mine\n", "no such recipe"),
        ("extends: ./mine.yaml\n", "in a circle: mine.yaml -> mine.yaml"), ("method: simsce\n", "did you mean simcse?"),
        ("method: mlm\n", "backbone"), ("method: 1\nextends: bert\n", "a recipe of method 1"), ("a: [\n", "no valid YAML"),
    ],
)  # fmt: skip
def test_show_says_the_first_fault_of_a_file(text, part, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    one_line(lambda: run(show, "recipe", str(mine)), part)
    one_line(lambda: run(show, "recipe", str(tmp_path / "none.yaml")), "none.yaml: there is no such file")


def test_show_method():
    text = run(show, "method", "simcse").output
    assert text.startswith("# SimCSE") and "Stages: main. Default recipe: unsup-bert-base." in text
    assert '- similarity = "cosine" (\'cosine\', \'dot\'): dot: without temperature' in text
    for name in SimCSEOptions.model_fields:
        assert f"\n- {name} = " in text
    words = set(re.findall(r"`([\w.-]+)`", text))  # the card names every recipe, ablations without the part before
    endings = ("-134k", "-mlm", "-two-encoders")  # which it speaks of as a group
    for name in recipe_names("simcse"):
        short = {name, name.removeprefix(f"{U}-"), name.removeprefix(f"{S}-")}
        assert short & words or name.endswith(endings), name
