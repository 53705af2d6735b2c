"""DiffAug's two losses under every option of its prefixes against its equations, text by text: values and gradients."""

import math

import pytest
import torch
from diffaug_oracle import FIRST, LAYERS, TEMPLATES, WIDTH, oracle_of
from diffaug_small import NLI, PAIRS, PLAIN, QUADRUPLES, TRIPLETS, Texts, batch_for, check, diffaug, folders
from training_runs import one_thread
from transformers import BertConfig, BertModel

from stsbench.encoders.forward.batching import KeyValues
from stsbench.methods.diffaug.modules import PrefixEncoder, is_module
from stsbench.methods.diffaug.options import DiffAugOptions
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt

__all__ = ["folders", "one_thread"]


# --- the two losses ---


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("engine", ["packed", "padded"])
@pytest.mark.parametrize("options", [{}, {"views": "same"}, {"prefix_length": 3, "text": "inside"}], ids=str)
def test_stage_prefix(folders, family, engine, options):
    method = diffaug(folders[family], family, stage="prefix", engine=engine, **options)
    terms, trained = check(method, folders[family], family, NLI)
    assert terms["nli"].count == 2 * len(NLI["anchor"])
    assert {name.split(".")[0] for name in trained} == {"modules_of_views", "classifier"}


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize(("data", "engine"), [
    (PLAIN, "packed"), (PLAIN, "padded"), (PAIRS, "packed"), (TRIPLETS, "padded"), (QUADRUPLES, "packed"),
], ids=lambda value: value if isinstance(value, str) else str(len(value)))
def test_stage_joint(folders, family, engine, data):
    method = diffaug(folders[family], family, engine=engine, view="dropout" if "sentence" in data else "given")
    terms, trained = check(method, folders[family], family, data)
    assert terms["contrastive"].count == len(next(iter(data.values())))
    assert {name.split(".")[0] for name in trained} == {"backbone", "head", "modules_of_views"}


@pytest.mark.parametrize(("family", "options"), [
    ("bert", {"views": "same"}), ("bert", {"similarity": "dot"}), ("bert", {"temperature": 0.3}),
    ("bert", {"denoise": False}), ("bert", {"denoise_offset": 8}), ("bert", {"prefix_length": 1}),
    ("bert", {"joint_trains": "model"}), ("bert", {"joint_trains": "module"}), ("roberta", {"denoise": False}),
    ("roberta", {"views": "same", "prefix_length": 5}), ("roberta", {"text": "inside"}),
], ids=str)
def test_options_of_stage_joint(folders, family, options):
    _, trained = check(diffaug(folders[family], family, **options), folders[family], family, PLAIN)
    parts = {"model": {"backbone", "head"}, "module": {"modules_of_views", "head"}}
    wanted = parts.get(options.get("joint_trains"), {"backbone", "head", "modules_of_views"})
    assert {name.split(".")[0] for name in trained} == wanted


@pytest.mark.parametrize("offset", [0, 8])
@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_the_released_codes_start_of_robertas_template_alone(folders, engine, offset):
    values = []
    for start in ("own", "zero"):
        method = diffaug(folders["roberta"], "roberta", engine=engine, denoise_start=start, denoise_offset=offset)
        terms, _ = check(method, folders["roberta"], "roberta", PLAIN)
        values.append(terms["contrastive"].value.item())
    assert abs(values[0] - values[1]) > 1e-3


@pytest.mark.parametrize(("family", "weight"), [("bert", 2.0), ("roberta", 1e-3)])
def test_the_cross_entropy_beside(folders, family, weight):
    """Of longer rows and of shorter ones than the main batch; the template alone is never taken off them."""
    for labelled in (NLI, {role: ["cat", "dog"] for role in NLI}):
        method = diffaug(folders[family], family, aux_weight=weight)
        terms, trained = check(method, folders[family], family, PLAIN, labelled)
        assert terms["nli"].count == 2 * len(labelled["anchor"]) and "classifier.linear.weight" in trained


def test_beside_triplets(folders):
    check(diffaug(folders["bert"], "bert", aux_weight=0.5, view="given"), folders["bert"], "bert", TRIPLETS, NLI)


