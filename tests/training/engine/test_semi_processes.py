"""Semi-supervised training in two processes: the loss, the gradient and the batch statistics of one."""

from __future__ import annotations

from pathlib import Path

import diffcse_oracle
import nli_files
import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from method_oracle import MemoryRows, make
from torch import nn
from training_runs import one_thread

from stsbench.training.engine.objective import make_objective
from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import shares_of, to_batch

__all__ = ["one_thread"]
TEXTS = tiny_models.sentences(60, longest=9, seed=5)
LABELLED = 5  # rows, which two processes share as 3 and 2
CHOSEN = [("simcse", "sup"), ("simcse", "main"), ("diffcse", "sup"), ("diffcse", "main")]


def prepared(place, name, stage):
    """The objective of sup-joint at the beginning of a stage, in float64 and without dropout."""
    options = {"options.generator": str(place / "generator"), "options.generator_mode": "eval"} if name == "diffcse" else {}
    values = nli_files.settings(place / "tiny", place / "text.txt", place / "triplets-30.csv", "sup-joint", **options)
    recipe = load_recipe(name, None, [], {**values, "semi.alpha": 0.5})
    plan = plan_of(recipe)
    objective = make_objective(plan, make(plan.kind, place / "tiny", recipe.options))
    objective.prepare_labelled(MemoryRows(place / "tiny", triplets()))
    objective.method.double()
    objective.start_stage(stage)
    return objective


def triplets():
    return {role: TEXTS[start : start + LABELLED] for role, start in (("anchor", 10), ("positive", 20), ("negative", 30))}


def batch_for(objective, place, stage, processes, rank):
    def part(make_views, texts, count):
        views = make_views(MemoryRows(place / "tiny", texts), np.random.default_rng(0))
        pad = objective.method.backbone.tokenizer.pad_token_id
        return to_batch(views, shares_of(count, processes, rank), pad, torch.device("cpu"))

    labelled = part(objective.labelled_views, triplets(), LABELLED)
    if stage == "sup":
        labelled.labelled_only = True
        return labelled
    batch = part(objective.method.views, {"sentence": TEXTS[:6]}, 6)
    batch.labelled = labelled
    return batch


def worker(rank, place):
    place = Path(place)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=2)
    found = {}
    for name, stage in CHOSEN:
        objective = prepared(place, name, stage)
        batch = batch_for(objective, place, stage, 2, rank)
        wrapped = nn.parallel.DistributedDataParallel(objective)
        for _ in range(2):  # a weight without a gradient would be noticed by the second pass
            objective.zero_grad()
            terms = wrapped(batch)
            values = [[term.value.item() * term.count, float(term.count)] for term in terms.values()]
            summed = torch.tensor(values, dtype=torch.float64)
            torch.distributed.all_reduce(summed)
            loss = sum(2 * term.count / count * term.weight * term.value  # the loop's scaling, before DDP's mean
                       for term, count in zip(terms.values(), summed[:, 1].tolist(), strict=True))
            loss.backward()
        means = dict(zip(terms, (summed[:, 0] / summed[:, 1]).tolist(), strict=True))
        found[name, stage] = means, {key: weight.grad for key, weight in objective.named_parameters()}
    torch.save(found, f"{place}/{rank}.pt")
    training_runs.leave()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder, [rank] -> what it found)."""
    place = tmp_path_factory.mktemp("semi-processes")
    diffcse_oracle.masked_lm(place / "tiny", num_hidden_layers=2)
    diffcse_oracle.masked_lm(place / "generator", seed=12, copies=True, num_hidden_layers=1)
    training_runs.make_text(place)
    nli_files.triplets(place)
    training_runs.spawn(worker, str(place))
    return place, [torch.load(place / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize(("name", "stage"), CHOSEN)
def test_two_processes_have_the_loss_and_gradient_of_one(both, name, stage):
    place, found = both
    objective = prepared(place, name, stage)
    for _ in range(2):  # as there: batch statistics of a second pass would show a first that was another
        objective.zero_grad()
        terms = objective(batch_for(objective, place, stage, 1, 0))
        sum(term.weight * term.value for term in terms.values()).backward()
    assert terms["nli"].count == 2 * LABELLED and ("contrastive" in terms) == (stage == "main")
    for means, gradients in (each[name, stage] for each in found):
        assert means == pytest.approx({key: term.value.item() for key, term in terms.items()}, abs=1e-9)
        for key, weight in objective.named_parameters():
            assert (gradients[key] is None) == (weight.grad is None), key
            if weight.grad is not None:
                torch.testing.assert_close(gradients[key], weight.grad, rtol=1e-7, atol=1e-9)
