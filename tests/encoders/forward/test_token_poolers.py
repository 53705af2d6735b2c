"""The learned poolers text_cnn and mean_cnn: loops over tokens, a text at a time, against all of a padded batch at once.
How texts are packed. The pooler mean_padded:N: transformers' own states of padded texts, the mean over all positions, in
whoever reads it."""

import inspect
import json
import warnings

import numpy as np
import pytest
import tiny_models
import token_pooler_oracle as oracle
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import processors
from transformers import AutoModel, AutoTokenizer

from stsbench import load_encoder
from stsbench.encoders.forward import batching
from stsbench.encoders.forward.pooling import FILES, check_pooler, padded_length, pool
from stsbench.encoders.forward.token_pooler import CLASSES, MeanCNN, TextCNN, by_products
from stsbench.encoders.transformer.parts import check_ends
from stsbench.errors import EncoderError, StsbenchError
from stsbench.training.api.method import Inference
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.recipes.sections import BackboneSettings, MeanCNNSettings, TextCNNSettings
from stsbench.training.runs.export import export_model

SMALL = {TextCNN: oracle.TEXT_CNN, MeanCNN: oracle.MEAN_CNN}
OPTIONS = [
    *((TextCNN, options) for options in (
        {}, {"activation": "tanh"}, {"activation": "none"}, {"kernels": (2, 7), "fusion_channels": 1, "fusion_width": 4})),
    *((MeanCNN, options) for options in ({}, {"activation": "none"}, {"kernels": (3,), "channels": 7}, {"kernels": (7, 1)})),
]


def pooler(kind, width=6, **more):
    torch.manual_seed(0)
    return kind(width, **{**SMALL[kind], **more}).double()


def batch(counts, width=6, padding=0, seed=1):
    """States (n, L, d) with NaN on padding, and their mask; counts: tokens of each text, special ones included."""
    torch.manual_seed(seed)
    length = max(counts) + padding
    mask = (torch.arange(length) < torch.tensor(counts)[:, None]).long()
    return torch.randn(len(counts), length, width, dtype=torch.float64).masked_fill(mask.unsqueeze(-1) == 0, torch.nan), mask


def by_loops(head, text):
    """The vector of one text, (tokens, d)."""
    if isinstance(head, TextCNN):
        return oracle.by_loops(head, text.numpy())[0]
    return oracle.mean(oracle.local_vectors(head, text.tolist(), len(text)))


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_a_vector_is_that_of_loops_whatever_the_padding(kind, options):
    head, counts = pooler(kind, **options), [13, 2, 3, 5, 9]
    states, mask = batch(counts, padding=4)
    features = head.features(states, mask)
    assert features.vectors.shape == (5, head.vector_width) and torch.equal(head(states, mask), features.vectors)
    name = head.kind.pooler
    for i, count in enumerate(counts):
        text = states[i, :count]
        expected = by_loops(head, text)
        np.testing.assert_allclose(features.vectors[i].detach(), expected, atol=1e-9)
        packed = pool(name, [text], [(1, count)], token_pooler=head)[0]  # float32
        np.testing.assert_allclose(packed.detach(), expected, atol=1e-6)
        if kind is MeanCNN:
            assert torch.equal(features.real, mask.bool())
            local = oracle.local_vectors(head, text.tolist(), count)
            np.testing.assert_allclose(features.tokens[i, :count].detach(), local, atol=1e-12)
            continue
        _, maxima, windows = oracle.by_loops(head, text.numpy())
        np.testing.assert_allclose(torch.stack(features.pooled)[:, i].detach(), maxima, atol=1e-9)
        assert np.array_equal(torch.stack(features.offsets)[:, i], windows) and features.real[i].sum() == count - 2
        assert torch.equal(features.tokens[i, : count - 2], text[1:-1]) and not features.tokens[i, count - 2 :].any()
        assert {part.dtype for part in features.offsets} == {torch.int64}


def test_without_zeros_mean_cnn_reads_what_stands_at_padding():
    head, counts = pooler(MeanCNN), [9, 1, 2, 5]
    states, mask = batch(counts, padding=1)
    states = states.nan_to_num(0.5)
    features = head.features(states, mask, zero_padding=False)
    for i, count in enumerate(counts):
        expected = oracle.mean(oracle.local_vectors(head, states[i].tolist(), count))
        np.testing.assert_allclose(features.vectors[i].detach(), expected, atol=1e-12)
    assert (features.vectors - head(states, mask)).abs().max() > 0.01


