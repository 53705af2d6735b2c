"""What stands around a model's forward, or in its transformer, reaches a method's loss as it does the library's own."""

import functools
import random
import sys
import types

import peft
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from foreign_trainer import LOSSES, TEXTS, features_of, loaded, place  # noqa: F401
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from training_runs import one_thread  # noqa: F401

from stsbench import as_sentence_transformers_loss, methods
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.extensions.sentence_transformers_loss.backbone import surroundings
from stsbench.losses import simcse

SCORES, CLASSES = torch.tensor([0.5, 1, 2, 3, 4, 5, 2.5, 1.5]), torch.tensor([0, 1, 2, 0, 1, 2, 2, 1])
FIRST, SECOND, THIRD = TEXTS, TEXTS[3:] + TEXTS[:3], TEXTS[5:] + TEXTS[:5]
# name -> options, the library's loss, columns, labels; the labels of the library's, where they are others
COUNTERPARTS = {
    "cosent": (methods.CoSENT(), losses.CoSENTLoss, (FIRST, SECOND), SCORES),
    "angle": (methods.AnglE(ibn_weight=0.0, angle_weight=1.0), losses.AnglELoss, (FIRST, SECOND), SCORES),
    "simcse": (methods.SimCSE(view="given", head="none"), losses.MultipleNegativesRankingLoss, (FIRST, SECOND), None),
    "simcse-hard": (methods.SimCSE(view="given", head="none"), losses.MultipleNegativesRankingLoss, (FIRST, SECOND, THIRD),
                    None),
    "sbert-sts": (methods.SBERT(objective="sts", scale=(0, 1)), losses.CosineSimilarityLoss, (FIRST, SECOND), SCORES / 5),
    "sbert-triplet": (methods.SBERT(objective="triplet", margin=5.0), losses.TripletLoss, (FIRST, SECOND, THIRD), None),
}
MODIFIERS = {
    "plain": lambda model, loss: loss,
    "matryoshka": lambda model, loss: losses.MatryoshkaLoss(model, loss, [8, 32, 16]),
    "matryoshka-weights": lambda model, loss: losses.MatryoshkaLoss(model, loss, [32, 16, 8], [0.3, 1, 2], 2),
    "adaptive": lambda model, loss: losses.AdaptiveLayerLoss(model, loss),
    "adaptive-all": lambda model, loss: losses.AdaptiveLayerLoss(model, loss, -1, 0.5, 2.0, kl_temperature=0.7),
    "2d": lambda model, loss: losses.Matryoshka2dLoss(model, loss, [32, 16, 8]),
    "2d-all": lambda model, loss: losses.Matryoshka2dLoss(model, loss, [32, 8], None, -1, -1, kl_temperature=0),
}


def measured(loss, model, columns, labels, seed=3):
    model.zero_grad()
    random.seed(seed)  # a modifier chooses dims and layers
    torch.manual_seed(seed)
    value = loss(features_of(model, *columns), labels)
    value.backward()
    return value.item(), {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}


def assert_same(one, other, tolerance):
    assert one[0] == pytest.approx(other[0], rel=tolerance, abs=tolerance)
    assert one[1].keys() == other[1].keys() and one[1]
    for name, gradient in other[1].items():
        torch.testing.assert_close(one[1][name], gradient, rtol=tolerance, atol=tolerance * 10, msg=name)


def without_dropout(model):
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(model[0].model.config, name, 0.0)
    return model.train()


@pytest.mark.parametrize(("pooler", "case"), zip(["cls", "mean"] * 3, COUNTERPARTS, strict=True))
def test_a_modifier_has_the_same_effect_as_around_the_library_s_own_loss(loaded, pooler, case):
    options, kind, columns, labels = COUNTERPARTS[case]
    labels = labels if labels is None else labels.double()
    for make in MODIFIERS.values():
        model = without_dropout(loaded(pooler)).double()
        own = make(model, as_sentence_transformers_loss(options, model))
        model.double()
        for _ in range(2):  # a second batch is another one
            right = measured(make(model, kind(model)), model, columns, labels)
            # pairwise_distance adds 1e-6 to each difference
            assert_same(measured(own, model, columns, labels), right, 1e-6 if case == "sbert-triplet" else 1e-9)
            columns = [texts[1:] + texts[:1] for texts in columns]


