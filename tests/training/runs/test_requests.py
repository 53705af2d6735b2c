"""What a training that is asked for becomes: recipe, options and folder, the digest of its settings, and how long the
seeds that are left will take. Few labels: a share of the rows, the same in every role, and subsets times seeds with their
spread."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean, stdev

import nli_files
import numpy as np
import pytest
import tiny_models
from clirun import cli  # noqa: F401
from scipy.stats import binomtest, chisquare

from stsbench.errors import StsbenchError, UsageError
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import open_data
from stsbench.training.runs import seed_runs
from stsbench.training.runs.finish import trained_as
from stsbench.training.runs.options import TrainOptions, TrainRequest, resolve
from stsbench.training.runs.prepare import make_backbone
from stsbench.training.runs.seed_runs import first_subset, with_subset
from stsbench.training.runs.trained import Run

STAGES = """
extends: bert-base-semi
stages: {prefix: {training: {max_steps: 50}}, joint: {training: {max_steps: 40}}}
"""


def test_a_request_becomes_a_recipe_and_its_options(monkeypatch):
    lines = []
    request = TrainRequest(
        "simcse", settings={"backbone.model": "minilm", "training.max_steps": 3}, sets=["training.learning_rate=1e-4"],
        device="cpu", evaluate=["sts"], stage=1,
    )
    options, on_sample = resolve(request, lines.append)
    recipe = options.recipe
    assert (recipe.method, recipe.backbone.model, recipe.training.max_steps) == ("simcse", "minilm", 3)
    assert recipe.training.learning_rate == 1e-4 and recipe.precision == "float32" and not on_sample
    assert (options.device, options.evaluate, options.stage, options.resume) == ("cpu", ["sts"], 1, False)
    assert options.output.parent == Path("runs") and options.output.name.endswith(f"-simcse-{recipe.name}")
    assert [line for line in lines if "float32 here" in line]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError):  # several processes need one folder
        resolve(TrainRequest("simcse"), print)


@pytest.mark.parametrize("sets", [[], ["precision=float32"]])
def test_steps_are_of_every_stage_that_has_more(tmp_path, sets):
    """Also where the precision is set, and the recipe is not changed for the device."""
    (tmp_path / "stages.yaml").write_text(STAGES, "utf-8")
    request = TrainRequest(
        "diffaug", recipe=str(tmp_path / "stages.yaml"), settings={"training.max_steps": 45, "backbone.model": "minilm"},
        sets=sets, device="cpu",
    )
    recipe = resolve(request, print)[0].recipe
    assert [recipe.stage_training(stage).max_steps for stage in ("prefix", "joint")] == [45, 40]
    request = replace(request, sets=[*sets, "stages.prefix.training.max_steps=60"])
    assert resolve(request, print)[0].recipe.stage_training("prefix").max_steps == 60

# --- what a record says of the settings ---
@pytest.mark.parametrize(("method", "name", "digest"), [  # computed when every training was by torch's AdamW
    ("simcse", "unsup-bert-base", "317e58652b303810"), ("diffaug", "bert-base-semi", "9f988b483ec470b6"),
    ("mlm", "bert", "78d0587b6246f579"),
])
def test_torchs_adam_is_what_had_no_name(method, name, digest):
    recipe, torchs = load_recipe(method, name), load_recipe(method, name, ["training.adam=torch"])
    assert trained_as(torchs)["settings"] == digest
    assert (trained_as(recipe)["settings"] == digest) == (recipe.training.adam == "torch") == (method == "mlm")


@pytest.mark.parametrize(("method", "name", "digest"), [  # of the rows minilm-mlm32-sg-opt and -is-bert
    ("sg-opt", "bert-base", "9b6c5eae246ca1a8"), ("is-bert", "bert-base-nli", "e4403c75922511f6"),
])
def test_the_boards_rows_are_of_the_recipes_as_they_are(method, name, digest):
    """They set the length, which the recipes have changed since; settings that came later are as nothing was."""
    adam = {"training.adam": "torch"} if method == "is-bert" else {}
    sets = {"selection.every": 25, "selection.at_end": True, "precision": "bf16", "backbone.model": "runs/mlm32",
            "data.file": "wiki_sentences.txt", "training.max_steps": 100, "training.batch_size": 64,
            "training.learning_rate": 3e-5, "backbone.max_length": 32, **adam}
    assert trained_as(load_recipe(method, name, (), sets))["settings"] == digest


def test_settings_without_an_effect_on_the_weights_are_no_part_of_it():
    plain = trained_as(load_recipe("simcse"))["settings"]
    for setting, same in (("backbone.layers=null", 1), ("backbone.layers=[0, 3]", 0), ("checkpoint_minutes=1.5", 1)):
        assert (trained_as(load_recipe("simcse", None, [setting]))["settings"] == plain) == same

# --- between the runs of several seeds ---
def test_the_mean_of_the_seeds_before_says_how_long_the_others_take(monkeypatch, tmp_path):
    """A training takes a minute more each time: 1, 2, 3, 4, 5; seeds that were there before do not count."""
    now = [0.0]

    def train(options, log, callback):
        if not options.resume:
            now[0] += 60.0 * (options.recipe.seed - 41)
        return {}

    monkeypatch.setattr(seed_runs, "train", train)
    monkeypatch.setattr(seed_runs, "summarise_seeds", lambda runs: {"seeds": len(runs)})
    monkeypatch.setattr(seed_runs, "as_started", lambda options: options)
    monkeypatch.setattr(seed_runs.time, "monotonic", lambda: now[0])
    for done, expected in ((0, [4, 4.5, 4, 2.5]), (2, [6, 3.5])):
        output, lines = tmp_path / str(done), []
        for seed in range(42, 42 + done):
            (output / f"seed-{seed}").mkdir(parents=True)
            (output / f"seed-{seed}/recipe.yaml").touch()
        options = TrainOptions(recipe=load_recipe("simcse"), output=output, resume=bool(done))
        seed_runs.train_seeds(options, 5, lines.append, None)
        more = [*(f" and {count} more" for count in range(len(expected) - 1, 0, -1)), ""]
        said = [f"about {timedelta(minutes=minutes)} for this{of}, by the seeds before"
                for minutes, of in zip(expected, more, strict=True)]
        assert [line.partition("; ")[2] for line in lines] == [""] * (5 - len(expected)) + said


ROWS = 3000


@pytest.fixture(scope="module", autouse=True)
def labelled(place):
    return nli_files.triplets(place, ROWS)


def values_of(place, **more):
    return nli_files.settings(place / "tiny", place / "text.txt", place / f"triplets-{ROWS}.csv", **more)


@pytest.fixture(scope="module")
def parts(place):
    """(recipe, plan, backbone) of a semi-supervised SimCSE, made once."""
    recipe = load_recipe("simcse", None, [], values_of(place))
    plan = load_plan(recipe)
    return recipe, replace(plan, options=plan.kind.Options(view="given")), make_backbone(recipe)


def drawn(parts, what=LABELLED, seed=42, **settings):
    """The rows of the triplets that these settings keep, and what was said."""
    recipe, plan, backbone = parts
    said: list[str] = []
    chosen = recipe.labelled.model_copy(update=settings)
    recipe = recipe.model_copy(update={"seed": seed})
    found = open_data(chosen, recipe, plan, backbone, said.append, what)
    return found.trained.tolist(), said


def test_each_row_is_kept_with_this_probability(parts):
    counts, places, seeds = [], np.zeros(10), range(16)
    for seed in seeds:
        rows, _ = drawn(parts, share=0.1, sample_seed=seed)
        assert rows == sorted(set(rows))
        counts.append(len(rows))
        places += np.histogram(rows, bins=10, range=(0, ROWS))[0]
    assert binomtest(sum(counts), ROWS * len(seeds), 0.1).pvalue > 1e-3
    assert chisquare(places).pvalue > 1e-3  # no part of the file is preferred
    # a number of rows drawn row by row varies as a binomial one, where a fixed share would not vary at all
    assert 0.6 < stdev(counts) / math.sqrt(ROWS * 0.1 * 0.9) < 1.5
    first, second = (set(drawn(parts, share=0.1, sample_seed=seed)[0]) for seed in (0, 1))
    assert binomtest(len(first & second), len(first), 0.1).pvalue > 1e-3  # subsets have nothing to do with each other


def test_the_same_file_share_and_seed_give_the_same_rows_in_every_role(parts):
    labelled, said = drawn(parts, share=0.05, sample_seed=3, seed=1)
    data, _ = drawn(parts, "data", share=0.05, sample_seed=3, seed=2)
    assert labelled == data == drawn(parts, share=0.05, sample_seed=3)[0]
    name = f"triplets-{ROWS}.csv"
    assert f"{name}: {len(data)} of 3,000 rows, drawn by labelled.share 0.05, seed 3" in said
    assert drawn(parts, share=0.05, seed=3)[0] == data  # without a sample_seed it is the run's seed
    assert drawn(parts, share=0.05, seed=4)[0] != data
    assert drawn(parts)[0] == list(range(ROWS))


def test_a_subset_is_drawn_wherever_the_file_is_sampled(place):
    def recipe_of(**more):
        return load_recipe("simcse", None, [], values_of(place, **more))

    found = with_subset(recipe_of(**{"labelled.share": 0.1, "data.sample": 20}), 7)
    assert (found.labelled.sample_seed, found.data.sample_seed) == (7, None)  # other text stays the same
    same = {"data.file": str(place / f"triplets-{ROWS}.csv"), "labelled.share": 0.1, "data.share": 0.1}
    found = with_subset(recipe_of(**same, **{"stages.main.data.sample_seed": 5, "labelled.sample_seed": 5}), 7)
    assert found.stage_data("main").sample_seed == found.labelled.sample_seed == found.data.sample_seed == 7
    with pytest.raises(StsbenchError) as error:
        with_subset(recipe_of(**same, **{"stages.main.data.sample_seed": 2, "labelled.sample_seed": 5}), 7)
    said = "--subsets: labelled.sample_seed is 5 and stages.main.data.sample_seed 2, both of "
    assert str(error.value).startswith(said) and "\n" not in str(error.value)
    found = with_subset(recipe_of(**{"data.sample": 20}), 7)
    assert (found.labelled.sample_seed, found.data.sample_seed) == (None, 7)
    recipe = recipe_of(**{"labelled.share": 0.1, "labelled.sample_seed": 5})
    assert first_subset(recipe) == 5 and with_subset(recipe, 6).name == recipe.name
    assert first_subset(recipe_of(**{"data.share": 0.5})) == 0


def lines_of(parts, path, share, **settings):
    """The lines of the file on which the rows that are kept start."""
    recipe, plan, backbone = parts
    chosen = recipe.labelled.model_copy(update={"file": str(path), "share": share, "sample_seed": 3, **settings})
    found = open_data(chosen, recipe, plan, backbone, lambda line: None, LABELLED)
    return {found.store.line(row) for row in found.trained.tolist()}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_left_out_do_not_change_which_others_are_kept(parts, tmp_path, form):
    """Every third row equals the first, every fifth is blank, empty lines and texts of two lines shift the others."""
    names, path = ("sent0", "sent1", "hard_neg", "kind"), tmp_path / f"mixed.{form}"
    texts = tiny_models.sentences(1800, longest=9, seed=8)
    rows = [texts[3 * i : 3 * i + 3] for i in range(600)]
    rows = [rows[0] if i % 3 == 0 else ["", *row[1:]] if i % 5 == 0 else row for i, row in enumerate(rows)]
    rows = [[*row, "odd" if i % 2 else "even"] for i, row in enumerate(rows)]
    if form == "jsonl":
        found = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    else:
        for row in rows[::7]:
            row[1] += "\n"
        found = [",".join(names), *(",".join(f'"{text}"' for text in row) for row in rows)]
    path.write_text("".join(f"{line}\n\n" if i % 4 == 3 else f"{line}\n" for i, line in enumerate(found)))
    every = lines_of(parts, path, 0.3)
    assert 130 < len(every) < 230
    for left in ({"min_characters": 8}, {"drop_duplicates": True, "drop_blank": True, "where": {"kind": "even"}}):
        there = lines_of(parts, path, 1.0, **left)
        assert len(there) < 600
        assert lines_of(parts, path, 0.3, **left) == every & there
    assert lines_of(parts, path, 0.1) < every  # of a smaller share they are a part


def test_subsets_times_seeds(place, tmp_path, cli):
    """The command, its folders and figures; interrupted, it goes on."""
    more = {"labelled.share": 0.01, "training.max_steps": 1, "selection.by": "sts-b dev", "selection.every": 1}
    sets = [word for key, value in values_of(place, **more).items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = ("train", "simcse", "--output", tmp_path / "few", "--sample", "--device", "cpu", *sets)
    code, out, err = cli(*command, "--subsets", "2", "--seeds", "2")
    assert code == 0, err
    stored = json.loads((tmp_path / "few" / "subsets.json").read_text())
    summaries = {
        f"{subset}/{seed}": json.loads((tmp_path / "few" / f"subset-{subset}" / f"seed-{seed}" / "train.json").read_text())
        for subset in (0, 1) for seed in (42, 43)
    }
    scores = {key: found["best"]["score"] for key, found in summaries.items()}
    assert (stored["subsets"], stored["seeds"]) == ([0, 1], [42, 43])
    dev = stored["dev"]
    assert dev["values"] == scores and dev["n"] == 4
    assert dev["mean"] == pytest.approx(fmean(scores.values())) and dev["sd"] == pytest.approx(stdev(scores.values()))
    means = [fmean([scores[f"{subset}/42"], scores[f"{subset}/43"]]) for subset in (0, 1)]
    assert list(dev["subsets"]["values"].values()) == pytest.approx(means)
    assert dev["subsets"]["sd"] == pytest.approx(stdev(means))
    rows = {key: found["data"]["labelled"]["rows"] for key, found in summaries.items()}
    assert rows["0/42"] == rows["0/43"] == stored["rows"]["0"]["labelled"] and rows["1/42"] == rows["1/43"]
    assert f"subset 0: main 60 rows, labelled {rows['0/42']} rows" in out and "sd of subsets" in out
    run = Run.open(tmp_path / "few")
    assert run.summary == stored and [part.recipe.labelled.sample_seed for part in run.runs] == [0, 0, 1, 1]
    assert {(row["subset"], row["seed"]) for row in run.rows} == {(0, 42), (0, 43), (1, 42), (1, 43)}
    assert f"{dev['mean']:.2f}" in str(run) and "subset 1: main" in str(run) and "2 subsets, 2 seeds" in repr(run)
    assert f"{dev['mean']:.2f}" in out and f"{dev['sd']:.2f}" in out and f"{dev['subsets']['sd']:.2f}" in out
    (tmp_path / "few" / "subset-1" / "seed-43" / "train.json").unlink()
    (tmp_path / "few" / "subsets.json").unlink()
    code, _, err = cli("train", "simcse", "--output", tmp_path / "few", "--resume", "--subsets", "2", "--seeds", "2")
    assert code == 0, err
    assert err.count("is finished: nothing to resume") == 3
    assert json.loads((tmp_path / "few" / "subsets.json").read_text())["dev"] == dev
