"""The learned pooler text_cnn: loops over windows, one text at a time, against all of a padded batch at once."""

from __future__ import annotations

import copy
import inspect
import json
import warnings

import numpy as np
import pytest
import tiny_models
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from text_cnn_oracle import SMALL, by_loops
from tokenizers import processors

from stsbench.encoders.forward.pooling import pool
from stsbench.encoders.forward.token_pooler import TextCNN, by_products
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.parts import check_ends
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.recipes.sections import TextCNNSettings


def made(width=6, seed=0, **more):
    torch.manual_seed(seed)
    return TextCNN(width, **{**SMALL, **more}).double()


def batch(counts, width=6, padding=0, seed=1):
    """States (n, L, d) with NaN on padding, and their mask; counts: tokens between the first and the last."""
    torch.manual_seed(seed)
    length = max(counts) + 2 + padding
    mask = (torch.arange(length) < torch.tensor(counts)[:, None] + 2).long()
    states = torch.randn(len(counts), length, width, dtype=torch.float64)
    return states.masked_fill(mask.unsqueeze(-1) == 0, torch.nan), mask


@pytest.mark.parametrize("options", [
    {}, {"activation": "tanh"}, {"activation": "none"}, {"kernels": (2, 7), "fusion_channels": 1, "fusion_width": 4},
])
@pytest.mark.parametrize("padding", [0, 3])
def test_equals_loops_over_windows(options, padding):
    head, counts = made(**options), [11, 0, 1, 3, 7]
    states, mask = batch(counts, padding=padding)
    found = head.features(states, mask)
    assert found.vectors.shape == (5, head.vector_width) and torch.equal(head(states, mask), found.vectors)
    length = max(states.shape[1] - 2, *head.kernels)
    assert found.tokens.shape == (5, length, 6) and found.real.sum(1).tolist() == counts
    for i, count in enumerate(counts):
        text = states[i, : count + 2].numpy()
        vector, maxima, places = by_loops(head, text)
        np.testing.assert_allclose(found.vectors[i].detach(), vector, atol=1e-9)
        np.testing.assert_allclose(torch.stack(found.pooled)[:, i].detach(), maxima, atol=1e-9)
        assert np.array_equal(torch.stack(found.offsets)[:, i], places)
        assert np.array_equal(found.tokens[i, :count], text[1:-1]) and not found.tokens[i, count:].any()
    assert {part.dtype for part in found.offsets} == {torch.int64}


def test_a_batch_of_short_texts_alone():
    head = made()
    for counts in ([0], [1], [2], [0, 1, 2]):
        states, mask = batch(counts)
        for i, count in enumerate(counts):
            np.testing.assert_allclose(head(states, mask)[i].detach(), by_loops(head, states[i, : count + 2].numpy())[0],
                                       atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 14), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 1000))
def test_no_vector_depends_on_padding_or_company(counts, padding, seed):
    head = made(activation="none")
    states, mask = batch(counts, padding=padding, seed=seed)
    whole = head(states, mask)
    for i, count in enumerate(counts):
        alone = head(states[i : i + 1, : count + 2], mask[i : i + 1, : count + 2])[0]
        assert (alone - whole[i]).abs().max() < 1e-6
        grouped = pool("text_cnn", [states[i, : count + 2]], [(1, count + 2)], token_pooler=head)[0]
        assert (grouped - whole[i]).abs().max() < 1e-5  # float32


def test_what_a_padding_window_would_add():
    """With biases above all that a text gives, an uncounted window over zeros would win every maximum."""
    head = made(kernels=(3, 4), activation="none")
    with torch.no_grad():
        for conv in head.convs:
            conv.bias.fill_(5)
            conv.weight.fill_(-1)
    states, mask = torch.ones(2, 14, 6, dtype=torch.float64), torch.ones(2, 14, dtype=torch.long)
    mask[0, 7:] = 0  # five tokens
    assert head.features(states, mask).pooled[0].tolist() == [[5 - 18] * 9] * 2


def test_gradients_by_finite_differences_and_none_for_what_is_left_out():
    head, counts = made(width=3, channels=4), [5, 0, 2]
    states, mask = batch(counts, width=3, padding=1)
    states = states.nan_to_num(0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head(x, mask), states)
    inner, weight = states.detach(), head.convs[1].weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda changed: torch.func.functional_call(head, {"convs.1.weight": changed}, (inner, mask)), weight
    )
    gradient = torch.autograd.grad(head(states, mask).pow(2).sum(), states)[0].abs().sum(2)
    for row, count in zip(gradient, counts, strict=True):
        assert row[0] == 0 and not row[count + 1 :].any()
    assert gradient[0, 1:6].any()


@pytest.mark.parametrize(("length", "kernel"), [(9, 4), (5, 5), (7, 1)])
def test_the_gpus_products_are_the_convolution(length, kernel):
    torch.manual_seed(0)
    values, weight, bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True)
                            for shape in ((3, 6, length), (8, 6, kernel), (8,)))
    results = [call(values, weight, bias) for call in (by_products, torch.nn.functional.conv1d)]
    assert results[0].shape == (3, 8, length - kernel + 1)
    torch.testing.assert_close(*results, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(result.sin().sum(), (values, weight, bias)) for result in results]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_finite(dtype):
    head = made().float()
    states, mask = batch([11, 0, 1, 3], padding=2)
    states = states.float().requires_grad_()
    with torch.autocast("cpu", dtype):
        vectors = head(states, mask)
    assert vectors.dtype == dtype and vectors.isfinite().all()
    vectors.float().pow(2).sum().backward()
    assert all(weight.grad.isfinite().all() and weight.grad.any() for weight in head.parameters())
    assert states.grad[mask.bool()].isfinite().all()
    np.testing.assert_allclose(vectors.detach().float(), head(states, mask).detach(), atol=0.03)


