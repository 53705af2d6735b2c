"""A prompted encoder in sentence-transformers: stsbench's vectors, whatever is called, and a clear word where not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from prompted import TEXTS, close, library, models, one_line, rich, with_prompt
from training_runs import one_thread

from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError
from stsbench.training.engine.selection import live_encoder
from stsbench.training.export.export import export_model

__all__ = ["models", "one_thread", "rich"]


def test_by_hand_it_is_tokenised_inside_the_template(rich):
    made, folder = rich
    model, want = library(folder), live_encoder(made, "live").encode(TEXTS)
    features = model.tokenize(TEXTS)
    assert features["input_ids"].shape == features["attention_mask"].shape == (len(TEXTS), 52)
    assert model.tokenizer.decode(features["input_ids"][13][features["attention_mask"][13].bool()]) == (
        "[CLS] the cat o ##f [UNK] a . [UNK] means [MASK] . [SEP]"
    )
    close(model(features)["sentence_embedding"].numpy(), want, 1e-5)
    wider = {key: torch.nn.functional.pad(value, (0, 7)) for key, value in features.items() if key != "sentence_embedding"}
    close(model(wider)["sentence_embedding"].numpy(), want, 1e-5)
    model.max_seq_length = 14
    cut = load_encoder(str(folder), max_length=14)
    assert cut.run(TEXTS).truncated.sum() > 3
    close(model.encode(TEXTS), cut.encode(TEXTS), 1e-5)
    with pytest.raises(EncoderError, match="max_seq_length 60 is more than the 59 positions"):
        model.max_seq_length = 60


def test_a_prompt_of_the_library_goes_before_the_text_inside_the_template(rich):
    made, folder = rich
    model = library(folder, prompts={"query": "dog : "})
    want = live_encoder(made, "live").encode(["dog : " + text for text in TEXTS])
    close(model.encode(TEXTS, prompt_name="query"), want, 1e-5)
    close(model.encode(TEXTS, prompt="dog : "), want, 1e-5)
    assert np.abs(model.encode(TEXTS) - want).max() > 1e-2


def test_what_it_cannot_do_it_says(models, rich, tmp_path):
    model = library(rich[1])
    with pytest.raises(ValueError, match="trust_remote_code"):
        type(model)(str(rich[1]), device="cpu", local_files_only=True)
    with pytest.raises(ValueError, match="single texts"):
        model.encode([("a", "b")])
    features = model.tokenizer(["a cat"], return_tensors="pt")
    with pytest.raises(EncoderError, match="do not hold the template: make them with"):
        model({key: features[key] for key in ("input_ids", "attention_mask")})
    export_model(with_prompt(models, "bert", {}), tmp_path / "plain", card="")
    with pytest.raises(EncoderError, match=r"lost the template's mask token in 'input_ids that this model did not make'"):
        library(tmp_path / "plain")({key: features[key] for key in ("input_ids", "attention_mask")})
    features = model.tokenize(["a cat"])
    model.train()
    with pytest.raises(EncoderError, match=r"not trained by sentence-transformers: call \.eval\(\)"):
        model(features)


def test_what_the_library_saved_both_read_alike(rich, tmp_path):
    made, folder = rich
    want = live_encoder(made, "live").encode(TEXTS)
    model = library(folder)
    model.max_seq_length = 40
    model.save(str(tmp_path / "saved"), create_model_card=False)
    ours = load_encoder(str(tmp_path / "saved"))
    assert ours.spec.max_length == 40 and ours.spec.options == load_encoder(str(folder)).spec.options
    vectors = ours.encode(TEXTS)
    close(vectors[:-1], want[:-1])  # the last one is longer
    close(library(tmp_path / "saved").encode(TEXTS), vectors, 1e-5)
    from sentence_transformers.base.modules import Normalize

    model.append(Normalize())
    model.save(str(tmp_path / "more"), create_model_card=False)
    one_line(lambda: load_encoder(str(tmp_path / "more")), "adds Normalize to a prompted encoder")
    unit = vectors[:10] / np.linalg.norm(vectors[:10], axis=1, keepdims=True)
    close(library(tmp_path / "more").encode(TEXTS[:10]), unit, 1e-5)
    library(folder, prompts={"q": "dog "}, default_prompt_name="q").save(str(tmp_path / "default"), create_model_card=False)
    one_line(lambda: load_encoder(str(tmp_path / "default")), "adds the default prompt 'q' to a prompted encoder")