def test_a_classifier_behind_other_layers_vectors_is_trained_as_the_library_s(loaded):
    model = without_dropout(loaded("mean")).double()
    own, right = as_sentence_transformers_loss("sbert", model), losses.SoftmaxLoss(model, 32, 3).double()
    own.double().method.classifier.linear.load_state_dict(right.classifier.state_dict())
    for modifier in ("adaptive", "adaptive-all"):
        one, other = (measured(MODIFIERS[modifier](model, loss), model, (FIRST, SECOND), CLASSES) for loss in (own, right))
        assert_same(one, other, 1e-9)
    with pytest.raises(StsbenchError, match=r"^matryoshka\.ForwardDecorator acts in .* sbert has weights for 32 numbers of"):
        MODIFIERS["matryoshka"](model, own)(features_of(model, FIRST, SECOND), CLASSES)


CUT = {
    "matryoshka": lambda model, loss: losses.MatryoshkaLoss(model, loss, [8, 4]), "adaptive": MODIFIERS["adaptive"],
    "2d": lambda model, loss: losses.Matryoshka2dLoss(model, loss, [8, 4]),
}
READ_VECTORS_ALONE = {  # all other methods have heads, second encoders or terms of tokens
    "sbert-sts", "cosent", "angle", "angle-triplets", "sbert-triplet", "distil", "simcse-crop",
}
ROWS = {"triplets.csv": ((FIRST, SECOND, THIRD), None), "pairs.tsv": ((FIRST, SECOND), CLASSES),
        "scores.tsv": ((FIRST, SECOND), SCORES), None: ((FIRST,), None)}


@pytest.mark.parametrize("case", LOSSES)
def test_a_modifier_reaches_all_that_a_method_reads_or_is_refused_in_a_line(loaded, case):
    options, pooler, *data = LOSSES[case]
    columns, labels = ROWS[data[0] if data else None]
    for modifier, make in CUT.items():
        model = loaded(pooler).train()
        loss = as_sentence_transformers_loss(options, model)
        try:
            value = measured(make(model, loss), model, columns, labels)
        except StsbenchError as error:
            assert case not in READ_VECTORS_ALONE, error
            assert "acts in the model's forward, and " in str(error) and "matryoshka in a recipe" in str(error)
            assert "\n" not in str(error) and "Decorator" in str(error)
        else:
            assert case in READ_VECTORS_ALONE or modifier == "adaptive", value
        assert vars(loss.method.backbone).keys().isdisjoint({"pooled", "forward", "at"})
        if len(columns) > 1 or options.model_fields.get("view") is None:
            assert loss(features_of(model, *columns), labels).isfinite()


class Doubled(Pooling):
    def forward(self, features, **kwargs):
        return doubled(super().forward(features, **kwargs))


class DoubledModel(SentenceTransformer):
    def forward(self, features, **kwargs):
        return doubled(super().forward(features, **kwargs))


def doubled(output):
    return {**output, "sentence_embedding": output["sentence_embedding"] * 2}


def patched_method(model):
    model.forward = types.MethodType(DoubledModel.forward, model)
    model.__class__ = DoubledModel


def patched_wraps(model):
    before = model[1].forward
    model[1].forward = functools.wraps(before)(lambda features: doubled(before(features)))


def hooked(model):
    model[1].register_forward_hook(lambda part, inputs, output: doubled(output))


def subclass_of_a_module(model):
    model[1] = Doubled(32, "mean")


