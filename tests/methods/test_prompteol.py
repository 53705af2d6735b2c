"""PromptEOL's fine-tuning (Jiang et al. 2023): supervised SimCSE of causal models on texts inside a template, by LoRA;
against transformers, a text at a time, and from a model to an export that every reader reads alike."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers as hf
from families import FAMILIES
from method_oracle import batch_of
from method_runs import train
from sentence_transformers import SentenceTransformer
from tiny_decoders import tokenizer

from stsbench.encoders.load import load_encoder
from stsbench.encoders.prompt.template import with_full_stop
from stsbench.errors import StsbenchError
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.recipes import load_recipe

TEMPLATE = 'This sentence : "{}" means in one word:"'
CUT, SCALE = 6, 3.0
ROWS = {
    "anchor": ["the cat runs home today , and sleeps", 'is it "so" ?', "a dog"],
    "positive": ["a cat runs", "so it is", "one dog ."], "negative": ["no cat runs", "it is not so", "a cow"],
}


@pytest.fixture(scope="module", params=["llama", "mistral", "qwen3", "gemma3"])
def folder(request, tmp_path_factory):
    kind, settings = FAMILIES[request.param]
    words = tokenizer("bos")
    config = getattr(hf, f"{kind}Config")(
        **{**settings, "vocab_size": len(words), "pad_token_id": 0, "sliding_window": 64, "num_hidden_layers": 2})
    torch.manual_seed(3)
    place = tmp_path_factory.mktemp(request.param) / "model"
    getattr(hf, f"{kind}Model")(config).save_pretrained(place)
    words.save_pretrained(place)
    return place


class Rows:
    roles = tuple(ROWS)

    def texts(self, role):
        return ROWS[role]


def method_of(folder, pooler="last"):
    torch.manual_seed(0)
    backbone = load_backbone(folder, folder.name, pooler, CUT, lora={"rank": 2, "alpha": 2 * SCALE, "dropout": 0.0})
    backbone.folder, backbone.name = folder, folder.name
    for name, weight in backbone.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    return SimCSE(backbone, SimCSE.Options(view="given", head="none", template=TEMPLATE)).double()


def test_loss_and_gradients_are_those_of_a_loop(folder):
    """Each text is cut, decoded, put into the template and read alone, its last state compared with all others'."""
    method = method_of(folder)
    plain = hf.AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    changes = dict(method.backbone.model.named_parameters())
    for name, weight in plain.named_parameters():
        path = f"{name.removesuffix('.weight')}.lora_"
        if f"{path}A.backbone.weight" in changes:
            first, second = (changes[f"{path}{part}.backbone.weight"].detach().double() for part in "AB")
            weight.data += SCALE * second @ first
    words = hf.AutoTokenizer.from_pretrained(folder)

    def vector(text):
        cut = words.decode(words(text, add_special_tokens=False)["input_ids"][:CUT])
        ids = torch.tensor([words(f'This sentence : "{cut}" means in one word:"')["input_ids"]])
        state = plain(input_ids=ids).last_hidden_state[0, -1]
        return state / state.norm()

    anchors, positives, negatives = ([vector(text) for text in texts] for texts in ROWS.values())
    losses = []
    for number, anchor in enumerate(anchors):
        logits = torch.stack([anchor @ other / 0.05 for other in (*positives, *negatives)])
        losses.append(logits.logsumexp(0) - logits[number])
    expected = sum(losses) / len(losses)
    (term,) = method(batch_of(method, Rows())).values()
    assert term.value.item() == pytest.approx(expected.item(), rel=1e-6)
    term.value.backward()
    expected.backward()
    before = dict(plain.named_parameters())
    trained = [name for name, weight in method.named_parameters() if weight.requires_grad]
    assert len(trained) == 28  # A and B of q, k, v, o, gate, up and down of two layers
    for name in trained:
        path, _, part = name.removeprefix("backbone.model.").partition(".lora_")
        other = method.get_parameter(f"backbone.model.{path}.lora_{'B' if part[0] == 'A' else 'A'}.backbone.weight").detach()
        gradient = before[f"{path}.weight"].grad
        wanted = SCALE * (other.T @ gradient if part[0] == "A" else gradient @ other.T)
        difference = method.get_parameter(name).grad - wanted
        assert difference.norm() < 2e-5 * wanted.norm()  # transformers computes norms and softmax in float32


def test_an_export_reads_texts_as_they_are_tested_in_every_reader(folder, tmp_path):
    """Inside the template, after PromptEOL's clean-up, which is the same to the preset of that name."""
    (tmp_path / "rows.csv").write_text("sent0,sent1,hard_neg\n" + "a cat,the cat,a dog\nit runs,it ran,it stops\n" * 8)
    changed = {"backbone.model": str(folder), "data.file": str(tmp_path / "rows.csv"), "training.batch_size": 4,
               "training.max_steps": 2, "training.learning_rate": 0.01, "backbone.max_length": CUT, "precision": "float32",
               "selection.by": "none"}
    sets = [f"{key}={json.dumps(value)}" for key, value in changed.items()]
    train(load_recipe("simcse", "prompteol-opt-1.3b", sets), tmp_path / "run", tmp_path)
    best, texts = str(tmp_path / "run" / "best"), [*ROWS["anchor"], *ROWS["negative"]]
    vectors = load_encoder(best, device="cpu").encode(texts)
    asked = {"template": TEMPLATE, "pooler": "last", "device": "cpu"}
    cleaned = [with_full_stop(text, "prompteol") for text in texts]
    assert np.abs(load_encoder(best, **asked).encode(cleaned) - vectors).max() < 1e-6
    library = SentenceTransformer(best, device="cpu", trust_remote_code=True)
    library.save(str(tmp_path / "again"))
    for other in (library, load_encoder(str(tmp_path / "again"), device="cpu")):
        assert np.abs(other.encode(texts) - vectors).max() < 1e-5
    assert not (tmp_path / "run" / "adapter").exists()  # it would be read without the template, and nothing would say so
    assert np.abs(load_encoder(best, **{**asked, "template": "{}"}).encode(cleaned) - vectors).max() > 1e-3
    if find_spec("stsbench.extensions.decoders"):
        assert np.abs(load_encoder(best, preset="prompteol", device="cpu").encode(texts) - vectors).max() < 1e-6


def test_another_pooler_than_the_last_token_is_refused(folder):
    with pytest.raises(StsbenchError, match=r"options\.template is read at its last token"):
        method_of(folder, "mean")
