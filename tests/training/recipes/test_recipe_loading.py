"""From a name, a file and --set to a recipe: what changes it, what is wrong with it, plugins, `list` and `show`. Runs
shorter than their recipe. `train --sample`: every shipped recipe finds texts of its form in the package, and every method
trains on them. A warm-up in steps shrinks with the run, and what else is in steps and not reached is said."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
import yaml
from click.testing import CliRunner
from clirun import cli, fails, place  # noqa: F401
from shipped_recipes import BERT_LARGE, EVERY, METHODS, ROBERTA_LARGE, S, U, recipe, settings
from shipped_recipes import recipe as shipped_recipe

import stsbench
from stsbench import registry
from stsbench.cli.show import list_, show
from stsbench.data.fetch.sources import NAMED
from stsbench.errors import StsbenchError
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training.engine.optimiser import shortened_warmup
from stsbench.training.engine.stage import scheduled
from stsbench.training.recipes import methods, recipes
from stsbench.training.recipes.methods import GROUP, find_method
from stsbench.training.recipes.recipe import SECTIONS, changes, describe_keys
from stsbench.training.recipes.recipes import is_of_sample, load_recipe, recipe_names
from stsbench.training.recipes.sections import SearchSettings
from stsbench.training.runs.finish import trained_as


# Loading ---------------------------------------------------------------------------------------------------------
def test_what_is_a_change(tmp_path):
    """Other text and another precision; not the same text elsewhere, nor text for a recipe that names none."""
    same = load_recipe("simcse", U, ["seed=7", "checkpoint_every=5"], {"data.file": f"/some/where/{recipe(U).data.file}"})
    facts = ("name", "description", "source", "published")
    assert [getattr(same, each) for each in facts] == [getattr(recipe(U), each) for each in facts] and changes(same) is None
    for setting in ("precision=float32", "data.file=mine.txt", "data.columns={sentence: x}", "data.sample=9"):
        got = load_recipe("simcse", U, [setting])
        assert got.published == [] and changes(got) == (U, [setting.partition("=")[0]])
        assert got.source.note.endswith(f"Changed from {U}: {setting.partition('=')[0]}.")
    assert load_recipe("mlm", "bert", [], {"data.file": "mine.txt"}).name == "bert"
    stored = load_recipe("simcse", U, ["training.clip=2"]).save(tmp_path / "recipe.yaml")
    both = load_recipe("simcse", str(stored), ["backbone.pooler=mean"])  # changed twice, said once
    assert both == load_recipe("simcse", U, ["training.clip=2", "backbone.pooler=mean"])
    assert changes(both) == (U, ["backbone.pooler", "training.clip"])
    assert load_recipe("simcse", str(stored), ["published=[{protocol: transfer, scores: {Avg: 99.0}}]"]).published == []
    stored.write_text("extends: unsup-bert-base\ntraining: {batch_size: 128}\n")
    got = load_recipe("simcse", str(stored))
    assert (got.name, got.training.batch_size, got.published, got.source) == ("recipe", 128, [], None)
    assert settings(got) == {**settings(recipe(U)), "training.batch_size": 128}


def test_a_recipe_as_an_object_changed_and_saved_is_what_set_makes_of_the_shipped_one(tmp_path):
    shipped = stsbench.load_recipe("simcse/unsup-bert-base")
    assert shipped == stsbench.load_recipe("simcse") == load_recipe("simcse", U) == load_recipe("simcse", f"simcse/{U}")
    changed = shipped.with_settings({
        "training.learning_rate": 1e-5, "options.temperature": 0.1, "data.columns": {"sentence": "text"}})
    words = ["training.learning_rate=1e-5", "options.temperature=0.1", "data.columns={sentence: text}"]
    assert changed == load_recipe("simcse", U, words) and shipped.training.learning_rate == 3e-5
    assert repr(shipped) == f"<Recipe {U} of simcse>"
    keys = "data.columns, options.temperature, training.learning_rate"
    assert repr(changed) == f"<Recipe {U}-changed of simcse: {keys} changed>"
    assert changed.save(tmp_path / "mine.yaml").read_text("utf-8") == str(changed)
    assert stsbench.load_recipe(tmp_path / "mine.yaml") == changed == stsbench.load_recipe(
        tmp_path / "mine.yaml", method="simcse")
    assert changed.with_settings({"seed": 5}) == load_recipe("simcse", str(tmp_path / "mine.yaml"), overrides={"seed": 5})


def test_a_changed_recipe_of_a_sweep_is_no_longer_its_best_trial(tmp_path):
    facts = {"trials": 2, "seeds": 1, "by": "sts-b dev", "score": 88.65, "sampler": "grid", "space": {}}
    best = load_recipe("simcse", U, ["training.clip=2"]).model_copy(update={
        "name": f"{U}-swept", "description": "the best of 2 trials", "search": SearchSettings(**facts)})
    stored = best.save(tmp_path / "best.yaml")
    same = load_recipe("simcse", str(stored), ["seed=7"])
    assert (same.name, same.description, same.search) == (best.name, best.description, best.search)
    once = load_recipe("simcse", str(stored), ["training.learning_rate=1e-3"])
    assert (once.name, once.description) == (f"{U}-swept-changed", f"{U}-swept with other training.learning_rate")
    assert once.search == best.search  # its other values are still those of the best trial
    assert changes(once) == (U, ["training.clip", "training.learning_rate"])
    once.save(stored)
    assert load_recipe("simcse", str(stored)) == once
    twice = load_recipe("simcse", str(stored), ["options.temperature=0.5"])
    assert twice.name == once.name
    assert twice.description == f"{U}-swept with other options.temperature, training.learning_rate"
    named = load_recipe("simcse", str(stored), ["options.temperature=0.5", "name=mine", "description=of my own"])
    assert (named.name, named.description) == ("mine", "of my own")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A third party's method, installed beside us; its module cannot be imported, and need not be."""
    package = tmp_path / "someones_plugin"
    (package / "recipes").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "method.py").write_text("raise RuntimeError('must not be loaded')\nfrom someones_plugin.options import "
                                       "TripletOptions\n\n\nclass Triplet(Method):\n    Options = TripletOptions\n")
    (package / "options.py").write_text(
        "from stsbench.settings import setting\nfrom stsbench.training.api.options import Options\n\n\n"
        "class TripletOptions(Options):\n    default_recipe = 'small'\n"
        "    margin: float = setting(0.5, 'of the triplet loss')\n")
    (package / "recipes" / "small.yaml").write_text("backbone: {model: some/model}\noptions: {margin: 0.25}\n")
    facts = tmp_path / "someones_plugin-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-plugin\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{GROUP}]\ntriplet = someones_plugin.method:Triplet\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._points.cache_clear()
    yield package
    registry._points.cache_clear()
    find_method.cache_clear()
    for name in [name for name in sys.modules if name.startswith("someones_plugin")]:
        del sys.modules[name]


