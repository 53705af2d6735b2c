"""LLM2Vec (BehnamGhader et al. 2024): masked next token prediction and SimCSE of causal models that attend in both
directions, by LoRA; against transformers, a text at a time with a mask that hides nothing, and MTEB's results."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from families import FAMILIES
from method_oracle import IGNORED, batch_of
from method_runs import train
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from shipped_recipes import recipe
from tiny_decoders import TEXTS, tokenizer
from tiny_models import sentences

from stsbench.encoders.load import load_encoder
from stsbench.methods.mlm.method import MaskedLM
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.lora import merged_state
from stsbench.training.recipes.recipes import load_recipe

MTEB = Path(__file__).resolve().parents[3] / "shared" / "published" / "mteb_sts.tsv.gz"
SCALE = 3.0
LORA = {"rank": 2, "alpha": 2 * SCALE, "dropout": 0.0}
NEXT = {"predict": "previous", "mask_token": "_", "probability": 0.5}


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def folder(request, tmp_path_factory):
    """A causal LM whose output layer is of its own, but for Gemma's."""
    (kind, settings), words = FAMILIES[request.param], tokenizer("bos")
    kind = kind.removesuffix("Text")
    config = getattr(hf, f"{FAMILIES[request.param][0]}Config")(
        **{**settings, "vocab_size": len(words), "pad_token_id": 0, "sliding_window": 64, "num_hidden_layers": 2})
    torch.manual_seed(3)
    model = getattr(hf, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    place = tmp_path_factory.mktemp(request.param) / "model"
    model.save_pretrained(place)
    words.save_pretrained(place)
    return place


def backbone_of(folder):
    """With changes that are not 0."""
    torch.manual_seed(0)
    backbone = load_backbone(folder, folder.name, "mean", 16, bidirectional=True, lora=LORA)
    backbone.folder, backbone.name = folder, folder.name
    for name, weight in backbone.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    return backbone


def causal_lm(folder, backbone):
    """transformers' own, in float64, with the changes added by hand; and its states and logits of one text."""
    whole = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    changes = dict(backbone.model.named_parameters())
    for name, weight in whole.model.named_parameters():
        path = f"{name.removesuffix('.weight')}.lora_"
        if f"{path}A.backbone.weight" in changes:
            first, second = (changes[f"{path}{part}.backbone.weight"].detach().double() for part in "AB")
            weight.data += SCALE * second @ first

    def read(ids):
        seen = torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)
        output = whole(input_ids=ids[None], attention_mask=seen, output_hidden_states=True)
        return output.hidden_states[-1][0], output.logits[0]

    return whole, read


class Texts:
    roles = ("sentence",)

    def __init__(self, backbone):
        self.backbone = backbone

    def ids(self, role):
        return [np.array(row, np.int32) for row in self.backbone.tokenise([text for text in TEXTS if text])]


def test_loss_vectors_and_gradients_are_those_of_a_loop(folder):
    backbone = backbone_of(folder)
    whole, read = causal_lm(folder, backbone)
    method = MaskedLM(backbone, MaskedLM.Options(**NEXT)).double()
    batch = batch_of(method, Texts(backbone))
    losses = []
    for ids, labels, mask in zip(batch.ids, batch.extra["mlm_labels"], batch.mask, strict=True):
        states, logits = read(ids[: int(mask.sum())])
        vector = backbone.pooled(ids[None], mask[None])
        assert torch.allclose(vector[0], states.mean(0), atol=1e-6)
        losses += [-logits[at - 1].log_softmax(0)[label] for at, label in enumerate(labels) if label != IGNORED and at]
        assert labels[0] == IGNORED
    expected = sum(losses) / len(losses)
    (term,) = method(batch).values()
    assert term.count == len(losses) > 10 and term.value.item() == pytest.approx(expected.item(), rel=1e-6)
    term.value.backward()
    expected.backward()
    before, count = dict(whole.model.named_parameters()), 0
    for name, weight in method.named_parameters():
        path, _, part = name.removeprefix("backbone.model.").partition(".lora_")
        assert weight.requires_grad == bool(part)
        if part.startswith("A"):
            other = method.get_parameter(f"backbone.model.{path}.lora_B.backbone.weight")
            gradient = before[f"{path}.weight"].grad
            assert torch.allclose(weight.grad, SCALE * other.detach().T @ gradient, rtol=1e-5, atol=1e-6)
            assert torch.allclose(other.grad, SCALE * gradient @ weight.detach().T, rtol=1e-5, atol=1e-6)
            count += 1
    assert count == 14  # q, k, v, o, gate, up and down of two layers
    merged = merged_state(backbone.model)
    assert merged.keys() == before.keys()
    assert all(torch.allclose(merged[name], weight, atol=1e-7) for name, weight in before.items())


def test_both_steps_from_a_causal_model_to_an_encoder(folder, tmp_path):
    """The second starts from what the first exported; the export is a plain model that every reader takes for one that
    attends in both directions, and nothing but the changed layers is another than at the start."""
    (tmp_path / "text.txt").write_text("\n".join(sentences(30, longest=9)) + "\n", "utf-8")
    values = {"data.file": str(tmp_path / "text.txt"), "training.batch_size": 10, "training.max_steps": 2,
              "training.learning_rate": 0.01, "backbone.max_length": 16, "precision": "float32", "checkpoint_every": 1}
    start = str(folder)
    for method in ("mlm", "simcse"):
        changed = {**values, "backbone.model": start}
        sets = [f"{key}={json.dumps(value)}" for key, value in changed.items()]
        train(load_recipe(method, "llm2vec-llama-2-7b-chat", sets), tmp_path / method, tmp_path)
        start = str(tmp_path / method / "best")
    config = json.loads((tmp_path / "simcse" / "best" / "config.json").read_text("utf-8"))
    assert config["is_causal"] is False
    vectors = load_encoder(start, device="cpu").encode(TEXTS)
    assert np.abs(SentenceTransformer(start, device="cpu").encode(TEXTS) - vectors).max() < 1e-5
    before, after = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "mlm" / "best"))
    assert before.keys() == after.keys()
    differing = {name for name in before if not torch.equal(before[name], after[name])}
    assert differing == {name for name in before if "_proj" in name}


def test_a_recipe_has_the_scores_of_its_model_in_mteb_s_results():
    if not MTEB.exists():
        pytest.skip("MTEB's results are not beside the checkout")
    with gzip.open(MTEB, "rt", encoding="utf-8") as stream:
        rows = [line.split("\t") for line in stream]
    scores = {(row[0], row[2]): float(row[6]) for row in rows if row[3:6] == ["test", "default", "cosine_spearman"]}
    for name in ("sheared-llama-1.3b", "llama-2-7b-chat", "llama-3-8b-instruct", "mistral-7b-instruct"):
        shipped = recipe(f"llm2vec-{name}", "simcse")
        (row,) = shipped.published
        assert len(row.scores) == 7
        for task, score in row.scores.items():
            assert round(100 * scores[f"{shipped.backbone.model}-unsup-simcse", task], 2) == score
        assert recipe(f"llm2vec-{name}", "mlm").backbone.lora == shipped.backbone.lora