@pytest.mark.parametrize("kind", SMALL)
def test_gradients_are_finite_differences_and_none_reaches_what_is_left_out(kind):
    head, counts = pooler(kind, width=3, channels=4), [7, 2, 4]
    states, mask = batch(counts, width=3, padding=1)
    states = states.nan_to_num(0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head(x, mask), states)
    inner, weight = states.detach(), head.convs[1].weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda changed: torch.func.functional_call(head, {"convs.1.weight": changed}, (inner, mask)), weight)
    gradient = torch.autograd.grad(head(states, mask).pow(2).sum(), states)[0].abs().sum(2) > 0
    if kind is MeanCNN:
        assert not gradient[mask == 0].any() and gradient[0, :7].any()
    else:
        assert not any(row[0] or row[count - 1 :].any() for row, count in zip(gradient, counts, strict=True))
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


@pytest.mark.parametrize(("kind", "dtype"), [(TextCNN, torch.bfloat16), (MeanCNN, torch.float16)])
def test_half_precision_stays_finite_and_a_mean_is_taken_in_float32(kind, dtype):
    head = pooler(kind).float()
    states, mask = batch([13, 2, 3, 5], padding=2)
    states = states.float().requires_grad_()
    with torch.autocast("cpu", dtype):
        vectors = head(states, mask)
    assert vectors.dtype == (torch.float32 if kind is MeanCNN else dtype) and vectors.isfinite().all()
    vectors.float().pow(2).sum().backward()
    assert all(weight.grad.isfinite().all() and weight.grad.any() for weight in head.parameters())
    assert states.grad[mask.bool()].isfinite().all()
    np.testing.assert_allclose(vectors.detach().float(), head(states, mask).detach(), atol=0.03)


@pytest.mark.parametrize(("kind", "width", "vector_width", "weights"), [
    (TextCNN, 768, 1497, 4_609_500 + 21), (TextCNN, 1024, 1497, 6_145_500 + 21),
    (MeanCNN, 768, 768, 768 * 256 * (1 + 3 + 5) + 3 * 256)])
def test_the_papers_sizes_are_the_defaults_of_pooler_and_recipe(kind, width, vector_width, weights):
    head = kind(width)
    assert sum(weight.numel() for weight in head.parameters()) == weights and head.vector_width == vector_width
    assert head(torch.zeros(1, 4, width), torch.ones(1, 4)).shape == (1, vector_width)
    defaults = {name: value.default for name, value in inspect.signature(kind).parameters.items() if name != "width"}
    assert {TextCNN: TextCNNSettings, MeanCNN: MeanCNNSettings}[kind]().model_dump() == defaults
    assert CLASSES[head.kind.pooler] is kind


@pytest.mark.parametrize("kind", SMALL)
def test_a_pooler_comes_back_from_a_folder(tmp_path, kind):
    head = pooler(kind, activation="none").float()
    head.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    state = torch.get_rng_state()
    back = kind.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), state) and back.settings() == head.settings()
    assert all(weight.requires_grad for weight in back.parameters())
    states, mask = batch([6, 2])
    assert torch.equal(back(states.float(), mask), head(states.float(), mask))
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored == {"width": 6, **SMALL[kind], "kernels": list(SMALL[kind]["kernels"]), "activation": "none"}


@pytest.mark.parametrize("template", ["[CLS] [CLS] $A [SEP]", "$A"])
def test_a_tokenizer_without_one_special_token_at_either_end_is_refused(tmp_path, template):
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
        load_backbone(tmp_path, "odd", "text_cnn", token_poolers={"text_cnn": SMALL[TextCNN]})


