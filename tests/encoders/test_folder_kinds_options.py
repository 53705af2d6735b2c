"""Options beside a folder mean what the same arguments of sentence-transformers' encode mean, whoever runs the folder."""

import numpy as np
import pytest
from model_folder_settings import KINDS
from model_folders import PROMPT, TEXTS, declare, dense, normalize, pooling, transformer
from own_home import own_home  # noqa: F401 - a fixture
from published_vectors import library, published

from stsbench import load_encoder

CLOSE = 1e-5
PROMPTS = {"prompts": {"query": "red : ", "document": "blue fish : ", "sts": PROMPT}}


MODULES = {"native": (), "library": (dense,)}  # what follows the pooling, but for Normalize
STORED = {
    "plain": {},
    "default prompt": {**PROMPTS, "default_prompt_name": "sts"},
    "prompts": PROMPTS,
    "passage alone": {"prompts": {"passage": "blue fish : "}},
    "truncated": {"truncate_dim": 7},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """(runner, stored settings, normalised, include_prompt) -> a folder, built once."""
    root, folders = tmp_path_factory.mktemp("options"), {}

    def get(runner="native", stored="plain", unit=False, include_prompt=True):
        key = runner, stored, unit, include_prompt
        if key not in folders:
            folders[key] = root / f"f{len(folders)}"
            modules = [make() for make in (*MODULES[runner], *([normalize] if unit else []))]
            mode = pooling("mean", **({} if include_prompt else {"include_prompt": False}))
            declare(transformer(folders[key]), mode, *modules, settings=STORED[stored])
        return folders[key]

    return get


def ours(place, **options):
    return load_encoder(str(place), device="cpu", offline=True, **options)


def equal(place, ours_get, texts=TEXTS, **encode):
    encoder = ours(place, **ours_get)
    expected = published(place, texts, **encode)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=CLOSE)
    return encoder


CASES = {
    "normalize": ("plain", {"normalize": True}, {"normalize_embeddings": True}),
    "no normalize": ("plain", {"normalize": False}, {}),
    "truncate_dim": ("plain", {"truncate_dim": 5}, {"truncate_dim": 5}),
    "truncate_dim over a stored one": ("truncated", {"truncate_dim": 9}, {"truncate_dim": 9}),
    "cut, then normalised": (
        "plain", {"truncate_dim": 5, "normalize": True}, {"truncate_dim": 5, "normalize_embeddings": True}
    ),
    "stored cut, then normalised": ("truncated", {"normalize": True}, {"normalize_embeddings": True}),
    "prompt": ("plain", {"prompt": "red : "}, {"prompt": "red : "}),
    "prompt over the default": ("default prompt", {"prompt": "red : "}, {"prompt": "red : "}),
    "an empty prompt": ("default prompt", {"prompt": ""}, {"prompt": ""}),
    "prompt_name": ("prompts", {"prompt": "name:document"}, {"prompt_name": "document"}),
    "prompt_name over the default": ("default prompt", {"prompt": "name:query"}, {"prompt_name": "query"}),
}


@pytest.mark.parametrize("runner", MODULES)
@pytest.mark.parametrize(("case", "unit"), [
    # the library has no argument that takes a stored Normalize out: see below
    (case, unit) for case in CASES for unit in (False, True) if not unit or ("prompt" not in case and case != "no normalize")
])
def test_an_option_is_the_argument_of_encode(folder, case, runner, unit):
    stored, options, encode = CASES[case]
    place = folder(runner, stored, unit)
    changed, plain = equal(place, options, **encode), ours(place)
    if changed.spec.fingerprint() == plain.spec.fingerprint():
        np.testing.assert_allclose(changed.encode(TEXTS), plain.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize("runner", MODULES)
def test_stored_normalisation_can_be_switched_off(folder, runner):
    encoder = ours(folder(runner, "plain", True), normalize=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), published(folder(runner, "plain", False), TEXTS), atol=CLOSE)
    assert encoder.spec.fingerprint() != ours(folder(runner, "plain", True)).spec.fingerprint()


@pytest.mark.parametrize("runner", MODULES)
def test_the_tokens_of_an_asked_prompt_are_left_out_where_the_folder_says_so(folder, runner):
    place = folder(runner, "default prompt", False, False)
    equal(place, {"prompt": "name:document"}, prompt_name="document")
    for options in ({"prompt": "red : "}, {"prompt": ""}, {}):
        equal(place, options, **options)


@pytest.mark.parametrize("runner", MODULES)
@pytest.mark.parametrize("tokens", [5, 70])
def test_max_length_is_max_seq_length_up_to_the_positions(folder, runner, tokens):
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
    assert encoder.spec.fingerprint() != ours(place).spec.fingerprint()
    assert encoder.spec.max_length == tokens


@pytest.mark.parametrize("runner", MODULES)
@pytest.mark.parametrize("stored", ["plain", "prompts", "default prompt", "passage alone"])
def test_a_role_is_encode_query_or_encode_document(folder, runner, stored):
    place = folder(runner, stored)
    encoder = ours(place)
    for role in ("query", "document"):
        turned = encoder.for_role(role)
        expected = getattr(library(place), f"encode_{role}")(TEXTS, show_progress_bar=False)
        np.testing.assert_allclose(turned.encode(TEXTS), expected, atol=CLOSE)
        np.testing.assert_allclose(encoder.encode(TEXTS), published(place, TEXTS), atol=CLOSE)  # as before
        if turned.spec.fingerprint() == encoder.spec.fingerprint():
            np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=CLOSE)


def test_a_router_takes_the_way_of_the_role(tmp_path):
    KINDS["router of queries and documents"].build(place := tmp_path / "f")
    query, document = (ours(place).for_role(role) for role in ("query", "document"))
    np.testing.assert_allclose(query.encode(TEXTS), library(place).encode_query(TEXTS), atol=CLOSE)
    np.testing.assert_allclose(document.encode(TEXTS), library(place).encode_document(TEXTS), atol=CLOSE)
    assert query.spec.fingerprint() != document.spec.fingerprint()
