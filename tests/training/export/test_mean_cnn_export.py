"""A model with the learned pooler mean_cnn as a folder. What every learned pooler shares: test_text_cnn_export.py, too."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_models
import torch
from isbert_oracle import SMALL, local_vectors, mean
from safetensors.torch import load_file, save_file
from tokenizers import processors

from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.errors import EncoderError
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder
from stsbench.training.export.card import describe, model_card
from stsbench.training.export.export import export_model
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.runs.prepare import make_backbone

TEXTS = [*tiny_models.sentences(20), "", "a", "the cat " * 25]
RECIPE = Recipe(name="tiny-run", method="is-bert", backbone={"model": "/home/me/tiny"})


def inference(folder, family="bert"):
    torch.manual_seed(3)
    backbone = load_backbone(tiny_models.build(folder, family), "tiny", "mean_cnn", token_poolers={"mean_cnn": SMALL})
    return Inference(backbone.model, backbone.tokenizer, "mean_cnn", token_pooler=backbone.head)


def expected(made):
    """By transformers' own states, one text at a time, and a loop over tokens."""
    model, rows = made.model.eval(), []
    for text in TEXTS:
        ids = made.tokenizer(text, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            state = model(input_ids=ids).last_hidden_state[0].tolist()
        rows.append(mean(local_vectors(made.token_pooler, state, len(state))))
    model.train()
    return np.array(rows)


def close(vectors, other):
    """To 1e-6 of a vector's length."""
    assert (np.linalg.norm(np.asarray(vectors) - other, axis=1) / np.linalg.norm(other, axis=1)).max() < 1e-6


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(what was exported, its folder, its vectors); not to be changed."""
    place = tmp_path_factory.mktemp("exported")
    made = inference(place / "model")
    export_model(made, place / "out", card=model_card(RECIPE, describe(made)))
    return made, place / "out", expected(made)


def test_three_readers_give_the_same_vectors(exported):
    from sentence_transformers import SentenceTransformer

    made, folder, vectors = exported
    close(live_encoder(made, "live").encode(TEXTS), vectors)
    ours = load_encoder(str(folder))
    assert (ours.spec.kind, ours.spec.pooler) == ("transformers", "mean_cnn") and vectors.shape == (len(TEXTS), 12)
    close(ours.encode(TEXTS), vectors)
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=True)
    assert model.get_embedding_dimension() == 12
    close(model.encode(TEXTS), vectors)


def test_a_tokenizer_that_ends_texts_otherwise_is_read(tmp_path):
    """No token is left out, so none has to be special."""
    folder = tiny_models.build(tmp_path / "model", "distilbert")
    tokenizer = tiny_models.tokenizer("bert")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.save_pretrained(folder)
    backbone = load_backbone(folder, "tiny", "mean_cnn", token_poolers={"mean_cnn": SMALL})
    made = Inference(backbone.model, tokenizer, "mean_cnn", token_pooler=backbone.head)
    live = live_encoder(made, "live")
    texts = [text for text in TEXTS if text]
    close(live.encode(texts), np.concatenate([live.encode([text]) for text in texts]))


def test_the_folder_and_its_card(exported):
    folder = exported[1]
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    assert [module["path"] for module in modules] == ["", "1_MeanCNN"]
    assert json.loads((folder / "stsbench.json").read_text("utf-8"))["pooler"] == "mean_cnn"
    card = (folder / "README.md").read_text("utf-8")
    assert "needs stsbench installed for the MeanCNN" in card and "TextCNN" not in card


def test_the_weights_are_part_of_what_identifies_the_encoder(tmp_path):
    export_model(inference(tmp_path / "model"), tmp_path / "out", card="")
    first = load_encoder(str(tmp_path / "out")).spec.fingerprint()
    file = tmp_path / "out" / "1_MeanCNN" / "model.safetensors"
    weights = load_file(file)
    save_file({**weights, "convs.1.bias": weights["convs.1.bias"] + 0.5}, file)
    assert load_encoder(str(tmp_path / "out")).spec.fingerprint() != first
    file.unlink()
    with pytest.raises(EncoderError, match=r"lacks the MeanCNN that its modules.json promises .1_MeanCNN/model.safetensors"):
        load_encoder(str(tmp_path / "out"))


def test_one_learned_pooler_is_not_another(exported, tmp_path):
    made, folder, _ = exported
    with pytest.raises(EncoderError, match=r"--pooler text_cnn: .* stores no TextCNN, and it is learned"):
        load_encoder(str(folder), pooler="text_cnn")
    with pytest.raises(EncoderError, match="pooler text_cnn and a TextCNN go together"):
        LiveEncoder(Parts(made.model, made.tokenizer, token_pooler=made.token_pooler), pooler="text_cnn", name="dev")
    wrong = Inference(made.model, made.tokenizer, "text_cnn", token_pooler=made.token_pooler)
    with pytest.raises(ValueError, match="cannot be exported with token_pooler="):
        export_model(wrong, tmp_path / "out", card="")
    with pytest.raises(EncoderError, match=r"backbone\.mean_cnn has no effect with backbone\.pooler text_cnn: set it to"):
        make_backbone(Recipe(name="a", method="simcse", backbone={
            "model": str(folder), "pooler": "text_cnn", "mean_cnn": {"channels": 4}, "max_length": 32,
        }))
    assert load_backbone(folder, "first", "text_cnn").head.kind.pooler == "text_cnn"  # a new one


def test_as_a_backbone_it_keeps_its_own(exported):
    made, folder, _ = exported
    kept = load_backbone(folder, "first", "mean_cnn").head
    assert all(torch.equal(kept.state_dict()[name], value) for name, value in made.token_pooler.state_dict().items())
    with pytest.raises(EncoderError, match=r"first stores a different MeanCNN \(channels 5 instead of 4\)"):
        load_backbone(folder, "first", "mean_cnn", token_poolers={"mean_cnn": {**SMALL, "channels": 5}})
