"""Presets that change a model's states, on other families than those of test_presets, and on layers on the disk: each text
has its own vector."""

import numpy as np
import pytest
import torch
import transformers
from families import FAMILIES
from tiny_decoders import SPREAD, TEXTS, Naive, decoder_folder, tokenizer
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast

from stsbench import load_encoder
from stsbench.encoders.forward.model import main_device
from stsbench.encoders.transformer import parts
from stsbench.errors import EncoderError
from stsbench.extensions.decoders.tokenise import trailing_tokens

CAUSAL = ["gemma3", "gpt2", "gpt_neox", "phi3"]  # each with an attention of its own
CHANGING = ["token-prepending:exit=2,layer=-2", "contrastive:at=1,layer=-1", "llm2vec"]


def pair(name):
    kind, settings = FAMILIES[name]
    words = tokenizer("bos")
    more = {"n_positions": 512} if name == "gpt2" else {"max_position_embeddings": 512}
    more |= {"sliding_window": 300} if "sliding_window" in settings else {}  # the placeholder is not out of sight
    torch.manual_seed(2)
    config = getattr(transformers, f"{kind}Config")(**{**settings, "vocab_size": len(words), "pad_token_id": 0, **more})
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model, words


@pytest.fixture(scope="module")
def pairs():
    return {name: pair(name) for name in CAUSAL}


@pytest.mark.parametrize(("family", "preset"), [
    (family, preset) for family in CAUSAL for preset in CHANGING if family in ("gemma3", "gpt2") or preset != "llm2vec"
])
def test_a_text_has_the_vector_that_it_has_alone(pairs, family, preset):
    encoder = load_encoder(pairs[family], preset=preset, device="cpu")
    vectors = encoder.encode(TEXTS)
    size = max(1, np.abs(vectors).max())
    assert np.abs(vectors - np.stack([encoder.encode(text) for text in TEXTS])).max() < 1e-5 * size
    # what the preset changes has an effect, by one pass as by the other
    padded = load_encoder(pairs[family], preset=preset, device="cpu", attention="padded").encode(TEXTS)
    assert np.abs(vectors - padded).max() < 1e-5 * size
    plain = {"llm2vec": "llm2vec:attention=causal"}.get(preset, f"prompteol:layer={preset.rpartition('=')[2]}")
    assert np.abs(vectors - load_encoder(pairs[family], preset=plain, device="cpu").encode(TEXTS)).max() > 1e-2


def test_a_model_without_attention_is_read_but_not_changed():
    mamba = pair("mamba")
    assert load_encoder(mamba, preset="prompteol", device="cpu").encode("Rain").shape == (32,)
    with pytest.raises(EncoderError, match="has no output projection, which the preset changes"):
        load_encoder(mamba, preset="contrastive:at=1,layer=-1", device="cpu").encode("Rain")
    with pytest.raises(EncoderError, match="cannot be switched to both directions"):
        load_encoder(mamba, preset="llm2vec", device="cpu").encode("Rain")


def test_the_last_state_of_a_model_that_projects_it_has_its_own_width(tmp_path):
    """OPT-350m: embeddings and last state of width 512, layers of 1,024."""
    folder = decoder_folder(tmp_path / "opt", "opt", "bos", word_embed_proj_dim=16, do_layer_norm_before=False)
    model = Naive(folder)
    for layer, width in ((-1, 16), (-2, 32), (0, 32)):
        encoder = load_encoder(str(folder), preset="token-prepending:exit=2", layer=layer, device="cpu")
        assert encoder.dimension == width and encoder.encode(TEXTS).shape == (len(TEXTS), width)
        want = model.states(model.ids(TEXTS[0]), layer)[-1].numpy()
        got = load_encoder(str(folder), pooler="last", layer=layer, device="cpu").encode(TEXTS[0])
        assert got.shape == (width,) and np.abs(got - want).max() < 1e-5


def test_half_precision_and_what_comes_behind_the_mean(tmp_path):
    folder = decoder_folder(tmp_path / "llama", "llama")
    for preset in ("metaeol", "token-prepending:exit=3,layer=-2", "contrastive:at=1,layer=-2,prompt=ck"):
        whole = load_encoder(str(folder), preset=preset, device="cpu").encode(TEXTS)
        done = []
        encoder = load_encoder(str(folder), preset=preset, device="cpu", dtype="bfloat16", batch_tokens=32)
        half = encoder.run(TEXTS, done.append).vectors
        assert sum(done) == len(TEXTS) and min(done) >= 0
        assert 0 < np.linalg.norm(half - whole) < 0.05 * np.linalg.norm(whole)
        cut = load_encoder(str(folder), preset=preset, device="cpu", normalize=True, truncate_dim=8).encode(TEXTS)
        want = whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True)
        assert np.abs(cut - want).max() < 1e-6


def test_special_tokens_behind_a_text_are_counted():
    """Also where the tokenizer does not know "a"."""
    assert [trailing_tokens(tokenizer(ends)) for ends in ("none", "bos", "eos", "both")] == [0, 0, 1, 1]
    backend = Tokenizer(models.BPE({"[CLS]": 0, "[SEP]": 1, "x": 2}, []))
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP] [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    assert trailing_tokens(PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]")) == 2


def test_layers_on_the_disk_give_the_same_vectors(tmp_path, monkeypatch):
    folder = decoder_folder(tmp_path / "llama", "llama")
    monkeypatch.setattr(parts, "DEVICE_MAP", SPREAD["llama"])
    for preset in ("token-prepending:exit=3,layer=-2", "contrastive:at=1,layer=-2", "llm2vec"):
        whole, spread = (
            load_encoder(str(folder), preset=preset, device=device, dtype="bfloat16") for device in ("cpu", "auto")
        )
        model = spread.built.model
        assert {str(weight.device) for weight in model.parameters()} == {"cpu", "meta"}  # meta: on the disk
        assert main_device(model) == torch.device("cpu") and spread.spec == whole.spec
        assert np.array_equal(spread.encode(TEXTS), whole.encode(TEXTS)), preset
