"""LoRA's sets: which of them acts, and merged copies against BERT's equations written out. Gradients: test_diffaug.py. LoRA
on 4 bits (Dettmers et al. 2023, QLoRA): nf4 as defined there, loss and gradients of a loop over the dequantised weights, and
what every reader makes of the export and the adapter. backbone.layers: the model is the one that holds these layers alone. A
table of tokens' vectors, trained: sentence-transformers' loss of the same table, and three readers of the export."""

import copy
import json

import method_runs
import numpy as np
import pytest
import torch
import transformers as hf
from bert_equations import LAYERS, Change, encode, joined, leaves, lora_of
from families import FAMILIES, family_model
from method_oracle import MemoryRows, batch_of
from model_folder_kinds import WIDTH, declare, normalize, static
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss
from shipped_recipes import one_line
from tiny_decoders import tokenizer
from tiny_models import build, sentences
from transformers import AutoModel, GPT2Config, GPT2Model

import stsbench
from stsbench import load_encoder, losses
from stsbench.encoders.forward.model import keep_layers
from stsbench.encoders.transformer.find import backbone_folder
from stsbench.errors import EncoderError
from stsbench.methods.pcl.method import Peer
from stsbench.methods.pcl.options import PeerOptions
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.modules.backbone import Backbone, load_backbone, look_ahead
from stsbench.training.modules.copies import Conditioned
from stsbench.training.modules.lora import adapt, add_lora, lora_weights, merged, merged_state, using
from stsbench.training.modules.packed_training import packable
from stsbench.training.modules.static_table import write_table
from stsbench.training.recipes.recipes import load_recipe

IDS = torch.tensor([[6, 9, 20, 11, 8], [7, 5, 5, 30, 12]])
START = {"bert": 0, "roberta": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("lora")
    return {family: build(place / family, family, layers=LAYERS) for family in START}


def plain_model(folder):
    return AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).double().eval()


def model_of(folder):
    model = plain_model(folder)
    torch.manual_seed(3)
    add_lora(model, 2, 3, 1.5)
    for weight in lora_weights(model):  # B is zero in the beginning
        torch.nn.init.normal_(weight, std=0.3)
    return model


def states(model, ids=IDS):
    return model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state


def far(one, two):
    return (one - two).abs().max().item()


def test_what_acted_before_acts_again_after_errors_and_inside_one_another(folders):
    model = model_of(folders["bert"])
    before = states(model)
    with using(model, 0):
        first = states(model)
        with using(model, 1):
            assert far(states(model), first) > 0.01
        assert torch.equal(states(model), first)
    with using(model, 1):
        states(model).square().sum().backward()
    for name, weight in model.named_parameters():  # a set that does not act gets no gradient
        assert (weight.grad is None) == (".set0." in name), name
    with pytest.raises(KeyError), using(model, 1):
        raise KeyError
    assert torch.equal(states(model), before)
    for index in (2, -1):
        with pytest.raises(ValueError, match=f"set {index} asked for, and there are 2"), using(model, index):
            pass
        with pytest.raises(ValueError, match="asked for"):
            merged(model, index)


@pytest.mark.parametrize(("family", "which"), [("roberta", 1), ("bert", "sum"), ("roberta", "mean")])
def test_a_merged_copy_is_a_plain_model(folders, family, which, tmp_path):
    model = model_of(folders[family])
    before = copy.deepcopy(model.state_dict())
    weights = leaves(model)
    changes = lora_of(weights, 2, 1.5)
    halves = [Change(lora=change.lora, scale=0.75) for change in changes]
    change = {1: changes[1], "sum": joined(changes), "mean": joined(halves)}[which]
    with using(model, 1):
        states(model).sum().backward()
        grads = [weight.grad for weight in model.parameters()]
        actual = merged(model, which)
        assert all(one is two.grad for one, two in zip(grads, model.parameters(), strict=True))
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert actual.state_dict().keys() == plain_model(folders[family]).state_dict().keys()
    assert packable(actual) and packable(model)
    assert not any("peft" in type(part).__module__ for part in actual.modules())
    assert all(weight.grad is None and weight.requires_grad for weight in actual.parameters())
    positions = list(range(START[family], START[family] + IDS.shape[1]))
    assert far(states(actual), torch.stack([encode(weights, row, positions, change) for row in IDS.tolist()])) < 1e-9
    actual.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path, dtype=torch.float64, add_pooling_layer=False).eval()
    assert far(states(again), states(actual)) < 1e-12
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


