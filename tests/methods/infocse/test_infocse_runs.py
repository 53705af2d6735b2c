"""Whole runs of InfoCSE: without its reconstruction, in several forward passes a step, and with a file that changes."""

import shutil

import pytest
import torch
from infocse_oracle import infocse
from method_runs import StopAt, Stopped, make_place, recipe_of, train
from training_runs import log_of, one_thread, weights_of

from stsbench.errors import StsbenchError
from stsbench.training.runs.finish import load_trained

__all__ = ["one_thread"]
DROPOUT = {"backbone.dropout": 0.1}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("infocse-runs"))


def run(place, folder, name="infocse", **changes):
    train(recipe_of(place, name, **DROPOUT, **changes), folder, place)
    return folder


def test_without_it_a_run_is_one_of_simcse_with_that_projector_to_the_last_bit(place, tmp_path):
    one = run(place, tmp_path / "one", **{"options.mlm_weight": 0, "options.frozen_layers": 6})
    plain = {"options.task": "rtd", "options.sentence": "same", "data.contiguous": False, "data.file": "text"}
    settings = {"training.schedule": "linear", "selection.every": 2, **plain, "options.rtd_weight": 0}
    other = run(place, tmp_path / "other", "diffcse", **settings)
    assert weights_of(one) == weights_of(other)
    lines = [[line for line in log_of(folder) if line["kind"] == "train"] for folder in (one, other)]
    assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]


def test_a_step_of_several_forward_passes_counts_masked_tokens(place, tmp_path):
    """The loop refuses a count that `counts` did not foresee."""
    folder = run(place, tmp_path / "run", **{"training.accumulate": 3, "options.mlm_probability": 0.2})
    lines = [line for line in log_of(folder) if line["kind"] == "train"]
    assert all({*line["terms"]} == {"contrastive", "mlm"} and 0 <= line["masked_accuracy"] <= 1 for line in lines)
    assert lines


def test_no_part_of_it_is_exported_and_all_of_it_is_stored(place, tmp_path):
    folder = run(place, tmp_path / "run")
    assert not any("auxiliary" in name or "projector" in name for name in exported(folder))
    method = load_trained(folder, device="cpu")
    assert {*method.state_dict()} >= {"auxiliary.guesses", "projector.inner_norm.running_mean"}
    start = infocse(place / "model").auxiliary.frozen.state_dict()
    frozen = method.auxiliary.frozen.state_dict()
    assert frozen.keys() == start.keys() and all(torch.equal(frozen[name], value.float()) for name, value in start.items())


def exported(folder):
    from safetensors import safe_open

    with safe_open(folder / "best" / "model.safetensors", "pt") as weights:
        return list(weights.keys())


def test_a_run_goes_on_with_the_same_condenser_head_only(place, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(place / "model", model)
    for seed in (5, 6):
        head = infocse(place / "model", seed=seed).auxiliary.head.float().state_dict()
        torch.save({f"c_head.{name}": value for name, value in head.items()}, tmp_path / f"{seed}.pt")
    shutil.copy(tmp_path / "5.pt", model / "model.pt")
    recipe = recipe_of(place, "infocse", **DROPOUT, **{
        "backbone.model": str(model), "options.head_init": "condenser", "training.max_steps": 3})
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", place, callback=StopAt(2))
    shutil.copy(tmp_path / "6.pt", model / "model.pt")
    with pytest.raises(StsbenchError, match=r"the backbone is not what .* began with"):
        train(recipe, tmp_path / "run", place, resume=True)
    shutil.copy(tmp_path / "5.pt", model / "model.pt")
    train(recipe, tmp_path / "run", place, resume=True)