def test_a_plugins_recipes_are_found_alike(plugin):
    assert recipe_names("triplet") == ["small"]
    got = load_recipe("triplet")
    assert (got.name, got.method, got.options) == ("small", "triplet", {"margin": 0.25})
    with pytest.raises(StsbenchError, match=r"did you mean options\.margin"):
        load_recipe("triplet", None, ["options.margn=1"])
    [option] = methods.options("triplet")
    assert (option.name, option.default, option.meaning) == ("margin", "0.5", "of the triplet loss")
    assert run(list_, "recipes", "--method", "triplet").output.split() == ["triplet/small", "some/model", "-"]
    with pytest.raises(StsbenchError, match="must not be loaded"):  # it has no card.md
        methods.card("triplet")


def test_a_plugin_without_recipes_or_with_a_wrong_default(plugin):
    options = plugin / "options.py"
    options.write_text(options.read_text().replace("'small'", "'smal'"))
    with pytest.raises(StsbenchError, match=r"someones_plugin\.method:Triplet\).*did you mean small\?"):
        load_recipe("triplet")
    options.write_text(options.read_text().replace("    default_recipe = 'smal'\n", ""))
    del sys.modules["someones_plugin.options"]
    with pytest.raises(StsbenchError, match="has no default recipe"):
        load_recipe("triplet")

# Command line ----------------------------------------------------------------------------------------------------
def run(command, *words):
    return CliRunner().invoke(command, words, catch_exceptions=False)