@pytest.mark.parametrize("stage", ["prefix", "joint"])
@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_padding_changes_nothing(folders, stage, engine):
    method = diffaug(folders["roberta"], "roberta", stage=stage, engine=engine)
    rows = Texts(folders["roberta"], NLI if stage == "prefix" else PLAIN)
    values = [next(iter(method(batch_for(method, rows, padding=columns)).values())).value.item() for columns in (0, 9)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


# --- what sees what ---


def test_view_by_view_the_prefix_that_is_not_its_own_changes_nothing(folders):
    """The second half acts on positives and hard negatives, the first on anchors, in the template alone, too."""
    method = diffaug(folders["bert"], "bert", view="given")
    batch = batch_for(method, Texts(folders["bert"], TRIPLETS))
    kept = []
    method.head.register_forward_hook(lambda module, inputs, output: kept.append(output.detach().split(len(batch))))
    method(batch)
    with torch.no_grad():
        method.modules_of_views.prefix.embedding.weight[2:] += 1
    method(batch)
    with torch.no_grad():
        method.modules_of_views.prefix.embedding.weight[:2] += 1
    method(batch)
    changed = [[not torch.equal(one, two) for one, two in zip(kept[i], kept[i + 1], strict=True)] for i in (0, 1)]
    assert changed == [[False, True, True], [True, False, False]]


@pytest.mark.parametrize("family", FIRST)
@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_a_prefix_that_no_row_sees_is_no_prefix_but_for_the_positions(folders, family, engine):
    method = diffaug(folders[family], family, engine=engine)
    batch = batch_for(method, Texts(folders[family], PLAIN))
    prefix = method.modules_of_views.prefix(torch.zeros(len(batch.ids), 4, dtype=torch.bool))
    places = method.template.mask_indices(batch.mask)
    hidden = method.backbone.at(batch.ids, batch.mask, places, SoftPrompt(prefix=prefix))
    first = FIRST[family] + 4
    positions = torch.arange(first, first + batch.ids.shape[1]).expand_as(batch.ids)
    shifted = method.backbone.at(batch.ids, batch.mask, places, SoftPrompt(positions=positions))
    assert (hidden - shifted).abs().max() < 1e-12
    assert (hidden - method.backbone.at(batch.ids, batch.mask, places)).abs().max() > 1e-3


def test_equal_views_have_the_loss_of_equal_vectors(folders):
    """One prefix for both views and no dropout: -log softmax of the similarities, whose diagonal is 1 / temperature."""
    method = diffaug(folders["bert"], "bert", views="same", denoise=False, temperature=1.0)
    batch = batch_for(method, Texts(folders["bert"], {"sentence": ["the cat"] * 5}))
    assert method(batch)["contrastive"].value.item() == pytest.approx(math.log(5), rel=1e-9)


# --- stages ---


def steps(method, batch, count=2):
    """So many steps of AdamW over what the stage trains."""
    optimiser = torch.optim.AdamW([w for w in method.parameters() if w.requires_grad], lr=1e-2)
    before = {name: weight.detach().clone() for name, weight in method.named_parameters()}
    for _ in range(count):
        optimiser.zero_grad()
        sum(term.weight * term.value for term in method(batch).values()).backward()
        optimiser.step()
    return {name for name, weight in method.named_parameters() if not torch.equal(weight, before[name])}


def parts_of(names):
    return {"module" if is_module(name) else name.split(".")[0] for name in names}


def test_stage_prefix_moves_prefixes_and_classifier_alone_though_dropout_acts(folders):
    method = diffaug(folders["bert"], "bert", stage="prefix", dropout=0.1)
    batch = batch_for(method, Texts(folders["bert"], NLI))
    assert method(batch)["nli"].value.item() != method(batch)["nli"].value.item()
    assert parts_of(steps(method, batch)) == {"module", "classifier"}


@pytest.mark.parametrize(("trains", "moved"), [
    ("all", {"backbone", "module", "head"}), ("model", {"backbone", "head"}), ("module", {"module", "head"}),
])
@pytest.mark.parametrize("module", ["prefix", "adapter", "lora"])
def test_stage_joint_moves_what_is_asked_for(folders, trains, moved, module):
    method = diffaug(folders["bert"], "bert", joint_trains=trains, module=module)
    assert parts_of(steps(method, batch_for(method, Texts(folders["bert"], PLAIN)))) == moved


def test_the_released_codes_clipping_has_gradients_of_what_it_does_not_move(folders):
    method = diffaug(folders["bert"], "bert", stage="prefix", clip_frozen=True)
    assert method.rates() == {"backbone.": 0.0, "head.": 0.0}
    _, seen = check(method, folders["bert"], "bert", NLI)
    assert {name.split(".")[0] for name in seen} == {"backbone", "head", "modules_of_views", "classifier"}
    method.start_stage("joint")
    assert method.rates() == {}


# --- sizes ---


def test_sizes_for_bert_base():
    """294,912 numbers at test, .3 % of the model, as published; 14.78 million in training, with the network."""
    with torch.device("meta"):
        encoder = PrefixEncoder(2 * DiffAugOptions().prefix_length, 768, 12, 0.1)
        plain = encoder.plain()
        model = sum(weight.numel() for weight in BertModel(BertConfig()).parameters())
    trained = sum(weight.numel() for weight in encoder.parameters())
    assert plain.keys.numel() + plain.values.numel() == encoder.effective == 294_912
    assert trained == 16 * 768 + (768 + 1) * 768 + (768 + 1) * 24 * 768 == 14_777_088
    assert round(100 * encoder.effective / model, 1) == 0.3


def test_plain_keys_and_values_are_the_oracles(folders):
    method = diffaug(folders["bert"], "bert", prefix_length=3)
    oracle, _ = oracle_of(method, folders["bert"], "bert")
    plain = method.modules_of_views.prefix.plain()
    assert isinstance(plain, KeyValues) and plain.keys.shape == (LAYERS, 6, WIDTH)
    for number, change in enumerate(oracle.changes):
        slots = slice(3 * number, 3 * number + 3)
        for layer in range(LAYERS):
            assert torch.allclose(plain.keys[layer, slots], change.keys[layer], atol=1e-12)
            assert torch.allclose(plain.values[layer, slots], change.values[layer], atol=1e-12)


def test_a_prefix_has_dropout_of_its_own_for_each_row(folders):
    method = diffaug(folders["bert"], "bert", dropout=0.5)
    prefix = method.modules_of_views.prefix(torch.ones(6, 4, dtype=torch.bool))
    assert isinstance(prefix, Prefix) and prefix.keys.shape == (LAYERS, 6, 4, WIDTH)
    assert 0.4 < (prefix.keys == 0).double().mean() < 0.6
    assert not torch.equal(prefix.keys[:, 0], prefix.keys[:, 1])
    assert TEMPLATES["bert"] == method.options.template
