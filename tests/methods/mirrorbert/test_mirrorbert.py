"""Mirror-BERT written out: spans by loops over characters, texts read one at a time, the mean position by position."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, _reference, batch_of, make, tokens, total
from transformers import AutoModel

from stsbench import losses
from stsbench.errors import EncoderError
from stsbench.methods.mirrorbert.method import MirrorBERT, mask_spans
from stsbench.methods.mirrorbert.options import MirrorBERTOptions

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
OTHERS = ["a man in a park", "the small dog runs with the cat in the park", "big", "food", "red cat means : blue dog"]
PAD = {"bert": 0, "roberta": 1}
MASK = {"bert": "[MASK]", "roberta": "<mask>"}
SPAN = {"span_chars": 3, "min_chars": 6}


def plain(folder):
    return MemoryRows(folder, {"sentence": TEXTS})


def mirrorbert(folder, pooler="mean_padded:12", dropout=0.0, **options):
    return make(MirrorBERT, folder, {**SPAN, **options}, pooler=pooler, dropout=dropout)


def masked(texts, mask, seed=0, size=3, least=6, first=False):
    """The texts of the second view, character by character; the numbers are those that a generator of `seed` draws."""
    result = []
    for text, draw in zip(texts, np.random.default_rng(seed).random(len(texts)), strict=True):
        if len(text) < least or len(text) <= size:
            result.append(text)
            continue
        start = int(np.floor(draw * (len(text) - size)))
        if first:
            span = text[start : start + size]
            start = next(place for place in range(len(text)) if text[place : place + size] == span)
        before = "".join(char for place, char in enumerate(text) if place < start)
        after = "".join(char for place, char in enumerate(text) if place >= start + size)
        result.append(before + " " + mask + " " + after)
    return result


def states(folder, ids, real, kept=None):
    """float64 (L, d) last states of one text with padding by transformers.
    ids: (L,) padding included; real: how many are real; kept: (layers, heads), whose heads count, or None for all."""
    model = _reference(AutoModel, folder)
    with ExitStack() as hooks, torch.no_grad():
        for layer, heads in zip(model.encoder.layer, () if kept is None else kept, strict=kept is not None):
            factor = torch.tensor(heads / heads.mean()).repeat_interleave(layer.attention.self.attention_head_size)
            hook = layer.attention.output.dense.register_forward_pre_hook(lambda _, given, by=factor: (given[0] * by,))
            hooks.callback(hook.remove)
        mask = (torch.arange(len(ids)) < real).long()
        return model(input_ids=torch.tensor([ids]), attention_mask=mask[None]).last_hidden_state[0]


def vectors(folder, texts, pooler="mean_padded:12", kept=None):
    """(n, d) of texts, by transformers' own truncation at the tests' length. kept: (n, layers, heads), or None."""
    pooled = []
    for row, ids in enumerate(tokens(folder, texts)):
        length = int(pooler.partition(":")[2]) if pooler.startswith("mean_padded") else len(ids)
        padded = list(ids) + [PAD[folder.name]] * (length - len(ids))
        hidden = states(folder, padded, len(ids), None if kept is None else kept[row])
        if pooler == "cls":
            pooled.append(hidden[0])
        else:
            pooled.append(sum(hidden[place] for place in range(length)) / length)
    return torch.stack(pooled)


def check_loss(method, rows, second, kept=(None, None), **more):
    folder, pooler = method.backbone.folder, method.backbone.pooler
    first = rows.texts(rows.roles[0])
    views = (vectors(folder, texts, pooler, each) for texts, each in zip((first, second), kept, strict=True))
    terms = method(batch_of(method, rows, **more))
    assert set(terms) == {"contrastive"} and terms["contrastive"].count == len(TEXTS)
    assert abs(total(terms) - losses.mirrorbert(*views)) < 1e-10


@pytest.mark.parametrize(("family", "pooler"), [("roberta", "mean_padded:12"), ("bert", "mean")])
def test_the_loss_is_nt_xent_of_the_text_and_its_masked_copy(encoders, family, pooler):
    second = masked(TEXTS, MASK[family])
    assert sum(text != other for text, other in zip(TEXTS, second, strict=True)) == 3  # two are too short
    check_loss(mirrorbert(encoders[family], pooler), plain(encoders[family]), second, more_padding=2)


def test_pairs_are_those_of_the_data_and_the_second_text_is_masked(encoders):
    rows = MemoryRows(encoders["bert"], {"anchor": TEXTS, "positive": OTHERS})
    check_loss(mirrorbert(encoders["bert"]), rows, masked(OTHERS, "[MASK]"))


@pytest.mark.parametrize("pooler", ["cls", "mean_padded:12"])
def test_drophead_replayed_from_its_draws(encoders, pooler):
    method, rows = mirrorbert(encoders["roberta"], pooler, drophead=0.4), plain(encoders["roberta"])
    second = masked(TEXTS, MASK["roberta"])
    kept = method.views(rows, np.random.default_rng(0)).by_row["kept heads"]
    assert [part.shape for part in kept] == [(5, 2, 4)] * 2 and not (kept[0] == kept[1]).all()
    assert all(part.any(axis=2).all() for part in kept)  # the oracle's case
    for method.backbone.engine in ("auto", "padded"):
        check_loss(method, rows, second, kept, more_padding=2)
    check_loss(method.eval(), rows, second)


def test_how_often_heads_are_dropped(encoders):
    method = mirrorbert(encoders["bert"], drophead=0.3)
    draws = [method.views(plain(encoders["bert"]), np.random.default_rng(seed)).by_row["kept heads"] for seed in range(90)]
    assert abs(1 - np.mean(draws) - 0.3) < 0.02  # 7,200 draws: 4 standard errors


def test_the_released_mask_stands_where_the_characters_first_occur():
    text = "bread and butter and bread and jam"
    options = MirrorBERTOptions()
    released = MirrorBERTOptions(first_occurrence=True)
    for seed in range(20):
        want = masked([text, "a short one", text * 2], "[MASK]", seed, size=5, least=30, first=seed % 2 == 1)
        masked_texts = mask_spans(
            [text, "a short one", text * 2], released if seed % 2 else options, "[MASK]", np.random.default_rng(seed)
        )
        assert masked_texts == want


def test_a_literal_mask_is_ordinary_text_for_roberta(encoders):
    token_ids = {}
    for literal in (False, True):
        method = mirrorbert(encoders["roberta"], literal_mask=literal)
        views = method.views(plain(encoders["roberta"]), np.random.default_rng(0))
        token_ids[literal] = [list(map(int, row)) for row in views.tokens[1]]
        assert token_ids[literal] == method.backbone.tokenise(masked(TEXTS, "[MASK]" if literal else "<mask>"))
    mask = method.backbone.tokenizer.mask_token_id
    assert any(mask in row for row in token_ids[False]) and not any(mask in row for row in token_ids[True])


def test_the_engine_that_is_recorded_is_the_one_that_computes_and_the_test_s_length_is_its_own(encoders):
    for pooler, engine in (("mean_padded:12", "padded"), ("cls", "packed")):
        assert mirrorbert(encoders["bert"], pooler).backbone.engine_on("cpu") == engine
    method = mirrorbert(encoders["bert"], test_length=20)
    assert (method.inference().pooler, method.dev_inference().pooler) == ("mean_padded:20", "mean_padded:20")
    method.backbone.engine = "packed"
    with pytest.raises(EncoderError, match="use padded"):
        method(batch_of(method, plain(encoders["bert"])))


def test_which_views_need_dropout(encoders):
    assert MirrorBERT.needs(MirrorBERTOptions(span_chars=0)).dropout
    assert not MirrorBERT.needs(MirrorBERTOptions(span_chars=0, drophead=0.1)).dropout
    assert not MirrorBERT.needs(MirrorBERTOptions()).dropout
    method = mirrorbert(encoders["bert"], span_chars=0, min_chars=30, drophead=0.3)
    batch = batch_of(method, plain(encoders["bert"]))
    assert torch.equal(*batch.ids.chunk(2))
    first, second = method.view_vectors(batch)
    assert (first - second).abs().amax(1).min() > 1e-3
