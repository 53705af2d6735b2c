"""Models that compute otherwise from some length on: the longest text of a batch must not decide for the others."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from model_folders import WORDS, declare, pooling, tokenizer

from stsbench import load_encoder
from stsbench.encoders.forward.batching import NO_LIMIT, restore, sharing_limit

LIMIT = 220  # tokens, more than the texts of the check at loading have: from 221 on each of these models computes otherwise
LENGTHS = (6, 150, 219, 223, 260)  # tokens, with [CLS] and [SEP]
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24, "pad_token_id": 0}
TURNS = {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]}
MODELS = {
    "block-sparse attention": ("BigBird", {"block_size": 20, "num_random_blocks": 3, "max_position_embeddings": 512}),
    "longrope": ("Llama", {"max_position_embeddings": 512, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": LIMIT, "factor": 4.0, **TURNS}})}


def text(length, rng):
    return " ".join(rng.choice([word for word in WORDS if word.isalpha()], length - 2))


TEXTS = [text(length, np.random.default_rng(length + row)) for row, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module", params=MODELS)
def folder(request, tmp_path_factory):
    kind, settings = MODELS[request.param]
    place, words = tmp_path_factory.mktemp("model"), tokenizer("bert", limit=512)
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(words), **SIZES, **settings)
    model = getattr(transformers, f"{kind}Model")(config)
    for weight in model.parameters():
        weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(place)
    words.save_pretrained(place)
    return place


def ours(folder, **options):
    return load_encoder(str(folder), device="cpu", max_length=512, **options)


def alone(folder, texts=TEXTS, **options):
    """float32 (n, d): each text by itself, in a model that has read nothing before."""
    return np.stack([ours(folder, **options).encode([one])[0] for one in texts])


def test_no_text_decides_for_another(folder):
    expected = alone(folder, pooler="mean")
    encoder = ours(folder, pooler="mean", batch_tokens=4096)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    assert not encoder.equal_lengths  # texts up to the limit still share batches
    for order in ([4, 3, 0], [0, 4, 0]):  # what was read before does not matter, either
        got = [encoder.run([TEXTS[row]]).vectors[0] for row in order]
        np.testing.assert_allclose(got, expected[order], atol=1e-5)


def test_nor_in_sentence_transformers(folder, tmp_path):
    from sentence_transformers.sentence_transformer.modules import LayerNorm  # which we do not run

    place = declare(shutil.copytree(folder, tmp_path / "library"), pooling("mean"), LayerNorm(16), limit=512)
    encoder = ours(place)
    assert encoder.spec.kind == "sentence-transformers"
    np.testing.assert_allclose(encoder.encode(TEXTS)[[0, -1]], alone(place, [TEXTS[0], TEXTS[-1]]), atol=1e-5)


def test_the_limit_is_where_the_model_changes(folder):
    """Padded to the limit nothing moves; by one token more, each of these models gives a short text other states."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    assert sharing_limit(model) == LIMIT
    ids = torch.arange(5, 5 + LIMIT + 1)[None] % len(WORDS)

    def states(width):
        restore(model)
        mask = (torch.arange(width) < LIMIT - 4)[None].long()
        with torch.inference_mode():
            return model(input_ids=ids[:, :width] * mask, attention_mask=mask).last_hidden_state[0, : LIMIT - 4]

    torch.testing.assert_close(states(LIMIT - 4), states(LIMIT), atol=1e-5, rtol=0)
    assert (states(LIMIT + 1) - states(LIMIT)).abs().max() > 1e-3


@pytest.mark.parametrize("settings", [
    {"rope_scaling": {"type": "longrope", **TURNS}, "original_max_position_embeddings": LIMIT},
    {"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": LIMIT}},
    {"rope_parameters": {"full_attention": {"rope_type": "longrope", "original_max_position_embeddings": LIMIT},
                         "sliding_attention": {"rope_type": "default"}}},
])
def test_a_model_s_own_code_may_turn_positions_itself(settings):
    """Only the configuration says so: no module is named as in transformers."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.text = torch.nn.Linear(2, 2)
    model.text.config = SimpleNamespace(**settings)
    assert sharing_limit(model) == LIMIT
    model.text.config.rope_scaling = model.text.config.rope_parameters = {"type": "longrope"}
    assert sharing_limit(model) == settings.get("original_max_position_embeddings", 0)  # not known: no sharing at all


def test_other_models_have_no_limit():
    config = transformers.BertConfig(vocab_size=50, **SIZES)
    assert sharing_limit(transformers.BertModel(config)) == NO_LIMIT
    full = transformers.BigBirdConfig(vocab_size=50, attention_type="original_full", **SIZES)
    assert sharing_limit(transformers.BigBirdModel(full)) == NO_LIMIT