@pytest.mark.parametrize(("width", "convolutions"), [(768, 4_609_500), (1024, 6_145_500)])
def test_the_papers_sizes(width, convolutions):
    head = TextCNN(width)
    assert sum(weight.numel() for weight in head.convs.parameters()) == convolutions
    assert sum(weight.numel() for weight in head.fusion.parameters()) == 21
    assert head.vector_width == 1497
    assert head(torch.zeros(1, 4, width), torch.ones(1, 4)).shape == (1, 1497)


def test_the_recipes_defaults_are_the_modules():
    defaults = {name: value.default for name, value in inspect.signature(TextCNN).parameters.items() if name != "width"}
    assert TextCNNSettings().model_dump() == defaults


def test_it_comes_back_from_a_folder(tmp_path):
    head = made(activation="tanh").float()
    head.save(tmp_path / "a")
    state = torch.get_rng_state()
    back = TextCNN.load(tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), state) and back.settings() == head.settings()
    assert all(weight.requires_grad for weight in back.parameters())
    states, mask = batch([4, 0])
    assert torch.equal(back(states.float(), mask), head(states.float(), mask))
    stored = json.loads((tmp_path / "a" / "config.json").read_text())
    assert stored == {"width": 6, **SMALL, "kernels": [3, 4, 5], "activation": "tanh"}
    for content in ("[", '{"width": 6}', json.dumps({**stored, "more": 1}), json.dumps({**stored, "activation": "gelu"})):
        (tmp_path / "a" / "config.json").write_text(content)
        with pytest.raises(EncoderError, match=r"cannot read the TextCNN in .*a: ") as error:
            TextCNN.load(tmp_path / "a")
        assert "\n" not in str(error.value)
    (tmp_path / "a" / "config.json").write_text(json.dumps(stored))
    (tmp_path / "a" / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match="cannot read the TextCNN"):
        TextCNN.load(tmp_path / "a")


def test_the_activation_is_one_of_three():
    with pytest.raises(EncoderError, match=r"activation 'gelu' is unknown \(there are relu, tanh, none\)"):
        TextCNN(6, activation="gelu")


@pytest.mark.parametrize("template", ["$A [SEP]", "[CLS] [SEP] $A", "[CLS] [CLS] $A [SEP]", "$A"])
def test_a_tokenizer_without_one_special_token_at_either_end(tmp_path, template):
    tokenizer = tiny_models.tokenizer("bert")
    check_ends(tokenizer, "text_cnn", "fine")
    check_ends(tiny_models.tokenizer("roberta"), "text_cnn", "fine")
    special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]") if name in template]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    message = "the tokenizer of .* does not put one special token at either end"
    with pytest.raises(EncoderError, match=message):
        check_ends(tokenizer, "text_cnn", "odd")
    tokenizer.save_pretrained(tiny_models.build(tmp_path))
    with pytest.raises(EncoderError, match=message):
        load_backbone(tmp_path, "odd", "text_cnn", token_poolers={"text_cnn": SMALL})


# --- in the backbone ---


@pytest.fixture(scope="module", params=["bert", "roberta", "distilbert"])
def folder(request, tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp(request.param), request.param)


def tokens(backbone, texts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = backbone.tokenizer(texts, padding=True, truncation=False, return_tensors="pt")
    return found["input_ids"], found["attention_mask"]


def test_the_backbone_pools_through_its_head(folder):
    torch.manual_seed(3)
    backbone = load_backbone(folder, "tiny", "text_cnn", dropout=0.0, token_poolers={"text_cnn": SMALL}).double()
    assert (backbone.width, backbone.vector_width) == (32, 16)
    assert {name.split(".")[0] for name, _ in backbone.named_parameters()} == {"model", "head"}
    texts = [*tiny_models.sentences(12, longest=9), "a", "", "a cat"]
    ids, mask = tokens(backbone, texts)
    vectors = backbone.pooled(ids, mask)
    vectors.sum().backward()
    assert all(weight.grad is not None for weight in backbone.parameters())
    for engine in ("auto", "padded"):
        backbone.engine = engine
        for i, text in enumerate(texts):
            alone, _ = tokens(backbone, [text])
            states = backbone.model(input_ids=alone).last_hidden_state[0].detach().numpy()
            np.testing.assert_allclose(backbone.pooled(ids, mask)[i].detach(), by_loops(backbone.head, states)[0], atol=1e-6)


def test_a_copy_shares_nothing(folder):
    backbone = load_backbone(folder, "tiny", "text_cnn", dropout=0.0)
    ids, mask = tokens(backbone, ["a cat", "the dog sleeps"])
    before, other = backbone.pooled(ids, mask).detach(), copy.deepcopy(backbone)
    assert before.shape == (2, 1497)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(1)
    assert torch.equal(backbone.pooled(ids, mask), before)


def test_what_does_not_go_together(folder):
    with pytest.raises(EncoderError, match=r"backbone\.text_cnn has no effect with backbone\.pooler mean: set it to null"):
        load_backbone(folder, "tiny", "mean", token_poolers={"text_cnn": SMALL})
    plain = load_backbone(folder, "tiny", "mean")
    assert plain.head is None and plain.vector_width == plain.width == 32
    with pytest.raises(ValueError, match="do not go together"):
        Backbone(plain.model, plain.tokenizer, "text_cnn")
    with pytest.raises(EncoderError, match=r"--pooler text_cnn: .* stores no TextCNN, and it is learned") as error:
        load_encoder(str(folder), pooler="text_cnn")
    assert "\n" not in str(error.value)
