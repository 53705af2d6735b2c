"""EmbedFilter against numpy's SVD and plain loops on tiny random language models, and by what its equations say."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from clirun import place  # noqa: F401
from post_sources import cosines
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tiny_models import sentences, tokenizer
from written_once import written_once

import stsbench
from stsbench import load_encoder
from stsbench.encoders.base import TokenTable
from stsbench.encoders.post.chain import Chain, read_post
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.errors import StsbenchError
from stsbench.extensions.embedfilter.embedfilter import EmbedFilter, singular

TEXTS = sentences(12, seed=3)
X = np.random.default_rng(4).normal(size=(20, 12)) + 3
W = np.random.default_rng(5).normal(size=(70, 12)) * np.geomspace(9, 0.4, 12)
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
         "initializer_range": 0.3}
KINDS = {
    "llama": (hf.LlamaConfig, hf.LlamaForCausalLM, SMALL, "lm_head.weight"),
    "opt": (hf.OPTConfig, hf.OPTForCausalLM,
            {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24, "init_std": 0.3,
             "word_embed_proj_dim": 16, "max_position_embeddings": 64}, "lm_head.weight"),
    "modernbert": (hf.ModernBertConfig, hf.ModernBertForMaskedLM, {**SMALL, "global_attn_every_n_layers": 1},
                   "decoder.weight")}


@written_once
def language_model(folder, kind="llama", tied=False):
    torch.manual_seed(11)
    tok = tokenizer("bert")
    config, model, sizes, _ = KINDS[kind]
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    model(config(vocab_size=len(tok), tie_word_embeddings=tied, **sizes, **special)).save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def tie(folder):
    """Its config says that output and input embedding are one table."""
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))


def encoder_of(folder, post=None):
    base = load_encoder(str(folder), pooler="mean")
    return base if post is None else PostProcessed(base, Chain.parse(post)).fit_weights()


def filter_of(values=W, **settings):
    return EmbedFilter(settings).fit_table(TokenTable("lm_head.weight", np.asarray(values, np.float32)))


def by_hand(table, x, kept, projection=False):
    """By numpy's right singular vectors: x V, or x V V' for a projection."""
    rows = np.linalg.svd(np.asarray(table, np.float32).astype(np.float64), full_matrices=False)[2][list(kept)]
    return x @ rows.T @ rows if projection else x @ rows.T


def up_to_signs(expected, vectors):
    """A direction has no sign."""
    return expected * np.sign((expected * vectors).sum(axis=0))


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("opt", False), ("modernbert", False)])
def test_of_a_model_folder_it_is_the_loop_over_its_own_output_embedding(tmp_path, kind, tied):
    folder = language_model(tmp_path / "m", kind, tied)
    stored = load_file(folder / "model.safetensors")
    name = KINDS[kind][3]
    key = name if name in stored else next(key for key in stored if "embed_tokens" in key)
    assert (name in stored) is not tied  # a tied table is stored once
    encoder = encoder_of(folder, "embedfilter:tau=4,form=projection")
    vectors = encoder_of(folder).encode(TEXTS).astype(np.float64)
    expected = by_hand(stored[key].numpy(), vectors, range(6, 10), projection=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
    assert encoder.spec.fitted_on.startswith(f"{name}@") and not encoder.fitted_per_set
    assert any("is the input embedding" in line for line in encoder.notes) == tied


@pytest.mark.parametrize(("settings", "kept"), [
    ({}, range(3, 9)), ({"tau": 1}, range(12)), ({"tau": 5}, range(5, 7)), ({"start": 1}, range(1, 7)),
    ({"drop": "tail"}, range(6)), ({"drop": "head"}, range(6, 12)), ({"drop": "mid"}, [0, 1, 2, 9, 10, 11]),
    ({"drop": "mid", "tau": 4}, [0, 11]), ({"directions": (7, 2)}, [2, 7]),  # an odd n, as released
])
def test_which_directions_are_kept(settings, kept):
    kept = list(kept)
    for form, width in (("coordinates", len(kept)), ("projection", 12)):
        step = filter_of(form=form, **settings)
        assert step.kept(12) == kept and step.dimension(12) == width
        expected, vectors = by_hand(W, X, kept, form == "projection"), step.transform(X)
        np.testing.assert_allclose(vectors, up_to_signs(expected, vectors) if form == "coordinates" else expected,
                                   atol=1e-10)
        unit = filter_of(form=form, normalise_after=True, **settings).transform(X)
        np.testing.assert_allclose(unit @ unit.T, cosines(vectors), atol=1e-12)


def test_random_directions_follow_the_seed_and_are_rounded_as_released():
    first, same, second = (EmbedFilter({"drop": "random", "seed": seed}).kept(12) for seed in (1, 1, 2))
    assert first == same != second and len(set(first)) == 6 and first == sorted(first)
    for name, bits in (("bfloat16", 8), ("float16", 11)):
        plain, rounded = filter_of().kernel, filter_of(rounded=name).kernel
        assert (torch.from_numpy(rounded).to(getattr(torch, name)).double().numpy() == rounded).all()
        assert 0 < abs(rounded - plain).max() <= abs(plain).max() * 2.0**-bits


def test_singular_values_are_numpys_and_equal_ones_at_a_cut_are_told():
    values, vectors = singular(W)
    np.testing.assert_allclose(values, np.linalg.svd(W)[1], rtol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(12), atol=1e-12)
    assert (abs(vectors).max(axis=0) == vectors.max(axis=0)).all()
    u = np.linalg.qr(np.random.default_rng(0).normal(size=(30, 4)))[0]
    v = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    assert not filter_of(u * [5, 3, 3, 1] @ v).notes  # both of the equal ones are kept
    [note] = filter_of(u * [5, 3, 3, 1] @ v, drop="tail").notes
    assert note.startswith("embedfilter: the singular values 1 and 2 of lm_head.weight are equal, and only one is kept")


def test_a_missing_output_embedding_is_refused_and_never_made_up(tmp_path):
    hf.LlamaModel.from_pretrained(language_model(tmp_path / "whole")).save_pretrained(folder := tmp_path / "no-head")
    tokenizer("bert").save_pretrained(folder)
    with pytest.raises(StsbenchError):
        encoder_of(folder, "embedfilter")
    vectors = encoder_of(folder, "embedfilter:table=input").encode(TEXTS)
    embeddings = load_file(folder / "model.safetensors")["embed_tokens.weight"].numpy()
    expected = by_hand(embeddings, encoder_of(folder).encode(TEXTS).astype(np.float64), range(4, 12))
    np.testing.assert_allclose(vectors, up_to_signs(expected, vectors), atol=1e-6)
    tie(folder)
    np.testing.assert_array_equal(encoder_of(folder, "embedfilter").encode(TEXTS), vectors)


def test_the_table_is_in_the_fingerprint(tmp_path):
    folder = language_model(tmp_path / "m")
    with pytest.raises(StsbenchError):  # of a model in memory there is none to read
        load_encoder((hf.LlamaModel.from_pretrained(folder), tokenizer("bert")), pooler="mean").token_table("output")
    first, again, of_input = (encoder_of(folder, post).spec for post in ("embedfilter", "embedfilter",
                                                                        "embedfilter:table=input"))
    assert first == again and first.fingerprint() != of_input.fingerprint()
    vectors, stored = encoder_of(folder).encode(TEXTS), load_file(folder / "model.safetensors")
    save_file(stored | {"lm_head.weight": stored["lm_head.weight"] + 0.01}, folder / "model.safetensors", {"format": "pt"})
    assert (encoder_of(folder).encode(TEXTS) == vectors).all()
    assert encoder_of(folder, "embedfilter").spec.fitted_on != first.fitted_on
    tie(folder)  # two stored tables that differ are two whatever the config says
    table = encoder_of(folder).token_table("output")
    assert (table.values == load_file(folder / "model.safetensors")["lm_head.weight"].numpy()).all() and not table.notes


def test_with_steps_that_are_fitted_on_texts_it_is_made_once(tmp_path):
    base = encoder_of(folder := language_model(tmp_path / "m"))
    calls, table = [], base.token_table
    base.token_table = lambda which: calls.append(which) or table(which)
    wrapped = PostProcessed(base, Chain.parse("embedfilter+whitening:dimensions=3"))
    assert wrapped.fitted_per_set and wrapped.dimension == 3
    first, second = (wrapped.fit(TEXTS[start:], f"{start}@1") for start in (0, 2))
    assert calls == ["output"] and first.spec.fitted_on == "0@1" and second.spec.fitted_on == "2@1"
    filtered = encoder_of(folder, "embedfilter").encode(TEXTS[2:]).astype(np.float64)
    np.testing.assert_allclose(second.chain.steps[1].mean, filtered.mean(axis=0), atol=1e-6)
    with pytest.raises(StsbenchError):
        wrapped.fit_weights()


def test_written_as_a_folder_sentence_transformers_gives_the_same_vectors(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    folder = language_model(tmp_path / "m")
    for post, module in (("embedfilter", "Dense"), ("embedfilter:normalise_after=true", "PostProcessing")):
        out = tmp_path / module
        stsbench.fit(post, folder, None, out, pooler="mean")
        vectors, direct = load_encoder(str(out)).encode(TEXTS), encoder_of(folder, post)
        np.testing.assert_array_equal(vectors, direct.encode(TEXTS))
        assert read_post(out)[1] == direct.spec.fitted_on
        library = SentenceTransformer(str(out), device="cpu", trust_remote_code=True)
        assert type(library[-1]).__name__ == module
        np.testing.assert_allclose(library.encode(TEXTS), vectors, atol=1e-5)
        assert "| fitted on | lm_head.weight&#64;" in (out / "README.md").read_text()


def test_it_is_its_settings_and_state_and_maps_rows_alone():
    made = filter_of()
    whole, (_, kernel) = made.transform(X), made.affine()
    np.testing.assert_allclose(made.transform(X[5:8]), whole[5:8], atol=1e-12)
    np.testing.assert_allclose(X @ kernel, whole, atol=1e-9)
    again = EmbedFilter(made.settings()).restore(made.state())
    np.testing.assert_array_equal(again.transform(X), whole)
    others = [filter_of(**one) for one in ({"tau": 4}, {"form": "projection"}, {"rounded": "float16"}, {"drop": "tail"})]
    assert again.digest() == made.digest() and len({post.digest() for post in (made, *others)}) == 5
