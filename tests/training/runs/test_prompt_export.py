"""A prompted encoder as a folder: one vector for a text, whoever reads it; nothing of the prompt lost, moved or made up."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from prompted import (
    MORE,
    PLAIN,
    TEMPLATES,
    TEXTS,
    by_hand,
    close,
    library,
    models,
    one_line,
    rich,
    values,
    with_prompt,
)
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Normalize

from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.encoders.prompt.prompt import read_prompt
from stsbench.encoders.transformer.exported import Exported, layout_digest, read_exported
from stsbench.errors import EncoderError
from stsbench.training.engine.selection import live_encoder
from stsbench.training.runs.export import export_model

__all__ = ["models", "rich"]


@pytest.mark.parametrize(("family", "more"), [PLAIN[3], MORE[1], MORE[5], ("bert", {"rank": 4, "denoise": True})])
def test_every_reader_gives_the_methods_vectors(models, tmp_path, family, more):
    made = with_prompt(models, family, more)
    want = live_encoder(made, "live").encode(TEXTS)
    for part in made.prompt.modules():
        part.train()
    state, before, prompt = torch.get_rng_state(), values(made.prompt), made.prompt
    export_model(made, tmp_path / "out")
    assert torch.equal(torch.get_rng_state(), state) and values(prompt) == before
    assert all(part.training for part in (*made.model.modules(), *prompt.modules()))
    assert all(weight.requires_grad for part in prompt.modules() for weight in part.parameters())
    ours = load_encoder(str(tmp_path / "out"))
    assert (ours.spec.pooler, ours.spec.template, ours.spec.max_length) == ("mask", prompt.template, 64 - prompt.shift)
    close(ours.encode(TEXTS), want)
    assert ours.spec == ours.built.spec
    assert ours.spec.options["prompt"] == {key: value for key, value in prompt.settings().items() if key != "template"}
    model = library(tmp_path / "out")
    assert (model.max_seq_length, model.get_embedding_dimension()) == (64 - prompt.shift, 32)
    close(model.encode(TEXTS), want, 1e-5)
    if prompt.bottlenecks is None:
        assert np.abs(want - by_hand(tmp_path / "out", TEXTS)).max() < 1e-5
    if more:
        bare = load_encoder(str(tmp_path / "out"), template=prompt.template).encode(TEXTS)
        assert set(more) == {"template"} or np.abs(bare - want).max() > 1e-2


def test_other_poolers_are_written_without_a_prompt_and_go_with_none(models, tmp_path):
    export_model(models["bert"], tmp_path / "cls")
    stored = json.loads((tmp_path / "cls" / "stsbench.json").read_text())
    assert list(stored) == ["format", "pooler", "max_length", "method", "recipe", "layout"] and stored["format"] == 1
    assert read_exported(tmp_path / "cls") == Exported("cls")
    assert stored["layout"] == layout_digest(tmp_path / "cls") != layout_digest(tmp_path / "cls", {"template": "x"})
    made = with_prompt(models, "bert", {})
    for wrong in (replace(models["bert"], pooler="mask"), replace(made, pooler="cls")):
        with pytest.raises(ValueError, match="cannot be exported with prompt="):
            export_model(wrong, tmp_path / "out")
    made.model.lora_a = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"holds an adapter \(lora_a.weight\): merge it"):
        export_model(made, tmp_path / "out")
    del made.model.lora_a
    assert not (tmp_path / "out").exists()


# --- what identifies it ---


def changed_prompt(folder, target, key="prefix.0.values"):
    """A copy of the folder with one number of prompt.safetensors changed."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "prompt.safetensors")
    tensors[key].view(-1)[3] += 1
    with (target / "prompt.safetensors").open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        metadata = json.loads(stream.read(size))["__metadata__"]
    save_file(tensors, target / "prompt.safetensors", metadata)
    return target


