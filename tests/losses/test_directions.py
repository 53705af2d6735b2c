"""InfoNCE in several directions: values and gradients of sentence-transformers' loss."""

import itertools

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from stsbench import losses

FURTHER = ("query_to_query", "doc_to_query", "doc_to_doc")
OTHERS = [extra for size in range(4) for extra in itertools.combinations(FURTHER, size)]
WEIGHTS = [("none", 0.0), ("in_batch_negatives", 9.0), ("all_negatives", 3.0), ("hard_negatives", 5.0)]
TEXTS = {"query_to_query", "doc_to_doc"}  # between texts of one kind


def vectors(blocks, n=6):
    generator = torch.Generator().manual_seed(blocks)
    return [torch.randn(n, 5, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2 + blocks)]


@pytest.mark.parametrize(("blocks", "hardness"), [(0, WEIGHTS[0]), (0, WEIGHTS[1]), (2, WEIGHTS[2]), (3, WEIGHTS[3])])
def test_values_and_gradients_are_sentence_transformers(blocks, hardness):
    for extra, partition in itertools.product(OTHERS, ("joint", "per_direction")):
        if partition == "per_direction" and TEXTS & set(extra):
            continue
        how = {"directions": ("query_to_doc", *extra)}
        ours, theirs = vectors(blocks), vectors(blocks)
        value = losses.multiple_negatives(
            ours[0], ours[1], ours[2:], partition=partition, hardness=hardness[0], strength=hardness[1], **how)
        library = MultipleNegativesRankingLoss(
            torch.nn.Identity(), partition_mode=partition, hardness_mode=None if hardness[0] == "none" else hardness[0],
            hardness_strength=hardness[1], **how)
        expected = library.compute_loss_from_embeddings(theirs, None)
        value.backward()
        expected.backward()
        assert value.item() == pytest.approx(expected.item(), abs=1e-12), how
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad, other.grad, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("wrong", [
    {"directions": ["doc_to_query"]}, {"directions": ["query_to_doc", "query_to_doc"]}, {"strength": 1.0},
    {"directions": ["query_to_doc", "doc_to_doc"], "partition": "per_direction"}, {"hardness": "all_negatives"},
    {"hardness": "hard_negatives", "strength": 1.0}, {"start": 1}, {"temperature": 0.0},
])
def test_choices_that_do_not_go_together_are_refused(wrong):
    with pytest.raises(ValueError, match=r"directions|partition|hardness|column|temperature"):
        losses.multiple_negatives(*vectors(0), **wrong)
