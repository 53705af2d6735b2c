"""DeCLUTR in whole runs: short documents, two processes, killed and resumed, exported."""

from __future__ import annotations

import json

import numpy as np
import pytest
from declutr_oracle import declutr, documents
from method_oracle import masked_lm_folder
from sentence_transformers import SentenceTransformer
from tiny_models import sentences
from training_runs import log_of, one_thread, settings, train, weights_of
from two_processes import both_find, same_gradients, second_pass, two_ranks_equal_one

from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Shares
from stsbench.training.engine.live import live_encoder
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train as trained
from stsbench.training.runs.trained import load_trained

__all__ = ["one_thread"]
CHOSEN = [{}, {"anchors": 1, "positives": 3}, {"contrastive_weight": 0.0}, {"mlm_weight": 0.0}]
LENGTHS = (31, 24, 40, 27, 33)
SPLITS = [(3, 2), (4, 1)]


def made(folder, options, shares):
    method = declutr(folder, mlm_probability=0.4 if options.get("mlm_weight", 1) else 0.15, **options)
    views = method.views(documents(folder, LENGTHS), np.random.default_rng(3))
    return method, to_batch(views, shares, method.backbone.tokenizer.pad_token_id, next(method.parameters()).device)


def find(rank, folder):
    return {
        (split, number): second_pass(*made(folder, options, Shares(split, rank)), processes=2)
        for split in SPLITS for number, options in enumerate(CHOSEN)
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("declutr") / "tiny-mlm")


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    """[rank] -> what it found."""
    return both_find(tmp_path_factory.mktemp("shares"), find, folder)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folder, both, number):
    means, gradients = second_pass(*made(folder, CHOSEN[number], Shares((len(LENGTHS),))))
    for split in SPLITS:
        for rank in range(2):
            theirs, found = both[rank][split, number]
            assert theirs == pytest.approx(means, rel=1e-9)
            same_gradients(found, gradients)


# Whole runs ------------------------------------------------------------------------------------------------------


def small(place, lines=None, **more):
    """Documents of twelve lines; spans of 3 to 9 word pieces. Six steps."""
    text = place / "text.txt"
    text.write_text("\n".join(lines or sentences(300, longest=9)) + "\n", "utf-8")
    return settings(masked_lm_folder(place / "model"), text, **{
        "data.lines_per_row": 12, "options.l_min": 3, "options.l_max": 10, "backbone.max_length": 12,
        "training.batch_size": 5, "training.max_steps": 6, "training.epsilon": 1e-2, "selection.every": 3, **more,
    })  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, the values it was trained with, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = small(place)
    assert train(place / "whole", values, method="declutr", recipe="scaled", cache=place / "cache") == (0, None)
    return place / "whole", values, place / "cache"


def test_killed_and_resumed_is_the_same_run(whole, tmp_path):
    folder, values, cache = whole
    options = {"method": "declutr", "recipe": "scaled", "cache": cache}
    assert train(tmp_path / "run", values, kill=("step", 5), **options) == (-9, None)
    assert train(tmp_path / "run", values, resume=True, **options) == (0, None)
    assert weights_of(tmp_path / "run") == weights_of(folder) and log_of(tmp_path / "run") == log_of(folder)
    lines = [line for line in log_of(folder) if line["kind"] == "train"]
    assert all(set(line["terms"]) == {"contrastive", "mlm"} and line["gradient_norm"] > 0 for line in lines)


def test_two_ranks_equal_one(tmp_path):
    """Of uneven shares, two passes a step."""
    values = small(tmp_path, **{"training.max_steps": 3, "training.accumulate": 2})
    two_ranks_equal_one(tmp_path, values, "declutr", tmp_path / "cache")


def test_exported_with_the_mean_and_without_the_head(whole):
    folder = whole[0]
    texts = ["cat", "the man runs .", "a [MASK] dog with a guitar", "blue " * 30]
    vectors = live_encoder(load_trained(folder, device="cpu").inference(), "live").encode(texts)
    library = SentenceTransformer(str(folder / "best"), device="cpu")
    for found in (load_encoder(str(folder)).encode(texts), library.encode(texts)):
        assert np.abs(found - vectors).max() < 1e-5
    assert "lm_head" not in (folder / "best" / "model.safetensors").read_bytes()[:5000].decode("latin-1")


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
])  # fmt: skip
def test_short_documents_that_are_errors(tmp_path, monkeypatch, lines, more, parts):
    with pytest.raises(StsbenchError, match=".*".join(parts)) as caught:
        run(tmp_path, monkeypatch, lines, **more)
    assert len(str(caught.value).splitlines()) == 1
