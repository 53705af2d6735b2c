"""Methods as losses of sentence-transformers' trainer: its weights after each step are those of our loop, bit for bit;
and what cannot be a loss is one line: methods, models, columns, labels, processes."""

import copy
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from disturbances import disturbed
from foreign_trainer import LOSSES, TEXTS, features_of, loaded, place, sentence_transformer  # noqa: F401
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from torch.utils.data import BatchSampler, SequentialSampler
from training_runs import no_pinned_memory, one_thread  # noqa: F401
from transformers import TrainerCallback

import stsbench
from stsbench import as_sentence_transformers_loss, methods
from stsbench.encoders.forward.token_pooler import TextCNN
from stsbench.encoders.transformer.text_cnn_module import TextCNNPooling
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


REFUSED = {  # options, pooler -> the reason
    (methods.DeCLUTR(), "mean"): "it reads whole documents",
    (methods.ConditionalMaskedLM(), "mean"): "it reads sentences that follow in a document",
    (methods.SimCSE(view="next3"), "cls"): "it reads sentences that follow in a document",
    (methods.DiffAug(), "cls"): "by these options it has the stages prefix and joint, one after the other",
    (methods.SBERT(objective="nli-sts"), "mean"): "by these options it has the stages nli and sts, one after the other",
    (methods.PromptBERT(), "cls"): "with the pooler cls: promptbert trains the pooler mask, not cls",
    (methods.ISBERT(), "cls"): "with the pooler cls: is-bert trains the pooler mean_cnn, not cls",
    (methods.SimCSE(), "mean"): "with the pooler mean: options.head mlp_train_only stands on the pooler cls",
}


def test_methods_that_cannot_be_a_loss(loaded):
    for (options, pooler), why in REFUSED.items():
        with pytest.raises(StsbenchError) as caught:
            as_sentence_transformers_loss(options, loaded(pooler))
        said = str(caught.value)
        assert said.startswith(f"{method_name(options)} cannot be a loss of sentence-transformers") and "\n" not in said
        assert why in said and said.endswith("; stsbench.train trains it")


def test_sarcse_s_weights_of_tokens_need_the_whole_text(loaded):
    model = loaded("mean")
    model[1] = TextCNNPooling(TextCNN(width=32, kernels=(2, 3), channels=6))
    with pytest.raises(StsbenchError, match="with the pooler text_cnn: before its first step it reads all of the"):
        as_sentence_transformers_loss("sarcse", model)
    slower = methods.SARCSE(self_adaptive=False, head_rate=10.0)
    with pytest.warns(StsbenchWarning, match=r"^sarcse trains backbone\.head\.\* at 10 times, decoder\.\* at 10 times the"):
        loss = as_sentence_transformers_loss(slower, model)
    assert loss.method.backbone.head is model[1].head


def test_models_that_no_method_trains(place, loaded):
    def refused(model, message, method="mlm"):
        with pytest.raises(StsbenchError, match=message):
            as_sentence_transformers_loss(method, model)

    refused("minilm", "^model is a str: give the SentenceTransformer that the trainer trains$")
    refused(loaded(), "^distil: options.teachers is empty: name an encoder", "distil")
    refused(SentenceTransformer(modules=[loaded()[0]]), "^a method trains a model of Transformer and Pooling, and this one")
    refused(SentenceTransformer(modules=[*loaded(), Dense(32, 8)]), "this one is Transformer, Pooling, Dense$")
    refused(SentenceTransformer(modules=[loaded()[0], Dense(32, 8)]), "^methods do not train the module Dense: take ")
    refused(loaded("mean_sqrt_len_tokens"), "^methods do not train a Pooling with pooling_mode mean_sqrt_len_tokens: take")
    both, part = Pooling(32, ("cls", "mean")), Pooling(32, "cls", include_prompt=False)
    refused(SentenceTransformer(modules=[loaded()[0], both]), r"with pooling_mode \('cls', 'mean'\): take one of")
    refused(SentenceTransformer(modules=[loaded()[0], part]), "with include_prompt False: ")
    half = SentenceTransformer(str(place / "model"), device="cpu", model_kwargs={"dtype": "float16"})
    refused(half, r"^the model's weights are torch\.float16: load it with model_kwargs={'dtype': 'float32'} ")
    still = SentenceTransformer(str(place / "model"), device="cpu", config_kwargs={
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    })
    refused(still, "its two views differ by dropout alone, and the model has none", methods.SimCSE(head="none"))


def test_columns_and_labels_that_are_not_the_method_s(loaded):
    model = loaded()

    def refused(options, message, *columns, labels=None):
        with pytest.raises(StsbenchError, match=message):
            as_sentence_transformers_loss(options, model)(features_of(model, *columns), labels)

    refused("simcse", "^a data set of 2 columns is read as anchor, positive: options.view dropout makes pos", TEXTS, TEXTS)
    refused(methods.SimCSE(view="given"), "^a data set of 1 column is read as sentence: options.view given takes", TEXTS)
    refused("simcse", "^a data set of 5 columns: give two columns and a label, or one to 4 columns$", *[TEXTS] * 5)
    refused("simcse", "^a data set of 1 column and a label: give two columns", TEXTS, labels=torch.zeros(8))
    refused("sbert", "^a data set of 2 columns is read as anchor, positive: sbert needs labelled rows", TEXTS, TEXTS)
    refused("sbert", "^labels go from 0 to 7, and sbert takes 0 to 2: set classes$", TEXTS, TEXTS, labels=torch.arange(8))
    refused("sbert", "^sbert learns classes by these options, and the labels are not whole numbers$", TEXTS, TEXTS,
            labels=torch.arange(8.0) / 8)
    refused(methods.SBERT(objective="sts"), "^labels go from nan to nan, and", TEXTS, TEXTS,
            labels=torch.full((8,), torch.nan))
    refused(methods.SBERT(objective="sts"), "^labels go from -1 to 6, and sbert takes 0 to 5: set the scale of its options$",
            TEXTS, TEXTS, labels=torch.arange(8.0) - 1)
    shaped = [(torch.zeros(8, 1), r"shape \(8, 1\)"), (torch.zeros(2), r"shape \(2,\)"), ([0.0] * 8, "list")]
    for labels, what in shaped:
        refused("cosent", f"^labels: {what} for a batch of 8 rows: give a tensor", TEXTS, TEXTS, labels=labels)
    for what, number in (("classes", 2.5), ("classes", "3"), ("seed", -1), ("seed", None)):
        with pytest.raises(StsbenchError, match=f"^{what}=.*: give a whole number that is not negative$"):
            as_sentence_transformers_loss("sbert", model, **{what: number})
    refused("ct", "^ct takes rows in groups of 15, and a batch has 8: set per_device_train_batch_size to a m", TEXTS)
    with pytest.raises(StsbenchError, match=r"^methods read texts as the trainer's collator pads them: "):
        as_sentence_transformers_loss("simcse", model)([{"pixel_values": torch.zeros(2)}])
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
