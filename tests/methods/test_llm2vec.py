"""LLM2Vec (BehnamGhader et al. 2024): masked next token prediction and SimCSE of causal models that attend in both
directions, by LoRA; against transformers, a text at a time with a mask that hides nothing, and MTEB's results.
PromptEOL's fine-tuning (Jiang et al. 2023): supervised SimCSE of causal models on texts inside a template, by LoRA; and
CSE-SFP (Zhang et al. 2025), which reads anchor and positive off one pass over a sentence. Against transformers, a text at a
time, and from a model to an export that every reader reads alike."""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from families import FAMILIES
from method_oracle import IGNORED, MemoryRows, batch_of
from method_runs import train
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from shipped_recipes import recipe
from simcse_oracle import info_nce
from tiny_decoders import TEXTS, tokenizer
from tiny_models import sentences

from stsbench import load_encoder
from stsbench.encoders.prompt.template import with_full_stop
from stsbench.methods.mlm.method import MaskedLM
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.batch import Shares
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.lora import merged_state
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch

MTEB = Path(__file__).resolve().parents[3] / "shared" / "published" / "mteb_sts.tsv.gz"
SCALE = 3.0
LORA = {"rank": 2, "alpha": 2 * SCALE, "dropout": 0.0}


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def folder(request, tmp_path_factory):
    """A causal LM of two layers whose output layer is of its own, but for Gemma's."""
    folder = tmp_path_factory.mktemp(request.param) / "model"
    (kind, settings), words = FAMILIES[request.param], tokenizer("bos")
    config = getattr(hf, f"{kind}Config")(
        **{**settings, "vocab_size": len(words), "pad_token_id": 0, "sliding_window": 64, "num_hidden_layers": 2})
    torch.manual_seed(3)
    model = getattr(hf, kind.removesuffix("Text") + "ForCausalLM")(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def backbone_of(folder, pooler="mean", cut=16, bidirectional=True):
    """With changes that are not 0."""
    torch.manual_seed(0)
    backbone = load_backbone(folder, folder.name, pooler, cut, bidirectional=bidirectional, lora=LORA)
    backbone.folder, backbone.name = folder, folder.name
    for name, weight in backbone.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    return backbone


def add_changes(model, backbone):
    changes = dict(backbone.model.named_parameters())
    for name, weight in model.named_parameters():
        path = f"{name.removesuffix('.weight')}.lora_"
        if f"{path}A.backbone.weight" in changes:
            first, second = (changes[f"{path}{part}.backbone.weight"].detach().double() for part in "AB")
            weight.data += SCALE * second @ first


def causal_lm(folder, backbone):
    """transformers' own, in float64, with the changes added by hand; and its states and logits of one text."""
    whole = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    add_changes(whole.model, backbone)

    def read(ids):
        seen = torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)
        output = whole(input_ids=ids[None], attention_mask=seen, output_hidden_states=True)
        return output.hidden_states[-1][0], output.logits[0]

    return whole, read


def check(method, batch, expected, plain):
    """The loss is that expected, and gradients of A and B those that follow from transformers' of the changed weights."""
    (term,) = method(batch).values()
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
        expected = SCALE * (other.T @ gradient if part[0] == "A" else gradient @ other.T)
        difference = method.get_parameter(name).grad - expected
        assert difference.norm() < 2e-5 * expected.norm()  # transformers computes norms and softmax in float32
    return term


def plain_rows(folder):
    return MemoryRows(folder, {"sentence": [text for text in TEXTS if text]})


def test_loss_vectors_and_gradients_are_those_of_a_loop(folder):
    backbone = backbone_of(folder)
    whole, read = causal_lm(folder, backbone)
    method = MaskedLM(backbone, MaskedLM.Options(predict="previous", mask_token="_", probability=0.5)).double()
    batch = batch_of(method, plain_rows(folder))
    losses = []
    for ids, labels, mask in zip(batch.ids, batch.extra["mlm_labels"], batch.mask, strict=True):
        states, logits = read(ids[: int(mask.sum())])
        assert torch.allclose(backbone.pooled(ids[None], mask[None])[0], states.mean(0), atol=1e-6)
        losses += [-logits[at - 1].log_softmax(0)[label] for at, label in enumerate(labels) if label != IGNORED and at]
        assert labels[0] == IGNORED
    expected = sum(losses) / len(losses)
    assert check(method, batch, expected, whole.model).count == len(losses) > 10
    before, merged = dict(whole.model.named_parameters()), merged_state(backbone.model)
    assert merged.keys() == before.keys()
    assert all(torch.allclose(merged[name], weight, atol=1e-7) for name, weight in before.items())


