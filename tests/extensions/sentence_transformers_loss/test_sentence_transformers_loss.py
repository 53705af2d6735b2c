"""Methods as losses of sentence-transformers' trainer: its weights after each step are those of our loop, bit for bit."""

import copy
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from disturbances import disturbed
from foreign_trainer import LOSSES, TEXTS, features_of, loaded, place, sentence_transformer  # noqa: F401
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch.utils.data import BatchSampler, SequentialSampler
from training_runs import no_pinned_memory, one_thread  # noqa: F401
from transformers import TrainerCallback

import stsbench
from stsbench import as_sentence_transformers_loss, methods
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.training.engine.loop import Loop
from stsbench.training.recipes.methods import method_name
from stsbench.training.recipes.recipe import Recipe

STEPS, SIZE = 5, 6
# what the trainer does: torch's AdamW; here at a constant rate, and without clipping
TRAINING = {"max_steps": STEPS, "epochs": 9, "batch_size": SIZE, "learning_rate": 1e-3, "schedule": "constant", "clip": None}


def our_loop(place, options, monkeypatch, pooler, file="text.txt", part="data", precision="float32", **training):
    """What our loop began with, read and ended with."""
    loops = []

    def run(self, position, unlogged):
        began = copy.deepcopy(self.method.state_dict())
        position = whole(self, position, unlogged)
        order = [int(row) for step in range(STEPS) for part in self.stage.batches.step(step) for row in part]
        rows = self.stage.rows(order)
        columns = {role: rows.texts(role) for role in rows.roles}
        columns |= {"label": rows.labels()} if self.stage.labelled_only else {}
        ended = {name: weight.detach().clone() for name, weight in self.method.named_parameters()}
        loops.append(SimpleNamespace(began=began, ended=ended, columns=columns))
        return position

    whole, name = Loop.run, f"run-{len(list(place.iterdir()))}"
    recipe = Recipe(
        name=name, method=method_name(options), options=options.model_dump(), training={**TRAINING, **training},
        backbone={"model": str(place / "model"), "pooler": pooler, "dropout": 0.1, "max_length": 12},
        selection={"by": "none"}, precision=precision, **{part: {"file": str(place / file)}})
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", run)
        stsbench.train(recipe.method, recipe=recipe, output=place / name)
    (trained,) = loops
    return trained


class SeedDropout(TrainerCallback):
    """The loop's own seed of dropout, before the first step."""

    def on_step_begin(self, args, state, control, **more):
        if state.global_step == 0:
            torch.manual_seed(42 * 1_000_003)


def in_order(data, batch_size, **more):
    return BatchSampler(SequentialSampler(data), batch_size, drop_last=False)


def train(model, loss, columns, **arguments):
    settings = {
        "max_steps": STEPS, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "use_cpu": True,
        "per_device_train_batch_size": SIZE, "save_strategy": "no", "report_to": "none", "disable_tqdm": True,
        "logging_strategy": "no", "output_dir": "trainer", **arguments, "batch_sampler": in_order}
    trainer = SentenceTransformerTrainer(model, SentenceTransformerTrainingArguments(**settings), Dataset.from_dict(columns),
                                         loss=loss, callbacks=[SeedDropout()])
    trainer.train()
    return trainer


def difference(loss, weights):
    """The largest between any two weights of the method, those that it adds included."""
    ended = loss.method.state_dict()
    return max(float((ended[name].double() - weight.double()).abs().max()) for name, weight in weights.items())


# methods that differ in what a loss has to hand on: rows, labels, a second encoder, a queue, draws
KINDS = ["simcse-given", "consert-sup", "mirror-bert", "ct", "simcse-queue"]


