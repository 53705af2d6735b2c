"""Prompted encoders at test: every field of Prompt against transformers run on one text at a time, and the full stop."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from loaded import loaded
from prompt_models import ROBERTA, folder
from tiny_models import build
from transformers import DynamicCache

from stsbench.encoders.forward.batching import KeyValues
from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.load import load_encoder
from stsbench.encoders.prompt.modules import Bottlenecks, LMTransform, MLPHead, attached
from stsbench.encoders.prompt.prompt import Prompt, described, write_prompt
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.encoders.transformer.exported import Exported, write_exported
from stsbench.errors import EncoderError
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder

TEMPLATES = {"bert": 'the man of "{}" means [MASK] .', "bpe": ROBERTA}
TEXTS = ["the cat eats", "", "a dog runs in the park.", "the [MASK] <mask> cat", "cat " * 12, "a man?", "the small dog eats"]


def prefix(length, seed):
    torch.manual_seed(seed)
    return KeyValues(torch.randn(3, length, 32) * 0.5, torch.randn(3, length, 32) * 0.5)


def head(kind):
    torch.manual_seed(4)
    made = MLPHead(32, 0.2) if kind == "dense" else LMTransform(32, "gelu", 1e-5)
    return made.requires_grad_(False)


def learned(family, seed=5):
    return torch.randn({"bert": 8, "bpe": 7}[family], 32, generator=torch.Generator().manual_seed(seed))


def words_of(path, template, text, prompt, tok):
    """Token ids and, for each, the number of its learned word or -1: by the tokenizer's own calls."""
    if prompt.full_stop and text and text[-1] not in ".?\"'":
        text += "."
    before, after = template.replace("[MASK]", tok.mask_token).replace("{mask}", tok.mask_token).split("{}")
    left, right = tok(before.rstrip())["input_ids"][:-1], tok(after)["input_ids"][1:]
    if prompt.text == "inside":
        ids = tok(before + text + after)["input_ids"]
    else:
        ids = [*left, *tok(text)["input_ids"][1:-1][: prompt.pieces], *right]
    return ids, left, right


def by_hand(path, prompt, texts):
    """(n, d) vectors: transformers' model, one text at a time, with explicit positions, embeddings and keys."""
    model, _ = load_model(path, "tiny", "float32")
    tok = load_tokenizer(path, "tiny")
    tok.backend_tokenizer.no_truncation()
    tok.backend_tokenizer.no_padding()
    own = 0 if model.config.model_type == "bert" else model.config.pad_token_id + 1

    def state(ids, left, right, places, slots):
        number, table = 0, []
        place = len(ids) - len(right) + right.index(tok.mask_token_id)
        for i, token in enumerate(ids):
            template = 0 < i < len(left) or len(ids) - len(right) <= i < len(ids) - 1
            if prompt.words is not None and template and i != place:
                table.append(prompt.words[number])
                number += 1
            else:
                table.append(model.get_input_embeddings().weight[token])
        more = {"attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        if slots is not None:
            cache, size = DynamicCache(), slots.keys.shape[1]
            for layer in range(3):
                pair = (part[layer].view(1, size, 4, -1).transpose(1, 2) for part in (slots.keys, slots.values))
                cache.update(*pair, layer)
            seen = torch.ones(1, 1, len(ids), size + len(ids), dtype=torch.bool)
            more = {"past_key_values": cache, "attention_mask": seen}
        out = model(inputs_embeds=torch.stack(table)[None], position_ids=torch.tensor([places]), **more)
        return out.last_hidden_state[0, place]

    def vector(text, slots):
        ids, left, right = words_of(path, prompt.template, text, prompt, tok)
        found = state(ids, left, right, [own + prompt.shift + i for i in range(len(ids))], slots)
        apply = prompt.head or (lambda x: x)
        if not prompt.denoise:
            return apply(found)
        alone, count = [*left, *right], len(ids) - len(left) - len(right)
        begin = prompt.shift + (own if prompt.start == "own" else 0)
        later = [begin + i + (count if i >= len(left) and prompt.positions == "matched" else 0) for i in range(len(alone))]
        delta = state(alone, left, right, later, slots)
        return apply(found) - apply(delta) if prompt.each else apply(found - delta)

    with torch.no_grad():
        rows = [
            torch.stack([vector(text, slots) for slots in prompt.prefixes or (None,)]).mean(0) for text in texts
        ]
    return torch.stack(rows).numpy()


CASES = {
    "plain": {}, "full stop": {"full_stop": True}, "pieces": {"text": "pieces"}, "cut": {"text": "pieces", "pieces": 3},
    "denoised": {"denoise": True}, "empty": {"denoise": True, "positions": "empty"},
    "zero": {"denoise": True, "start": "zero", "text": "pieces"},
    "dense": {"denoise": True, "head": "dense"}, "transform on each": {"denoise": True, "head": "transform", "each": True},
    "head alone": {"head": "transform"}, "words": {"words": True, "denoise": True, "full_stop": True},
    "prefix": {"prefixes": (5,), "shift": 5}, "no shift": {"prefixes": (4,)}, "shift": {"shift": 3},
    "two, denoised": {"prefixes": (3, 3), "shift": 6, "denoise": True, "head": "dense", "start": "zero", "words": True},
}


def made_up(case, family):
    given = dict(CASES[case])
    if "head" in given:
        given["head"] = head(given["head"])
    if "prefixes" in given:
        given["prefixes"] = tuple(prefix(size, 20 + i) for i, size in enumerate(given["prefixes"]))
    if given.pop("words", False):
        given["words"] = learned(family)
    return Prompt(TEMPLATES[family], **given)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: folder(tmp_path_factory.mktemp(family), family) for family in TEMPLATES}


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("case", CASES)
def test_equals_transformers_one_text_at_a_time(folders, family, case):
    prompt = made_up(case, family)
    want = by_hand(folders[family], prompt, TEXTS)
    for attention in ("varlen", "padded"):
        encoder = loaded(folders[family], prompt=prompt, attention=attention, batch_tokens=60)
        np.testing.assert_allclose(encoder.run(TEXTS).vectors, want, atol=2e-5, err_msg=attention)
        assert encoder.spec.template == prompt.template and encoder.spec.max_length == 64 - prompt.shift
    assert np.abs(want - want[0]).max() > 1e-2