def test_list(tmp_path):
    lines = run(list_, "recipes", "--method", "simcse", "--json", str(tmp_path / "rows.json")).output.splitlines()
    names = [each for each in EVERY if each[0] == "simcse"]
    assert len(lines) == len(names)
    [line] = [line for line in lines if line.startswith("simcse/sup-roberta-large ")]
    assert line.split()[:4] == ["simcse/sup-roberta-large", ROBERTA_LARGE, "sts:all", "83.76"]
    [line] = [line for line in lines if line.startswith("simcse/unsup-bert-base-crop-10 ")]
    assert "sts-b dev 77.8 " in line
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["method"], row["name"]) for row in rows] == names
    [row] = [row for row in rows if row["name"] == "sup-bert-large"]
    assert (row["backbone"], row["published"][0]["scores"]) == (BERT_LARGE, {"Avg": 82.21})
    assert [line.split()[0] for line in run(list_, "methods").output.splitlines()] == METHODS
    for words in (["methods", "--json", "-"], ["data", "--method", "simcse"]):
        assert run(list_, *words).exit_code == 2


def test_show_recipe(plugin, tmp_path):
    for name in (S, f"simcse/{S}"):
        assert yaml.safe_load(run(show, "recipe", name).output) == json.loads(recipe(S).model_dump_json())
    (plugin / "recipes" / "bert.yaml").write_text("backbone: {model: some/model}\n")
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: bert\n")
    for name in ("bert", str(mine)):  # of two methods
        with pytest.raises(StsbenchError, match=r"mlm.*triplet"):
            run(show, "recipe", name)
    mine.write_text("extends: bert\nmethod: triplet\n")
    assert yaml.safe_load(run(show, "recipe", str(mine)).output)["backbone"]["model"] == "some/model"


def test_show_section_and_method_with_the_meaning_of_every_key():
    text = run(show, "section", "training").output
    assert "\nSettings (`--set training.KEY=VALUE`):\n" in text and "backbone.text_cnn" in text
    assert "- rho = null (float | None, >= 0, < 1): of its mean square. It goes with optimizer rmsprop.\n" in text
    text = run(show, "section", "recipe").output
    assert "(`--set KEY=VALUE`)" in text and "\n- name (str): of the recipe" in text and "- training" not in text
    assert "- teachers" not in run(show, "section", "ranking").output
    for section in (section for section in SECTIONS if not section.startswith("ranking")):  # a method's options
        assert all(key.meaning for key in describe_keys(section)), section
    text = run(show, "method", "simcse").output
    assert text.startswith("# SimCSE") and "Stages: main. Default recipe: unsup-bert-base." in text
    assert '- view = "dropout" (' in text and "what the positive is:" in text and "fmt:" not in text
    assert '- similarity = "cosine" (\'cosine\', \'dot\'): dot: without temperature' in text
    for name in SimCSEOptions.model_fields:
        assert f"\n- {name} = " in text


NOT_THERE = {"QQP/train.tsv", "wikipedia_sections_triplets.csv", "amazon_qa_pairs_1172000.tsv", "flickr30k_pairs.csv",
             "nli_with_neutral.csv", "paranmt_pairs.csv", "multicsr_nli.csv", "sumcse.csv", "SynCSE-partial-NLI.csv",
             "SynCSE-scratch-NLI.csv"}


def files(recipe):
    return {part[name]["file"] for part in (recipe.model_dump(), *recipe.stages.values()) for name in ("data", "labelled")
            if part.get(name) and part[name].get("file")}


@pytest.mark.parametrize("method", METHODS)
def test_every_recipe_becomes_a_short_one_on_texts_that_are_there(method):
    seen = set()
    for name in recipe_names(method):
        recipe = shipped_recipe(name, method)
        kind = repr((files(recipe), recipe.data, recipe.labelled, recipe.semi, recipe.options))
        if kind in seen:  # another backbone or number of steps: nothing that its texts depend on
            continue
        try:
            made = load_recipe(method, name, (), recipes.sample_settings(recipe, (), lambda line: None))
        except StsbenchError as error:
            idle = str(error).startswith("options: options.")  # what the sample needs, beside the recipe's own options
            lacking = {file for file in files(recipe) & NOT_THERE if file in str(error)}
            assert idle or (lacking and "--recipe" in str(error)), (name, error)
            continue
        there = {file for file in files(made) if Path(file).is_file()}
        assert all(file in NAMED or file == "stsb/train" for file in files(made) - there), (name, files(made))
        assert all(Path(file).parent == recipes.TEXTS for file in there)
        assert is_of_sample(made) == bool(there) and not is_of_sample(recipe)  # resumed, too, or in a further stage
        assert made.backbone.model == recipes.BACKBONE and not made.published
        for stage in (None, *made.stages):
            training = made.training if stage is None else made.stage_training(stage)
            assert training.max_steps == recipes.STEPS, (name, stage)
            assert recipes.BATCH / 2 < training.batch_size <= recipes.BATCH, (name, stage)
        seen.add(kind)
    assert seen, f"no recipe of {method} can be tried"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.build_for_sample(tmp_path_factory.mktemp("model") / "tiny")


