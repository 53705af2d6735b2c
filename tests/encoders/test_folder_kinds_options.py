"""Options beside a folder mean what the same arguments of sentence-transformers' encode mean, whoever runs the folder."""

from __future__ import annotations

import numpy as np
import pytest
from model_folders import PROMPT, TEXTS, declare, dense, normalize, pooling, tokenizer, transformer
from published_vectors import library, published

from stsbench import load_encoder
from stsbench.errors import EncoderError

CLOSE = 1e-5
PROMPTS = {"prompts": {"query": "red : ", "document": "blue fish : ", "sts": PROMPT}}


@pytest.fixture(scope="module", autouse=True)
def one_thread_and_a_cache_of_its_own(tmp_path_factory):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(threads)


MODULES = {"native": (), "library": (dense,)}  # what follows the pooling, but for Normalize
STORED = {
    "plain": {},
    "default prompt": {**PROMPTS, "default_prompt_name": "sts"},
    "prompts": PROMPTS,
    "truncated": {"truncate_dim": 7},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """(runner, stored settings, normalised, include_prompt) -> a folder, built once."""
    root, made = tmp_path_factory.mktemp("options"), {}

    def get(runner="native", stored="plain", unit=False, include_prompt=True):
        key = runner, stored, unit, include_prompt
        if key not in made:
            made[key] = root / f"f{len(made)}"
            modules = [make() for make in (*MODULES[runner], *([normalize] if unit else []))]
            mode = pooling("mean", **({} if include_prompt else {"include_prompt": False}))
            declare(transformer(made[key]), mode, *modules, settings=STORED[stored])
        return made[key]

    return get


def ours(place, **options):
    return load_encoder(str(place), device="cpu", offline=True, **options)


def equal(place, ours_get, texts=TEXTS, **encode):
    encoder = ours(place, **ours_get)
    want = published(place, texts, **encode)
    np.testing.assert_allclose(encoder.encode(texts), want, atol=CLOSE)
    return encoder


CASES = {
    "normalize": ("plain", {"normalize": True}, {"normalize_embeddings": True}),
    "no normalize": ("plain", {"normalize": False}, {}),
    "truncate_dim": ("plain", {"truncate_dim": 5}, {"truncate_dim": 5}),
    "truncate_dim over a stored one": ("truncated", {"truncate_dim": 9}, {"truncate_dim": 9}),
    "truncate_dim beyond the width": ("plain", {"truncate_dim": 10_000}, {"truncate_dim": 10_000}),
    "cut, then normalised": ("plain", {"truncate_dim": 5, "normalize": True}, {"truncate_dim": 5, "normalize_embeddings": True}),
    "stored cut, then normalised": ("truncated", {"normalize": True}, {"normalize_embeddings": True}),
    "prompt": ("plain", {"prompt": "red : "}, {"prompt": "red : "}),
    "prompt over the default": ("default prompt", {"prompt": "red : "}, {"prompt": "red : "}),
    "an empty prompt": ("default prompt", {"prompt": ""}, {"prompt": ""}),
    "prompt_name": ("prompts", {"prompt_name": "document"}, {"prompt_name": "document"}),
    "prompt_name over the default": ("default prompt", {"prompt_name": "query"}, {"prompt_name": "query"}),
}  # fmt: skip


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("runner", MODULES)
@pytest.mark.parametrize("case", CASES)
def test_an_option_is_the_argument_of_encode(folder, case, runner, unit):
    stored, options, encode = CASES[case]
    if case == "no normalize" and unit:
        pytest.skip("the library has no argument that takes a module out: see below")
    place = folder(runner, stored, unit)
    if case == "truncate_dim beyond the width":  # nothing to cut: the same, or refused by the option's name
        try:
            equal(place, options, **encode)
        except EncoderError as error:
            assert "truncate-dim" in str(error) or "truncate_dim" in str(error)
        return
    changed, plain = equal(place, options, **encode), ours(place)
    if changed.spec.fingerprint() == plain.spec.fingerprint():
        np.testing.assert_array_equal(changed.encode(TEXTS), plain.encode(TEXTS))


@pytest.mark.parametrize("runner", MODULES)
def test_stored_normalisation_can_be_switched_off(folder, runner):
    encoder = ours(folder(runner, "plain", True), normalize=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), published(folder(runner, "plain", False), TEXTS), atol=CLOSE)
    assert encoder.spec.fingerprint() != ours(folder(runner, "plain", True)).spec.fingerprint()


