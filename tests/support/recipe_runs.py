"""Shipped recipes of templates, stages and labelled rows for a few steps of tiny models."""

from __future__ import annotations

import csv
import json
import math
from functools import cache

import pytest
import tiny_models
from tiny_models import masked_lm

import stsbench
from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.recipes import find_recipe

STEPS = 3  # of each stage
TRIPLES = {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg"}
NLI = "nli_for_simcse.csv"


def runner(place):
    """run(method, name) -> {stage: the log's line of its last step}; `place`: a new folder."""
    lines = tiny_models.sentences(120, longest=7)
    (place / "text.txt").write_text("\n".join(lines[:40]) + "\n", "utf-8")
    with (place / NLI).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(TRIPLES.values()), *zip(lines[:40], lines[40:80], lines[80:], strict=True)])

    @cache
    def model(family):
        return str(masked_lm(place / family, family, num_hidden_layers=1, intermediate_size=48, copies=True))

    @cache
    def run(method, name):
        recipe = find_recipe(method, name)[0]
        files = {"sentence": place / "text.txt", "anchor": place / NLI}
        values = {
            "backbone.model": model("roberta" if "roberta" in recipe.backbone.model else "bert"),
            "data.file": str(files["anchor" if recipe.data.columns else "sentence"]),
            "selection.by": "none", "precision": "float32", "backbone.max_length": 12,
        }
        shared = [""] if set(plan_of(recipe).stages) - set(recipe.stages) else []  # else it would have no effect
        for stage in [*shared, *(f"stages.{stage}." for stage in recipe.stages)]:
            values |= {f"{stage}training.batch_size": 8, f"{stage}training.max_steps": STEPS}
        if recipe.labelled is not None:
            values |= {"labelled.file": str(files["anchor"]), "labelled.batch_size": 4}
        for section, given in (("data", recipe.data), ("labelled", recipe.labelled)):
            if given is not None and given.share < 1:
                values[f"{section}.share"] = 0.5  # of 40 rows
        output = place / f"{method}-{name}"
        stsbench.train(method, recipe=name, output=output, settings=values, device="cpu")
        log = [json.loads(line) for line in (output / "log.jsonl").read_text("utf-8").splitlines()]
        found = {line["stage"]: line for line in log if line["kind"] == "train"}
        for line in found.values():
            assert line["step"] == STEPS and line["gradient_norm"] > 0
            assert all(math.isfinite(value) for value in (line["loss"], line["gradient_norm"], *line["terms"].values()))
        return found

    return run


def session(tmp_path_factory):
    """What a fixture of a test file yields from: its `run`, with a cache of its own."""
    place = tmp_path_factory.mktemp("recipes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        yield runner(place)
