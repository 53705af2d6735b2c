"""Changes of the embedding output against BERT and RoBERTa written out in loops, in float64, with padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from soft_oracle import ENGINES, LENGTHS, WIDTH, batch, naive_states, own_positions, small_backbone, weights_of
from tiny_models import build

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone, pool_padded
from stsbench.training.modules.soft_prompt import EmbeddingChange, SoftPrompt

ROWS, LONGEST = len(LENGTHS), max(LENGTHS)


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


def _random(seed=0):
    """A mask of whole tokens, one of whole features, one of single elements, and vectors to add and to put in place."""
    numbers = torch.Generator().manual_seed(seed)
    cut = (
        torch.rand(ROWS, LONGEST, 1, generator=numbers) < 0.3,
        torch.rand(ROWS, 1, WIDTH, generator=numbers) < 0.3,
        torch.rand(ROWS, LONGEST, WIDTH, generator=numbers) < 0.2,
    )
    added, replacement = (torch.randn(ROWS, LONGEST, WIDTH, generator=numbers, dtype=torch.float64) for _ in range(2))
    return cut, added.requires_grad_(), replacement.requires_grad_()


CHANGES = {
    "tokens": lambda cut, added, replacement: EmbeddingChange(cut[:1]),
    "features": lambda cut, added, replacement: EmbeddingChange(cut[1:2]),
    "elements": lambda cut, added, replacement: EmbeddingChange(cut[2:]),
    "added": lambda cut, added, replacement: EmbeddingChange(added=added),
    "leading": lambda cut, added, replacement: EmbeddingChange(leading=replacement[:, :1]),
    "leading and all": lambda cut, added, replacement: EmbeddingChange(cut, added, leading=replacement[:, :1]),
    "all": lambda cut, added, replacement: EmbeddingChange(cut, added, replacement),
}


def _naive(weights, family, tokens, change, row, positions=None):
    """The states of one row: the embeddings in a loop, then every changed number, then the layers as in naive_states."""
    plain = naive_states(weights, tokens, own_positions(family, tokens) if positions is None else positions)[0]
    embedded = []
    for place in range(len(tokens)):
        vector = []
        for feature in range(WIDTH):
            value = plain[place][feature]
            if change.replacement is not None:
                value = float(change.replacement.detach()[row, place, feature])
            if change.leading is not None and place < change.leading.shape[1]:
                value = float(change.leading.detach()[row, place, feature])
            value += 0 if change.added is None else float(change.added.detach()[row, place, feature])
            for mask in change.cut:
                if mask[row, place if mask.shape[1] > 1 else 0, feature if mask.shape[2] > 1 else 0]:
                    value = 0.0
            vector.append(value)
        embedded.append(np.array(vector))
    return naive_states(weights, tokens, None, embedded=embedded)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*CHANGES, "tokens at other positions"])
def test_every_state_is_what_the_loops_compute(family, engine, name):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    change = CHANGES[name.split(" at")[0]](*_random())
    positions = torch.arange(LONGEST).flip(0).expand(ROWS, -1) + 3 if " at" in name else None
    states = backbone(ids, mask, (0, 1, 2), SoftPrompt(positions, change=change))
    plain = backbone(ids, mask)[0]
    for row, length in enumerate(LENGTHS):
        places = None if positions is None else positions[row, :length].tolist()
        want = _naive(weights_of(backbone.model), family, ids[row, :length].tolist(), change, row, places)
        for got, one in zip(states, want, strict=True):
            assert np.abs(got[row, :length].detach().numpy() - one).max() < 1e-9
    assert (states[-1] - plain)[mask.bool()].abs().max() > 1e-2


@pytest.mark.parametrize("engine", ENGINES)
def test_pooled_reads_the_change_and_gradients_reach_what_is_put_in(family, engine):
    backbone = small_backbone(family, engine)
    ids, mask = batch(family)
    cut, added, replacement = _random()
    soft = SoftPrompt(change=EmbeddingChange(cut, added, replacement))
    for pooler in ("cls", "mean"):
        backbone.pooler = pooler
        vectors = backbone.pooled(ids, mask, soft)
        assert torch.allclose(vectors, pool_padded(pooler, backbone(ids, mask, soft=soft), mask), atol=1e-12)
    gradients = torch.autograd.grad(vectors.square().sum(), [added, replacement])
    kept = ~(cut[0] | cut[1] | cut[2]) & mask.unsqueeze(-1).bool()
    for gradient in gradients:
        assert (gradient != 0).eq(kept).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_vectors_before_a_text(family, engine):
    """Several of them, of rows of uneven lengths: the text has its own positions, gradients reach the vectors alone."""
    backbone, count = small_backbone(family, engine), 3
    ids, mask = batch(family)
    places = torch.stack([torch.tensor(own_positions(family, row.tolist())) for row in ids])
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(ROWS, count, WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
    ids, mask, places = (torch.cat([part[:, :1].expand(-1, count), part], 1) for part in (ids, mask, places))
    states = backbone(ids, mask, soft=SoftPrompt(places, change=EmbeddingChange(leading=vectors)))[0]
    weights = weights_of(backbone.model)
    for row, length in enumerate(LENGTHS):
        tokens = ids[row, count : count + length].tolist()
        text = naive_states(weights, tokens, own_positions(family, tokens))[0]
        want = naive_states(weights, None, None, embedded=[*vectors[row].detach().numpy(), *text])[-1]
        assert np.abs(states[row, : count + length].detach().numpy() - want).max() < 1e-9
    row = int(np.argmax(LENGTHS))
    gradient, *table = torch.autograd.grad(
        states[row, count].sum(), [vectors, backbone.model.embeddings.word_embeddings.weight]
    )
    assert gradient.any(2).tolist() == [[other == row] * count for other in range(ROWS)]
    assert not table[0][[token for token in range(len(table[0])) if token not in ids[row]]].any()


def test_padding_may_hold_anything_and_the_hook_is_gone(family):
    ids, mask = batch(family)
    cut, added, _ = _random()
    anything = torch.where(mask.unsqueeze(-1).bool(), added, torch.full_like(added, 1e3))
    for engine in ENGINES:
        backbone = small_backbone(family, engine)
        first, second = (backbone(ids, mask, soft=SoftPrompt(change=EmbeddingChange(cut, part)))[0]
                         for part in (added, anything))
        assert (first - second)[mask.bool()].abs().max() < 1e-12
        assert not backbone.model.embeddings._forward_hooks


@pytest.mark.parametrize("change", [
    EmbeddingChange((torch.zeros(ROWS, LONGEST, dtype=torch.bool),)),
    EmbeddingChange((torch.zeros(ROWS, LONGEST, 1),)),
    EmbeddingChange((torch.zeros(ROWS, LONGEST + 1, 1, dtype=torch.bool),)),
    EmbeddingChange(added=torch.zeros(ROWS + 1, LONGEST, WIDTH)),
    EmbeddingChange(replacement=torch.zeros(ROWS, LONGEST - 1, WIDTH)),
    EmbeddingChange(leading=torch.zeros(ROWS - 1, 1, WIDTH)),
    EmbeddingChange(leading=torch.zeros(ROWS, LONGEST + 1, WIDTH)),
    EmbeddingChange(replacement=torch.zeros(ROWS, LONGEST, WIDTH), leading=torch.zeros(ROWS, 1, WIDTH)),
])
def test_parts_of_another_batch_are_refused(change):
    ids, mask = batch("bert")
    for engine in ("packed", "sdpa"):
        with pytest.raises(ValueError, match="of a batch"):
            small_backbone("bert", engine)(ids, mask, soft=SoftPrompt(change=change))


def test_another_family_is_refused_by_name(tmp_path):
    backbone = load_backbone(build(tmp_path / "model", "distilbert"), "tiny")
    soft = SoftPrompt(change=EmbeddingChange((torch.zeros(1, 3, 1, dtype=torch.bool),)))
    with pytest.raises(EncoderError, match="DistilBertModel"):
        backbone(torch.tensor([[1, 5, 2]]), torch.ones(1, 3, dtype=torch.long), soft=soft)