def test_what_a_method_freezes_stays_frozen_below_its_changes_too(tmp_path):
    place = method_runs.make_place(tmp_path)
    recipe = method_runs.recipe_of(place, "promptbert-words", **{"backbone.lora": {"rank": 2}})
    with pytest.raises(method_runs.Stopped):
        method_runs.train(recipe, tmp_path / "run", place, callback=method_runs.StopAt(2))
    (weights,) = sorted((tmp_path / "run" / "checkpoints").glob("0-main-*1/model.safetensors"))
    changes = {name: weight for name, weight in load_file(weights).items() if "lora_B.backbone" in name}
    assert changes and all(not weight.any() for weight in changes.values())


@pytest.mark.parametrize(("kind", "more"), [
    ("Lfm2", {"layer_types": ["conv", "full_attention"]}),  # its convolutions look back alone
    ("Llama4Text", {"attention_chunk_size": 4}),  # above four tokens it is causal again
    ("Mpt", {"n_heads": 4, "d_model": 32, "n_layers": 2})])
def test_a_model_that_looks_ahead_in_part_is_refused(kind, more):
    shape = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
             "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, **more}
    model = getattr(hf, f"{kind}Model")(getattr(hf, f"{kind}Config")(**shape))
    with pytest.raises(EncoderError, match=f"a {kind}Model cannot be switched to both directions"):
        look_ahead(model, "m")


LAYERS_IDS = torch.tensor([[5, 6, 7, 8, 9, 4], [9, 8, 7, 6, 0, 0]])
MASK = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])


@pytest.mark.parametrize(("family", "layers", "holder"), [
    ("mpnet", [0, 2, 3], "encoder"), ("distilbert", [1, 3], "transformer")])
def test_it_is_the_model_that_holds_these_layers_alone(tmp_path, family, layers, holder):
    source = build(tmp_path / "whole", family, layers=4)
    other = AutoModel.from_pretrained(source).eval()
    stack = other.get_submodule(holder)
    stack.layer = torch.nn.ModuleList(stack.layer[number] for number in layers)
    for engine in ("auto", "padded"):
        backbone = load_backbone(source, "tiny", "mean", dropout=0.0, layers=layers)
        backbone.engine = engine
        with torch.no_grad():
            states = backbone.eval()(LAYERS_IDS, MASK, (0, -1))
            expected = other(input_ids=LAYERS_IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
        real = MASK.bool()
        for state, known in zip(states, (expected[0], expected[-1]), strict=True):
            assert torch.allclose(state[real], known[real], rtol=0, atol=1e-5)
    assert backbone.model.config.num_hidden_layers == len(layers)


def test_layers_that_are_what_their_number_makes_them_are_refused():
    model = GPT2Model(GPT2Config(n_layer=3, n_head=2, n_embd=8, vocab_size=30, scale_attn_by_inverse_layer_idx=True))
    one_line(lambda: keep_layers(model, [0, 2], "tiny", "backbone.layers"), "differ by their number")
    plain = GPT2Model(GPT2Config(n_layer=3, n_head=2, n_embd=8, vocab_size=30))
    plain.config.layer_kinds = ["local", "global", "local"]
    one_line(lambda: keep_layers(plain, [0, 2], "tiny", "backbone.layers"), "differ by their number (layer_kinds)")
    plain.config.layer_kinds = ["local", "local", "local"]
    keep_layers(plain, [0, 2], "tiny", "backbone.layers")
    assert plain.config.layer_kinds == ["local", "local"] and plain.config.n_layer == 2
    assert [block.attn.layer_idx for block in plain.h] == [0, 1]


TEXTS = sentences(20, longest=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("static") / "model"
    declare(path, static(6), normalize(), first=None)
    return path


def test_the_loss_and_its_gradient_are_sentence_transformers(folder):
    backbone = load_backbone(backbone_folder(str(folder)), "x", "mean", max_length=64)
    columns = [["a cat sits", "two dogs run fast", "music in the park"], ["the cat sat", "dogs run", "a guitar played"]]
    vectors = []
    for texts in columns:
        rows = [torch.tensor(ids) for ids in backbone.tokenise(texts)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        vectors.append(backbone.pooled(ids, mask))
    value = losses.info_nce(*vectors, temperature=0.05)
    value.backward()
    model = SentenceTransformer(str(folder), device="cpu")
    expected = MultipleNegativesRankingLoss(model, scale=20)([model.preprocess(texts) for texts in columns], None)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(backbone.model.embeddings.weight.grad, model[0].embedding.weight.grad, atol=1e-6, rtol=1e-5)


def test_what_a_call_of_the_tokenizer_leaves_in_it_cuts_no_text_of_the_export(folder, tmp_path):
    backbone = load_backbone(backbone_folder(str(folder)), "x", "mean", max_length=64)
    backbone.tokenizer(TEXTS, truncation=True, max_length=2)
    write_table(backbone.model, backbone.tokenizer, tmp_path, normalize=False)
    vectors, expected = (load_encoder(str(place)).encode(TEXTS, normalize_embeddings=True) for place in (tmp_path, folder))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_a_run_is_read_alike_by_all_and_has_learnt(folder, tmp_path):
    """Five large steps: a text is to be nearer to its vector in the table at first than to those of other texts."""
    trained = tmp_path / "run"
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in TEXTS * 4), "utf-8")
    stsbench.train("distil", recipe="static", output=trained, device="cpu", settings={
        "backbone.model": str(folder), "data.file": str(tmp_path / "text.txt"), "data.held_out": 4, "training.batch_size": 8,
        "options.teachers": [{"model": str(folder)}], "options.projection": "none", "options.pca_texts": 40_000,
        "options.center": False, "training.max_steps": 5, "training.learning_rate": 0.1})
    vectors = load_encoder(str(trained)).encode(TEXTS)
    np.testing.assert_array_equal(vectors, SentenceTransformer(str(trained / "best"), device="cpu").encode(TEXTS))
    rows = load_file(trained / "best/model.safetensors")["embeddings"]
    before = load_file(folder / "0_StaticEmbedding/model.safetensors")["embedding.weight"]
    assert rows.shape == before.shape == (len(before), WIDTH) and (rows - before).abs().max() > 0.01
    StaticModel = pytest.importorskip("model2vec").StaticModel
    np.testing.assert_allclose(StaticModel.from_pretrained(trained / "best").encode(TEXTS), vectors, atol=1e-6)


# --- a base in 4 bits ---
SCALE = 3.0
SHORT = ["cat", "the man runs .", "a dog with a guitar"]
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
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install 'stsbench[qlora]'")
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
        patch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: False)  # with it, the library rounds in eval mode
        method_runs.train(recipe, place / "whole", place)
        yield place / "whole"