def test_a_prompt_of_a_template_alone_is_pooler_and_template(folders):
    for family, template in TEMPLATES.items():
        ours = loaded(folders[family], prompt=Prompt(template))
        plain = loaded(folders[family], pooler="mask", template=template)
        assert np.array_equal(ours.encode(TEXTS), plain.encode(TEXTS))


def test_bottlenecks_act_in_both_passes(folders):
    config = load_model(folders["bert"], "tiny", "float32")[0].config
    torch.manual_seed(2)
    made = Bottlenecks(config, sets=1, rank=3).requires_grad_(False)
    made.up.normal_(0, 0.3)
    made.down.normal_(0, 0.3)
    prompt = Prompt(TEMPLATES["bert"], denoise=True, bottlenecks=made)
    encoder = loaded(folders["bert"], prompt=prompt)
    got = encoder.encode(TEXTS)
    model, _ = load_model(folders["bert"], "tiny", "float32")
    tok = load_tokenizer(folders["bert"], "tiny")
    ids, left, right = words_of(None, TEMPLATES["bert"], "the cat", Prompt("", text="pieces"), tok)
    alone, place = [*left, *right], right.index(tok.mask_token_id) - len(right)
    later = [i + (2 if i >= len(left) else 0) for i in range(len(alone))]
    with torch.no_grad(), attached(model, made, 0):
        states = [model(torch.tensor([row]), position_ids=torch.tensor([at])).last_hidden_state[0, place]
                  for row, at in ((ids, list(range(len(ids)))), (alone, later))]
    np.testing.assert_allclose(encoder.encode(["the cat"])[0], (states[0] - states[1]).numpy(), atol=1e-5)
    assert np.abs(got - loaded(folders["bert"], prompt=replace(prompt, bottlenecks=None))
                  .encode(TEXTS)).max() > 1e-2
    assert not any(part._forward_hooks for part in encoder.model.modules() if isinstance(part, torch.nn.Linear))