@pytest.mark.parametrize("case", KINDS)
def test_its_steps_are_those_of_our_loop(place, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    options, pooler, *data = LOSSES[case]
    trained = our_loop(place, options, monkeypatch, pooler, *data)
    model = sentence_transformer(place, pooler)
    loss = as_sentence_transformers_loss(options, model)
    loss.method.load_state_dict(trained.began, strict=False)  # its own weights are other draws than the loop's
    train(model, loss, trained.columns)
    assert difference(loss, {name: trained.began[name] for name in trained.ended}) > 2e-3
    assert difference(loss, trained.ended) == 0.0


def test_settings_are_those_of_our_loop(place, tmp_path, monkeypatch):
    """ConSERT adds no weights: what the trainer clips is all that is trained."""
    monkeypatch.chdir(tmp_path)
    training = {"clip": 0.5, "weight_decay": 0.1, "schedule": "linear", "warmup": 3, "precision": "bf16"}
    arguments = {"max_grad_norm": 0.5, "weight_decay": 0.1, "lr_scheduler_type": "linear", "warmup_steps": 3, "bf16": True}
    trained = our_loop(place, methods.ConSERT(), monkeypatch, "mean", **training)
    model = sentence_transformer(place, "mean")
    with pytest.warns(StsbenchWarning, match="^consert is tested with the pooler last2, and the trained"):
        loss = as_sentence_transformers_loss("consert", model)
    train(model, loss, trained.columns, **arguments)
    assert difference(loss, trained.ended) == 0.0


def test_the_weights_are_the_model_s_own_and_each_is_trained_once(loaded):
    loss = as_sentence_transformers_loss(methods.SimCSE(mlm_weight=0.1), model := loaded())
    names = [name for name, _ in loss.named_parameters()]
    assert len(names) == len({id(weight) for weight in loss.parameters()})
    added = {name.split(".")[1] for name in names if name.startswith("method.")}
    assert added == {"head", "lm_head"} and {name for name in names if name.startswith("model.")}
    assert loss.method.backbone.model is model[0].model


def test_the_trainer_measures_saves_and_makes_the_loss_itself(place, tmp_path, monkeypatch, loaded):
    monkeypatch.chdir(tmp_path)
    model, data, options = loaded("mean"), {"sentence": TEXTS * 2}, methods.MirrorBERT(span_chars=2, min_chars=3)
    trainer = train(model, lambda model: as_sentence_transformers_loss(options, model), data, max_steps=3,
                    save_strategy="steps", save_steps=3)
    measured = [trainer.evaluate(Dataset.from_dict(data))["eval_loss"] for _ in range(2)]
    assert measured[0] == measured[1] > 0
    trainer.save_model("saved")
    for folder in ("saved", "trainer/checkpoint-3"):
        again = SentenceTransformer(folder, device="cpu")
        assert torch.equal(torch.tensor(again.encode(TEXTS)), torch.tensor(model.encode(TEXTS)))
    card = (tmp_path / "saved" / "README.md").read_text("utf-8")
    assert "MethodLoss" in card and '"span_chars": 2' in card and '"method": "mirror-bert"' in card


def test_what_a_loss_adds_depends_on_its_seed_alone(loaded):
    options = methods.DiffCSE()
    model, before = loaded(), torch.get_rng_state()
    models = [model, copy.deepcopy(model)]
    alone = dict(as_sentence_transformers_loss(options, models[0], seed=3).method.named_parameters())
    assert torch.equal(torch.get_rng_state(), before)
    with disturbed(None):
        within = dict(as_sentence_transformers_loss(options, models[1], seed=3).method.named_parameters())
    assert within.keys() == alone.keys()
    assert all(weight.dtype == torch.float32 and torch.equal(weight, alone[name]) for name, weight in within.items())
    other = dict(as_sentence_transformers_loss(options, loaded(), seed=4).method.named_parameters())
    assert any(not torch.equal(weight, alone[name]) for name, weight in other.items())


def test_a_learned_pooler_is_the_model_s_own_and_its_rate_is_said(loaded):
    model = loaded("text_cnn")
    slower = methods.SARCSE(self_adaptive=False, head_rate=10.0)
    with pytest.warns(StsbenchWarning, match=r"^sarcse trains backbone\.head\.\* at 10 times, decoder\.\* at 10 times the"):
        loss = as_sentence_transformers_loss(slower, model)
    assert loss.method.backbone.head is model[1].head


def test_rows_beyond_the_last_whole_group_are_left_out(loaded):
    model = loaded()
    loss = as_sentence_transformers_loss(methods.ContrastiveTension(k=1), model)
    model.train()
    assert len(loss._batch(features_of(model, TEXTS), None)) == 4  # two groups of three, two pairs each; two rows are over


def test_another_model_and_several_processes_are_noticed(loaded, monkeypatch):
    model = loaded()
    loss = as_sentence_transformers_loss("simcse", model)
    loss.model = loaded()
    with pytest.raises(StsbenchError, match=r"^the trainer made another model \(model_init\) than the one that the"):
        loss(features_of(model, TEXTS))
    loss.model = model
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(StsbenchError, match=r"^a method runs the model itself, and the trainer's processes would"):
        loss(features_of(model, TEXTS))
