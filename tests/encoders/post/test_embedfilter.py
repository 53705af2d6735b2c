"""EmbedFilter against numpy's SVD and plain loops on tiny random language models, and by what its equations say."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from clirun import cli, fails, place  # noqa: F401
from post_sources import cosines
from safetensors.torch import load_file, save_file
from tiny_models import build, sentences, tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    OPTConfig,
    OPTForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from written_once import written_once

from stsbench.encoders.base import EncoderOptions, TokenTable
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain, read_post
from stsbench.encoders.post.embedfilter import EmbedFilter, singular
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.run_file import load_records
from stsbench.training.export.fitted import fit_model

TEXTS = sentences(12, seed=3)
X = np.random.default_rng(4).normal(size=(20, 12)) + 3
W = np.random.default_rng(5).normal(size=(70, 12)) * np.geomspace(9, 0.4, 12)
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
         "initializer_range": 0.3}
KINDS = {
    "llama": (LlamaConfig, LlamaForCausalLM, SMALL, "lm_head.weight"),
    "opt": (OPTConfig, OPTForCausalLM,
            {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24, "init_std": 0.3,
             "word_embed_proj_dim": 16, "max_position_embeddings": 64}, "lm_head.weight"),
    "bert": (BertConfig, BertForMaskedLM, SMALL, "cls.predictions.decoder.weight"),
    "modernbert": (ModernBertConfig, ModernBertForMaskedLM, {**SMALL, "global_attn_every_n_layers": 1}, "decoder.weight"),
}


@written_once
def language_model(folder, kind, tied):
    """A tiny random language model and its tokenizer."""
    torch.manual_seed(11)
    tok = tokenizer("bert")
    config, model, sizes, _ = KINDS[kind]
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    model(config(vocab_size=len(tok), tie_word_embeddings=tied, **sizes, **special)).save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def made(values=W, **settings):
    return EmbedFilter(settings).fit_table(TokenTable("lm_head.weight", np.asarray(values, np.float32)))


def by_hand(table, x, kept, projection=False):
    """Each number of each vector as a plain sum over numpy's right singular vectors."""
    rows = np.linalg.svd(np.asarray(table, np.float32).astype(np.float64), full_matrices=False)[2]
    out = np.zeros((len(x), x.shape[1] if projection else len(kept)))
    for i, vector in enumerate(x):
        for j, k in enumerate(kept):
            dot = sum(a * b for a, b in zip(vector, rows[k], strict=True))
            if projection:
                out[i] += dot * rows[k]
            else:
                out[i, j] = dot
    return out


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_of_a_model_folder_it_is_the_loop_over_its_own_output_embedding(tmp_path, kind, tied):
    folder = language_model(tmp_path / "m", kind, tied)
    stored = load_file(folder / "model.safetensors")
    name = KINDS[kind][3]
    key = name if name in stored else next(key for key in stored if re.search(r"embed_tokens|word_emb|tok_emb", key))
    assert (name in stored) is not tied or kind == "bert"  # a tied table is stored once
    base = load_encoder(str(folder), pooler="mean")
    encoder = PostProcessed(base, Chain.parse("embedfilter:tau=4,form=projection")).fit_weights()
    want = by_hand(stored[key].numpy(), base.encode(TEXTS).astype(np.float64), range(6, 10), projection=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), want, atol=1e-6)
    assert encoder.spec.fitted_on.startswith(f"{name}@") and not encoder.fitted_per_set
    assert any("is the input embedding" in line for line in encoder.notes) == tied


def kept_by(**settings):
    return EmbedFilter(settings).kept(12)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, range(3, 9)), ({"tau": 1}, range(12)), ({"tau": 5}, range(5, 7)), ({"start": 1}, range(1, 7)),
        ({"drop": "tail"}, range(6)), ({"drop": "head"}, range(6, 12)), ({"drop": "mid"}, [0, 1, 2, 9, 10, 11]),
        ({"drop": "mid", "tau": 4}, [0, 11]), ({"directions": (7, 2)}, [2, 7]),  # an odd n, as released
    ],
)
@pytest.mark.parametrize("form", ["coordinates", "projection"])
def test_which_directions_are_kept(settings, kept, form):
    step, kept = made(form=form, **settings), list(kept)
    assert step.kept(12) == kept and step.dimension(12) == (len(kept) if form == "coordinates" else 12)
    want, z = by_hand(W, X, kept, form == "projection"), step.transform(X)
    if form == "coordinates":  # a direction has no sign
        want *= np.sign((want * z).sum(axis=0))
    np.testing.assert_allclose(z, want, atol=1e-10)
    again = EmbedFilter.from_state(step.settings(), step.state())
    assert again.digest() == step.digest() and (again.transform(X) == z).all()