def test_every_field_changes_the_fingerprint(folders, tmp_path):
    path = folders["bert"]
    config = load_model(path, "tiny", "float32")[0].config
    base = Prompt(TEMPLATES["bert"], words=learned("bert"), prefixes=(prefix(3, 1),), head=head("dense"),
                  bottlenecks=Bottlenecks(config, sets=1, rank=2))
    other = {
        "template": 'a man of "{}" means [MASK] .', "full_stop": True, "text": "pieces", "pieces": 7, "denoise": True,
        "positions": "empty", "start": "zero", "head": head("transform"), "each": True, "words": learned("bert", 6),
        "word_places": "rightmost",
        "prefixes": (prefix(3, 2),), "shift": 2, "bottlenecks": Bottlenecks(config, sets=1, rank=3),
    }
    assert set(other) == {field.name for field in fields(Prompt)}
    more = [replace(base, **{name: value}) for name, value in other.items()]
    more += [replace(base, prefixes=(*base.prefixes, prefix(3, 1))), replace(base, words=None), replace(base, prefixes=())]

    def fingerprint(prompt):
        return loaded(path, prompt=prompt).spec.fingerprint()

    def stored(prompt):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(path, place)
        write_prompt(place, prompt)
        write_exported(place, Exported("mask", prompt=prompt.settings()))
        return load_encoder(str(place)).spec.fingerprint()

    for identify in (fingerprint, stored):
        prints = [identify(prompt) for prompt in [base, *more]]
        assert len(set(prints)) == len(prints) and identify(base) == prints[0]


def test_the_template_alone_is_computed_once_a_run_for_each_count(folders, monkeypatch):
    from stsbench.encoders.forward import passes

    asked = []
    real = passes.PackedForward.__call__

    def counting(self, ids, groups, wanted, soft=None):
        if soft is not None and soft.positions is not None:
            asked.append(groups)
        return real(self, ids, groups, wanted, soft)

    monkeypatch.setattr(passes.PackedForward, "__call__", counting)
    prompt = Prompt(TEMPLATES["bert"], denoise=True)
    encoder = loaded(folders["bert"], prompt=prompt, batch_tokens=40)
    encoder.run(["cat", "dog", "the cat", "the dog", "a cat", "the cat eats food in the park"] * 2)
    assert sum(groups[0][0] for groups in asked) == 3


def test_a_live_encoder_follows_head_words_and_model_and_leaves_them_as_they_were(folders):
    path = folders["bert"]
    model, _ = load_model(path, "tiny", "float32")
    model.requires_grad_(True).train()
    prompt = Prompt(TEMPLATES["bert"], denoise=True, head=head("dense").requires_grad_(True).train(), words=learned("bert"))
    encoder = live_encoder(Inference(model, load_tokenizer(path, "tiny"), "mask", prompt=prompt), "dev")
    before = encoder.encode(TEXTS)
    np.testing.assert_allclose(before, by_hand(path, prompt, TEXTS), atol=2e-5)
    with torch.no_grad():
        for weight in (model.encoder.layer[0].output.dense.bias, prompt.words, prompt.head.dense.weight):
            weight.add_(torch.randn_like(weight) * 0.3)
    after = encoder.encode(TEXTS)
    fresh = live_encoder(Inference(model, load_tokenizer(path, "tiny"), "mask", prompt=prompt), "dev")
    assert np.abs(after - before).max() > 1e-3 and np.array_equal(after, fresh.encode(TEXTS))
    assert model.training and prompt.head.training and prompt.head.dense.weight.requires_grad
    assert encoder.spec.weights == "live" and not encoder.cacheable and "prompt" in encoder.spec.options


@pytest.mark.parametrize(("dtype", "least"), [("bfloat16", 0.99), ("float16", 0.9999)])
def test_half_precision_is_near(folders, dtype, least):
    prompt = made_up("two, denoised", "bert")
    full, half = (loaded(folders["bert"], prompt=replace(prompt, head=head("dense")), dtype=dtype)
                  .encode([text for text in TEXTS if text]) for dtype in ("float32", dtype))
    cosines = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
    assert half.dtype == np.float32 and cosines.min() > least