def test_the_backbone_pools_through_its_text_cnn(tmp_path):
    folder = tiny_models.build(tmp_path, "roberta")
    torch.manual_seed(3)
    backbone = load_backbone(folder, "tiny", "text_cnn", dropout=0.0, token_poolers={"text_cnn": SMALL[TextCNN]}).double()
    texts = [*tiny_models.sentences(4, longest=9), "a", "", "a cat"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = backbone.tokenizer(texts, padding=True, truncation=False, return_tensors="pt")
    ids, mask = read["input_ids"], read["attention_mask"]
    for engine in ("auto", "padded"):
        backbone.engine = engine
        vectors = backbone.pooled(ids, mask).detach()
        for i, row in enumerate(mask.bool()):
            states = backbone.model(input_ids=ids[i, row][None]).last_hidden_state[0].detach()
            np.testing.assert_allclose(vectors[i], by_loops(backbone.head, states), atol=1e-6)
    with pytest.raises(ValueError, match="do not go together"):
        Backbone(backbone.model, backbone.tokenizer, "text_cnn")


def test_batches_keep_to_the_budget_and_cover_every_text():
    lengths = np.sort(np.random.default_rng(0).integers(1, 60, 500))[::-1].copy()
    start = 0
    while start < len(lengths):
        stop = batching.batch_end(lengths, start, 256)
        assert stop > start
        assert int(lengths[start]) * (stop - start) <= 256
        assert sum(texts * length for texts, length in batching.groups(lengths[start:stop])) == lengths[start:stop].sum()
        start = stop
    assert batching.batch_end(np.array([900, 900]), 0, 256) == 1  # a text longer than the budget goes alone


TEXTS = [*tiny_models.sentences(12), "", "a cat", "the cat " * 25]


def expected(folder, length):
    """float64 (n, d), one text after another."""
    model, tokenizer, rows = AutoModel.from_pretrained(folder).double().eval(), AutoTokenizer.from_pretrained(folder), []
    for text in TEXTS:
        read = tokenizer(text, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        assert read["input_ids"].shape == (1, length)
        with torch.no_grad():
            states = model(input_ids=read["input_ids"], attention_mask=read["attention_mask"]).last_hidden_state[0]
        rows.append(sum(states[place] for place in range(length)) / length)
    return torch.stack(rows).numpy()


def test_the_mean_over_all_positions(tmp_path):
    folder, vectors = tiny_models.build(tmp_path, "roberta"), {}
    for length in (10, 16):
        encoder = load_encoder(str(folder), pooler=f"mean_padded:{length}", batch_tokens=70)
        assert (encoder.spec.pooler, encoder.spec.max_length) == (f"mean_padded:{length}", length)
        encoded = encoder.run(TEXTS)
        vectors[length] = encoded.vectors
        assert np.abs(encoded.vectors - expected(folder, length)).max() < 1e-5
        assert encoded.truncated[-1] and not encoded.truncated[-2]
        assert np.abs(encoder.encode(TEXTS[:1]) - encoded.vectors[:1]).max() < 5e-6  # float32, whatever stands beside it
    mean = load_encoder(str(folder), pooler="mean").encode(TEXTS)
    gaps = [np.abs(a - b).max() for a, b in ((vectors[10], vectors[16]), (vectors[16], mean))]
    assert min(gaps) > 1e-2
    shorter = load_encoder(str(folder), pooler="mean_padded:16", max_length=10)
    cut = np.abs(shorter.encode(TEXTS) - vectors[16]).max(axis=1)
    assert shorter.spec.max_length == 10 and cut[-1] > 1e-2 and cut[-2] < 5e-6


def test_exported_for_two_readers(tmp_path):
    folder = tiny_models.build(tmp_path / "model", "roberta")
    trained = Inference(AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), "mean_padded:16")
    export_model(trained, tmp_path / "out")
    vectors = expected(folder, 16)
    assert np.abs(load_encoder(str(tmp_path / "out")).encode(TEXTS) - vectors).max() < 1e-5
    library = SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    assert np.abs(library.encode(TEXTS) - vectors).max() < 1e-5
    library.save_pretrained(str(tmp_path / "again"))
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu", trust_remote_code=True)
    assert np.abs(again.encode(TEXTS) - vectors).max() < 1e-5 and again.get_embedding_dimension() == 32
    library[0].processing_kwargs = {}
    with pytest.raises(EncoderError, match="has to pad texts to 16 tokens"):
        library.encode(["a cat"])  # in a batch whose longest text fills the positions nothing is amiss
    with pytest.raises(StsbenchError, match="take mean_padded:10"):
        export_model(trained, tmp_path / "other", max_length=10)
    assert json.loads((tmp_path / "out" / "stsbench.json").read_text())["format"] == 1


def test_the_name_holds_a_length_without_leading_zeros():
    assert [padded_length(name) for name in ("mean_padded:50", "mean_padded:050", "mean", None)] == [50, None, None, None]
    assert check_pooler("mean_padded:7", "x") == BackboneSettings(model="x", pooler="mean_padded:7").pooler
    with pytest.raises(ValueError, match="mean_padded:N"):
        BackboneSettings(model="x", pooler="mean_padded")