def test_random_directions_follow_the_seed():
    one, same, other = (kept_by(drop="random", seed=seed) for seed in (1, 1, 2))
    assert one == same != other and len(set(one)) == 6 and one == sorted(one)


def test_coordinates_and_projection_have_the_same_dot_products_and_tau_one_changes_no_cosine():
    a, b = made().transform(X), made(form="projection").transform(X)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-10)
    np.testing.assert_allclose(cosines(made(tau=1).transform(X)), cosines(X), atol=1e-12)
    unit = made(normalise_after=True).transform(X)
    np.testing.assert_allclose(unit @ unit.T, cosines(a), atol=1e-12)
    turned = EmbedFilter().restore({"kernel": -made().kernel})
    np.testing.assert_allclose(cosines(turned.transform(X)), cosines(a), atol=1e-12)


def test_before_or_after_the_mean_over_tokens_is_the_same_and_before_or_after_length_one_is_not():
    tokens, step = X.reshape(4, 5, 12), made()
    each = np.stack([step.transform(text).mean(axis=0) for text in tokens])
    np.testing.assert_allclose(step.transform(tokens.mean(axis=1)), each, atol=1e-12)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert abs(made(normalise_after=True).transform(X) - step.transform(unit)).max() > 0.01


def test_directions_rounded_as_released():
    for name, bits in (("bfloat16", 8), ("float16", 11)):
        plain, rounded = made().kernel, made(rounded=name).kernel
        assert (torch.from_numpy(rounded).to(getattr(torch, name)).double().numpy() == rounded).all()
        assert 0 < abs(rounded - plain).max() <= abs(plain).max() * 2.0**-bits


def test_singular_values_are_numpys():
    values, vectors = singular(W)
    np.testing.assert_allclose(values, np.linalg.svd(W)[1], rtol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(12), atol=1e-12)
    assert (abs(vectors).max(axis=0) == vectors.max(axis=0)).all()


def test_equal_singular_values_at_a_cut_are_told():
    u = np.linalg.qr(np.random.default_rng(0).normal(size=(30, 4)))[0]
    v = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    assert not made(u * [5, 3, 3, 1] @ v).notes  # both of the equal ones are kept
    doubts = made(u * [5, 3, 3, 1] @ v, drop="tail").notes
    assert doubts == ("embedfilter: the singular values 1 and 2 of lm_head.weight are equal, and only one is kept: the "
                      "choice between their directions is arbitrary",)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tau": 13}, "tau=13 keeps nothing of vectors of width 12"),
        ({"start": 7}, "start=7 goes with drop=edge, and 6 of 12"),
        ({"start": 1, "drop": "tail"}, "start=1 goes with drop=edge"), ({"directions": (3, 12)}, "numbers from 0 to 11"),
        ({"directions": (3, 3)}, "different numbers"), ({"directions": ()}, "at least one"),
    ],
)
def test_settings_that_keep_nothing_are_one_line(settings, reason):
    with pytest.raises(StsbenchError, match=reason) as error:
        made(**settings)
    assert "\n" not in str(error.value)


def test_tables_that_determine_no_filter_are_one_line(tmp_path):
    with pytest.raises(StsbenchError, match="has 8 rows, fewer than the 12 directions"):
        made(W[:8])
    with pytest.raises(StsbenchError, match="holds NaN or infinity"):
        made(np.where(np.max(W) == W, np.nan, W))
    with pytest.raises(StsbenchError, match="made for vectors of width 12, not 5"):
        made().transform(X[:, :5])
    with pytest.raises(StsbenchError, match=r"standardise\+embedfilter: embedfilter is made for the model's own vectors"):
        Chain.parse("standardise+embedfilter")
    wide = SimpleNamespace(dimension=12, spec=SimpleNamespace(name="x"), token_table=lambda _: TokenTable("a", X[:, :5]))
    with pytest.raises(StsbenchError, match="a of x has width 5, and its vectors have 12 numbers"):
        Chain.parse("embedfilter").made_from(wide)


