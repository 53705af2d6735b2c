"""Texts that are too many to be tokenised before the first step train the same weights."""

import json

import pytest
import tiny_models
import training_runs
from training_runs import log_of, weights_of

from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows import stage_rows
from stsbench.training.runs.request import TrainOptions
from stsbench.training.runs.run import train


@pytest.mark.parametrize("order", ["random", "length"])
def test_tokens_on_demand_give_the_same_weights(tmp_path, monkeypatch, order):
    values = training_runs.settings(
        tiny_models.build(tmp_path / "tiny", pooler=False), training_runs.make_text(tmp_path),
        **{"selection.by": "none", "training.order": order, "training.epochs": 1, "data.held_out": 5},
    )
    said = {}
    for name, limit in (("stored", 1_000_000), ("live", 59)):
        monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / name / "cache"))
        monkeypatch.setattr(stage_rows, "_TOKENISED_FIRST", limit)
        recipe = load_recipe("simcse", None, [], values)
        said[name] = []
        train(TrainOptions(recipe=recipe, output=tmp_path / name / "run", device="cpu"), said[name].append)
    assert weights_of(tmp_path / "live" / "run") == weights_of(tmp_path / "stored" / "run")
    assert log_of(tmp_path / "live" / "run") == log_of(tmp_path / "stored" / "run")
    assert [line for line in said["live"] if "text.txt: 60 texts, each tokenised when it is needed; about " in line]
    built = {name: sum(line.startswith("tokenising ") for line in lines) for name, lines in said.items()}
    assert built == {"stored": 1, "live": int(order == "length")}  # batches by length need the lengths of all
    summary = json.loads((tmp_path / "live" / "run" / "train.json").read_text())
    assert summary["truncated"] == {"main": {"sentence": None}}
