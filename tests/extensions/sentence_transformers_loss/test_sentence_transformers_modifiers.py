"""What stands around a model's forward, or in its transformer, reaches a method's loss as it does the library's own.
sentence-transformers' trainer, stopped and resumed with a method's loss: the training that was not stopped."""

import copy
import pickle
import random
import shutil
import sys

import peft
import pytest
import tiny_models
import torch
from datasets import Dataset, DatasetDict
from foreign_trainer import LOSSES, NEVER, TEXTS, features_of, loaded, place, sentence_transformer  # noqa: F401
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Normalize
from training_runs import no_pinned_memory, one_thread  # noqa: F401

from stsbench import as_sentence_transformers_loss, methods
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.extensions.sentence_transformers_loss.backbone import surroundings
from stsbench.losses import simcse
from stsbench.registry import names
from stsbench.training.recipes.methods import GROUP, method_name

SCORES, CLASSES = torch.tensor([0.5, 1, 2, 3, 4, 5, 2.5, 1.5]), torch.tensor([0, 1, 2, 0, 1, 2, 2, 1])
FIRST, SECOND, THIRD = TEXTS, TEXTS[3:] + TEXTS[:3], TEXTS[5:] + TEXTS[:5]
# name -> options, the library's loss, columns, labels
COUNTERPARTS = {
    "cosent": (methods.CoSENT(), losses.CoSENTLoss, (FIRST, SECOND), SCORES),
    "simcse-hard": (methods.SimCSE(view="given", head="none"), losses.MultipleNegativesRankingLoss, (FIRST, SECOND, THIRD),
                    None)}
MODIFIERS = {
    "plain": lambda model, loss: loss,
    "matryoshka": lambda model, loss: losses.MatryoshkaLoss(model, loss, [8, 32, 16], [0.3, 1, 2]),
    "adaptive-all": lambda model, loss: losses.AdaptiveLayerLoss(model, loss, -1, 0.5, 2.0, kl_temperature=0.7),
    "2d": lambda model, loss: losses.Matryoshka2dLoss(model, loss, [32, 8], None, -1, -1, kl_temperature=0)}


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


@pytest.mark.parametrize(("pooler", "case", "modifier"), [("cls", "cosent", "2d"), ("mean", "simcse-hard", "adaptive-all")])
def test_a_modifier_has_the_same_effect_as_around_the_library_s_own_loss(loaded, pooler, case, modifier):
    options, kind, columns, labels = COUNTERPARTS[case]
    labels = labels if labels is None else labels.double()
    make, model = MODIFIERS[modifier], without_dropout(loaded(pooler)).double()
    own = make(model, as_sentence_transformers_loss(options, model))
    model.double()
    for _ in range(2):  # a second batch is another one
        right = measured(make(model, kind(model)), model, columns, labels)
        assert_same(measured(own, model, columns, labels), right, 1e-9)
        columns = [texts[1:] + texts[:1] for texts in columns]


# all other methods have heads, second encoders or terms of tokens
READ_VECTORS_ALONE = {"sbert-sts", "cosent", "angle", "distil", "simcse-crop"}
ROWS = {"triplets.csv": ((FIRST, SECOND, THIRD), None), "pairs.tsv": ((FIRST, SECOND), CLASSES),
        "scores.tsv": ((FIRST, SECOND), SCORES), None: ((FIRST,), None)}


@pytest.mark.parametrize("case", LOSSES)
def test_a_modifier_reaches_all_that_a_method_reads_or_is_refused_in_a_line(loaded, case):
    options, pooler, *data = LOSSES[case]
    columns, labels = ROWS[data[0] if data else None]
    model = loaded(pooler).train()
    loss = as_sentence_transformers_loss(options, model)
    try:
        measured(losses.MatryoshkaLoss(model, loss, [8, 4]), model, columns, labels)
    except StsbenchError as error:
        assert case not in READ_VECTORS_ALONE, error
        assert "acts in the model's forward, and " in str(error) and "matryoshka in a recipe" in str(error)
        assert "\n" not in str(error) and "Decorator" in str(error)
    else:
        assert case in READ_VECTORS_ALONE
    assert vars(loss.method.backbone).keys().isdisjoint({"pooled", "forward", "at"})
    if len(columns) > 1 or options.model_fields.get("view") is None:
        assert loss(features_of(model, *columns), labels).isfinite()


def test_whatever_doubles_the_vectors_is_seen(loaded):
    """Lasting, and of one's own: each batch is drawn anew, and the same as without."""
    plain, model = without_dropout(loaded("mean")), without_dropout(loaded("mean"))
    options = methods.SimCSE(view="delete_words", rate=0.4, head="none", similarity="dot")
    right, own = (as_sentence_transformers_loss(options, part) for part in (plain, model))
    model[1].register_forward_hook(
        lambda part, inputs, output: {**output, "sentence_embedding": output["sentence_embedding"] * 2})
    for _ in range(2):
        columns = features_of(plain, TEXTS)
        batch = right._batch(columns, None)
        vectors = 2 * right.method.backbone.pooled(batch.ids, batch.mask)
        expected = simcse(*vectors.chunk(2), similarity="dot")
        right(columns)
        assert own(columns).item() == pytest.approx(expected.item(), rel=1e-4)
    with pytest.raises(StsbenchError, match="acts in the model's forward, and mlm reads hidden states, which it does not"):
        as_sentence_transformers_loss("mlm", model)(features_of(model, TEXTS))


