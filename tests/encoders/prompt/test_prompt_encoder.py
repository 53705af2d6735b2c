"""Prompted encoders at test: every field of Prompt against transformers run on one text at a time, and the full stop."""

import shutil
from copy import deepcopy
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from loaded import loaded
from prompt_models import ROBERTA, folder
from prompted import by_hand, close, random_prompt
from tiny_models import build

from stsbench.encoders.forward.batching import KeyValues
from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.load import load_encoder
from stsbench.encoders.prompt.prompt import Prompt, described, write_prompt
from stsbench.encoders.prompt.reading import described_reading, read_otherwise
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.encoders.transformer.exported import Exported, write_exported
from stsbench.evaluation.announce import described_encoder
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder

TEMPLATES = {"bert": 'the man of "{}" means [MASK] .', "bpe": ROBERTA}
TEXTS = ["the cat eats", "", "the [MASK] <mask> cat", "cat " * 12, "a man?"]
CASES = {
    "cut": {"text": "pieces", "pieces": 3, "denoise": True, "start": "zero"},
    "transform on each": {"denoise": True, "positions": "empty", "head": "transform", "each": True},
    "words": {"words": True, "denoise": True, "full_stop": True}, "shift": {"prefixes": 1, "shift": 2},
    "rightmost": {"words": True, "word_places": "rightmost", "denoise": True},
    "two, denoised": {"prefixes": 2, "denoise": True, "head": "dense", "start": "zero", "words": True},
    "adapters": {"denoise": True, "rank": 3},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: folder(tmp_path_factory.mktemp(family), family) for family in TEMPLATES}


def prompt_of(folders, family, **case):
    """With random tensors, which nothing trains."""
    prompt = random_prompt(load_tokenizer(folders[family], "tiny"), template=TEMPLATES[family], **case)
    for part in prompt.modules():
        part.requires_grad_(False)
    return prompt


def stored(path, prompt, place):
    """A folder of the model with the prompt, as an export writes them."""
    shutil.copytree(path, place)
    write_prompt(place, prompt)
    write_exported(place, Exported("mask", prompt=prompt.settings()))
    return place


@pytest.mark.parametrize(("family", "case"), [*(("bpe", case) for case in CASES), ("bert", "two, denoised")])
def test_equals_transformers_one_text_at_a_time(folders, tmp_path, family, case):
    prompt = prompt_of(folders, family, **CASES[case])
    expected = by_hand(stored(folders[family], prompt, tmp_path / "stored"), TEXTS, deepcopy(prompt.bottlenecks))
    for attention in ("auto" if prompt.bottlenecks else "varlen", "padded"):
        encoder = loaded(folders[family], prompt=prompt, attention=attention, batch_tokens=60)
        close(encoder.run(TEXTS).vectors, expected, 2e-5)
        assert encoder.spec.template == prompt.template and encoder.spec.max_length == 64 - prompt.shift
    assert np.abs(expected - expected[0]).max() > 1e-2
    assert not any(part._forward_hooks for part in encoder.model.modules() if isinstance(part, torch.nn.Linear))


def test_every_field_changes_the_fingerprint(folders, tmp_path):
    path = folders["bert"]
    base = prompt_of(folders, "bert", words=True, prefixes=1, head="dense", rank=2, shift=3)
    other = {
        "template": 'a man of "{}" means [MASK] .', "full_stop": True, "text": "pieces", "pieces": 7, "denoise": True,
        "positions": "empty", "start": "zero", "each": True, "words": base.words + 1, "word_places": "rightmost",
        "prefixes": (KeyValues(base.prefixes[0].keys + 1, base.prefixes[0].values),), "shift": 2,
        "head": prompt_of(folders, "bert", head="transform").head,
        "bottlenecks": prompt_of(folders, "bert", rank=3).bottlenecks}
    assert set(other) == {field.name for field in fields(Prompt)}
    more = [replace(base, **{name: value}) for name, value in other.items()]
    more += [replace(base, prefixes=base.prefixes * 2), replace(base, words=None), replace(base, prefixes=())]
    prints = [load_encoder(str(stored(path, prompt, tmp_path / str(i)))).spec.fingerprint()
              for i, prompt in enumerate([base, base, *more])]
    assert prints[0] == prints[1] and len(set(prints[1:])) == len(more) + 1


def test_a_live_encoder_follows_head_words_and_model_and_leaves_them_as_they_were(folders, tmp_path):
    path = folders["bert"]
    model, _ = load_model(path, "tiny", "float32")
    model.requires_grad_(True).train()
    prompt = prompt_of(folders, "bert", denoise=True, head="dense", words=True)
    prompt.head.requires_grad_(True).train()
    encoder = live_encoder(Inference(model, load_tokenizer(path, "tiny"), "mask", prompt=prompt), "dev")
    before = encoder.encode(TEXTS)
    close(before, by_hand(stored(path, prompt, tmp_path / "stored"), TEXTS), 2e-5)
    with torch.no_grad():
        for weight in (model.encoder.layer[0].output.dense.bias, prompt.words, prompt.head.dense.weight):
            weight.add_(torch.randn_like(weight) * 0.3)
    after = encoder.encode(TEXTS)
    fresh = live_encoder(Inference(model, load_tokenizer(path, "tiny"), "mask", prompt=prompt), "dev")
    assert np.abs(after - before).max() > 1e-3 and np.array_equal(after, fresh.encode(TEXTS))
    assert model.training and prompt.head.training and prompt.head.dense.weight.requires_grad
    assert encoder.spec.weights == "live" and not encoder.cacheable and "prompt" in encoder.spec.options


