"""What cannot be a loss of sentence-transformers' trainer is one line: methods, models, columns, labels, processes."""

import pytest
import torch
from foreign_trainer import TEXTS, features_of, loaded, place  # noqa: F401
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from training_runs import one_thread  # noqa: F401

from stsbench import as_sentence_transformers_loss, methods
from stsbench.encoders.forward.token_pooler import TextCNN
from stsbench.encoders.transformer.text_cnn_module import TextCNNPooling
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.training.recipes.methods import method_name

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
    with pytest.warns(StsbenchWarning, match="^the loss compares the vectors before the module Normalize, as the papers"):
        as_sentence_transformers_loss("mlm", SentenceTransformer(modules=[*loaded(), Normalize()]))


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
