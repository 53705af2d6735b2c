"""PromptBERT's loss and gradients against the oracle, under every option, for BERT and for a tokenizer that knows spaces."""

import numpy as np
import pytest
import tiny_models
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import LIMIT, MemoryRows, batch_of, total
from promptbert_oracle import FIRST, MASK_FIRST, SECOND, TEXTS, Oracle, folders, plain, promptbert, texts_of, triplets
from training_runs import one_thread

from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

__all__ = ["folders", "one_thread"]
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


# --- the loss ---


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chosen", CHOSEN)
def test_plain_sentences(folders, family, chosen):
    method = promptbert(folders[family], **CHOSEN[chosen])
    # an empty sentence less its template is nothing, and its cosine rounding; see below
    data = plain(family) if method.options.denoise and method.options.similarity == "cosine" else plain(family, 0)
    compare(method, Oracle(folders[family], family, method), data, folders[family], more_padding=len(chosen) % 3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chosen", ["published", "one template", "transform", "no head", "learned", "not denoised"])
def test_triplets(folders, family, chosen):
    method = promptbert(folders[family], view="given", **CHOSEN[chosen])
    compare(method, Oracle(folders[family], family, method), triplets(family), folders[family])


@pytest.mark.parametrize("roles", [("anchor", "positive"), ("anchor", "positive", "negative", "negative2")])
def test_pairs_and_two_negatives(folders, roles):
    method = promptbert(folders["bert"], view="given")
    data = {role: texts_of("bert", [number + 3, 17, 18, 1][:3]) for number, role in enumerate(roles)}
    compare(method, Oracle(folders["bert"], "bert", method), data, folders["bert"])


@pytest.mark.parametrize("chosen", ["published", "transform", "learned", "shift of the first", "inside"])
def test_a_released_position_of_roberta(folders, chosen):
    method = promptbert(folders["roberta"], denoise_start="zero", **CHOSEN[chosen])
    data = {"sentence": plain("roberta")["sentence"][2:]}
    compare(method, Oracle(folders["roberta"], "roberta", method), data, folders["roberta"])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_both_engines(folders, family, engine):
    for chosen in ({}, {"trained": "prompt", "head": "transform"}):
        method = promptbert(folders[family], engine=engine, **chosen)
        compare(method, Oracle(folders[family], family, method), plain(family), folders[family], more_padding=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mask_before_the_sentence(folders, family):
    for chosen in ({}, LEARNED, {"denoise_second_shift": "first", "second_template": SECOND[family]}):
        method = promptbert(folders[family], **{"template": MASK_FIRST, **chosen})
        compare(method, Oracle(folders[family], family, method), plain(family), folders[family])


# --- what it reduces to ---


@pytest.mark.parametrize("family", FAMILIES)
def test_without_denoising_and_with_one_template_it_is_simcse_on_the_mask(folders, family):
    method = promptbert(folders[family], denoise=False, second_template=FIRST[family])
    oracle, data = Oracle(folders[family], family, method), plain(family)
    with torch.no_grad():
        masks = torch.stack([oracle.h(oracle.spell(text)[: LIMIT - 2], oracle.first) for text in data["sentence"]])
        vectors = torch.nn.functional.linear(masks, *oracle.mlp).tanh()
        cosines = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=2)
        expected = torch.nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(cosines)))
    found = method(batch_of(method, MemoryRows(folders[family], data)))
    assert total(found).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_same_template_twice_is_one_template(folders):
    data = {"sentence": texts_of("bert", [3, 4, 5, 6])}
    found = []
    for second in (None, FIRST["bert"]):
        method = promptbert(folders["bert"], second_template=second, dropout=0.1)
        torch.manual_seed(4)
        found.append(total(method(batch_of(method, MemoryRows(folders["bert"], data)))).item())
    assert found[0] == found[1]


def test_dropout_makes_the_views_differ(folders):
    for chosen in ({"second_template": None}, {"trained": "prompt", "head": "none"}):
        method = promptbert(folders["bert"], dropout=0.1, **chosen)
        batch = batch_of(method, MemoryRows(folders["bert"], {"sentence": texts_of("bert", [3, 4, 5, 6])}))
        vectors = method._vectors(batch.ids, batch.mask, 4)
        assert (vectors[:4] - vectors[4:]).abs().amin(0).max() > 1e-3
        assert torch.equal(batch.ids[:4], batch.ids[4:])


# --- what is read ---


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sentence_with_the_mask_token_an_empty_and_a_long_one(folders, family):
    method = promptbert(folders[family])
    oracle = Oracle(folders[family], family, method)
    texts = texts_of(family, [18, 0, 17])
    views = method.views(MemoryRows(folders[family], {"sentence": texts}), np.random.default_rng(0))
    for rows, (before, after) in zip(views.tokens, (oracle.first, oracle.second), strict=True):
        for row, text in zip(rows, texts, strict=True):
            assert list(map(int, row)) == [*before, *oracle.spell(text)[: LIMIT - 2], *after]
    assert [len(row) - len(oracle.first[0] + oracle.first[1]) for row in views.tokens[0]] == [7, 0, 8]
    assert list(views.tokens[0][0]).count(oracle.mask) == 4  # three of the sentence's, and the template's