@pytest.fixture
def no_accelerator(monkeypatch):
    """DataParallel moves a model to any accelerator there is, such as one that another test file pretends."""
    monkeypatch.setattr(sys.modules["torch.nn.parallel.data_parallel"], "_get_available_device_type", lambda: None)


def test_a_modifier_around_what_the_trainer_wraps_is_seen(loaded, no_accelerator):
    model = without_dropout(loaded("mean"))
    loss = as_sentence_transformers_loss("cosent", model)
    right = measured(MODIFIERS["matryoshka"](model, losses.CoSENTLoss(model)), model, (FIRST, SECOND), SCORES)
    modified = MODIFIERS["matryoshka"](model, loss)
    loss.model = modified.model = torch.nn.DataParallel(model)  # as the trainer's override_model_in_loss does
    modified.model.get_embedding_dimension = model.get_embedding_dimension
    assert surroundings(loss.model) is None and surroundings(torch.compile(model)) is None
    assert_same(measured(modified, model, (FIRST, SECOND), SCORES), right, 1e-5)


def test_the_module_normalize_is_read_where_a_modifier_stands_around(loaded):
    model = without_dropout(SentenceTransformer(modules=[*loaded("mean"), Normalize()]))
    with pytest.warns(StsbenchWarning, match="before the module Normalize"):
        loss = as_sentence_transformers_loss("cosent", model)
    one, other = (measured(MODIFIERS["adaptive-all"](model, part), model, (FIRST, SECOND), SCORES)
                  for part in (loss, losses.CoSENTLoss(model)))
    assert_same(one, other, 1e-5)