def refused(folder, post="embedfilter"):
    base = load_encoder(str(folder), pooler="mean")
    with pytest.raises(StsbenchError) as error:
        PostProcessed(base, Chain.parse(post)).fit_weights()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_missing_output_embedding_is_refused_by_file_and_never_made_up(tmp_path):
    whole = language_model(tmp_path / "whole", "llama", False)
    folder = tmp_path / "no-head"
    LlamaModel.from_pretrained(whole).save_pretrained(folder)
    tokenizer("bert").save_pretrained(folder)
    assert refused(folder).startswith(f"{folder / 'model.safetensors'} holds no lm_head.weight, and config.json")
    base = load_encoder(str(folder), pooler="mean")
    input_table = PostProcessed(base, Chain.parse("embedfilter:table=input")).fit_weights()
    embeddings = load_file(folder / "model.safetensors")["embed_tokens.weight"].numpy()
    want = by_hand(embeddings, base.encode(TEXTS).astype(np.float64), range(4, 12))
    got = input_table.encode(TEXTS)
    np.testing.assert_allclose(got, want * np.sign((want * got).sum(axis=0)), atol=1e-6)
    tied = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(tied))
    encoder = PostProcessed(load_encoder(str(folder), pooler="mean"), Chain.parse("embedfilter")).fit_weights()
    np.testing.assert_array_equal(encoder.encode(TEXTS), got)


def test_two_stored_tables_that_differ_are_two_whatever_the_config_says(tmp_path):
    folder = language_model(tmp_path / "m", "llama", False)
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    table = load_encoder(str(folder), pooler="mean").token_table("output")
    assert (table.values == load_file(folder / "model.safetensors")["lm_head.weight"].numpy()).all() and not table.notes


def test_models_without_such_a_table_are_refused(tmp_path):
    T5ForConditionalGeneration(T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2)
                               ).save_pretrained(tmp_path / "t5")
    tokenizer("bert").save_pretrained(tmp_path / "t5")
    assert "is an encoder-decoder: its output embedding decodes the decoder's states" in refused(tmp_path / "t5")
    with pytest.raises(StsbenchError, match="gives no output embedding: only a transformer"):
        PostProcessed(load_encoder("python:math:sqrt"), Chain.parse("embedfilter")).fit_weights()
    build(tmp_path / "adapted")
    (tmp_path / "adapted" / "adapter_config.json").write_text("{}")
    from stsbench.encoders.forward.checkpoint import load_token_table

    with pytest.raises(StsbenchError, match="has a PEFT adapter: merge it"):
        load_token_table(tmp_path / "adapted", "adapted", "output")
    one = language_model(tmp_path / "m", "llama", False)
    pair = (LlamaModel.from_pretrained(one), tokenizer("bert"))
    with pytest.raises(StsbenchError, match="was given in memory: its output embedding is read from a folder"):
        load_encoder(pair, pooler="mean").token_table("output")


def test_settings_and_table_are_in_the_fingerprint(tmp_path):
    base = load_encoder(str(language_model(tmp_path / "m", "llama", False)), pooler="mean")
    posts = ["embedfilter", "embedfilter:tau=4", "embedfilter:table=input", "embedfilter:form=projection",
             "embedfilter:rounded=float16", "embedfilter:drop=random", "embedfilter:drop=random,seed=1"]
    specs = [PostProcessed(base, Chain.parse(post)).fit_weights().spec for post in [*posts, posts[0]]]
    assert len({spec.fingerprint() for spec in specs}) == len(posts) and specs[0] == specs[-1]
    vectors, stored = base.encode(TEXTS), load_file(tmp_path / "m" / "model.safetensors")
    save_file(stored | {"lm_head.weight": stored["lm_head.weight"] + 0.01}, tmp_path / "m" / "model.safetensors",
              {"format": "pt"})
    other = load_encoder(str(tmp_path / "m"), pooler="mean")
    changed = PostProcessed(other, Chain.parse("embedfilter")).fit_weights()
    assert (other.encode(TEXTS) == vectors).all() and changed.spec.fitted_on != specs[0].fitted_on