@pytest.mark.parametrize("family", FAMILIES)
def test_an_empty_sentence_less_its_template_is_nothing(folders, family):
    """Without dropout; its cosines are 0 then. With dropout, of which each pass has its own, there is a vector."""
    for chosen, dropout in (({}, 0.0), ({"head": "transform"}, 0.0), ({}, 0.1)):
        method = promptbert(folders[family], dropout=dropout, temperature=0.5, **chosen)
        batch = batch_of(method, MemoryRows(folders[family], plain(family, 0)))
        first, second = method._vectors(batch.ids, batch.mask, len(batch)).view(2, len(batch), -1)[:, -1]
        assert max(first.abs().max(), second.abs().max()) < 1e-12 if not dropout else min(first.norm(), second.norm()) > 0.1
        assert total(method(batch)).isfinite()


def test_spaces(folders):
    """In training the first word has no space before it, inside the template it has one."""
    rows = MemoryRows(folders["roberta"], {"sentence": ["cat runs", "dog"]})
    alone = promptbert(folders["roberta"]).views(rows, np.random.default_rng(0)).tokens[0]
    inside = promptbert(folders["roberta"], text="inside").views(rows, np.random.default_rng(0)).tokens[0]
    vocab = tiny_models_vocab(folders["roberta"])
    assert list(alone[0][5:7]) == [vocab["cat"], vocab["Ġruns"]] and list(inside[0][5:7]) == [vocab["Ġcat"], vocab["Ġruns"]]
    assert [list(row[7:]) for row in alone[:1]] == [list(row[7:]) for row in inside[:1]]


def tiny_models_vocab(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder).get_vocab()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chosen", ["published", "transform", "no head", "learned", "not denoised", "inside"])
def test_the_vectors_of_other_losses(folders, family, chosen):
    """`read` and `vectors`, which the semi-supervised wrappers use: as the loss compares them, in the first template."""
    method = promptbert(folders[family], **CHOSEN[chosen])
    oracle, texts = Oracle(folders[family], family, method), texts_of(family, [3, 1, 17, 18])
    rows = method.read(MemoryRows(folders[family], {"premise": texts}), "premise")
    longest = max(map(len, rows)) + 2
    ids = torch.full((len(rows), longest), method.backbone.tokenizer.pad_token_id)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = torch.as_tensor(np.asarray(row)), 1
    found = method.vectors(ids, mask)
    assert found.shape == (4, 32) and found.requires_grad
    for vector, text in zip(found, texts, strict=True):
        assert (vector - oracle.z(text, 0)).abs().max() < 1e-6


@given(st.lists(st.sampled_from(range(1, len(TEXTS))), min_size=2, max_size=6), st.integers(0, 4))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_vector_does_not_depend_on_its_company(folders, rows, more_padding):
    method = promptbert(folders["bert"])
    with torch.no_grad():
        texts = {"sentence": texts_of("bert", rows)}
        batch = batch_of(method, MemoryRows(folders["bert"], texts), more_padding=more_padding)
        together = method._vectors(batch.ids, batch.mask, len(rows))
        for place, row in enumerate(rows):
            alone = batch_of(method, MemoryRows(folders["bert"], {"sentence": texts_of("bert", [row])}))
            vectors = method._vectors(alone.ids, alone.mask, 1)
            assert (vectors - together[[place, len(rows) + place]]).abs().max() < 1e-10


# --- it learns ---


@pytest.mark.parametrize(("chosen", "rate"), [
    ({}, 5e-3), ({"head": "transform"}, 5e-3), ({"trained": "prompt", "head": "transform"}, 2e-2),
])
def test_the_loss_falls(folders, chosen, rate):
    method = promptbert(folders["bert"], dropout=0.02, temperature=0.3, **chosen)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    optimiser = torch.optim.AdamW([weight for weight in method.parameters() if weight.requires_grad], lr=rate)
    rows = MemoryRows(folders["bert"], {"sentence": tiny_models.sentences(12, longest=7, seed=8)})
    batch = to_batch(method.views(rows, np.random.default_rng(0)), Shares((12,)), 0, torch.device("cpu"))
    torch.manual_seed(2)
    losses = [total(method.eval()(batch)).item()]  # without dropout's noise
    method.train()
    for _ in range(20):
        total(method(batch)).backward()
        optimiser.step()
        optimiser.zero_grad()
    losses.append(total(method.eval()(batch)).item())
    assert losses[1] < 0.75 * losses[0], losses
    moved = {name for name, value in method.state_dict().items() if not torch.equal(value, before[name])}
    if "trained" in chosen:
        assert "words" in moved and all(name == "words" or name.startswith("head.") for name in moved)
    else:
        assert {name.split(".")[0] for name in moved} == {"backbone", "head"}