def test_a_changed_tensor_is_another_encoder_and_hits_no_cache(rich, tmp_path):
    folder, store = rich[1], EmbeddingCache(tmp_path / "cache")
    first, texts = load_encoder(str(folder)), [text for text in TEXTS if text]
    edited = shutil.copytree(folder, tmp_path / "edited")
    stored = json.loads((edited / "stsbench.json").read_text())
    stored["prompt"]["full_stop"] = False
    (edited / "stsbench.json").write_text(json.dumps(stored))
    assert read_exported(edited).prompt == stored["prompt"] and read_exported(edited).method is None  # not what was trained
    assert load_encoder(str(edited)).spec.fingerprint() != first.spec.fingerprint()
    one = Embed(first, store)(texts)
    other = changed_prompt(folder, tmp_path / "other", "head.dense.bias")
    second = load_encoder(str(other))
    assert first.spec.weights != second.spec.weights and first.spec.options == second.spec.options
    assert layout_digest(folder, rich[0].prompt.settings()) != layout_digest(other, rich[0].prompt.settings())
    two = Embed(second, store)(texts)
    assert np.abs(one - two).max() > 1e-3
    assert np.abs(two - by_hand(other, texts)).max() < 1e-5  # sentence-transformers reads what is there, and so do we
    close(library(other).encode(texts), two, 1e-5)
    again = load_encoder(str(other))
    np.testing.assert_array_equal(Embed(again, store)(texts), two)
    assert again._built is None  # all from the cache: nothing was loaded


def test_set_aside_a_prompt_is_no_part_of_the_encoder(models, rich, tmp_path):
    folder = rich[1]
    other = changed_prompt(folder, tmp_path / "other")
    export_model(models["bert"], tmp_path / "plain")
    for options in ({"pooler": "cls"}, {"template": TEMPLATES["bert"]}):
        specs = [load_encoder(str(path), **options).spec for path in (folder, other)]
        assert not any(spec.options for spec in specs)
        plain = load_encoder(str(tmp_path / "plain"), **{"pooler": "mask", **options})
        for path in (folder, other):
            close(load_encoder(str(path), **options).encode(TEXTS), plain.encode(TEXTS))
    with pytest.raises(EncoderError, match="stores a prompt: leave --pooler out to use it, or give a --template"):
        load_encoder(str(folder), pooler="mask")


# --- what is broken ---


def test_a_damaged_prompt_is_one_line_and_never_replaced(rich, tmp_path):
    settings = rich[0].prompt.settings()
    tensors = load_file(rich[1] / "prompt.safetensors")
    shutil.copytree(rich[1], tmp_path / "out")
    path = tmp_path / "out" / "prompt.safetensors"
    whole = path.read_bytes()
    path.unlink()
    one_line(lambda: load_encoder(str(tmp_path / "out")), r"lacks the prompt\.safetensors that its stsbench\.json promises$")
    with pytest.raises(EncoderError, match=r"lacks the prompt\.safetensors"):
        library(tmp_path / "out")
    load_encoder(str(tmp_path / "out"), pooler="cls").encode(TEXTS[:1])  # which never reads it
    for content in (b"", whole[:100], whole[:-8], b"x" * 400):
        path.write_bytes(content)
        one_line(lambda: load_encoder(str(tmp_path / "out")).encode(TEXTS), r"cannot use .*prompt\.safetensors")
    metadata = {"head": json.dumps({"width": 32, "activation": "gelu", "eps": 1e-12})}
    for changes, message in (
        ({"words": None}, "it lacks 'words'"), ({"prefix.1.keys": None}, r"it lacks 'prefix\.1\.keys'"),
        ({"extra": torch.zeros(2)}, "it also holds extra"), ({"words": torch.zeros(2, 32)}, r"words is \(2, 32\)"),
        ({"prefix.0.keys": torch.zeros(2, 3, 32)}, r"prefix 0 is \(2, 3, 32\), and \(3, 3, 32\)"),
        ({"head.dense.bias": None}, "dense.bias"), ({"head.dense.bias": torch.zeros(5)}, "size mismatch"),
    ):
        left = {key: value for key, value in {**tensors, **changes}.items() if value is not None}
        save_file(left, path, metadata)
        one_line(lambda: read_prompt(tmp_path / "out", settings), message)
    save_file(tensors, path)  # the head's settings are gone
    one_line(lambda: read_prompt(tmp_path / "out", settings), "cannot use")