@pytest.mark.parametrize("method", ["diffaug", "cosent"])
def test_a_method_trains_every_stage_on_the_sample(cli, model, method):
    """What every method makes of such rows: tests/methods/test_method_contract.py."""
    code, _, err = cli("train", method, "--sample", "--backbone", model, "--max-steps", "1", "--device", "cpu",
                       "--dtype", "float32", "--output", "out", *tiny_models.SETTINGS.get(method, ()))
    assert code == 0, err
    for stage in load_recipe(method).stages:
        assert f"stage {stage}: 1 step of" in err
    assert ("stsb/train: its sentences are in the test sets of" in err) == (method == "cosent")
    assert "--sample: " in err and "at most 1 step a stage" in err and err.rstrip().endswith("prove nothing")
    assert Path("out/best/model.safetensors").is_file()


# --- a warm-up in steps ---
CT = ("ct", "bert-base-in-batch")  # one epoch, 1,000 steps of warm-up


def meant(recipe, stage="main"):
    return recipe.stage_training(stage).warmup_of


def test_what_the_warm_up_was_meant_for(tmp_path):
    for sets, overrides, expected in (
        (["seed=3"], {}, None), (["training.max_steps=40"], {}, "epochs"), ([], {"training.max_steps": 40}, "epochs"),
        (["stages.main.training.max_steps=40"], {}, "epochs"), (["training.max_steps=40", "training.warmup=7"], {}, None),
        (["training.max_steps=40", "training.warmup=0.1"], {}, None),
        (["training.max_steps=40", "stages.main.training.warmup=0.5"], {}, None),
    ):
        assert meant(load_recipe(*CT, sets, overrides)) == expected
    path = tmp_path / "longer.yaml"  # a recipe with a length in steps of its own
    path.write_text("extends: bert-base-in-batch\ntraining: {max_steps: 5000, epochs: 1000}\n"
                    "stages: {main: {training: {max_steps: 4000}}}\n", "utf-8")
    for sets, expected in (
        ([], None), (["stages.main.training.max_steps=9000"], None), (["stages.main.training.max_steps=400"], 4000),
        (["training.max_steps=400"], None),  # the stage's own number holds
    ):
        assert meant(load_recipe("ct", str(path), sets)) == expected


def test_it_is_kept_with_the_recipe_and_is_no_setting_of_its_own(tmp_path):
    recipe = load_recipe(*CT, ["training.max_steps=40"])
    assert "max_steps" in recipe.description and "warmup_of" not in recipe.description
    path = recipe.save(tmp_path / "recipe.yaml")
    assert load_recipe("ct", str(path)) == recipe == load_recipe("ct", str(path), ["training.max_steps=40"])
    assert meant(load_recipe("ct", str(path), ["training.max_steps=20"])) == "epochs"
    plain = load_recipe(*CT)
    assert trained_as(plain) == trained_as(plain.model_copy(update={"training": plain.training.model_copy()}))


def test_steps_that_are_not_reached_are_said():
    def told(steps, method, name=None, *sets):
        recipe = load_recipe(method, name, [f"training.max_steps={steps}", *sets])
        settings = recipe.stage_training("main")
        settings = settings.model_copy(update={"warmup": shortened_warmup(settings, steps, 10_000)})
        batches = SimpleNamespace(steps=steps)
        return scheduled(SimpleNamespace(name="main", settings=settings, schedule=None, batches=batches), recipe)

    assert told(4, *CT) == ["the warm-up of 1000 steps is shortened as the run is: 1 of 4 steps"]
    [longer] = told(4, "simcse", None, "training.warmup=9")
    assert longer.startswith("warning: ") and "its warm-up is 9 steps, and it has 4" in longer
    assert told(2, "ct") == ["training.milestones 501, 1001, 1501, 2001 are not reached: stage main has 2 steps"]
    assert told(1501, "ct") == ["training.milestones 1501, 2001 are not reached: stage main has 1501 steps"]
    assert told(2002, "ct") == []
