"""Methods as losses of sentence-transformers' trainer: its weights after ten steps are those of our loop, bit for bit."""

import copy

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from datasets import Dataset
from disturbances import disturbed
from foreign_trainer import LOSSES, TEXTS, features_of, loaded, place, sentence_transformer  # noqa: F401
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from tokenizers import decoders
from torch.utils.data import BatchSampler, SequentialSampler
from training_runs import no_pinned_memory, one_thread  # noqa: F401
from transformers import TrainerCallback

import stsbench
from stsbench import as_sentence_transformers_loss, methods
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.extensions.sentence_transformers_loss.columns import Columns
from stsbench.training.engine.loop import Loop
from stsbench.training.recipes.methods import method_name
from stsbench.training.recipes.recipe import Recipe

STEPS, SIZE = 10, 6
# what the trainer does: torch's AdamW; here at a constant rate, and without clipping
TRAINING = {"max_steps": STEPS, "epochs": 9, "batch_size": SIZE, "learning_rate": 1e-3, "schedule": "constant", "clip": None}


class Trained:
    """What our loop began with, read and ended with."""

    def __init__(self, loop, began, head):
        self.began, self.head = began, head
        self.ended = {name: weight.detach().clone() for name, weight in loop.method.named_parameters()}
        order = [int(row) for step in range(STEPS) for part in loop.stage.batches.step(step) for row in part]
        rows = loop.stage.rows(order)
        self.columns = {role: rows.texts(role) for role in rows.roles}
        if loop.stage.labelled_only:
            self.columns["label"] = rows.labels()
        elif "sentence1" in rows.roles:
            self.columns["score"] = rows.scores()


def our_loop(place, options, monkeypatch, pooler, file="text.txt", part="data", precision="float32", **training):
    loops = []

    def run(self, position, unlogged):
        began, head = copy.deepcopy(self.method.state_dict()), copy.deepcopy(self.method.backbone.head)
        position = whole(self, position, unlogged)
        loops.append(Trained(self, began, head))
        return position

    whole, name = Loop.run, f"run-{len(list(place.iterdir()))}"
    recipe = Recipe(
        name=name, method=method_name(options), options=options.model_dump(), training={**TRAINING, **training},
        backbone={"model": str(place / "model"), "pooler": pooler, "dropout": 0.1, "max_length": 12},
        selection={"by": "none"}, precision=precision, **{part: {"file": str(place / file)}},
    )
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
        "max_steps": STEPS, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "max_grad_norm": 0.0,
        "per_device_train_batch_size": SIZE, "save_strategy": "no", "report_to": "none", "use_cpu": True,
        "disable_tqdm": True, "logging_strategy": "no", "output_dir": "trainer",
        "batch_sampler": in_order,
        **arguments,
    }
    trainer = SentenceTransformerTrainer(
        model, SentenceTransformerTrainingArguments(**settings), Dataset.from_dict(columns), loss=loss,
        callbacks=[SeedDropout()],
    )
    trainer.train()
    return trainer


def difference(loss, weights):
    """The largest between any two weights of the method, those that it adds included."""
    ended = loss.method.state_dict()
    return max(float((ended[name].double() - weight.double()).abs().max()) for name, weight in weights.items())


# methods that differ in what a loss has to hand on: rows and labels, heads, encoders and weights of their own, draws
KINDS = ["simcse-given", "simcse-encoders", "consert-sup", "mirror-bert", "sbert", "cosent", "ct", "sarcse", "diffcse",
         "simcse-queue", "distil"]


