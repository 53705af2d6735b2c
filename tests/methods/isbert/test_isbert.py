"""IS-BERT's loss against a double loop over tokens and sentences, and a run that goes on with its own CNN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from isbert_oracle import TEXTS, isbert, local_vectors, terms
from method_oracle import LIMIT, MemoryRows, batch_of, states, tokens

from stsbench.errors import StsbenchError


def rows(folder, texts=TEXTS):
    return MemoryRows(folder, {"sentence": list(texts)})


def check_terms(method, batch, states_of_texts, counts):
    """The terms are those of the texts' local vectors; states_of_texts: (places, d) numbers of each."""
    head = method.backbone.head
    vectors = [local_vectors(head, state, count) for state, count in zip(states_of_texts, counts, strict=True)]
    losses, number = method(batch), sum(counts)
    expected = zip(("negative", "positive"), terms(vectors), (number * (len(counts) - 1), number), strict=True)
    for name, value, count in expected:
        assert abs(losses[name].value.item() - value) < 1e-8 and losses[name].count == method.counts(batch)[name] == count


@pytest.mark.parametrize("activation", ["relu", "none"])
def test_the_loss_is_the_double_loop(encoders, activation):
    folder = encoders["bert"]
    method = isbert(folder, sizes={"activation": activation})
    ids = tokens(folder, TEXTS)
    assert len({len(row) for row in ids}) > 4
    batch = batch_of(method, rows(folder), more_padding=3)
    check_terms(method, batch, [state.tolist() for state in states(folder, ids)], [*map(len, ids)])


@pytest.mark.parametrize("activation", ["relu", "none"])
def test_the_released_codes_padding(encoders, activation):
    """The convolutions read the encoder's states behind a text's end, as far as the batch is padded: to one token more than
    the longest text, unless that is as long as may be. The mean leaves them out."""
    folder = encoders["bert"]
    method = isbert(folder, sizes={"activation": activation}, padding="states")
    views = method.views(rows(folder), np.random.default_rng(0))
    assert views.one_length and method.backbone.engine == "padded"
    short = [text for text, row in zip(TEXTS, tokens(folder, TEXTS), strict=True) if len(row) < LIMIT - 1]
    for texts, more in ((TEXTS, 0), (short, 1)):
        batch = batch_of(method, rows(folder, texts))
        ids, mask = (torch.nn.functional.pad(values, (0, more)) for values in (batch.ids, batch.mask))
        with torch.no_grad():
            padded = method.backbone.model(input_ids=ids, attention_mask=mask).last_hidden_state.tolist()
        counts = batch.mask.sum(1).tolist()
        assert ids.shape[1] == (max(counts) + 1 if more else LIMIT)
        check_terms(method, batch, padded, counts)


def test_every_weight_learns_from_both_terms(encoders):
    method = isbert(encoders["bert"])
    assert method.view_vectors(None) is None
    for name in ("negative", "positive"):
        method.zero_grad()
        method(batch_of(method, rows(encoders["bert"])))[name].value.backward()
        still = {key for key, weight in method.named_parameters() if weight.grad is None or not weight.grad.any()}
        assert all("position" in key or "token_type" in key or key.endswith("key.bias") for key in still)
        assert any(key.startswith("backbone.head.") for key, _ in method.named_parameters())


def test_a_batch_of_one_sentence_and_gathering_without_gradients_are_refused(encoders):
    method = isbert(encoders["bert"])
    with pytest.raises(StsbenchError, match=r"^is-bert needs two sentences in a batch at least"):
        method(batch_of(method, rows(encoders["bert"], TEXTS[:1])))
    method.gather_mode = "simcse"
    with pytest.raises(StsbenchError, match=r"^training\.gather simcse has no meaning for is-bert.*set exact or local$"):
        method(batch_of(method, rows(encoders["bert"])))
