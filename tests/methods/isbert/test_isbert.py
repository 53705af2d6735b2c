"""IS-BERT's two terms of vectors computed token by token, and what it pads with. Its loss in loops: tests/losses."""

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, states, tokens
from tiny_models import sentences
from token_pooler_oracle import MEAN_CNN, local_vectors

from stsbench.errors import StsbenchError
from stsbench.losses.group import jensen_shannon
from stsbench.methods.isbert.method import ISBERT
from stsbench.training.modules.backbone import load_backbone

TEXTS = [*sentences(12, longest=9, seed=3), "a", "a cat"]


def isbert(folder, activation="relu", **options):
    torch.manual_seed(1)
    poolers = {"mean_cnn": {**MEAN_CNN, "activation": activation}}
    backbone = load_backbone(folder, folder.name, "mean_cnn", LIMIT, 0.0, poolers)
    return ISBERT(backbone, ISBERT.Options(**options)).double().train()


def rows(folder, texts=TEXTS):
    return MemoryRows(folder, {"sentence": list(texts)})


def check_terms(method, batch, states_of_texts, counts):
    """The terms are those of the texts' local vectors; states_of_texts: (places, d) numbers of each."""
    head = method.backbone.head
    vectors = [torch.tensor(local_vectors(head, state, count), dtype=torch.float64)
               for state, count in zip(states_of_texts, counts, strict=True)]
    owners, number = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)), sum(counts)
    values = jensen_shannon(torch.cat(vectors), owners, torch.stack([vector.mean(0) for vector in vectors]))
    losses = method(batch)
    for name, value, count in zip(("negative", "positive"), values, (number * (len(counts) - 1), number), strict=True):
        assert abs(losses[name].value.item() - value) < 1e-8 and losses[name].count == method.counts(batch)[name] == count


def test_the_terms_are_those_of_each_token(encoders):
    folder = encoders["bert"]
    method, ids = isbert(folder), tokens(folder, TEXTS)
    assert len({len(row) for row in ids}) > 4
    batch = batch_of(method, rows(folder), more_padding=3)
    check_terms(method, batch, [state.tolist() for state in states(folder, ids)], [*map(len, ids)])


def test_the_released_codes_padding(encoders):
    """The convolutions read the encoder's states behind a text's end, as far as the batch is padded: to one token more than
    the longest text, unless that is as long as may be. The mean leaves them out."""
    folder = encoders["bert"]
    method = isbert(folder, "none", padding="states")
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


def test_a_batch_of_one_sentence_and_gathering_without_gradients_are_refused(encoders):
    method = isbert(encoders["bert"])
    with pytest.raises(StsbenchError, match=r"^is-bert needs two sentences in a batch at least"):
        method(batch_of(method, rows(encoders["bert"], TEXTS[:1])))
    method.gather_mode = "simcse"
    with pytest.raises(StsbenchError, match=r"^training\.gather simcse has no meaning for is-bert.*set exact or local$"):
        method(batch_of(method, rows(encoders["bert"])))
