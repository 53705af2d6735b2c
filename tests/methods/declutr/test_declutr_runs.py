"""DeCLUTR in whole runs: short documents, exported; the gradient of two processes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from declutr_oracle import declutr, documents
from method_oracle import masked_lm_folder
from tiny_models import sentences
from training_runs import one_thread, settings
from two_processes import check_same_as_one, passes_of_two, shares_of

from stsbench.errors import StsbenchError
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.request import TrainOptions
from stsbench.training.runs.run import train as trained

__all__ = ["one_thread"]
CHOSEN = [{}, {"anchors": 1, "positives": 3}, {"contrastive_weight": 0.0}, {"mlm_weight": 0.0}]
LENGTHS = (31, 24, 40, 27, 33)
SPLITS = [(3, 2), (4, 1)]


def made(folder, options, split=None, rank=0):
    method = declutr(folder, mlm_probability=0.4 if options.get("mlm_weight", 1) else 0.15, **options)
    views = method.views(documents(folder, LENGTHS), np.random.default_rng(3))
    shares = shares_of(len(LENGTHS), split, rank)
    return method, to_batch(views, shares, method.backbone.tokenizer.pad_token_id, next(method.parameters()).device)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("declutr") / "tiny-mlm")


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    return passes_of_two(tmp_path_factory.mktemp("shares"), made, folder, CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folder, both, number):
    check_same_as_one(both, number, *made(folder, CHOSEN[number]))


# Whole runs ------------------------------------------------------------------------------------------------------


def small(place, lines=None, **more):
    """Documents of twelve lines; spans of 3 to 9 word pieces. Six steps."""
    text = place / "text.txt"
    text.write_text("\n".join(lines or sentences(300, longest=9)) + "\n", "utf-8")
    return settings(masked_lm_folder(place / "model"), text, **{
        "data.lines_per_row": 12, "options.l_min": 3, "options.l_max": 10, "backbone.max_length": 12,
        "training.batch_size": 5, "training.max_steps": 6, "training.epsilon": 1e-2, "selection.every": 3, **more,
    })


def test_exported_without_the_head(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, [f"{LONG} {word}" for word in ("a", "the", "man", "red", "blue", "big")])
    assert "lm_head" not in (tmp_path / "run" / "best" / "model.safetensors").read_bytes()[:5000].decode("latin-1")


def run(tmp_path, monkeypatch, lines, **more):
    """What a short training says."""
    said = []
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = small(tmp_path, lines, **{"data.lines_per_row": 1, "training.max_steps": 1, "selection.by": "none", **more})
    recipe = load_recipe("declutr", "scaled", [f"{key}={value}" for key, value in values.items()])
    trained(TrainOptions(recipe=recipe, output=tmp_path / "run", device="cpu"), said.append)
    return said


LONG, SHORT = " ".join(["cat"] * 40), " ".join(["dog"] * 39)


def test_short_documents_are_dropped_and_counted(tmp_path, monkeypatch):
    said = run(tmp_path, monkeypatch, [LONG, SHORT, LONG + " a", "a", *[LONG + " the"] * 5])
    wanted = "2 of 9 rows cannot be used by these options (documents of fewer than 40 word pieces, 2 x anchors x l_max)"
    assert any(wanted in line for line in said) and not any("are cut at" in line for line in said)
    start = json.loads((tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()[0])
    assert start["examples"] == 7


@pytest.mark.parametrize(("lines", "more", "parts"), [
    ([LONG, SHORT], {"options.short": "refuse"}, [r"text\.txt:2: a document of 39 word pieces, and 40 are needed", "drop"]),
    ([SHORT, SHORT], {}, ["longest of 2 documents has 39", "40 are needed", r"data\.lines_per_row"]),
])
def test_short_documents_that_are_errors(tmp_path, monkeypatch, lines, more, parts):
    with pytest.raises(StsbenchError, match=".*".join(parts)) as caught:
        run(tmp_path, monkeypatch, lines, **more)
    assert len(str(caught.value).splitlines()) == 1
