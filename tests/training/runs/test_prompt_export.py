"""A prompted encoder as a folder, and one with a learned pooler, text_cnn or mean_cnn: one vector for a text, whoever reads
it; nothing of the prompt or the pooler lost, moved or made up."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tiny_models
import torch
from live_models import library as plain_library
from loaded import loaded
from prompted import MORE, PLAIN, TEXTS, by_hand, close, library, models, one_line, rich, values, with_prompt  # noqa: F401
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Normalize
from token_pooler_oracle import MEAN_CNN, TEXT_CNN, by_loops, local_vectors

from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.forward.pooling import token_pooler_folder
from stsbench.encoders.forward.token_pooler import TextCNN
from stsbench.encoders.load import load_encoder
from stsbench.encoders.prompt.prompt import read_prompt
from stsbench.encoders.transformer.exported import Exported, layout_digest, read_exported
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.errors import EncoderError
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.runs.export import export_model


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
    other = shutil.copytree(folder, tmp_path / "other")
    tensors = load_file(other / "prompt.safetensors")
    tensors["head.dense.bias"].view(-1)[3] += 1
    with safe_open(other / "prompt.safetensors", "pt") as file:
        metadata = file.metadata()
    save_file(tensors, other / "prompt.safetensors", metadata)
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
    with pytest.raises(EncoderError, match="stores a prompt: leave --pooler out to use it, or give a --template"):
        load_encoder(str(folder), pooler="mask")


# --- what is broken ---


def test_a_damaged_prompt_is_one_line_and_never_replaced(rich, tmp_path):
    settings = rich[0].prompt.settings()
    tensors = load_file(rich[1] / "prompt.safetensors")
    path = shutil.copytree(rich[1], tmp_path / "out") / "prompt.safetensors"
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
            ({"head.dense.bias": None}, "dense.bias"), ({"head.dense.bias": torch.zeros(5)}, "size mismatch")):
        left = {key: value for key, value in {**tensors, **changes}.items() if value is not None}
        save_file(left, path, metadata)
        one_line(lambda: read_prompt(tmp_path / "out", settings), message)
    save_file(tensors, path)  # the head's settings are gone
    one_line(lambda: read_prompt(tmp_path / "out", settings), "cannot use")


def test_broken_settings_are_one_line(rich, tmp_path):
    path = shutil.copytree(rich[1], tmp_path / "out") / "stsbench.json"
    before = path.read_text()
    for change, message in (
            ({"format": 4}, "newer stsbench"), ({"prompt": {}}, "is not made of"), ({"pooler": "cls"}, "for the pooler cls"),
            ({"prompt.text": "outside"}, "prompt.text 'outside'"), ({"prompt.full_stop": "no"}, "prompt.full_stop 'no'"),
            ({"prompt.prefixes": [2.5]}, "prompt.prefixes"), ({"prompt.head": ["dense"]}, "cannot read")):
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
        "[CLS] the cat o ##f [UNK] a . [UNK] means [MASK] . [SEP]")
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


# --- a learned pooler ---
CNN = {**TEXT_CNN, "activation": "relu"}
# name -> its class, settings, width of a vector, one of its weights
POOLERS = {"text_cnn": ("TextCNN", CNN, 16, "fusion.bias"), "mean_cnn": ("MeanCNN", MEAN_CNN, 12, "convs.1.bias")}


def by_windows(made):
    """float64 vectors of transformers' own states, one text at a time, by loops over windows."""
    model, rows = made.model.eval(), []
    for text in TEXTS:
        ids = made.tokenizer(text, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = model(input_ids=ids).last_hidden_state[0].double().numpy()
        rows.append(by_loops(made.token_pooler, states)[0] if made.pooler == "text_cnn" else np.mean(
            local_vectors(made.token_pooler, states.tolist(), len(states)), axis=0))
    model.train()
    return np.stack(rows)


@pytest.fixture(scope="module", params=[("text_cnn", "roberta"), ("mean_cnn", "bert")], ids=str)
def exported(request, tmp_path_factory):
    """(what was exported, as a method gives it, its folder, its vectors); not to be changed."""
    (pooler, family), folder = request.param, tmp_path_factory.mktemp("exported")
    torch.manual_seed(3)
    settings = {pooler: POOLERS[pooler][1]}
    backbone = load_backbone(tiny_models.build(folder / "model", family), "tiny", pooler, token_poolers=settings)
    made = Inference(backbone.model, backbone.tokenizer, pooler, token_pooler=backbone.head)
    export_model(made, folder / "out", method="simcse", recipe="tiny-run")
    return made, folder / "out", by_windows(made)


def test_three_readers_give_the_same_vectors(exported, tmp_path):
    made, folder, vectors = exported
    width = POOLERS[made.pooler][2]
    parts = [*made.model.modules(), *made.token_pooler.modules()]
    assert vectors.shape == (len(TEXTS), width) and all(part.training for part in parts)
    close(live_encoder(made, "live").encode(TEXTS), vectors)
    assert all(part.training for part in parts)
    ours = load_encoder(str(folder))
    assert (ours.spec.kind, ours.spec.pooler, ours.spec.max_length) == ("transformers", made.pooler, 64)
    assert ours.spec == ours.built.spec
    close(ours.encode(TEXTS), vectors)
    close(loaded(folder, attention="padded", batch_tokens=90).encode(TEXTS), vectors)
    model = plain_library(folder, trust_remote_code=True)
    assert model.get_embedding_dimension() == width
    close(model.encode(TEXTS), vectors)
    with pytest.raises(ValueError, match="trust_remote_code"):  # it asks before it imports
        plain_library(folder)
    model.save(str(tmp_path / "saved"), create_model_card=False)
    assert not (tmp_path / "saved" / "stsbench.json").exists()
    again = load_encoder(str(tmp_path / "saved"))
    assert (again.spec.kind, again.spec.pooler) == ("transformers", made.pooler)
    close(again.encode(TEXTS), vectors)
    close(plain_library(tmp_path / "saved", trust_remote_code=True).encode(TEXTS), vectors)


def test_the_weights_are_part_of_what_identifies_the_encoder_and_are_not_replaced(exported, tmp_path):
    made, folder, _ = exported
    kind, _, _, name = POOLERS[made.pooler]
    first = load_encoder(str(folder))
    export_model(made, tmp_path / "again", card="another", method="simcse", recipe="tiny-run")
    assert load_encoder(str(tmp_path / "again")).spec.fingerprint() == first.spec.fingerprint()
    file = shutil.copytree(folder, tmp_path / name) / f"1_{kind}" / "model.safetensors"
    stored = load_file(file)
    save_file({**stored, name: stored[name] + 0.5}, file)
    changed = load_encoder(str(tmp_path / name))  # stsbench.json holds no more, modules.json does
    assert changed.spec.weights != first.spec.weights and changed.spec.fingerprint() != first.spec.fingerprint()
    assert np.abs(changed.encode(TEXTS) - first.encode(TEXTS)).max() > 1e-3
    for name in ("config.json", "model.safetensors"):
        (shutil.copytree(folder, tmp_path / name) / f"1_{kind}" / name).unlink()
        with pytest.raises(EncoderError, match=f"lacks the {kind} that its modules.json promises .1_{kind}/{name}"):
            load_encoder(str(tmp_path / name))
        with pytest.raises(EncoderError, match=f"lacks the {kind}"):
            load_backbone(tmp_path / name, "gone", made.pooler)


@pytest.mark.parametrize("exported", [("text_cnn", "roberta")], indirect=True, ids=str)
def test_a_head_of_another_models_width_is_not_read(exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "wide")
    TextCNN(8, **CNN).save(tmp_path / "wide" / "1_TextCNN")
    with pytest.raises(EncoderError, match="reads states of width 8, and its model gives 32"):
        load_encoder(str(tmp_path / "wide")).encode(TEXTS)
    with pytest.raises(EncoderError, match=r"stores a different TextCNN \(width 32 instead of 8\)"):
        load_backbone(tmp_path / "wide", "wide", "text_cnn")
    (tmp_path / "wide" / "modules.json").write_text("[1]")
    with pytest.raises(EncoderError, match=r"cannot read .*modules\.json"):
        token_pooler_folder(tmp_path / "wide")


def test_a_pooler_and_its_head_go_together_also_as_a_backbone(exported, tmp_path):
    made, folder, _ = exported
    other = {"text_cnn": "mean_cnn", "mean_cnn": "text_cnn"}[made.pooler]
    for head, pooler in ((None, made.pooler), (made.token_pooler, "cls"), (made.token_pooler, other)):
        with pytest.raises(EncoderError, match="go together"):
            LiveEncoder(Parts(made.model, made.tokenizer, token_pooler=head), pooler=pooler, name="dev")
        with pytest.raises(ValueError, match="cannot be exported with token_pooler="):
            export_model(Inference(made.model, made.tokenizer, pooler, token_pooler=head), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(EncoderError, match=f"--pooler {other}: .* stores no {POOLERS[other][0]}, and it is learned"):
        load_encoder(str(folder), pooler=other)
    assert load_backbone(folder, "first", other).head.kind.pooler == other  # a new one
    kind, settings, *_ = POOLERS[made.pooler]
    for token_poolers in (None, {made.pooler: settings}):
        kept = load_backbone(folder, "first", made.pooler, token_poolers=token_poolers)
        stored = kept.head.state_dict()
        assert all(torch.equal(stored[name], value) for name, value in made.token_pooler.state_dict().items())
        assert all(weight.requires_grad for weight in kept.parameters())
    changed = {**settings, "channels": settings["channels"] + 1, "activation": "tanh"}
    with pytest.raises(EncoderError, match=rf"{kind} \(channels \d+ instead of \d+, activation tanh instead of relu\)"):
        load_backbone(folder, "first", made.pooler, token_poolers={made.pooler: changed})
    assert load_backbone(folder, "first", "cls").head is None
