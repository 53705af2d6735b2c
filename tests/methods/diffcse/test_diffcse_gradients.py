"""The parameters that each of DiffCSE's terms teaches, and the generator, which nothing teaches."""

from __future__ import annotations

import copy

import pytest
import torch
from diffcse_oracle import PLAIN, diffcse, folder, generator, place
from method_oracle import MemoryRows, batch_of, total
from training_runs import one_thread

from stsbench.training.engine.optimiser import make_optimiser
from stsbench.training.recipes.sections import TrainingSettings

__all__ = ["folder", "generator", "one_thread", "place"]


def reached(method, value):
    """The parts of the method that hold a parameter with a gradient other than 0; each part whole or not at all."""
    method.zero_grad(set_to_none=True)
    value.backward()
    found = {}
    for name, weight in method.named_parameters():
        part = ".".join(name.split(".")[: 2 if name.startswith(("auxiliary", "changer")) else 1])
        found.setdefault(part, set()).add(weight.grad is not None and bool(weight.grad.any()))
    assert all(len(kinds) == 1 for kinds in found.values()), found
    return {part for part, kinds in found.items() if True in kinds}


def test_the_gradient_of_the_detection_reaches_discriminator_head_projector_and_encoder(folder, generator):
    method = diffcse(folder, generator)
    batch = batch_of(method, MemoryRows(folder, PLAIN))
    every = {"auxiliary.discriminator", "auxiliary.detector", "projector", "backbone"}
    assert reached(method, method(batch)["rtd"].value) == every
    assert reached(method, method(batch)["contrastive"].value) == {"projector", "backbone"}
    assert reached(method, total(method(batch))) == every
    frozen = {name for name, weight in method.named_parameters() if not weight.requires_grad}
    assert frozen == {name for name, _ in method.named_parameters() if name.startswith("changer.generator.")} != set()


@pytest.mark.parametrize(("options", "expected"), [
    ({"detach": True}, ()), ({"condition": "raw"}, ("backbone",)), ({"projector": "none"}, ("backbone",)),
    ({"projector": "tanh"}, ("backbone", "projector")), ({"contrastive": False}, ("backbone", "projector")),
], ids=str)
def test_how_far_the_gradient_of_the_detection_goes(folder, generator, options, expected):
    method = diffcse(folder, generator, **options)
    value = method(batch_of(method, MemoryRows(folder, PLAIN)))["rtd"].value
    assert reached(method, value) - {"auxiliary.discriminator", "auxiliary.detector"} == set(expected)


def test_detection_by_finite_differences_of_encoder_weights(folder, generator):
    method, step = diffcse(folder, generator), 1e-6
    batch, model = batch_of(method, MemoryRows(folder, PLAIN)), method.backbone.model
    for weight in (model.encoder.layer[1].attention.self.query.weight, model.embeddings.word_embeddings.weight):
        (exact,) = torch.autograd.grad(method(batch)["rtd"].value, weight)
        place, values = divmod(int(exact.abs().argmax()), exact.shape[1]), []
        for change in (step, -2 * step):
            with torch.no_grad():
                weight[place] += change
                values.append(method(batch)["rtd"].value.item())
        assert abs(exact[place].item()) > 1e-4
        assert exact[place].item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_generator_never_learns_and_only_its_dropout_makes_it_change_its_mind(folder, generator, mode):
    method = diffcse(folder, generator, generator_mode=mode, dropout=0.1, moved=False)
    batch, fills, fill = batch_of(method, MemoryRows(folder, PLAIN)), [], method.changer.generator.fill
    method.changer.generator.fill = lambda *args, **more: fills.append(fill(*args, **more)) or fills[-1]
    before = copy.deepcopy(method.state_dict())
    optimiser = make_optimiser(method, TrainingSettings(learning_rate=1e-3, weight_decay=0.1))
    for _ in range(10):
        method.train()
        total(method(batch)).backward()
        optimiser.step()
        optimiser.zero_grad()
    assert any(not torch.equal(fills[0], other) for other in fills[1:]) == (mode == "train")
    trained = {name for name, weight in method.named_parameters() if weight.requires_grad}
    for name, value in method.state_dict().items():
        if name.startswith("changer."):
            assert torch.equal(value, before[name]), name
        elif name in trained:
            assert not torch.equal(value, before[name]), name
    dropout = {part.training for part in method.changer.generator.modules()}
    assert dropout == {mode == "train"}


def test_a_batch_without_a_masked_token_still_has_a_gradient_everywhere(folder):
    method = diffcse(folder, task="conditional_mlm", mask_ratio=1e-9)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN)))
    assert terms["conditional_mlm"].count == 0 and terms["conditional_mlm"].value.item() == 0
    total(terms).backward()
    assert all(weight.grad is not None for weight in method.parameters() if weight.requires_grad)