@pytest.mark.parametrize("surround", [patched_method, patched_wraps, hooked, subclass_of_a_module])
def test_whatever_doubles_the_vectors_is_seen(loaded, surround):
    """Lasting, and of one's own: each batch is drawn anew, and the same as without."""
    plain, model = without_dropout(loaded("mean")), without_dropout(loaded("mean"))
    options = methods.SimCSE(view="delete_words", rate=0.4, head="none", similarity="dot")
    right, own = (as_sentence_transformers_loss(options, part) for part in (plain, model))
    surround(model)
    for _ in range(3):
        columns = features_of(plain, TEXTS)
        batch = right._batch(columns, None)
        vectors = 2 * right.method.backbone.pooled(batch.ids, batch.mask)
        expected = simcse(*vectors.chunk(2), similarity="dot")
        right(columns)
        assert own(columns).item() == pytest.approx(expected.item(), rel=1e-4)
    with pytest.raises(StsbenchError, match="acts in the model's forward, and mlm reads hidden states, which it does not"):
        as_sentence_transformers_loss("mlm", model)(features_of(model, TEXTS))


def test_what_only_chooses_precision_and_devices_is_nothing(loaded):
    model = loaded("mean").train()
    loss = as_sentence_transformers_loss("cosent", model)
    expected = surroundings(model), loss.method.backbone.engine_on("cpu")
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    assert expected == (None, "packed") and surroundings(accelerator.prepare_model(model)) is None
    value = MODIFIERS["matryoshka"](model, loss)  # puts back what it finds
    right = MODIFIERS["matryoshka"](model, losses.CoSENTLoss(model))
    for _ in range(2):
        one, other = (measured(part, model.eval(), (FIRST, SECOND), SCORES) for part in (value, right))
        assert_same(one, other, 1e-2)
        assert surroundings(model) is None
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def no_accelerator(monkeypatch):
    """DataParallel moves a model to any accelerator there is, such as one that another test file pretends."""
    monkeypatch.setattr(sys.modules["torch.nn.parallel.data_parallel"], "_get_available_device_type", lambda: None)


@pytest.mark.parametrize("wrapper", [torch.nn.DataParallel, functools.partial(torch.compile, backend="eager")])
def test_a_modifier_around_what_the_trainer_wraps_is_seen(loaded, wrapper, no_accelerator):
    model = without_dropout(loaded("mean"))
    loss = as_sentence_transformers_loss("cosent", model)
    right = measured(MODIFIERS["matryoshka"](model, losses.CoSENTLoss(model)), model, (FIRST, SECOND), SCORES)
    modified = MODIFIERS["matryoshka"](model, loss)
    loss.model = modified.model = wrapper(model)  # as the trainer's override_model_in_loss does
    modified.model.get_embedding_dimension = model.get_embedding_dimension
    assert surroundings(loss.model) is None
    assert_same(measured(modified, model, (FIRST, SECOND), SCORES), right, 1e-5)


def test_the_module_normalize_is_read_where_a_modifier_stands_around(loaded):
    model = without_dropout(SentenceTransformer(modules=[*loaded("mean"), Normalize()]))
    with pytest.warns(StsbenchWarning, match="before the module Normalize"):
        loss = as_sentence_transformers_loss("cosent", model)
    for modifier in ("matryoshka", "adaptive-all"):
        one, other = (measured(MODIFIERS[modifier](model, part), model, (FIRST, SECOND), SCORES)
                      for part in (loss, losses.CoSENTLoss(model)))
        assert_same(one, other, 1e-5)


