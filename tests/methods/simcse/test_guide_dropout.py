"""MultiCSR's guide with dropout: what it draws is a matter of the batch alone."""

import torch
from method_runs import cached_place, recipe_of, train


def test_a_guide_with_dropout_draws_by_the_batch_and_not_from_the_training_s_numbers(tmp_path):
    guide = {"model": "model", "settings": {"pooler": "cls"}, "threshold": "fixed", "margin": 0.0, "phi": 0.9,
             "contrast_anchors": False, "contrast_positives": False, "diagonals": "masked", "masked": "zero",
             "dropout": True, "loss": "bce_of_softmax"}
    losses = []
    for place in cached_place(tmp_path):
        recipe = recipe_of(place, "simcse-given", **{"guide": guide, "options.alpha": 1.0, "backbone.dropout": 0.1})
        for name in ("one", "two"):
            torch.manual_seed(len(losses))
            _, log = train(recipe, tmp_path / name, place)
            losses.append([line["loss"] for line in log if line["kind"] == "train"])
    assert losses[0] == losses[1] and len(losses[0]) == 2
