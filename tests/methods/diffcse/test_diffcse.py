"""DiffCSE's whole loss under every option against loops over tokens, and what the log counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffcse_oracle import (
    DOCUMENTS,
    PAIRS,
    PLAIN,
    QUADRUPLES,
    Naive,
    accuracies,
    check,
    diffcse,
    folder,
    generator,
    masked_lm,
    place,
)
from method_oracle import MemoryRows, batch_of
from training_runs import one_thread

__all__ = ["folder", "generator", "one_thread", "place"]
MEANS = ["all", "attended", "attended_without_specials"]
EDITS = {"edit_ratio": 0.4}
DATA = {"plain": PLAIN, "documents": DOCUMENTS, "pairs": PAIRS, "quadruples": QUADRUPLES}


def rows_of(folder, data):
    if data != "documents":
        return MemoryRows(folder, DATA[data])
    return MemoryRows(folder, DOCUMENTS, documents=[0] * 5 + [1] * 4).at([3, 0, 7, 1])


# --- the loss ---


@pytest.mark.parametrize(("data", "options"), [
    *(("plain", {"rtd_mean": mean, "replace": replace}) for mean in MEANS for replace in ("all", "masked")),
    *(("plain", {"rtd_mean": mean, "operators": [kind], **EDITS}) for mean in MEANS for kind in ("insert", "delete")),
    ("plain", {"operators": ["replace", "insert", "delete"], **EDITS}),
    ("plain", {"operators": ["delete", "replace", "insert"], "combine": "choice", **EDITS}),
    ("plain", {"masked": 0.3, "random": 0.4, "mask_ratio": 0.6, "replace": "masked"}),
    ("plain", {"projector": "tanh"}), ("plain", {"projector": "none"}), ("plain", {"condition": "raw"}),
    ("plain", {"condition": "raw", "projector": "tanh", "similarity": "dot"}),
    ("plain", {"detach": True, "temperature": 0.05}),
    ("plain", {"contrastive": False}), ("plain", {"contrastive": False, "projector": "none", "rtd_weight": 1.0}),
    ("documents", {"sentence": "next"}), ("documents", {"sentence": "same+next", "rtd_mean": "attended"}),
    ("documents", {"sentence": "same+next", "operators": ["insert", "replace", "delete"], **EDITS}),
    ("pairs", {"view": "given"}), ("quadruples", {"view": "given", "operators": ["replace", "delete"], **EDITS}),
    ("quadruples", {"view": "given", "projector": "tanh"}),
    *((data, {"task": "corrective_lm", "sentence": sentence, "rtd_mean": mean})
      for data, sentence in (("plain", "same"), ("documents", "same+next")) for mean in (MEANS[0], MEANS[2])),
    ("plain", {"task": "corrective_lm", "replace": "masked", "contrastive": False}),
], ids=str)
def test_the_loss(folder, generator, data, options):
    method, rows = diffcse(folder, generator, **options), rows_of(folder, data)
    naive = Naive(method, folder, generator)
    check(method, rows, naive)
    assert min(naive.found[1], naive.found[3]) > 0
    assert method.metrics() == accuracies(naive.found)


@pytest.mark.parametrize(("data", "options"), [
    ("plain", {}), ("plain", {"masked": 0.3, "random": 0.4}), ("plain", {"condition": "raw"}),
    ("plain", {"contrastive": False}), ("documents", {"sentence": "next"}), ("documents", {"sentence": "same+next"}),
    ("quadruples", {"view": "given"}),
], ids=str)
def test_the_loss_of_conditional_masked_lm(folder, data, options):
    method, rows = diffcse(folder, task="conditional_mlm", mask_ratio=0.4, **options), rows_of(folder, data)
    terms = check(method, rows, Naive(method, folder))
    assert method.changer.generator is None and method.metrics() == {}
    assert all(term.count > 0 for term in terms.values())


@pytest.mark.parametrize("augmented_as", ["positive", "negative"])
@pytest.mark.parametrize(("data", "options"), [
    ("plain", {"operators": ["replace"]}), ("plain", {"operators": ["replace"], "replace": "masked", "projector": "tanh"}),
    ("plain", {"operators": ["insert"], **EDITS}), ("plain", {"operators": ["delete"], "projector": "none", **EDITS}),
    ("quadruples", {"operators": ["replace"], "view": "given"}),
], ids=str)
def test_the_loss_with_a_changed_sentence_as_a_further_view(folder, generator, augmented_as, data, options):
    method = diffcse(folder, generator, rtd_weight=0, augmented_as=augmented_as, **options)
    terms = check(method, rows_of(folder, data), Naive(method, folder, generator))
    assert set(terms) == {"contrastive", *(["contrastive_augmented"] if augmented_as == "positive" else [])}
    assert method.auxiliary is None and method.metrics() == {}


@pytest.mark.parametrize("data", ["plain", "pairs"])
@pytest.mark.parametrize("projector", ["batchnorm", "tanh", "none"])
def test_the_loss_without_the_auxiliary_term(folder, data, projector):
    view = {"view": "given"} if data == "pairs" else {}
    method = diffcse(folder, rtd_weight=0, projector=projector, **view)
    terms = check(method, rows_of(folder, data), Naive(method, folder))
    assert set(terms) == {"contrastive"} and method.auxiliary is None and method.changer is None
    assert method.inputs() == {} and not [name for name, _ in method.named_parameters() if "generator" in name]


def test_padding_is_part_of_the_mean_over_all_positions_only(folder, generator):
    for mean in MEANS:
        method, rows = diffcse(folder, generator, rtd_mean=mean), rows_of(folder, "plain")
        short, long = (method(batch_of(method, rows, more_padding=columns)) for columns in (0, 5))
        assert long["contrastive"].value.item() == pytest.approx(short["contrastive"].value.item(), rel=1e-9)
        same = long["rtd"].value.item() == pytest.approx(short["rtd"].value.item(), rel=1e-9)
        assert same == (mean != "all") and (long["rtd"].count - short["rtd"].count) == (2 * 4 * 5 if mean == "all" else 0)


def test_a_sampled_replacement_is_told_as_the_one_that_was_drawn(folder, generator):
    method, rows = diffcse(folder, generator, replacement="sampling"), rows_of(folder, "plain")
    drawn = []
    method.changer.register_forward_hook(lambda _, inputs, output: drawn.append((output, inputs[2])))
    value = method(batch_of(method, rows))["rtd"].value.item()
    ((ids, mask),) = drawn
    read = iter([row[:length] for row, length in zip(ids.tolist(), mask.sum(1).tolist(), strict=True)])
    naive = Naive(method, folder, generator)
    naive.changed = lambda *_: next(read)
    expected = naive(rows, method.views(rows, np.random.default_rng(0)))["rtd"][0]
    assert value == pytest.approx(expected, rel=1e-9)


# --- the counts of the log ---


def test_the_log_counts_tokens_since_its_last_line(folder, generator):
    method, rows = diffcse(folder, generator), rows_of(folder, "plain")
    assert method.metrics() == {}
    naive = Naive(method, folder, generator)
    for seed in range(2):
        check(method, rows, naive, seed=seed)
    assert method.state_dict()["auxiliary.found"].tolist() == naive.found  # what a resumed run goes on with
    right_replaced, replaced, right_original, original = naive.found
    assert method.metrics() == {
        "detection_accuracy": (right_replaced + right_original) / (replaced + original),
        "replaced_accuracy": right_replaced / replaced, "original_accuracy": right_original / original,
        "replaced_share": replaced / (replaced + original),
    } and method.metrics() == {}
    assert replaced + original == 2 * int(batch_of(method, rows).mask[:8].sum())
    with torch.no_grad():  # who always says original is right on originals alone
        method.auxiliary.detector.weight[:] = 0
        method.auxiliary.detector.bias[:] = torch.tensor([1.0, 0.0])
    method(batch_of(method, rows))
    found = method.metrics()
    assert (found["replaced_accuracy"], found["original_accuracy"]) == (0, 1)
    assert found["detection_accuracy"] == pytest.approx(1 - found["replaced_share"])


# --- other encoders ---


def test_roberta(place, folder):
    own = masked_lm(place / "roberta", "roberta")
    maker = masked_lm(place / "roberta-generator", "roberta", seed=12, copies=True, hidden_size=24, num_hidden_layers=1)
    for more in ({}, {"operators": ["insert"], **EDITS}, {"task": "corrective_lm"}):
        method, rows, seen = diffcse(own, maker, **more), MemoryRows(own, PLAIN), []
        method.auxiliary.discriminator.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[:2]))
        terms = check(method, rows, Naive(method, own, maker))
        ((ids, mask),) = seen
        assert method.backbone.tokenizer.pad_token_id == 1 and method.backbone.tokenizer.convert_tokens_to_ids("<s>") == 0
        assert bool((mask == 0).any()) and not ids[mask == 0].any()
        if not more:  # padding is in the loss; the token <s> learns from it, BERT's [PAD] does not
            terms["rtd"].value.backward()
            assert method.auxiliary.discriminator.model.embeddings.word_embeddings.weight.grad[0].any()
    bert = diffcse(folder)
    bert(batch_of(bert, MemoryRows(folder, PLAIN)))["rtd"].value.backward()
    assert not bert.auxiliary.discriminator.model.embeddings.word_embeddings.weight.grad[0].any()


def test_any_width(place):
    narrow = masked_lm(place / "narrow", hidden_size=20, num_hidden_layers=1, intermediate_size=24)
    method = diffcse(narrow, rtd_mean="attended", generator_mode="eval")  # the generator: the encoder's own checkpoint
    check(method, MemoryRows(narrow, PLAIN), Naive(method, narrow))
    assert method.auxiliary.detector.weight.shape == (2, 20)
    assert method.projector.inner.weight.shape == (40, 20) and method.projector.outer.weight.shape == (20, 40)