def test_with_steps_that_are_fitted_on_texts_it_is_made_once(tmp_path):
    base = load_encoder(str(language_model(tmp_path / "m", "llama", False)), pooler="mean")
    calls, table = [], base.token_table
    base.token_table = lambda which: calls.append(which) or table(which)
    wrapped = PostProcessed(base, Chain.parse("embedfilter+whitening:dimensions=3"))
    assert wrapped.fitted_per_set and wrapped.dimension == 3
    one, two = (wrapped.fit(TEXTS[start:], f"{start}@1") for start in (0, 2))
    assert calls == ["output"] and one.spec.fitted_on == "0@1" and two.spec.fitted_on == "2@1"
    filtered = PostProcessed(base, Chain.parse("embedfilter")).fit_weights().encode(TEXTS[2:]).astype(np.float64)
    np.testing.assert_allclose(two.chain.steps[1].mean, filtered.mean(axis=0), atol=1e-6)
    with pytest.raises(StsbenchError, match="is fitted on texts"):
        wrapped.fit_weights()


def test_written_as_a_folder_sentence_transformers_gives_the_same_vectors(tmp_path, monkeypatch):
    from sentence_transformers import SentenceTransformer

    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    folder = language_model(tmp_path / "m", "llama", False)
    options = EncoderOptions(pooler="mean")
    base = load_encoder(str(folder), pooler="mean")
    for post, module in (("embedfilter", "Dense"), ("embedfilter:normalise_after=true", "PostProcessing")):
        out = tmp_path / module
        fit_model(str(folder), options, post, None, out, log=lambda line: None)
        vectors = load_encoder(str(out)).encode(TEXTS)
        direct = PostProcessed(base, Chain.parse(post)).fit_weights()
        np.testing.assert_array_equal(vectors, direct.encode(TEXTS))
        assert read_post(out)[1] == direct.spec.fitted_on
        library = SentenceTransformer(str(out), device="cpu", trust_remote_code=True)
        assert type(library[-1]).__name__ == module
        np.testing.assert_allclose(library.encode(TEXTS), vectors, atol=1e-5)
        assert "| fitted on | lm_head.weight&#64;" in (out / "README.md").read_text()
    with pytest.raises(StsbenchError, match="leave --data out"):
        fit_model(str(folder), options, "embedfilter", TEXTS, tmp_path / "x", log=print)
    with pytest.raises(StsbenchError, match="whitening is fitted on texts: give --data"):
        fit_model(str(folder), options, "whitening", None, tmp_path / "x", log=print)


def test_through_the_command_line(tmp_path, cli):
    folder = language_model(tmp_path / "m", "llama", True)
    how = ("--model", folder, "--pooler", "mean", "--sample", "--tasks", "STS-B", "--resamples", "0", "--no-cache")
    code, out, err = cli("eval", *how, "--post", "embedfilter:tau=4", "--output", tmp_path / "run")
    assert code == 0 and "lm_head.weight is the input embedding, to which config.json ties it" in out + err
    result = evaluate(str(folder), pooler="mean", sample=True, tasks="STS-B", resamples=0, post="embedfilter:tau=4",
                      no_cache=True)
    [record] = result.records
    assert record.encoder.spec["fitted_on"].startswith("lm_head.weight@") and "transductive" not in out + err
    assert [each.encoder.fingerprint for _, each in load_records(tmp_path / "run")] == [record.encoder.fingerprint]
    fails(cli("eval", *how, "--post", "embedfilter", "--fit-on", "target", "--output", tmp_path / "x"),
          "the model's own weights determine embedfilter: leave --fit-on out")
    fails(cli("eval", *how, "--post", "embedfilter+whitening", "--output", tmp_path / "x"), "needs --fit-on")
