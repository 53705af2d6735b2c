"""Dropped heads: the factors, and that both engines apply them alike. Against loops: tests/methods/mirrorbert."""

from __future__ import annotations

import pytest
import torch
from tiny_models import build

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.packed_training import packable
from stsbench.training.modules.soft_prompt import head_factors

LENGTHS = torch.tensor([4, 7, 1, 7])
MASK = (torch.arange(7) < LENGTHS[:, None]).long()


def kept(seed=0):
    return torch.rand(4, 3, 4, generator=torch.Generator().manual_seed(seed)) >= 0.4


def test_what_is_kept_makes_up_for_what_is_dropped():
    rows = torch.tensor([[True, True, True, True], [True, False, False, True], [False, True, False, False], [False] * 4])
    want = [[1, 1, 1, 1], [2, 0, 0, 2], [0, 4, 0, 0], [0, 0, 0, 0]]  # all dropped: no division by zero
    assert head_factors(rows.unsqueeze(1), torch.float64).squeeze(1).tolist() == want


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_both_engines_have_the_same_states_and_gradients(tmp_path, family, attention):
    pad = {"bert": 0, "roberta": 1}[family]
    ids = torch.randint(5, 60, MASK.shape, generator=torch.Generator().manual_seed(1)).masked_fill(MASK == 0, pad)
    backbone = load_backbone(build(tmp_path, family), family, "mean", dropout=0.0).double()
    backbone.model.set_attn_implementation(attention)
    factors, computed = head_factors(kept(), torch.float64), {}
    for backbone.engine in ("packed", "padded"):
        backbone.zero_grad()
        states = backbone(ids, MASK, (1, -1), heads=factors)
        vectors = [*(state * MASK.unsqueeze(2) for state in states), backbone.pooled(ids, MASK, heads=factors)]
        sum(part.pow(2).sum() for part in vectors).backward()
        computed[backbone.engine] = [*vectors, *(w.grad for w in backbone.parameters() if w.grad is not None)]
    assert len(computed["packed"]) == len(computed["padded"]) > 40
    for one, other in zip(*computed.values(), strict=True):
        assert (one - other).abs().max() < 1e-9 * max(1, float(other.detach().abs().max()))
    without = backbone(ids, MASK)[0]
    assert packable(backbone.model)  # no hook stays
    assert (without * MASK.unsqueeze(2) - computed["padded"][1]).abs().max() > 1e-2
    everything = backbone(ids, MASK, heads=torch.ones(4, 3, 4, dtype=torch.float64))[0]
    assert (everything - without).abs().max() == 0


def test_what_cannot_be_dropped(tmp_path):
    ids = torch.full(MASK.shape, 5)
    backbone = load_backbone(build(tmp_path / "bert"), "bert")
    for backbone.engine in ("packed", "padded"):
        with pytest.raises(ValueError, match="rows, layers and heads"):
            backbone(ids, MASK, heads=torch.ones(4, 3, 5))
    backbone.model.encoder.layer[0].gradient_checkpointing = True
    with pytest.raises(EncoderError, match="gradient checkpointing"):
        backbone(ids, MASK, heads=torch.ones(4, 3, 4))
    other = load_backbone(build(tmp_path / "other", "distilbert"), "distilbert")
    with pytest.raises(EncoderError, match="families BERT and RoBERTa"):
        other(ids, MASK, heads=torch.ones(4, 3, 4))
