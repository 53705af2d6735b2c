"""The first three updates of the authors' settings against a plain loop: two models of transformers, RMSprop by hand.

In float64 of the engine's parts, in float32 of a whole `stsbench train`.
"""

from __future__ import annotations

import numpy as np
import pytest
import tiny_models
import torch
from ct_oracle import TEXTS, drawn
from method_oracle import MemoryRows, batch_of, make, tokens
from safetensors.torch import load_file
from training_runs import one_thread
from transformers import AutoModel

import stsbench
from stsbench.methods.ct.method import ContrastiveTension
from stsbench.training.engine.optimiser import learning_rate, make_optimiser, set_step, steps_taken
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.rows.batches import Batches

__all__ = ["one_thread"]
RATES = (1e-4, 1e-4, 3e-5)  # a milestone before the third step


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("ct") / "tiny-bert", pooler=False)


def plain_updates(folder, batches, dtype):
    """(model1, model2) after an update for each of `batches`, lists of 30 texts. One text at a time, no padding."""
    models = [AutoModel.from_pretrained(folder, add_pooling_layer=False).to(dtype).eval() for _ in range(2)]
    squares = [[torch.zeros_like(weight) for weight in model.parameters()] for model in models]

    def encoded(model, text):
        (ids,) = tokens(folder, [text])
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)

    for texts, rate in zip(batches, RATES, strict=True):
        pairs = drawn(texts, "fresh", 7)
        loss = 0
        for one, two, label in pairs:
            product = torch.dot(encoded(models[0], one), encoded(models[1], two))
            loss = loss + torch.nn.functional.softplus(-product if label else product)
        for model in models:
            model.zero_grad()
        (loss / len(pairs)).backward()
        with torch.no_grad():
            for model, means in zip(models, squares, strict=True):
                for weight, mean in zip(model.parameters(), means, strict=True):
                    if weight.grad is not None:
                        mean.mul_(0.9).add_(0.1 * weight.grad**2)
                        weight -= rate * weight.grad / (mean.sqrt() + 1e-7)
    return [dict(model.named_parameters()) for model in models]


def furthest(models, found):
    """(largest difference of a weight, largest distance that one moved) over both encoders.

    Without the biases of attention's keys, whose gradient is 0: what float32 rounds it to, RMSprop makes a whole step.
    """
    apart = moved = 0.0
    for expected, (ours, start) in zip(models, found, strict=True):
        for name in (name for name in expected if not name.endswith("key.bias")):
            weight = expected[name].detach()
            apart = max(apart, float((ours[name].detach() - weight).abs().max()))
            moved = max(moved, float((weight - start[name]).detach().abs().max()))
    return apart, moved


def started(folder, dtype):
    return dict(AutoModel.from_pretrained(folder, add_pooling_layer=False).to(dtype).named_parameters())


def test_three_updates_in_float64(folder):
    settings = load_recipe("ct", "bert-base").training
    settings = settings.model_copy(update={"learning_rate": RATES[0], "milestones": (2,), "rates": (RATES[2],)})
    assert isinstance(settings, TrainingSettings) and (settings.rho, settings.epsilon) == (0.9, 1e-7)
    method = make(ContrastiveTension, folder, dropout=0.0, pooler="mean")
    optimiser = make_optimiser(method, settings)
    texts = tiny_models.sentences(90, longest=9, seed=6)
    batches = [texts[start : start + 30] for start in (0, 30, 60)]
    for step, batch in enumerate(batches):
        set_step(optimiser, learning_rate(step, 5000, settings), steps_taken(optimiser), settings)
        term = method(batch_of(method, MemoryRows(folder, {"sentence": batch})))["tension"]
        optimiser.zero_grad()
        (term.weight * term.value).backward()
        optimiser.step()
    start = started(folder, torch.float64)
    found = [(dict(each.model.named_parameters()), start) for each in (method.first, method.backbone)]
    apart, moved = furthest(plain_updates(folder, batches, torch.float64), found)
    assert apart < 1e-8 < 1e-4 < moved


def test_three_updates_in_float32(folder, tmp_path, monkeypatch):
    """The batches are those that the seed draws; the text is read 30 sentences at a time, in the order of the epoch."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    values = {
        "backbone.model": str(folder), "backbone.max_length": 10, "data.file": str(tmp_path / "text.txt"),
        "training.max_steps": 3, "training.learning_rate": RATES[0], "training.milestones": [2],
        "training.rates": [RATES[2]], "options.keep": "model2", "selection.by": "none",
    }
    stsbench.train("ct", recipe="bert-base", output=tmp_path / "run", settings=values, device="cpu")
    order = Batches(np.arange(len(TEXTS)), load_recipe("ct", "bert-base").training, seed=42)
    batches = [[TEXTS[row] for row in order.step(step)[0]] for step in range(3)]
    assert len({tuple(batch) for batch in batches}) == 3 and all(len(batch) == 30 for batch in batches)
    weights = load_file(sorted((tmp_path / "run" / "checkpoints").glob("[0-9]*"))[-1] / "model.safetensors")
    found = [({name.removeprefix(part): weight for name, weight in weights.items() if name.startswith(part)},
              started(folder, torch.float32)) for part in ("first.model.", "backbone.model.")]
    apart, moved = furthest(plain_updates(folder, batches, torch.float32), found)
    assert moved > 5e-4 and apart < 1e-5
    assert furthest(plain_updates(folder, batches, torch.float64), found)[0] < 1e-5
