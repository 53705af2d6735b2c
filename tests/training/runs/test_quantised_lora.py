"""backbone.lora on a base in 4 bits (Dettmers et al. 2023, QLoRA): nf4 as its paper defines it, loss and gradients against a
loop over the dequantised weights, and from a model to an export and an adapter that every reader reads alike."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from families import FAMILIES, family_model
from method_oracle import batch_of
from method_runs import StopAt, Stopped, train
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from tiny_decoders import tokenizer
from tiny_models import sentences

from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError
from stsbench.methods.pcl.method import Peer
from stsbench.methods.pcl.options import PeerOptions
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.modules.copies import Conditioned
from stsbench.training.modules.lora import adapt, merged_state
from stsbench.training.recipes.recipes import load_recipe

library = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install 'stsbench[qlora]'")
SCALE = 3.0
TEXTS = ["cat", "the man runs .", "a dog with a guitar"]
POOLERS = {"llama": "last", "modernbert": "mean"}
WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2}
# Appendix E of the paper: quantiles of the normal distribution, scaled to [-1, 1]
CODES = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])


@pytest.fixture(scope="module", params=POOLERS)
def model(request, tmp_path_factory):
    """(folder, pooler)"""
    (kind, settings), words = FAMILIES[request.param], tokenizer("eos")
    folder = tmp_path_factory.mktemp("qlora") / request.param
    config = getattr(hf, f"{kind}Config")(**{**settings, **WIDE, "vocab_size": len(words), "pad_token_id": 0})
    torch.manual_seed(3)
    getattr(hf, f"{kind}Model")(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder, POOLERS[request.param]


@pytest.fixture(scope="module")
def recipe(model, tmp_path_factory):
    folder, pooler = model
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("\n".join(sentences(30, longest=9)) + "\n", "utf-8")
    values = {"backbone.model": str(folder), "backbone.pooler": pooler, "options.head": "none",
              "backbone.lora": {"rank": 2, "base": "nf4_double"}, "data.file": str(text),
              "training.batch_size": 10, "training.max_steps": 3, "training.learning_rate": 0.05, "precision": "float32",
              "selection.by": "none", "backbone.dropout": 0.1, "checkpoint_every": 1}
    return load_recipe("simcse", "unsup-bert-base", [f"{key}={json.dumps(value)}" for key, value in values.items()])


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    """The folder of a run that nobody disturbed."""
    place = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library.nn.modules, "has_avx512bf16", lambda: False)  # with it, the library rounds in eval mode
        train(recipe, place / "whole", place)
        yield place / "whole"


def nf4(weight):
    """The nearest codes, times the greatest magnitude of their 64 numbers."""
    blocks = weight.flatten().split(64)
    near = [CODES[(block[:, None] / block.abs().max() - CODES).abs().argmin(1)] * block.abs().max() for block in blocks]
    return torch.cat(near).view_as(weight)


class Rows:
    roles = ("anchor", "positive")

    def __init__(self, words):
        self.words = words

    def ids(self, role):
        texts = TEXTS if role == "anchor" else [*TEXTS[1:], TEXTS[0]]
        return [np.array(self.words(text)["input_ids"], np.int32) for text in texts]


def test_loss_and_gradients_are_those_of_a_loop_over_the_dequantised_weights(model):
    folder, pooler = model
    torch.manual_seed(0)
    backbone = load_backbone(folder, "x", pooler, lora={"rank": 2, "alpha": 2 * SCALE, "base": "nf4"}, dropout=0.0)
    backbone.folder, backbone.name = folder, "x"
    plain = hf.AutoModel.from_pretrained(folder, dtype=torch.float32)
    for layer in plain.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data = nf4(layer.weight.data)
    before, state = dict(plain.named_parameters()), merged_state(backbone.model)  # B is 0
    assert state.keys() == plain.state_dict().keys()
    assert all(torch.allclose(state[name], weight, rtol=1e-6) for name, weight in before.items())
    weights = {name: weight for name, weight in backbone.model.named_parameters() if weight.requires_grad}
    for name, weight in weights.items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
            path = name.removesuffix(".lora_B.backbone.weight")
            before[f"{path}.weight"].data += SCALE * (weight @ weights[name.replace("lora_B", "lora_A")]).detach()
    plain, words = plain.double().eval(), hf.AutoTokenizer.from_pretrained(folder)

    def vector(ids):
        states = plain(input_ids=torch.tensor(ids)[None]).last_hidden_state[0]
        pooled = states[-1] if pooler == "last" else states.mean(0)
        return pooled / pooled.norm()

    method = SimCSE(backbone.eval(), SimCSE.Options(view="given", head="none"))
    rows = Rows(words)
    anchors, positives = ([vector(ids) for ids in rows.ids(role)] for role in rows.roles)
    losses = []
    for number, anchor in enumerate(anchors):
        logits = torch.stack([anchor @ other / 0.05 for other in positives])
        losses.append(logits.logsumexp(0) - logits[number])
    expected = sum(losses) / len(losses)
    (term,) = method(batch_of(method, rows)).values()
    assert term.value.item() == pytest.approx(expected.item(), rel=5e-6)  # one is in float32
    term.value.backward()
    expected.backward()
    for name, weight in weights.items():
        path, _, part = name.partition(".lora_")
        other = weights[f"{path}.lora_{'B' if part[0] == 'A' else 'A'}.backbone.weight"].detach().double()
        gradient = before[f"{path}.weight"].grad
        wanted = SCALE * (other.T @ gradient if part[0] == "A" else gradient @ other.T)
        assert (weight.grad - wanted).norm() < 2e-5 * wanted.norm()


def test_a_copy_whose_weights_are_all_trained_is_refused():
    model = family_model("bert")
    adapt(model, "x", 2, 2, base="nf4")
    backbone = Backbone(model, None)
    for kind, parts in ((Conditioned, ()), (Peer, (PeerOptions(),))):
        backbone.folder, backbone.name = "x", "x"
        with pytest.raises(EncoderError, match=r"^backbone\.lora\.base: all weights of .* are trained, .*: set it to whole"):
            kind(backbone, *parts)


def apart(some, others):
    return np.abs(some - others).max() / np.abs(others).max()


def test_an_export_and_an_adapter_give_every_reader_the_same_vectors(model, run):
    (folder, pooler), best, adapter = model, run / "best", run / "adapter"
    vectors = load_encoder(str(best), device="cpu").encode(TEXTS)
    encoder = load_encoder(str(adapter), device="cpu")
    readers = [encoder, *(SentenceTransformer(str(place), device="cpu") for place in (best, adapter))]
    assert all(apart(reader.encode(TEXTS), vectors) < 5e-5 for reader in readers)
    assert apart(load_encoder(str(folder), pooler=pooler, device="cpu").encode(TEXTS), vectors) > 0.1
    assert "bitsandbytes" in encoder.traits.libraries
    how = json.loads((adapter / "sentence_bert_config.json").read_text("utf-8"))["model_args"]
    base = hf.AutoModel.from_pretrained(folder, quantization_config=hf.BitsAndBytesConfig(**how["quantization_config"]))
    read, words = PeftModel.from_pretrained(base, adapter), hf.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [read(**words(text, return_tensors="pt")).last_hidden_state[0] for text in TEXTS]
    pooled = [state[-1] if pooler == "last" else state.mean(0) for state in states]
    assert apart(torch.stack(pooled).numpy(), vectors) < 5e-5


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_a_resumed_training_is_the_whole_one_and_a_checkpoint_holds_the_bits(recipe, run, tmp_path):
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", tmp_path, callback=StopAt(2))
    train(recipe, tmp_path / "run", tmp_path, resume=True)
    ends = [folder / "best" / "model.safetensors" for folder in (run, tmp_path / "run")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
    (stored, *_) = sorted((tmp_path / "run" / "checkpoints").glob("*/model.safetensors"))
    assert stored.stat().st_size < ends[0].stat().st_size / 2