TARGETS, PROMPT = ["query", "value"], {"task_type": "FEATURE_EXTRACTION", "num_virtual_tokens": 3}
ADAPTERS = {
    "lora": peft.LoraConfig(target_modules=TARGETS, init_lora_weights=False),
    "dora": peft.LoraConfig(target_modules=TARGETS, use_dora=True, init_lora_weights=False),
    "saved modules": peft.LoraConfig(target_modules=TARGETS, modules_to_save=["embeddings"], init_lora_weights=False),
    "activated": peft.LoraConfig(target_modules=TARGETS, alora_invocation_tokens=[5], init_lora_weights=False,
                                 task_type="FEATURE_EXTRACTION"),
    "tokens": peft.TrainableTokensConfig(token_indices=[5, 6, 7]),
    "prompt": peft.PromptTuningConfig(**PROMPT),
    "prefix": peft.PrefixTuningConfig(**PROMPT),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_is_trained_as_by_the_library_s_own_loss(loaded, adapter):
    model = loaded("mean")
    model[0].model = peft.get_peft_model(model[0].model, ADAPTERS[adapter])
    trainable = {name for name, weight in without_dropout(model).named_parameters() if weight.requires_grad}
    own, right = as_sentence_transformers_loss("cosent", model), losses.CoSENTLoss(model)
    outside = adapter in ("prompt", "prefix", "activated")  # acts in peft's own forward
    for modifier in ("plain", "matryoshka", "adaptive-all"):
        if outside and modifier == "adaptive-all":  # the library's own ends in a KeyError
            with pytest.raises(StsbenchError, match=r"^the model's forward, with adaptive_layer.*failed: KeyError: "):
                measured(MODIFIERS[modifier](model, own), model, (FIRST, SECOND), SCORES)
            continue
        one, other = (measured(MODIFIERS[modifier](model, loss), model, (FIRST, SECOND), SCORES) for loss in (own, right))
        assert_same(one, other, 1e-5)
    assert one[1].keys() <= trainable == {name for name, part in model.named_parameters() if part.requires_grad}
    assert (surroundings(model) is not None) == outside


def test_adapters_that_are_added_and_chosen_later(loaded):
    """As model.add_adapter and set_adapter do, in the model itself."""
    model = without_dropout(loaded("mean"))
    own, right = as_sentence_transformers_loss("cosent", model), losses.CoSENTLoss(model)
    for name in ("first", "second"):
        peft.inject_adapter_in_model(ADAPTERS["lora"], model[0].model, name)
    values = set()
    for active in ("first", "second", ["first", "second"]):
        for part in model.modules():
            if isinstance(part, peft.tuners.tuners_utils.BaseTunerLayer):
                part.set_adapter(active)
        one, other = (measured(loss, model, (FIRST, SECOND), SCORES) for loss in (own, right))
        assert_same(one, other, 1e-5)
        values.add(one[0])
    assert len(values) == 3


@pytest.mark.parametrize("case", LOSSES)
def test_every_method_trains_adapters_alone_or_is_refused_in_a_line(loaded, case):
    options, pooler, *data = LOSSES[case]
    columns, labels = ROWS[data[0] if data else None]
    for adapter in ("lora", "prompt"):
        model = loaded(pooler).train()
        model[0].model = peft.get_peft_model(model[0].model, ADAPTERS[adapter])
        frozen = [weight for weight in model.parameters() if not weight.requires_grad]
        try:
            loss = as_sentence_transformers_loss(options, model)
            measured(loss, model, columns, labels)
        except StsbenchError as error:
            assert "adapter" in str(error) or "peft's PROMPT_TUNING acts in the model's forward, and " in str(error)
            assert "\n" not in str(error)
            assert adapter == "prompt" or case in ("tsdae", "esimcse", "simcse-queue")
        assert frozen and not any(weight.requires_grad for weight in frozen)


def test_what_wraps_the_transformer_otherwise_is_named(loaded, no_accelerator):
    model = loaded("mean")
    bare = model[0].model
    for wrapper in (torch.compile, torch.nn.DataParallel):
        model[0].model = wrapper(bare)
        with pytest.raises(StsbenchError, match=r"^model\[0\].model is wrapped in a (OptimizedModule|DataParallel): "):
            as_sentence_transformers_loss("cosent", model)
    model[0].model = torch.ao.quantization.quantize_dynamic(bare, {torch.nn.Linear})
    with pytest.raises(StsbenchError, match=r"^the model's weights are quantised: load it without quantization_config"):
        as_sentence_transformers_loss("cosent", model)
    model[0].model = bare
    loss = as_sentence_transformers_loss("cosent", model)
    model.half()  # later
    with pytest.raises(StsbenchError, match=r"^the model's weights are torch\.float16: load it with"):
        loss(features_of(model, FIRST, SECOND), SCORES)


def test_what_its_owner_froze_stays_frozen(loaded):
    model = loaded()
    model[0].model.embeddings.requires_grad_(False)
    for options in ("mlm", methods.SGOPT(freeze_embeddings=False)):
        as_sentence_transformers_loss(options, model)
        assert not any(weight.requires_grad for weight in model[0].model.embeddings.parameters())
