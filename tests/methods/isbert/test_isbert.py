"""IS-BERT's loss against a double loop over tokens and sentences, and what its options change."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_models
import torch
from isbert_oracle import SMALL, TEXTS, isbert, local_vectors, terms
from method_oracle import LIMIT, MemoryRows, batch_of, make, states, tokens, total

from stsbench.errors import StsbenchError
from stsbench.losses.mutual_information import jensen_shannon
from stsbench.methods.isbert.method import ISBERT
from stsbench.methods.isbert.options import ISBERTOptions
from stsbench.training.api.batch import Shares
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.rows.batches import to_batch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("isbert") / "tiny-bert", pooler=False)


def rows(folder, texts=TEXTS):
    return MemoryRows(folder, {"sentence": list(texts)})


def values(method, batch):
    return {name: (term.value.item(), term.count, term.weight) for name, term in method(batch).items()}


@pytest.mark.parametrize("activation", ["relu", "none"])
@pytest.mark.parametrize("more_padding", [0, 3])
def test_the_loss_is_the_double_loop(folder, activation, more_padding):
    method = isbert(folder, sizes={"activation": activation})
    batch = batch_of(method, rows(folder), more_padding=more_padding)
    ids = tokens(folder, TEXTS)
    own = [local_vectors(method.backbone.head, state.tolist(), len(state)) for state in states(folder, ids)]
    negative, positive = terms(own)
    number = sum(map(len, ids))
    assert len({len(row) for row in ids}) > 4
    losses = method(batch)
    assert abs(losses["negative"].value.item() - negative) < 1e-8 and abs(losses["positive"].value.item() - positive) < 1e-8
    assert abs(total(losses).item() - (negative + positive)) < 1e-8
    assert method.counts(batch) == {name: term.count for name, term in losses.items()}
    assert method.counts(batch) == {"negative": number * (len(ids) - 1), "positive": number}


@pytest.mark.parametrize("activation", ["relu", "none"])
def test_the_released_codes_padding(folder, activation):
    """The convolutions read the encoder's states behind a text's end, as far as the batch is padded: to one token more than
    the longest text, unless that is as long as may be. The mean leaves them out."""
    method = isbert(folder, sizes={"activation": activation}, padding="states")
    views = method.views(rows(folder), np.random.default_rng(0))
    assert views.one_length and method.backbone.engine == "padded"
    short = [text for text, row in zip(TEXTS, tokens(folder, TEXTS), strict=True) if len(row) < LIMIT - 1]
    for texts, more in ((TEXTS, 0), (short, 1)):
        batch = batch_of(method, rows(folder, texts))
        ids = torch.nn.functional.pad(batch.ids, (0, more), value=0)
        with torch.no_grad():
            mask = torch.nn.functional.pad(batch.mask, (0, more))
            padded = method.backbone.model(input_ids=ids, attention_mask=mask).last_hidden_state.tolist()
        counts = batch.mask.sum(1).tolist()
        assert ids.shape[1] == (max(counts) + 1 if more else LIMIT)
        own = [local_vectors(method.backbone.head, state, count) for state, count in zip(padded, counts, strict=True)]
        losses = method(batch)
        for name, value in zip(("negative", "positive"), terms(own), strict=True):
            assert abs(losses[name].value.item() - value) < 1e-8


def test_zeros_make_the_loss_independent_of_padding_and_states_do_not(folder):
    for padding, same in (("zeros", True), ("states", False)):
        method = isbert(folder, padding=padding)
        method.backbone.max_length = 64
        one, more = (total(method(batch_of(method, rows(folder), more_padding=wider))).item() for wider in (0, 4))
        assert (abs(one - more) < 1e-12) is same


def test_a_sentence_and_its_tokens_by_hand():
    """Two sentences of one token each, of products 2 and 0: every sum can be read off."""
    vectors = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    negative, positive = jensen_shannon(vectors, torch.tensor([0, 1]), vectors)
    assert negative.item() == pytest.approx(0, abs=1e-15)  # softplus(0) = ln 2
    assert positive.item() == pytest.approx(np.log1p(np.exp(-2)) - np.log(2), abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_large_products_overflow_in_no_precision(dtype):
    """Products of 1,536 to 4,915; half precision's exponential ends at 11, its largest number is 65,504."""
    vectors = torch.tensor([[1.6], [-1.6]], dtype=dtype).expand(2, 1536).contiguous().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        negative, positive = jensen_shannon(vectors, torch.tensor([0, 1]), -vectors)
    (negative + positive).backward()
    assert negative.dtype == torch.promote_types(dtype, torch.float32)
    product = 1536 * vectors[0, 0].item() ** 2
    assert negative.item() == pytest.approx(product - np.log(2), rel=1e-5) == positive.item()
    assert vectors.grad.isfinite().all() and vectors.grad.any()