def test_broken_settings_are_one_line(rich, tmp_path):
    shutil.copytree(rich[1], tmp_path / "out")
    path = tmp_path / "out" / "stsbench.json"
    before = path.read_text()
    for change, message in (
        ({"format": 4}, "newer stsbench"), ({"prompt": {}}, "is not made of"), ({"pooler": "cls"}, "for the pooler cls"),
        ({"prompt.text": "outside"}, "prompt.text 'outside'"), ({"prompt.full_stop": "no"}, "prompt.full_stop 'no'"),
        ({"prompt.prefixes": [2.5]}, "prompt.prefixes"), ({"prompt.head": ["dense"]}, "cannot read"),
    ):
        stored = json.loads(before)
        for key, value in change.items():
            (stored["prompt"] if "." in key else stored)[key.rpartition(".")[2]] = value
        path.write_text(json.dumps(stored))
        one_line(lambda: load_encoder(str(tmp_path / "out")), message)


# --- in sentence-transformers ---


def test_by_hand_it_is_tokenised_inside_the_template(rich):
    made, folder = rich
    model, want = library(folder, prompts={"query": "dog : "}), live_encoder(made, "live").encode(TEXTS)
    # a prompt of the library goes before the text
    prompted = live_encoder(made, "live").encode(["dog : " + text for text in TEXTS])
    close(model.encode(TEXTS, prompt_name="query"), prompted, 1e-5)
    assert np.abs(model.encode(TEXTS) - prompted).max() > 1e-2
    features = model.tokenize(TEXTS)
    assert features["input_ids"].shape == features["attention_mask"].shape == (len(TEXTS), 52)
    assert model.tokenizer.decode(features["input_ids"][13][features["attention_mask"][13].bool()]) == (
        "[CLS] the cat o ##f [UNK] a . [UNK] means [MASK] . [SEP]"
    )
    close(model(features)["sentence_embedding"].numpy(), want, 1e-5)
    model.max_seq_length = 14
    cut = load_encoder(str(folder), max_length=14)
    assert cut.run(TEXTS).truncated.sum() > 3
    close(model.encode(TEXTS), cut.encode(TEXTS), 1e-5)
    with pytest.raises(EncoderError, match="max_seq_length 60 is more than the 59 positions"):
        model.max_seq_length = 60


def test_what_it_cannot_do_it_says(models, rich, tmp_path):
    model = library(rich[1])
    with pytest.raises(ValueError, match="trust_remote_code"):
        type(model)(str(rich[1]), device="cpu", local_files_only=True)
    with pytest.raises(ValueError, match="single texts"):
        model.encode([("a", "b")])
    features = model.tokenizer(["a cat"], return_tensors="pt")
    with pytest.raises(EncoderError, match="do not hold the template: make them with"):
        model({key: features[key] for key in ("input_ids", "attention_mask")})
    export_model(with_prompt(models, "bert", {}), tmp_path / "plain")
    with pytest.raises(EncoderError, match=r"lost the template's mask token in 'input_ids that this model did not make'"):
        library(tmp_path / "plain")({key: features[key] for key in ("input_ids", "attention_mask")})
    features = model.tokenize(["a cat"])
    model.train()
    with pytest.raises(EncoderError, match=r"not trained by sentence-transformers: call \.eval\(\)"):
        model(features)


def test_what_the_library_saved_both_read_alike(rich, tmp_path):
    made, folder = rich
    want = live_encoder(made, "live").encode(TEXTS)
    model = library(folder)
    model.max_seq_length = 40
    model.save(str(tmp_path / "saved"), create_model_card=False)
    ours = load_encoder(str(tmp_path / "saved"))
    assert ours.spec.max_length == 40 and ours.spec.options == load_encoder(str(folder)).spec.options
    vectors = ours.encode(TEXTS)
    close(vectors[:-1], want[:-1])  # the last one is longer
    close(library(tmp_path / "saved").encode(TEXTS), vectors, 1e-5)
    model.append(Normalize())
    model.save(str(tmp_path / "more"), create_model_card=False)
    one_line(lambda: load_encoder(str(tmp_path / "more")), "adds Normalize to a prompted encoder")
    unit = vectors[:10] / np.linalg.norm(vectors[:10], axis=1, keepdims=True)
    close(library(tmp_path / "more").encode(TEXTS[:10]), unit, 1e-5)
    library(folder, prompts={"q": "dog "}, default_prompt_name="q").save(str(tmp_path / "default"), create_model_card=False)
    one_line(lambda: load_encoder(str(tmp_path / "default")), "adds the default prompt 'q' to a prompted encoder")