@pytest.mark.parametrize("case", KINDS)
def test_ten_steps_are_those_of_our_loop(place, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    options, pooler, *data = LOSSES[case]
    trained = our_loop(place, options, monkeypatch, pooler, *data)
    model = sentence_transformer(place, pooler, trained.head)
    loss = as_sentence_transformers_loss(options, model)
    loss.method.load_state_dict(trained.began, strict=False)  # its own weights are other draws than the loop's
    train(model, loss, trained.columns)
    assert difference(loss, {name: trained.began[name] for name in trained.ended}) > 5e-3
    assert difference(loss, trained.ended) == 0.0


def test_settings_are_those_of_our_loop(place, tmp_path, monkeypatch):
    """ConSERT adds no weights: what the trainer clips is all that is trained."""
    monkeypatch.chdir(tmp_path)
    plain = our_loop(place, methods.ConSERT(), monkeypatch, "mean")
    for training, arguments in (
        ({"clip": 1.0}, {"max_grad_norm": 1.0}), ({"weight_decay": 0.1}, {"weight_decay": 0.1}),
        ({"schedule": "linear", "warmup": 3}, {"lr_scheduler_type": "linear", "warmup_steps": 3}),
        ({"precision": "bf16"}, {"bf16": True}),
    ):
        trained = our_loop(place, methods.ConSERT(), monkeypatch, "mean", **training)
        model = sentence_transformer(place, "mean")
        with pytest.warns(StsbenchWarning, match="^consert is tested with the pooler last2, and the trained"):
            loss = as_sentence_transformers_loss("consert", model)
        train(model, loss, trained.columns, **arguments)
        assert difference(loss, trained.ended) == 0.0
        assert difference(loss, plain.ended) > 1e-6  # the setting has an effect


def test_the_weights_are_the_model_s_own_and_each_is_trained_once(loaded):
    model = loaded()
    state = torch.get_rng_state()
    loss = as_sentence_transformers_loss(methods.SimCSE(mlm_weight=0.1), model)
    assert torch.equal(torch.get_rng_state(), state)
    names = [name for name, _ in loss.named_parameters()]
    assert len(names) == len({id(weight) for weight in loss.parameters()})
    added = {name.split(".")[1] for name in names if name.startswith("method.")}
    assert added == {"head", "lm_head"} and {name for name in names if name.startswith("model.")}
    assert loss.method.backbone.model is model[0].model
    again = as_sentence_transformers_loss(methods.SimCSE(mlm_weight=0.1), loaded())
    other = as_sentence_transformers_loss(methods.SimCSE(mlm_weight=0.1), loaded(), seed=1)
    assert torch.equal(loss.method.head.dense.weight, again.method.head.dense.weight)
    assert not torch.equal(loss.method.head.dense.weight, other.method.head.dense.weight)


def test_modes_and_draws(loaded):
    """Trained on, each batch is drawn anew; measured, none is."""
    model = loaded("mean")
    loss = as_sentence_transformers_loss(methods.ContrastiveTension(objective="in-batch"), model)
    features = features_of(model, TEXTS)
    model.train()
    first, second = loss(features), loss(features)
    assert first.item() != second.item() and loss.steps == 2 and loss.method.first.model.training
    model.eval()
    with torch.no_grad():
        assert loss(features).isfinite() and loss.steps == 2 and not loss.method.first.model.training
    masked = as_sentence_transformers_loss("mlm", loaded())
    masked.model.train()
    draws = [masked._batch([features], None).ids for features in features_of(masked.model, TEXTS) * 2]
    masked.steps.fill_(3)
    assert torch.equal(*draws) and not torch.equal(masked._batch(features_of(masked.model, TEXTS), None).ids, draws[0])


def test_sixteen_bits_are_those_of_the_accelerator_that_prepared_the_model(loaded):
    model = loaded().eval()
    loss = as_sentence_transformers_loss(methods.SimCSE(head="none", view="crop", rate=0.3), model)
    with torch.no_grad():
        exact = loss(features_of(model, TEXTS)).item()
        AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
        assert loss(features_of(model, TEXTS)).item() == exact  # somebody else's
        accelerator.prepare_model(model)
        rounded = loss(features_of(model, TEXTS)).item()
        assert rounded != exact and rounded == pytest.approx(exact, rel=0.05)
        accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        assert loss(features_of(model, TEXTS)).item() == exact
    AcceleratorState._reset_state(reset_partial_state=True)


def test_padding_is_left_out_at_either_side(loaded):
    loss = as_sentence_transformers_loss(methods.SimCSE(head="none"), loaded())
    model = loss.model.train()
    rows = []
    for side in ("right", "left"):
        model.tokenizer.padding_side = side
        rows.append(loss._batch(features_of(model, TEXTS), None))
    one, other = rows
    assert torch.equal(one.ids, other.ids) and torch.equal(one.mask, other.mask) and not one.mask.all()
    assert torch.equal(one.ids[:8], one.ids[8:])


def test_texts_are_read_as_the_tokens_tell(loaded):
    model = loaded()
    model.tokenizer.backend_tokenizer.decoder = decoders.WordPiece()  # as BERT's has
    texts = ["", "the man runs .", "a xylophone", "a " * 30, "the [MASK] eats"]
    tokens = [ids[mask.bool()].numpy() for ids, mask in zip(*(features_of(model, texts)[0][key] for key in
                                                              ("input_ids", "attention_mask")), strict=True)]
    rows = Columns(("", "positive"), [[], tokens], model.tokenizer, None)
    assert rows.texts("positive") == ["", "the man runs.", "a xylophone", " ".join("a" * 10), "the [MASK] eats"]
    assert rows.roles == ("positive",) and rows.labels() == rows.scores() == []


def test_the_trainer_measures_saves_and_makes_the_loss_itself(place, tmp_path, monkeypatch, loaded):
    monkeypatch.chdir(tmp_path)
    model = loaded("mean")
    data = {"sentence": TEXTS * 2}
    trainer = train(
        model, lambda model: as_sentence_transformers_loss(methods.MirrorBERT(span_chars=2, min_chars=3), model), data,
        max_steps=3, save_strategy="steps", save_steps=3,
    )
    measured = [trainer.evaluate(Dataset.from_dict(data))["eval_loss"] for _ in range(2)]
    assert measured[0] == measured[1] > 0
    trainer.save_model("saved")
    for folder in ("saved", "trainer/checkpoint-3"):
        again = SentenceTransformer(folder, device="cpu")
        assert torch.equal(torch.tensor(again.encode(TEXTS)), torch.tensor(model.encode(TEXTS)))
    card = (tmp_path / "saved" / "README.md").read_text("utf-8")
    assert "MethodLoss" in card and '"span_chars": 2' in card and '"method": "mirror-bert"' in card


def test_a_method_of_one_s_own_file(tmp_path, loaded):
    file = tmp_path / "mine.py"
    file.write_text(
        "from stsbench.training.api import Method, Term, Views\n\n\n"
        "class Norms(Method):\n"
        "    def views(self, rows, rng):\n"
        "        return Views([rows.ids('sentence')])\n\n"
        "    def forward(self, batch):\n"
        "        return {'norm': Term(self.vectors(batch.ids, batch.mask).norm(dim=1).mean(), len(batch), 0.5)}\n", "utf-8",
    )
    model = loaded("mean")
    loss = as_sentence_transformers_loss(f"{file}:Norms", model)
    model.eval()
    expected = 0.5 * torch.tensor(model.encode(TEXTS)).norm(dim=1).mean().item()
    assert loss(features_of(model, TEXTS)).item() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(StsbenchError, match=r"^Options of stsbench\.training\.api\.options is not the options of an inst"):
        as_sentence_transformers_loss(loss.plan.options, model)


def test_what_a_loss_adds_depends_on_nothing_around_the_call(loaded):
    options = methods.DiffCSE()
    model, before = loaded(), torch.get_rng_state()
    models = [model, copy.deepcopy(model)]
    alone = dict(as_sentence_transformers_loss(options, models[0], seed=3).method.named_parameters())
    assert torch.equal(torch.get_rng_state(), before)
    with disturbed(None):
        within = dict(as_sentence_transformers_loss(options, models[1], seed=3).method.named_parameters())
    assert within.keys() == alone.keys()
    assert all(weight.dtype == torch.float32 and torch.equal(weight, alone[name]) for name, weight in within.items())
