"""What the options of methods change, on a device that refuses the CPU's tensors: losses and gradients are the CPU's."""

from __future__ import annotations

import copy

import numpy as np
import promptbert_oracle
import pytest
import torch
from method_oracle import MemoryRows, make, total
from pretend_device import pretend_device
from tiny_models import sentences
from training_runs import one_thread

from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.losses import contrastive
from stsbench.training.api.batch import Shares
from stsbench.training.recipes.methods import load_method
from stsbench.training.rows.batches import to_batch

__all__ = ["one_thread"]
TEMPLATE = "the man : {} means [MASK] ."
SLIM = {"projection_width": 8}
STILL = {"generator_mode": "eval"}  # its dropout would be another draw on the device
CASES = [  # method, pooler, options
    ("simcse", "cls", {"encoders": 2}), ("simcse", "cls", {"view": "mlm", "rate": 0.3}),
    ("simcse", "last2", {"view": "crop", "rate": 0.3, "head": "none"}),
    ("simcse", "cls", {"mlm_weight": 0.1, "mlm_in_place": True, "similarity": "dot"}),
    ("simcse", "cls", {"fixed_dropout_mask": True}), ("simcse", "first_last:embeddings", {"head": "none"}),
    ("mlm", "cls", {"tied": False}),
    ("diffcse", "cls", {**STILL, "operators": ["insert", "delete", "replace"], "replace": "masked"}),
    ("diffcse", "cls", {**STILL, "task": "corrective_lm", "condition": "raw"}),
    ("diffcse", "cls", {**STILL, "augmented_as": "positive", "rtd_weight": 0.0}),
    ("diffcse", "mean", {**STILL, "rtd_mean": "attended_without_specials", "projector": "tanh", "detach": True}),
    ("sarcse", "text_cnn", {"unpool": "repeat+position", "self_adaptive": False}),
    ("sarcse", "text_cnn", {"transposed_fusion": "separate", "unpool": "repeat", "self_adaptive": False}),
    ("promptbert", "mask", {"denoise_positions": "empty", "head": "transform_train_only"}),
    ("promptbert", "mask", {"denoise": False, "trained": "prompt_rightmost", "second_template": None, "head": "none"}),
    ("consert", "mean", {"views": ["token_cutoff", "span"], "rates": [0.3, 0.3]}),
    ("consert", "mean", {"views": ["dropout", "none"], "rates": [0.2, None]}),
    ("ct", "mean", {"k": 2, "negatives": "anchor"}), ("ct", "mean", {"objective": "in-batch", "similarity": "cosine"}),
    ("mirror-bert", "cls", {"span_chars": 4, "min_chars": 8, "drophead": 0.3}),
    ("sg-opt", "cls", {"objective": "sg", "layer_pooling": "max", **SLIM}), ("sg-opt", "cls", {"objective": "opt1", **SLIM}),
    ("sg-opt", "cls", {"objective": "opt2", "layer_pooling": "sum", "regulariser_weight": 0.0, **SLIM}),
    ("is-bert", "mean_cnn", {"padding": "states"}),
]
EVEN = sentences(12, longest=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return promptbert_oracle.build(tmp_path_factory.mktemp("pretended") / "model", "bert")


def loss_of(method, device):
    """The terms and the gradient's norm, of the same views."""
    views = method.views(MemoryRows(method.backbone.folder, {"sentence": EVEN}), np.random.default_rng(3))
    batch = to_batch(views, Shares((len(views.tokens[0]),)), method.backbone.tokenizer.pad_token_id, device)
    terms = method(batch)
    total(terms).backward()
    squares = [weight.grad.square().sum() for weight in method.parameters() if weight.grad is not None]
    values = {name: (float(term.value.detach()), term.count) for name, term in terms.items()}
    return {**values, "metrics": method.metrics()}, float(torch.stack(squares).sum().sqrt())


@pytest.mark.parametrize(("name", "pooler", "options"), CASES, ids=lambda each: str(each).replace(" ", ""))
def test_losses_and_gradients_are_those_of_the_cpu(folder, name, pooler, options):
    more = {"template": TEMPLATE, "second_template": "a man : {} eats [MASK] ."} if name == "promptbert" else {}
    method = make(load_method(name), folder, {**more, **options}, pooler=pooler)
    there = copy.deepcopy(method)
    expected, norm = loss_of(method, torch.device("cpu"))
    with pretend_device() as pretended:
        values, its_norm = loss_of(there.to(pretended.device), pretended.device)
    assert values.keys() == expected.keys() and norm > 0
    for key, value in expected.items():
        assert values[key] == pytest.approx(value, rel=1e-6, abs=1e-8), key
    assert its_norm == pytest.approx(norm, rel=1e-6)


def planted(fault, monkeypatch, method):
    """Puts a fault of placement into a method or what it calls."""
    if fault == "a mask made on the CPU":
        def itself(logits, rows, start):
            return logits.masked_fill(torch.eye(*logits.shape, dtype=torch.bool), -torch.inf)

        monkeypatch.setattr(contrastive, "_without_self", itself)
    elif fault == "a buffer that is none":
        guesses = method._buffers.pop("guesses")
        object.__setattr__(method, "guesses", guesses)
    else:
        indices = TokenTemplate.mask_indices
        monkeypatch.setattr(TokenTemplate, "mask_indices", lambda this, mask: indices(this, mask).cpu())


@pytest.mark.parametrize(("fault", "name", "pooler"), [
    ("a mask made on the CPU", "mirror-bert", "cls"), ("a buffer that is none", "mlm", "cls"),
    ("an index of the CPU", "promptbert", "mask"),
])
def test_planted_faults_are_noticed(folder, monkeypatch, fault, name, pooler):
    options = {"template": TEMPLATE, "second_template": None} if name == "promptbert" else {}
    method = make(load_method(name), folder, options, pooler=pooler)
    planted(fault, monkeypatch, method)
    loss_of(method, torch.device("cpu"))  # a CPU notices nothing
    with pretend_device() as pretended, pytest.raises(RuntimeError, match="same device"):
        loss_of(method.to(pretended.device), pretended.device)