def test_a_stored_prompt_is_used_whole_or_set_aside_whole(tmp_path, folders):
    from stsbench.training.runs.export import export_model

    model, _ = load_model(folders["bert"], "tiny", "float32")
    prompt = prompt_of(folders, "bert", **CASES["two, denoised"], full_stop=True)
    run = tmp_path / "out"
    export_model(Inference(model, load_tokenizer(folders["bert"], "tiny"), "mask", prompt=prompt), run, card="")
    whole = load(run, pooler=None)
    assert whole.notes == () and described(whole.spec.options)[:2] == ["full stop added", "denoised (zero)"]
    close(whole.encode(TEXTS), by_hand(run, TEXTS), 2e-5)
    stopless = load(run, pooler=None, full_stop=False)
    unstopped = stored(folders["bert"], replace(prompt, full_stop=False), tmp_path / "unstopped")
    close(stopless.encode(TEXTS), by_hand(unstopped, TEXTS), 2e-5)
    [note] = stopless.notes
    assert "--no-full-stop changes the rule" in note
    assert stopless.spec.fingerprint() != whole.spec.fingerprint() and stopless.spec == stopless.built.spec
    for options in ({"pooler": "mean"}, {"pooler": None, "template": TEMPLATES["bert"]}):
        aside = load(run, **options)
        plain = load(folders["bert"], **{**options, "pooler": options["pooler"] or "mask"})
        [note] = aside.notes
        assert note.startswith("warning: --") and "another model than was trained" in note and aside.spec.options == {}
        assert aside.spec.max_length == 64
        np.testing.assert_allclose(aside.encode(TEXTS), plain.encode(TEXTS), atol=1e-6)
    (run / "modules.json").unlink()  # stsbench.json still says what was trained
    [note] = load(run, pooler="mean").notes
    assert note.startswith("warning: --pooler 'mean': ") and f"at the mask of {prompt.template!r}" in note


def test_limits(folders):
    encoder = loaded(folders["bert"], prompt=prompt_of(folders, "bert", prefixes=1, shift=6))
    assert encoder.spec.max_length == 58
    encoded = encoder.run(["cat " * 80, "cat " * 47, "cat"])
    assert encoded.truncated.tolist() == [True, False, False] and np.isfinite(encoded.vectors).all()
    np.testing.assert_allclose(encoded.vectors[0], encoder.encode(["cat " * (58 - 11)])[0], atol=1e-5)
    cut = loaded(folders["bert"], prompt=Prompt(TEMPLATES["bert"], text="pieces", pieces=2))
    assert cut.run(["the cat eats", "the cat"]).truncated.tolist() == [True, False]
    np.testing.assert_allclose(*cut.encode(["the cat eats", "the cat"]), atol=1e-5)


# ---- the full stop of any encoder


def load(path, **options):
    return load_encoder(str(path), **{"pooler": "mean", "device": "cpu", "offline": True, **options})


def test_the_full_stop_is_recorded_only_where_it_acts(folders):
    plain, stopped = load(folders["bert"]), load(folders["bert"], full_stop=True)
    assert plain.spec.options == {} and stopped.spec.options == {"full_stop": True}
    assert load(folders["bert"], full_stop=False).spec == plain.spec
    assert stopped.spec == stopped.built.spec and described(stopped.spec.options) == ["full stop added"]
    assert ", no prompt, full stop added, max length 64, 32 dimensions, " in described_encoder(stopped)
    texts = ["the cat", "the cat.", "the cat?", ""]
    np.testing.assert_array_equal(stopped.encode(texts)[0], plain.encode(texts)[1])
    np.testing.assert_allclose(stopped.encode(texts)[1:], plain.encode(texts)[1:], atol=1e-6)
    assert np.abs(stopped.encode(texts)[0] - plain.encode(texts)[0]).max() > 1e-3


def test_a_reading_is_shown_as_it_stands_without_its_extension_and_of_a_plain_layer_nothing_else():
    options = {"twice": "a cat", "layer": -1, "words": ["", "a cat"], "how": {"mean": True}}
    shown = ["twice a cat", 'words ["", "a cat"]', 'how {"mean": true}']
    assert described_reading(options) == [*shown, "last layer, normed"] and not described(options)
    assert described_reading(options, brief=True) == [*shown, "layer -1"] and described_reading({}) == []
    plain = {"layer": 0, "full_stop": True, "truncate_dim": 4}
    assert described_reading(plain) == ["hidden state 0 (embeddings), not normed"] and not read_otherwise(plain)
    assert described_reading(plain, brief=True) == ["layer 0"]


def test_fingerprints_are_what_they_were(tmp_path):
    """The spec of an encoder without a prompt holds the fields and values that it had before there were prompts."""
    build(tmp_path)
    masked = load(tmp_path, pooler="mask", template="a {} [MASK]")
    for encoder, known in ((load(tmp_path), PLAIN), (masked, MASKED)):
        assert replace(encoder.spec, weights="0" * 64, tokenizer="0" * 64).fingerprint() == known


# computed with the package as it was before this file
PLAIN = "2a99d01d6042a71ed55236b4f46ad39b00a85b0dca7925b526259f3b90f4cb54"
MASKED = "f1fe035077ec60fd373980d99fd51e799791048821e5441597624f308886abb7"
