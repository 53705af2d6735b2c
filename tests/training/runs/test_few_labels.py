"""Few labels: a share of the rows, the same in every role, and subsets times seeds with their spread."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import fmean, stdev

import nli_files
import numpy as np
import pytest
import tiny_models
from clirun import cli  # noqa: F401
from scipy.stats import binomtest, chisquare

from stsbench.errors import StsbenchError
from stsbench.experiments.run import Run
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import open_data
from stsbench.training.runs.prepare import make_backbone
from stsbench.training.runs.seed_runs import first_subset, with_subset

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