def test_a_normalisation_inside_is_no_stored_normalisation(tmp_path):
    """Without it the Dense behind it would read other numbers: either left alone, or refused by the option's name."""
    place = declare(transformer(tmp_path / "f"), pooling("mean"), normalize(), dense())
    try:
        equal(place, {"normalize": False})
    except EncoderError as error:
        assert "normalize" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("runner", MODULES)
@pytest.mark.parametrize("options", [
    {"prompt": "red : "}, {"prompt_name": "document"}, {"prompt": ""}, {},
], ids=str)  # fmt: skip
def test_the_tokens_of_an_asked_prompt_are_left_out_where_the_folder_says_so(folder, runner, options):
    place = folder(runner, "default prompt", False, False)
    equal(place, options, **options)


@pytest.mark.parametrize("runner", MODULES)
@pytest.mark.parametrize("tokens", [5, 12, 40])
def test_max_length_is_max_seq_length(folder, runner, tokens):
    place = folder(runner)
    encoder = ours(place, max_length=tokens)
    model = library(place)
    before, model.max_seq_length = model.max_seq_length, tokens
    try:
        np.testing.assert_allclose(encoder.encode(TEXTS), model.encode(TEXTS), atol=CLOSE)
        counts = np.array([len(model.tokenizer(text, truncation=False)["input_ids"]) for text in TEXTS])
    finally:
        model.max_seq_length = before
    assert encoder.run(TEXTS).truncated.tolist() == (counts > tokens).tolist()
    assert encoder.spec.max_length == tokens


@pytest.mark.parametrize("runner", MODULES)
def test_the_stored_limit_can_be_raised_to_the_positions_and_no_further(tmp_path, runner):
    place = declare(transformer(tmp_path / "f"), pooling("mean"), *(make() for make in MODULES[runner]), limit=8)
    assert ours(place).spec.max_length == 8
    assert ours(place, max_length=70).spec.max_length == 70
    with pytest.raises(EncoderError, match="max-length 73"):
        ours(place, max_length=73).encode(TEXTS)


@pytest.mark.parametrize("runner", MODULES)
@pytest.mark.parametrize(("options", "names"), [
    ({"prompt_name": "unknown"}, ("unknown", "query", "document", "sts")),
    ({"truncate_dim": 0}, ("truncate-dim",)), ({"truncate_dim": -3}, ("truncate-dim",)),
], ids=str)  # fmt: skip
def test_options_that_mean_nothing_are_refused(folder, runner, options, names):
    with pytest.raises(EncoderError) as caught:
        ours(folder(runner, "default prompt"), **options).encode(TEXTS)
    assert "\n" not in str(caught.value) and all(name in str(caught.value) for name in names)
    assert "failed (" not in str(caught.value)


def test_prompt_name_of_a_folder_without_prompts(folder):
    with pytest.raises(EncoderError, match="sts"):
        ours(folder(), prompt_name="sts").encode(TEXTS)


# Poolers by name ------------------------------------------------------------------------------------------------------

NAMES = {"last": "lasttoken", "weighted_mean": "weightedmean"}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["qwen3", "roberta", "t5", "bert"])
@pytest.mark.parametrize("pooler", NAMES)
def test_new_poolers_are_the_librarys(tmp_path, pooler, family, side):
    texts = TEXTS
    place = transformer(tmp_path / "f", family, tok=tokenizer(family, padding_side=side))
    encoder = ours(place, pooler=pooler, max_length=50)
    declare(place, pooling(NAMES[pooler]), limit=50)
    # a BERT's positions count the padding on the left: text by text
    want = published(place, texts, alone=family == "bert" and side == "left")
    np.testing.assert_allclose(encoder.encode(texts), want, atol=CLOSE)
    assert not (family == "bert" and side == "right") or encoder.built.packed
