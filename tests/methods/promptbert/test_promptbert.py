"""PromptBERT's loss, gradients and tested encoders against its description, for BERT and a tokenizer that knows blanks."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_models
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, total
from promptbert_oracle import (
    FIRST,
    MASK_FIRST,
    SECOND,
    TEXTS,
    Oracle,
    plain,
    promptbert,
    texts_of,
    triplets,
)

from stsbench.errors import StsbenchError
from stsbench.training.engine.selection import live_encoder

FAMILIES = list(FIRST)
LEARNED = {"trained": "prompt", "head": "none"}
CHOSEN = {
    "published": {},
    "one template": {"second_template": None},
    "not denoised": {"denoise": False},
    "one template, not denoised": {"second_template": None, "denoise": False},
    "empty positions": {"denoise_positions": "empty"},
    "no gradient": {"denoise_gradient": False},
    "shift of the first": {"denoise_second_shift": "first"},
    "inside": {"text": "inside"},
    "dot": {"similarity": "dot", "head": "none"},
    "temperature": {"temperature": 0.5},
    "kept": {"head": "mlp"},
    "no head": {"head": "none", "temperature": 0.2},
    "transform": {"head": "transform", "second_template": None},
    "transform, no gradient": {"head": "transform", "denoise_gradient": False},
    "transform, not denoised": {"head": "transform", "denoise": False},
    "learned": LEARNED,
    "learned, transform": {"trained": "prompt", "head": "transform"},
    "learned, not denoised": {**LEARNED, "denoise": False},
    "learned, empty positions": {**LEARNED, "denoise_positions": "empty", "temperature": 0.3},
    "learned, released": {"trained": "prompt_rightmost", "head": "transform_train_only", "denoise": False},
    "learned, released, denoised": {"trained": "prompt_rightmost", "head": "none"},
}


def compare(method, oracle, data, folder, more_padding=0):
    """Loss and every gradient, to 1e-6 of their size (what is 0 by mathematics, to rounding)."""
    found = method(batch_of(method, MemoryRows(folder, data), more_padding=more_padding))
    assert list(found) == ["contrastive"] and found["contrastive"].weight == 1
    assert found["contrastive"].count == len(next(iter(data.values())))
    expected = oracle.loss(data)
    assert total(found).item() == pytest.approx(expected.item(), rel=1e-6)
    method.zero_grad()
    total(found).backward()
    expected.backward()
    theirs = {f"backbone.model.{name}": weight.grad for name, weight in oracle.model.named_parameters()}
    if oracle.mlp is not None:
        theirs |= dict(zip(("head.dense.weight", "head.dense.bias"), (weight.grad for weight in oracle.mlp), strict=True))
    if method.options.head in ("transform", "transform_train_only"):
        names = [name for name, _ in method.named_parameters() if name.startswith("head.")]
        assert len(names) == 4
        theirs |= dict(zip(names, (weight.grad for weight in oracle.transform), strict=True))
    if oracle.words is not None:
        theirs["words"] = oracle.words.grad
    largest = max(float(gradient.abs().max()) for gradient in theirs.values() if gradient is not None)
    assert largest > 1e-4
    ours = {name: weight.grad for name, weight in method.named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        if gradient is None or ours[name] is None:  # no gradient, or one of zeros: a row that nothing looks up
            assert all(one is None or not one.any() for one in (gradient, ours[name])), name
        else:
            assert (ours[name] - gradient).abs().max() < 1e-6 * gradient.abs().max() + 1e-12 * largest, name


def alternating(chosen):
    """(family, case): the cases in turn, the first of both families."""
    return [("roberta", next(iter(chosen))), *((FAMILIES[number % 2], case) for number, case in enumerate(chosen))]


@pytest.mark.parametrize(("family", "chosen"), alternating(CHOSEN))
def test_plain_sentences(masked_lms, family, chosen):
    method = promptbert(masked_lms[family], engine=("auto", "packed", "padded")[len(chosen) % 3], **CHOSEN[chosen])
    # an empty sentence less its template is nothing, and its cosine rounding; see below
    data = plain(family) if method.options.denoise and method.options.similarity == "cosine" else plain(family, 0)
    compare(method, Oracle(masked_lms[family], family, method), data, masked_lms[family], more_padding=len(chosen) % 3)


@pytest.mark.parametrize(("family", "chosen"), alternating(["published", "one template", "transform", "learned"]))
def test_triplets(masked_lms, family, chosen):
    method = promptbert(masked_lms[family], view="given", **CHOSEN[chosen])
    compare(method, Oracle(masked_lms[family], family, method), triplets(family), masked_lms[family])


@pytest.mark.parametrize("roles", [("anchor", "positive"), ("anchor", "positive", "negative", "negative2")])
def test_pairs_and_two_negatives(masked_lms, roles):
    method = promptbert(masked_lms["bert"], view="given")
    data = {role: texts_of("bert", [number + 3, 17, 18, 1][:3]) for number, role in enumerate(roles)}
    compare(method, Oracle(masked_lms["bert"], "bert", method), data, masked_lms["bert"])


@pytest.mark.parametrize("chosen", ["learned", "shift of the first"])
def test_a_released_position_of_roberta(masked_lms, chosen):
    method = promptbert(masked_lms["roberta"], denoise_start="zero", **CHOSEN[chosen])
    data = {"sentence": plain("roberta")["sentence"][2:]}
    compare(method, Oracle(masked_lms["roberta"], "roberta", method), data, masked_lms["roberta"])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mask_before_the_sentence(masked_lms, family):
    for chosen in ({}, LEARNED, {"denoise_second_shift": "first", "second_template": SECOND[family]}):
        method = promptbert(masked_lms[family], **{"template": MASK_FIRST, **chosen})
        compare(method, Oracle(masked_lms[family], family, method), plain(family), masked_lms[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sentence_with_the_mask_token_an_empty_and_a_long_one(masked_lms, family):
    method = promptbert(masked_lms[family])
    oracle = Oracle(masked_lms[family], family, method)
    texts = texts_of(family, [18, 0, 17])
    views = method.views(MemoryRows(masked_lms[family], {"sentence": texts}), np.random.default_rng(0))
    for rows, (before, after) in zip(views.tokens, (oracle.first, oracle.second), strict=True):
        for row, text in zip(rows, texts, strict=True):
            assert list(map(int, row)) == [*before, *oracle.spell(text)[: LIMIT - 2], *after]
    assert [len(row) - len(oracle.first[0] + oracle.first[1]) for row in views.tokens[0]] == [7, 0, 8]
    assert list(views.tokens[0][0]).count(oracle.mask) == 4  # three of the sentence's, and the template's


@pytest.mark.parametrize("family", FAMILIES)
def test_an_empty_sentence_less_its_template_is_nothing(masked_lms, family):
    """Without dropout; its cosines are 0 then. With dropout, of which each pass has its own, there is a vector."""
    for chosen, dropout in (({}, 0.0), ({"head": "transform"}, 0.0), ({}, 0.1)):
        method = promptbert(masked_lms[family], dropout=dropout, temperature=0.5, **chosen)
        batch = batch_of(method, MemoryRows(masked_lms[family], plain(family, 0)))
        first, second = method._vectors(batch.ids, batch.mask, len(batch)).view(2, len(batch), -1)[:, -1]
        assert max(first.abs().max(), second.abs().max()) < 1e-12 if not dropout else min(first.norm(), second.norm()) > 0.1
        assert total(method(batch)).isfinite()


@pytest.mark.parametrize(("family", "chosen"), alternating(["transform", "learned", "inside"]))
def test_the_vectors_of_other_losses(masked_lms, family, chosen):
    """`read` and `vectors`, which the semi-supervised wrappers use: as the loss compares them, in the first template."""
    method = promptbert(masked_lms[family], **CHOSEN[chosen])
    oracle, texts = Oracle(masked_lms[family], family, method), texts_of(family, [3, 1, 17, 18])
    rows = method.read(MemoryRows(masked_lms[family], {"premise": texts}), "premise")
    longest = max(map(len, rows)) + 2
    ids = torch.full((len(rows), longest), method.backbone.tokenizer.pad_token_id)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = torch.as_tensor(np.asarray(row)), 1
    found = method.vectors(ids, mask)
    assert found.shape == (4, 32) and found.requires_grad
    for vector, text in zip(found, texts, strict=True):
        assert (vector - oracle.z(text, 0)).abs().max() < 1e-6


def test_a_template_too_long_for_the_model(tmp_path):
    folder = tiny_models.build(tmp_path / "bert", positions=20)
    needed = promptbert(folder, second_template=None).first.length + 10 - 2
    assert needed <= 20
    wordy = 'the man with the big red guitar "{}" means a small [MASK].'
    with pytest.raises(StsbenchError, match=r"^options\.second_template makes up to 2\d tokens of") as caught:
        promptbert(folder, second_template=wordy)
    said = str(caught.value)
    assert "\n" not in said and "bert has 20 positions: --set backbone.max_length=" in said
    longest = int(said.rsplit("=", 1)[1])
    words = promptbert(folder, second_template=None)
    assert longest - 2 + len(words.backbone.tokenizer(wordy.replace("{}", ""))["input_ids"]) == 20


TESTED = {
    "published": {},
    "no full stop": {"full_stop": False},
    "denoised": {"test_denoise": True},
    "denoised, empty positions": {"test_denoise": True, "denoise_positions": "empty"},
    "kept": {"head": "mlp", "test_denoise": True},
    "kept, raw": {"head": "mlp", "denoise": False},
    "transform": {"head": "transform", "test_denoise": True},
    "transform, raw": {"head": "transform"},
    "no head": {"head": "none"},
    "learned": LEARNED,
    "learned, transform": {"trained": "prompt", "head": "transform", "test_denoise": True},
    "learned, released": {"trained": "prompt_rightmost", "head": "transform_train_only", "denoise": False},
    "learned, released, denoised": {"trained": "prompt_rightmost", "head": "none", "test_denoise": True},
    "released position": {"denoise_start": "zero", "test_denoise": True},  # of RoBERTa's
    "inside": {"text": "inside", "dev": "test", "test_denoise": True},
}
ROWS = [*range(1, 6), 17, 18]  # an empty text is for the tests of the template


def changed(folder, **options):
    """The method in float32, its learned words away from where they started."""
    method = promptbert(folder, **options).float()
    if method.words is not None:
        torch.manual_seed(6)
        with torch.no_grad():
            method.words += 0.3 * torch.randn_like(method.words)
    return method


def expected(folder, family, method, texts, *, dev=False):
    oracle = Oracle(folder, family, method)
    if method.words is not None:
        oracle.words = method.words.detach().double()
    if oracle.mlp is not None:
        oracle.mlp = [weight.double() for weight in oracle.mlp]
    with torch.no_grad():
        return torch.stack([oracle.tested(text, dev=dev) for text in texts]).numpy()


@pytest.mark.parametrize(("family", "chosen"), alternating(TESTED))
def test_the_encoder_tested(masked_lms, family, chosen):
    method = changed(masked_lms[family], **TESTED[chosen])
    texts = [*texts_of(family, ROWS), "cat.", "a dog means :", "the man ?", "cat '"]
    found = live_encoder(method.inference(), "live").encode(texts)
    assert np.abs(found - expected(masked_lms[family], family, method, texts)).max() < 1e-5
    assert method.backbone.training and method.inference().pooler == "mask"
    released = method.options.dev == "released"
    assert (method.dev_inference().prompt.settings() != method.inference().prompt.settings()) == released
    found = live_encoder(method.dev_inference(), "dev").encode([*texts, TEXTS[17] + " " + TEXTS[17]])  # nothing is cut
    selected = expected(masked_lms[family], family, method, [*texts, TEXTS[17] + " " + TEXTS[17]], dev=released)
    assert np.abs(found - selected).max() < 1e-5
    ended = live_encoder(method.inference(), "live").encode(["cat", "cat."])
    assert np.array_equal(*ended) == method.options.full_stop
