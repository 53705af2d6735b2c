"""What is frozen: none of its weights takes a gradient, its dropout is as in the released code, and everything that has a
gradient there still has one. How much a part that is shared gets: test_terms.py, and the oracles of each method."""

import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, total
from tiny_models import sentences

from stsbench.methods.diffaug.method import DiffAug
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.esimcse.method import ESimCSE
from stsbench.methods.infocse.method import InfoCSE
from stsbench.methods.pcl.method import PCL
from stsbench.methods.sgopt.method import SGOPT

TEXTS = sentences(6, longest=6, seed=3)
QUEUE = {"size": 4, "momentum": 0.9, "start": "copy"}
# method, options, pooler; the weights that are frozen and those that are trained, by the beginnings of their names (a
# trained part may be inside a frozen one's name); whether the frozen part has dropout in training
CASES = {
    "pcl, own head": (PCL, {"peer": {"frozen": True, "head": "own"}}, "cls", ["peer.", "peer_head."], ["head."], True),
    "sg-opt, released": (SGOPT, {"projection_width": 8, "reference_dropout": True, "freeze_embeddings": False}, "cls",
                         ["reference."], ["projector.", "backbone.model.embeddings."], True),
    "infocse": (InfoCSE, {"frozen_layers": 1}, "cls", ["auxiliary.frozen."],
                ["auxiliary.head.", "auxiliary.lm_head."], False),
    "infocse, large": (InfoCSE, {"frozen_layers": 1, "frozen_mode": "train"}, "cls", ["auxiliary.frozen."],
                       ["auxiliary.head."], True),
    "diffcse": (DiffCSE, {"generator": None}, "cls", ["changer."], ["auxiliary.", "projector."], True),
    "esimcse": (ESimCSE, {"queue": QUEUE}, "cls", ["queue."], ["backbone.", "head."], False),
    "diffaug, fixed prefix": (DiffAug, {"template": "the man : {} means [MASK] .", "prefix_length": 2,
                                        "joint_trains": "model"}, "mask", ["modules_of_views."], ["backbone."], True),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_frozen_takes_a_gradient_and_everything_else_does(folder, case):
    kind, options, pooler, frozen, trained, drops = CASES[case]
    method = make(kind, folder, options, dropout=0.3, pooler=pooler)
    method.start_stage(type(method.options).stages[-1])
    batch = batch_of(method, MemoryRows(folder, {"sentence": TEXTS}))
    total(method(batch)).backward()
    named = dict(method.named_parameters())
    kept = {name: weight for name, weight in named.items() if name.startswith(tuple(frozen))}
    assert kept and all(weight.grad is None and not weight.requires_grad for weight in kept.values())
    for beginning in trained:
        moved = [weight for name, weight in named.items() if name.startswith(beginning)]
        assert any(weight.grad is not None and weight.grad.any() for weight in moved), beginning
    rates = [part.training for name, part in method.named_modules()
             if isinstance(part, torch.nn.Dropout) and f"{name}.".startswith(tuple(frozen))]
    assert rates and all(mode == drops for mode in rates)