def test_a_stored_prompt_is_used_whole_or_set_aside_whole(tmp_path, folders):
    from stsbench.training.export.export import export_model

    model, _ = load_model(folders["bert"], "tiny", "float32")
    prompt = replace(made_up("two, denoised", "bert"), full_stop=True)
    run = tmp_path / "out"
    export_model(Inference(model, load_tokenizer(folders["bert"], "tiny"), "mask", prompt=prompt), run, card="")
    whole = load(run, pooler=None)
    assert whole.notes == () and described(whole.spec.options)[:2] == ["full stop added", "denoised (zero)"]
    np.testing.assert_allclose(whole.encode(TEXTS), by_hand(folders["bert"], prompt, TEXTS), atol=2e-5)
    stopless = load(run, pooler=None, full_stop=False)
    np.testing.assert_allclose(
        stopless.encode(TEXTS), by_hand(folders["bert"], replace(prompt, full_stop=False), TEXTS), atol=2e-5
    )
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
    prompt = Prompt(TEMPLATES["bert"], prefixes=(prefix(6, 1),), shift=6)
    encoder = loaded(folders["bert"], prompt=prompt)
    assert encoder.spec.max_length == 58
    encoded = encoder.run(["cat " * 80, "cat " * 47, "cat"])
    assert encoded.truncated.tolist() == [True, False, False] and np.isfinite(encoded.vectors).all()
    np.testing.assert_allclose(encoded.vectors[0], encoder.encode(["cat " * (58 - 11)])[0], atol=1e-5)
    with pytest.raises(EncoderError, match="--max-length 60 is more than the 58 that its prefix leaves of 64 positions"):
        loaded(folders["bert"], prompt=prompt, max_length=60)
    cut = loaded(folders["bert"], prompt=Prompt(TEMPLATES["bert"], text="pieces", pieces=2))
    assert cut.run(["the cat eats", "the cat"]).truncated.tolist() == [True, False]
    np.testing.assert_allclose(*cut.encode(["the cat eats", "the cat"]), atol=1e-5)
    with pytest.raises(EncoderError, match="leaves no token for the sentence"):
        loaded(folders["bert"], prompt=Prompt(TEMPLATES["bert"], text="pieces"), max_length=11)


@pytest.mark.parametrize(("options", "message"), [
    ({"prompt": Prompt("{} means")}, "exactly once"), ({"prompt": Prompt("{} [MASK]", words=torch.zeros(2, 32))}, "learned"),
    ({"prompt": Prompt(TEMPLATES["bert"], words=torch.zeros(9, 8))}, "width 8"),
    ({"prompt": Prompt(TEMPLATES["bert"], prefixes=(KeyValues(torch.zeros(2, 3, 32), torch.zeros(2, 3, 32)),))}, "prefix"),
])
def test_what_does_not_go_together(folders, options, message):
    with pytest.raises(EncoderError, match=message) as caught:
        loaded(folders["bert"], **options)
    assert "\n" not in str(caught.value)


def test_a_trained_prompt_needs_the_pooler_mask(folders):
    model, tokenizer = load_model(folders["bert"], "tiny", "float32")[0], load_tokenizer(folders["bert"], "tiny")
    with pytest.raises(EncoderError, match="needs the pooler mask, not cls"):
        live_encoder(Inference(model, tokenizer, "cls", prompt=Prompt(TEMPLATES["bert"])), "dev")


# ---- the full stop of any encoder


def load(path, **options):
    return load_encoder(str(path), **{"pooler": "mean", "device": "cpu", "offline": True, **options})


def test_the_full_stop_is_recorded_only_where_it_acts(folders):
    plain, stopped = load(folders["bert"]), load(folders["bert"], full_stop=True)
    assert plain.spec.options == {} and stopped.spec.options == {"full_stop": True}
    assert load(folders["bert"], full_stop=False).spec == plain.spec
    assert stopped.spec == stopped.built.spec and described(stopped.spec.options) == ["full stop added"]
    texts = ["the cat", "the cat.", "the cat?", ""]
    np.testing.assert_array_equal(stopped.encode(texts)[0], plain.encode(texts)[1])
    np.testing.assert_allclose(stopped.encode(texts)[1:], plain.encode(texts)[1:], atol=1e-6)
    assert np.abs(stopped.encode(texts)[0] - plain.encode(texts)[0]).max() > 1e-3


def test_fingerprints_are_what_they_were(tmp_path):
    """The spec of an encoder without a prompt holds the fields and values that it had before there were prompts."""
    build(tmp_path)
    masked = load(tmp_path, pooler="mask", template="a {} [MASK]")
    for encoder, known in ((load(tmp_path), PLAIN), (masked, MASKED)):
        assert replace(encoder.spec, weights="0" * 64, tokenizer="0" * 64).fingerprint() == known


# computed with the package as it was before this file
PLAIN = "2a99d01d6042a71ed55236b4f46ad39b00a85b0dca7925b526259f3b90f4cb54"
MASKED = "f1fe035077ec60fd373980d99fd51e799791048821e5441597624f308886abb7"


def test_the_command_line_says_what_a_run_does(tmp_path):
    from stsbench.cli.main import cli

    build(tmp_path / "model")
    command = ["eval", "--model", str(tmp_path / "model"), "--pooler", "mask", "--template", "the {} means [MASK] .",
               "--sample", "--tasks", "STS-B", "--no-cache", "--resamples", "0", "--full-stop"]
    result = CliRunner().invoke(cli, [*command, "--output", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "template the {} means [MASK] ., full stop added, max length 64, 32 dimensions, " in result.output