def test_the_released_mean_of_simcse_is_over_the_padding_before_a_text(folder):
    """It is that of the class: `last_hidden_state[i, -0:]`, the whole row, padded left by the token that ends a text."""
    backbone = backbone_of(folder)
    whole, _ = causal_lm(folder, backbone)
    method = SimCSE(backbone.eval(), SimCSE.Options(head="none", mean_over="row")).double()
    rows = plain_rows(folder).ids("sentence")
    ids = torch.full((len(rows), max(map(len, rows))), backbone.tokenizer.eos_token_id)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, -len(row):], mask[number, -len(row):] = torch.tensor(row), 1
    hidden = torch.where(mask.bool(), 0.0, -torch.inf).double()[:, None, None].expand(-1, 1, ids.shape[1], -1)
    vectors = whole.model(input_ids=ids, attention_mask=hidden).last_hidden_state.mean(1)
    expected = info_nce(vectors, vectors)
    check(method, batch_of(method, plain_rows(folder)), expected, whole.model)
    views, n = method.views(plain_rows(folder), np.random.default_rng(0)), len(rows)
    for rank, part in enumerate((vectors[:2], vectors[2:])):  # whatever share a process has, also without the longest text
        share = to_batch(views, Shares((2, n - 2), rank), 0, vectors.device)
        assert torch.allclose(method.vectors(share.ids[: len(share)], share.mask[: len(share)]), part, atol=1e-5)
    own = SimCSE(backbone, SimCSE.Options(head="none"))
    assert abs(own(batch_of(own, plain_rows(folder)))["contrastive"].value.item() / expected.item() - 1) > 1e-3


@pytest.mark.parametrize("folder", ["gemma3"], indirect=True)
def test_both_steps_from_a_causal_model_to_an_encoder(folder, tmp_path):
    """The second starts from what the first exported; the export is a plain model that every reader takes for one that
    attends in both directions, and nothing but the changed layers is another than at the start."""
    (tmp_path / "text.txt").write_text("\n".join(sentences(30, longest=9)) + "\n", "utf-8")
    values = {"data.file": str(tmp_path / "text.txt"), "training.batch_size": 10, "training.max_steps": 2,
              "training.learning_rate": 0.01, "backbone.max_length": 16, "precision": "float32", "checkpoint_every": 1}
    start = str(folder)
    for method in ("mlm", "simcse"):
        sets = [f"{key}={json.dumps(value)}" for key, value in {**values, "backbone.model": start}.items()]
        train(load_recipe(method, "llm2vec-llama-2-7b-chat", sets), tmp_path / method, tmp_path)
        start = str(tmp_path / method / "best")
    assert json.loads((tmp_path / "simcse" / "best" / "config.json").read_text("utf-8"))["is_causal"] is False
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


TEMPLATE = 'This sentence : "{}" means in one word:"'
CUT = 6
ROWS = {"anchor": ["the cat runs home today , and sleeps", 'is it "so" ?', "a dog"],
        "positive": ["a cat runs", "so it is", "one dog ."], "negative": ["no cat runs", "it is not so", "a cow"]}


def templated(folder, **options):
    """The method; transformers' own model in float64, with the changes added by hand; its tokenizer."""
    backbone = backbone_of(folder, "last", CUT, bidirectional=False)
    plain = hf.AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    add_changes(plain, backbone)
    chosen = SimCSE.Options(**{"view": "given", "head": "none", "template": TEMPLATE, **options})
    return SimCSE(backbone, chosen).double(), plain, hf.AutoTokenizer.from_pretrained(folder)


def test_loss_and_gradients_are_those_of_a_loop(folder):
    """Each text is cut, decoded, put into the template and read alone, its last state compared with all others'."""
    method, plain, words = templated(folder)

    def vector(text):
        cut = words.decode(words(text, add_special_tokens=False)["input_ids"][:CUT])
        return plain(input_ids=torch.tensor([words(TEMPLATE.replace("{}", cut))["input_ids"]])).last_hidden_state[0, -1]

    expected = info_nce(*(torch.stack([vector(text) for text in texts]) for texts in ROWS.values()))
    check(method, batch_of(method, MemoryRows(folder, ROWS)), expected, plain)


def test_anchor_and_positive_of_one_pass_are_those_of_a_loop(folder):
    """The last token is the anchor, the end of an earlier word of the template the positive."""
    template = 'The "{}" means a word, it is as'
    method, plain, words = templated(folder, view="dropout", template=template, positive_word="word")
    anchors, positives = [], []
    for text in ROWS["anchor"]:
        cut = words.decode(words(text, add_special_tokens=False)["input_ids"][:CUT])
        ids = words(template.replace("{}", cut))["input_ids"]
        place = next(at for at in range(len(ids)) if words.decode(ids[: at + 1]).endswith("word"))
        states = plain(input_ids=torch.tensor([ids])).last_hidden_state[0]
        anchors.append(states[-1])
        positives.append(states[place])
    batch = batch_of(method, MemoryRows(folder, {"sentence": ROWS["anchor"]}))
    check(method, batch, info_nce(torch.stack(anchors), torch.stack(positives)), plain)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_an_export_reads_texts_as_they_are_tested_in_every_reader(folder, tmp_path):
    """Inside the template, after PromptEOL's clean-up, which is the same to the preset of that name."""
    (tmp_path / "rows.csv").write_text("sent0,sent1,hard_neg\n" + "a cat,the cat,a dog\nit runs,it ran,it stops\n" * 8)
    changed = {"backbone.model": str(folder), "data.file": str(tmp_path / "rows.csv"), "training.batch_size": 4,
               "training.max_steps": 2, "training.learning_rate": 0.01, "backbone.max_length": CUT, "precision": "float32",
               "selection.by": "none", "backbone.lora.base": "whole"}
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