TARGETS = ["query", "value"]
ADAPTERS = {
    "lora": peft.LoraConfig(target_modules=TARGETS, modules_to_save=["embeddings"], init_lora_weights=False),
    "activated": peft.LoraConfig(target_modules=TARGETS, alora_invocation_tokens=[5], init_lora_weights=False,
                                 task_type="FEATURE_EXTRACTION"),
    "prompt": peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_is_trained_as_by_the_library_s_own_loss(loaded, adapter):
    model = loaded("mean")
    model[0].model = peft.get_peft_model(model[0].model, ADAPTERS[adapter])
    trainable = {name for name, weight in without_dropout(model).named_parameters() if weight.requires_grad}
    own, right = as_sentence_transformers_loss("cosent", model), losses.CoSENTLoss(model)
    outside = adapter != "lora"  # acts in peft's own forward
    for modifier in ("plain", "adaptive-all"):
        if outside and modifier == "adaptive-all":  # the library's own ends in a KeyError
            with pytest.raises(StsbenchError, match=r"^the model's forward, with adaptive_layer.*failed: KeyError: "):
                measured(MODIFIERS[modifier](model, own), model, (FIRST, SECOND), SCORES)
            continue
        one, other = (measured(MODIFIERS[modifier](model, loss), model, (FIRST, SECOND), SCORES) for loss in (own, right))
        assert_same(one, other, 1e-5)
    assert one[1].keys() <= trainable == {name for name, part in model.named_parameters() if part.requires_grad}
    assert (surroundings(model) is not None) == outside


@pytest.mark.parametrize("case", ["sbert", "ct", "tsdae", "simcse-queue"])
def test_a_method_trains_adapters_alone_or_is_refused_in_a_line(loaded, case):
    options, pooler, *data = LOSSES[case]
    columns, labels = ROWS[data[0] if data else None]
    model = loaded(pooler).train()
    model[0].model = peft.get_peft_model(model[0].model, ADAPTERS["lora"])
    frozen = [weight for weight in model.parameters() if not weight.requires_grad]
    try:
        loss = as_sentence_transformers_loss(options, model)
        measured(loss, model, columns, labels)
    except StsbenchError as error:
        assert "adapter" in str(error) and "\n" not in str(error) and case in ("tsdae", "simcse-queue")
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


STEPS = 4
RESUMED_TEXTS = tiny_models.sentences(48, longest=8, seed=3)
PLAIN = {"sentence": RESUMED_TEXTS[:24]}
SCORED = {"first": RESUMED_TEXTS[:24], "second": RESUMED_TEXTS[24:], "score": [row % 6 / 1.0 for row in range(24)]}
# torch's dropout, and the evaluation in between, as users have them
ARGUMENTS = {
    "max_steps": STEPS, "learning_rate": 1e-3, "per_device_train_batch_size": 6, "save_strategy": "steps", "save_steps": 2,
    "report_to": "none", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "eval_strategy": "steps",
    "eval_steps": 3}


def trained(model, loss, data, folder, resumed=None, **arguments):
    """Losses of the steps, training and evaluation, and all weights at the end."""
    torch.manual_seed(11 if resumed else 5)  # what a process did before: the trainer seeds itself where it is made
    settings = SentenceTransformerTrainingArguments(str(folder), **{**ARGUMENTS, **arguments})
    trainer = SentenceTransformerTrainer(model, settings, data, data, loss=loss)
    trainer.train(resume_from_checkpoint=resumed)
    losses = {(line["step"], name): line[name] for line in trainer.state.log_history for name in ("loss", "eval_loss")
              if name in line}
    parts = loss.values() if isinstance(loss, dict) else [loss]
    return losses, [part.state_dict() for part in parts]


def test_every_method_has_a_case():
    assert {method_name(options) for options, *_ in LOSSES.values()} | NEVER == set(names(GROUP))


def test_a_resumed_training_is_the_one_that_was_not_stopped(loaded, tmp_path):
    """Three methods and a loss of the library's own, by data set, one of them late, one in a modifier, one with a queue."""
    plain, scored = Dataset.from_dict(PLAIN), Dataset.from_dict(SCORED)
    data = DatasetDict(first=plain, second=scored, third=plain, fourth=plain)
    crop = methods.SimCSE(view="crop", rate=0.4, head="none", queue=None)

    def made():
        model = loaded("mean")
        model[0].model.pooler.requires_grad_(False)
        return model, {
            "second": losses.CoSENTLoss(model), "third": as_sentence_transformers_loss("tsdae", model),
            "fourth": as_sentence_transformers_loss(methods.ESimCSE(head="none"), model),
            "first": losses.MatryoshkaLoss(model, as_sentence_transformers_loss(crop, model), [32, 8], n_dims_per_step=1)}

    arguments = {"gradient_accumulation_steps": 2, "multi_dataset_batch_sampler": "proportional"}
    measured, weights = trained(*made(), data, tmp_path / "whole", **arguments)
    folder = shutil.move(tmp_path / "whole/checkpoint-2", tmp_path / "elsewhere")
    again, resumed = trained(*made(), data, tmp_path / "other", str(folder), **arguments)
    assert again == measured and len(again) >= STEPS
    for first, second in zip(resumed, weights, strict=True):
        assert first.keys() == second.keys()
        assert [name for name in first if not torch.equal(first[name], second[name])] == []


def test_a_checkpoint_that_would_not_give_the_same_training_is_refused(loaded, tmp_path):
    data = Dataset.from_dict(PLAIN)

    def resumed(options, folder, **more):
        model = loaded()
        return trained(model, as_sentence_transformers_loss(options, model, **more), data, tmp_path / "x", str(folder))

    model, folder = loaded(), tmp_path / "whole/checkpoint-2"
    trained(model, as_sentence_transformers_loss("simcse", model), data, folder.parent, max_steps=2, eval_strategy="no")
    other = methods.SimCSE(temperature=0.1)
    for options, more, what in (("simcse", {"seed": 1}, "seed 42"), (other, {}, r"temperature 0\.05")):
        with pytest.raises(StsbenchError, match=f"^the checkpoint is of a loss with {what}, and this one is not: make"):
            resumed(options, folder, **more)
    for name in ("optimizer.pt", "scheduler.pt"):
        (folder / name).unlink()
    with pytest.raises(StsbenchError, match=r"checkpoint-2 has nothing of simcse's loss, so that a resumed training wo"):
        resumed("simcse", folder)


def test_a_copy_of_a_loss_in_training_goes_on_as_the_loss_does(place):
    options, pooler = LOSSES["esimcse"]
    model = sentence_transformer(place, pooler)
    loss = as_sentence_transformers_loss(options, model)
    model.train()
    for _ in range(2):
        loss(features_of(model, RESUMED_TEXTS[:12]))
    fresh = as_sentence_transformers_loss(options, sentence_transformer(place, pooler), seed=loss.seed)
    fresh.load_state_dict(loss.state_dict())  # of one's own loop
    values = set()
    for part in (fresh, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), loss):
        part.model.train()
        torch.manual_seed(0)
        values.add(part(features_of(part.model, RESUMED_TEXTS[12:24])).item())
        assert part.steps == 3 and part.method.backbone.model is part.model[0].model
    assert len(values) == 1


def test_measuring_moves_nothing_on(loaded):
    for options in ("esimcse", "mlm"):
        model = loaded()
        loss = as_sentence_transformers_loss(options, model)
        loss(features_of(model.train(), RESUMED_TEXTS[:8]))
        before, drawn = copy.deepcopy(loss.state_dict()), torch.get_rng_state()
        with torch.no_grad():
            model.eval()
            values = {loss(features_of(model, RESUMED_TEXTS[8:20])).item() for _ in range(2)}
        assert len(values) == 1 and torch.equal(drawn, torch.get_rng_state())
        after = loss.state_dict()
        assert [name for name in before if not torch.equal(before[name], after[name])] == []