def nf4(weight):
    """The nearest codes, times the greatest magnitude of their 64 numbers."""
    blocks = weight.flatten().split(64)
    near = [CODES[(block[:, None] / block.abs().max() - CODES).abs().argmin(1)] * block.abs().max() for block in blocks]
    return torch.cat(near).view_as(weight)


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
    plain = plain.double().eval()

    def vector(ids):
        states = plain(input_ids=torch.tensor(ids)[None]).last_hidden_state[0]
        pooled = states[-1] if pooler == "last" else states.mean(0)
        return pooled / pooled.norm()

    method = SimCSE(backbone.eval(), SimCSE.Options(view="given", head="none"))
    rows = MemoryRows(folder, {"anchor": SHORT, "positive": [*SHORT[1:], SHORT[0]]})
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
    backbone.folder, backbone.name = "x", "x"
    for kind, parts in ((Conditioned, ()), (Peer, (PeerOptions(),))):
        with pytest.raises(EncoderError, match=r"^backbone\.lora\.base: all weights of .* are trained, .*: set it to whole"):
            kind(backbone, *parts)


def apart(some, others):
    return np.abs(some - others).max() / np.abs(others).max()


def test_an_export_and_an_adapter_give_every_reader_the_same_vectors(model, run):
    (folder, pooler), best, adapter = model, run / "best", run / "adapter"
    vectors = load_encoder(str(best), device="cpu").encode(SHORT)
    encoder = load_encoder(str(adapter), device="cpu")
    readers = [encoder, *(SentenceTransformer(str(place), device="cpu") for place in (best, adapter))]
    assert all(apart(reader.encode(SHORT), vectors) < 5e-5 for reader in readers)
    assert apart(load_encoder(str(folder), pooler=pooler, device="cpu").encode(SHORT), vectors) > 0.1
    assert "bitsandbytes" in encoder.traits.libraries
    how = json.loads((adapter / "sentence_bert_config.json").read_text("utf-8"))["model_args"]
    base = hf.AutoModel.from_pretrained(folder, quantization_config=hf.BitsAndBytesConfig(**how["quantization_config"]))
    read, words = PeftModel.from_pretrained(base, adapter), hf.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [read(**words(text, return_tensors="pt")).last_hidden_state[0] for text in SHORT]
    pooled = [state[-1] if pooler == "last" else state.mean(0) for state in states]
    assert apart(torch.stack(pooled).numpy(), vectors) < 5e-5


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_a_resumed_training_is_the_whole_one_and_a_checkpoint_holds_the_bits(recipe, run, tmp_path):
    with pytest.raises(method_runs.Stopped):
        method_runs.train(recipe, tmp_path / "run", tmp_path, callback=method_runs.StopAt(2))
    method_runs.train(recipe, tmp_path / "run", tmp_path, resume=True)
    ends = [folder / "best" / "model.safetensors" for folder in (run, tmp_path / "run")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
    (stored, *_) = sorted((tmp_path / "run" / "checkpoints").glob("*/model.safetensors"))
    assert stored.stat().st_size < ends[0].stat().st_size / 2
