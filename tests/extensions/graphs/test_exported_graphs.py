"""Exported models: the vectors are those of the model that was exported, and what is not known is refused in one line."""

import shutil
import warnings

import numpy as np
import pytest
import torch
from tiny_models import add_modules, build, sentences
from transformers import AutoModel

from stsbench import load_encoder
from stsbench.errors import EncoderError
from stsbench.extensions.graphs.encoder import Graph, Runtime, chosen

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'stsbench[graphs]'")
TEXTS = sentences(20)
PROMPTS = {"query": "the red man : ", "document": ""}


class _States(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state


def exported(source, folder):
    """`folder` with the settings of `source` and onnx/model.onnx: as torch's older exporter makes it, in a tenth of the time
    that the newer one takes; batch and length free."""
    pytest.importorskip("onnx", reason="torch exports by onnx: pip install 'stsbench[dev]'")
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    (folder / "onnx").mkdir()
    model = AutoModel.from_pretrained(source, attn_implementation="eager", dtype=torch.float32).eval()
    ids, mask = torch.randint(5, 20, (2, 7)), torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    names = ("input_ids", "attention_mask", "token_type_ids")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _States(model), (ids, mask, torch.zeros_like(ids)), str(folder / "onnx" / "model.onnx"),
            input_names=list(names), output_names=["last_hidden_state"], dynamo=False,
            dynamic_axes={name: {0: "batch", 1: "length"} for name in (*names, "last_hidden_state")})
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The model: mean pooling, length 1, texts cut at 8 tokens, a prompt for queries."""
    folder = build(tmp_path_factory.mktemp("graphs") / "model", pooler=False)
    return add_modules(folder, {"pooling_mode_mean_tokens": True}, prompts=PROMPTS)


@pytest.fixture(scope="module")
def folder(source):
    return exported(source, source.parent / "exported")


@pytest.fixture(scope="module")
def encoder(folder):
    return load_encoder(f"onnx:{folder / 'onnx' / 'model.onnx'}")


def test_vectors_are_the_models(source, encoder):
    model = load_encoder(source)
    assert np.allclose(encoder.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    assert np.allclose(encoder.encode_query(TEXTS), model.encode_query(TEXTS), atol=1e-5)
    assert not np.allclose(encoder.encode_query(TEXTS), encoder.encode(TEXTS), atol=1e-3)
    assert encoder.run(TEXTS).truncated.tolist() == model.run(TEXTS).truncated.tolist()
    assert encoder.dimension == 32 and encoder.spec.max_length == 8 and encoder.prompts == model.prompts
    assert encoder.counts([]).parameters is None and model.counts([]).parameters  # its weights are the runtime's


@pytest.mark.parametrize("asked", [
    {"pooler": "weighted_mean", "normalize": False, "max_length": 5, "truncate_dim": 8},
    {"template": "a {} means [MASK].", "pooler": "mask", "max_length": 20}])
def test_settings_do_what_they_do_to_the_model(source, folder, asked):
    graph, model = load_encoder(f"onnx:{folder / 'onnx' / 'model.onnx'}", **asked), load_encoder(source, **asked)
    assert np.allclose(graph.encode(TEXTS), model.encode(TEXTS), atol=1e-5)


def test_the_fingerprint_names_file_library_and_provider_and_quantised_layers_read_each_text_alone(source, folder, encoder):
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    library, provider = f"onnxruntime {onnxruntime.__version__}", "CPUExecutionProvider"
    made = {"file": "onnx/model.onnx", "library": library, "provider": provider}
    assert encoder.spec.kind == "onnx" and encoder.spec.options.items() >= made.items()
    assert encoder.engine == f"{library}, {provider}, padded"
    file = folder / "onnx" / "model_qint8.onnx"  # weights of int8, and one scale for a batch's numbers while it runs
    quantize_dynamic(folder / "onnx" / "model.onnx", file, weight_type=QuantType.QInt8)
    other, model = load_encoder(f"onnx:{file}"), load_encoder(source)
    assert len({one.spec.fingerprint() for one in (encoder, other, model)}) == 3
    again = load_encoder(f"onnx:{folder / 'onnx' / 'model.onnx'}")
    assert again.spec.weights != encoder.spec.weights  # another file lies in the folder now
    together = other.encode(TEXTS)
    assert any("each text is computed alone" in note for note in other.notes)
    assert all(np.array_equal(other.encode([text])[0], vector) for text, vector in zip(TEXTS, together, strict=True))
    cosines = (together * model.encode(TEXTS)).sum(1)
    assert 0.9 < cosines.min() < 0.99999  # it is another model, and a like one


def test_openvino_computes_the_same(folder, source, tmp_path):
    """In a folder that fingerprints leave out otherwise."""
    openvino = pytest.importorskip("openvino")
    shutil.copytree(folder, tmp_path / "m")
    file = tmp_path / "m" / "__pycache__" / "openvino_model.xml"
    openvino.save_model(openvino.Core().read_model(folder / "onnx" / "model.onnx"), file, compress_to_fp16=False)
    encoder = load_encoder(f"openvino:{file}")
    assert np.allclose(encoder.encode(TEXTS), load_encoder(source).encode(TEXTS), atol=1e-5)
    assert encoder.spec.options["file"] == "__pycache__/openvino_model.xml"
    assert encoder.spec.options["provider"] == "CPU f32" and not encoder.equal_lengths
    content = bytearray(file.with_suffix(".bin").read_bytes())
    content[-4:] = bytes(4)
    file.with_suffix(".bin").write_bytes(content)
    assert load_encoder(f"openvino:{file}").spec.fingerprint() != encoder.spec.fingerprint()


def test_what_a_graph_has_not_and_a_file_that_is_none(folder, tmp_path):
    file = folder / "onnx" / "model.onnx"
    assert chosen("onnx", str(file)) == (folder, file)
    for asked, said in (
        ({"dtype": "float16"}, "--dtype does not apply"), ({"pooler": "last2"}, "gives its last states alone"),
        ({"attention": "eager"}, "--attention does not apply"),
        ({"device": "mps"}, "--device mps: this onnxruntime computes on cpu"), ({"truncate_dim": 99}, "cuts nothing")):
        with pytest.raises(EncoderError, match=said):
            load_encoder(f"onnx:{file}", **asked)
    shutil.copytree(folder, tmp_path / "m", ignore=shutil.ignore_patterns("*.onnx"))
    (tmp_path / "m" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(EncoderError, match="onnxruntime cannot load") as stop:
        load_encoder(f"onnx:{tmp_path / 'm'}")
    assert "\n" not in str(stop.value)


def test_positions_are_given_where_it_is_known_where_they_begin(tmp_path):
    file, seen = tmp_path / "model.onnx", {}

    def run(arrays):
        seen.update(arrays)
        return np.zeros((*arrays["input_ids"].shape, 2), dtype=np.float32)

    runtime = Runtime("library 1", "cpu", ("input_ids", "attention_mask", "position_ids"), run)
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    Graph(runtime, {"model_type": "bert"}, file)(ids, (ids > 0).long())
    assert seen["position_ids"].tolist() == [[0, 1, 2]] * 2
    with pytest.raises(EncoderError, match=r"asks for position_ids, and where those of a roberta begin is not known here"):
        Graph(runtime, {"model_type": "roberta"}, file)


def test_weights_beside_a_graph_are_in_its_fingerprint_whatever_they_are_called(tmp_path, source, folder):
    onnx = pytest.importorskip("onnx")
    copied, file = shutil.copytree(source, tmp_path / "m"), tmp_path / "m/.cache/model.onnx"
    weights = file.parent / "__pycache__/w.md"
    weights.parent.mkdir(parents=True)
    onnx.save_model(onnx.load(folder / "onnx/model.onnx"), file, save_as_external_data=True, location="__pycache__/w.md")
    (copied / "README.md").touch()
    encoder = load_encoder(f"onnx:{file}")
    np.testing.assert_allclose(encoder.encode(TEXTS[:2]), load_encoder(source).encode(TEXTS[:2]), atol=1e-5)
    (copied / "README.md").write_text("Another text.\n")
    assert load_encoder(f"onnx:{file}").spec.fingerprint() == encoder.spec.fingerprint()
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert load_encoder(f"onnx:{file}").spec.fingerprint() != encoder.spec.fingerprint()
    with pytest.raises(EncoderError, match="has changed since"):
        encoder.encode(TEXTS[2:4])