def test_gradients_by_finite_differences():
    torch.manual_seed(0)
    local, sentences = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((7, 3), (4, 3)))
    owners = torch.tensor([0, 0, 1, 1, 1, 2, 3])
    assert torch.autograd.gradcheck(lambda a, b: sum(jensen_shannon(a * 5, owners, b)), (local, sentences))


def test_every_weight_learns_from_both_terms(folder):
    method = isbert(folder)
    for name in ("negative", "positive"):
        method.zero_grad()
        method(batch_of(method, rows(folder)))[name].value.backward()
        still = {key for key, weight in method.named_parameters() if weight.grad is None or not weight.grad.any()}
        assert all("position" in key or "token_type" in key or key.endswith("key.bias") for key in still)
        assert any(key.startswith("backbone.head.") for key, _ in method.named_parameters())


CHANGES = [{"sizes": {"activation": "none"}}, {"sizes": {"kernels": (1, 3)}}, {"sizes": {"kernels": (3, 5, 7)}},
           {"sizes": {"channels": 5}}, {"padding": "states"}]


@pytest.mark.parametrize("change", CHANGES)
def test_every_option_changes_the_loss(folder, change):
    one, other = isbert(folder), isbert(folder, **change)
    before, after = (total(method(batch_of(method, rows(folder)))).item() for method in (one, other))
    assert abs(before - after) > 1e-6


def test_dropout_changes_the_loss(folder):
    method = isbert(folder, dropout=0.3)
    batch = batch_of(method, rows(folder))
    assert total(method(batch)).item() != total(method(batch)).item()


def test_the_encoder_that_is_tested_holds_the_cnn(folder):
    method = isbert(folder)
    tested = method.inference()
    assert (tested.pooler, tested.token_pooler) == ("mean_cnn", method.backbone.head) and method.view_vectors(None) is None
    assert method.backbone.vector_width == 3 * SMALL["channels"]


# --- what is refused ---


def test_another_pooler_is_refused(folder):
    with pytest.raises(StsbenchError, match=r"^is-bert trains the pooler mean_cnn, not mean: set backbone\.pooler"):
        make(ISBERT, folder, {}, pooler="mean")


def test_one_sentence_has_no_other(folder):
    method = isbert(folder)
    with pytest.raises(StsbenchError, match=r"^is-bert needs two sentences in a batch at least"):
        method(batch_of(method, rows(folder, TEXTS[:1])))


def test_gathering_without_gradients_is_refused(folder):
    method = isbert(folder)
    method.gather_mode = "simcse"
    with pytest.raises(StsbenchError, match=r"^training\.gather simcse has no meaning for is-bert.*set exact or local$"):
        method(batch_of(method, rows(folder)))


def test_pairs_of_the_data_are_refused():
    with pytest.raises(StsbenchError, match=r"is-bert needs the column sentence"):
        MethodPlan(ISBERT, ISBERTOptions()).roles(("anchor", "positive"))


def test_local_negatives_are_those_of_the_process(folder):
    method = isbert(folder)
    method.gather_mode = "local"
    views = method.views(rows(folder), np.random.default_rng(0))
    batch = to_batch(views, Shares((6, len(TEXTS) - 6), 0), 0, torch.device("cpu"))
    alone = batch_of(method, rows(folder, TEXTS[:6]))
    assert values(method, batch) == values(method, alone)
    assert method.counts(batch) == {name: term.count for name, term in method(batch).items()}
