"""A model with a learned pooler, text_cnn or mean_cnn, as a folder: one vector for a text, whoever reads it, and nothing
made up."""

import shutil

import numpy as np
import pytest
import tiny_models
import torch
from clirun import place  # noqa: F401
from live_models import close, library
from loaded import loaded
from safetensors.torch import load_file, save_file
from token_pooler_oracle import MEAN_CNN, TEXT_CNN, by_loops, local_vectors

from stsbench.encoders.forward.pooling import token_pooler_folder
from stsbench.encoders.forward.token_pooler import TextCNN
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.errors import EncoderError
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.runs.export import export_model

TEXTS = [*tiny_models.sentences(20), "", "a", "a cat", "the cat " * 25]
CNN = {**TEXT_CNN, "activation": "relu"}
POOLERS = {  # name -> its class, settings, width of a vector, one of its weights
    "text_cnn": ("TextCNN", CNN, 16, "fusion.bias"), "mean_cnn": ("MeanCNN", MEAN_CNN, 12, "convs.1.bias"),
}
EACH = [("text_cnn", "roberta"), ("mean_cnn", "bert")]


def inference(folder, family, pooler):
    """As a method gives it: every weight trainable, train mode."""
    torch.manual_seed(3)
    settings = {pooler: POOLERS[pooler][1]}
    backbone = load_backbone(tiny_models.build(folder, family), "tiny", pooler, token_poolers=settings)
    return Inference(backbone.model, backbone.tokenizer, pooler, token_pooler=backbone.head)


def by_hand(made):
    """float64 vectors of transformers' own states, one text at a time, by loops over windows."""
    model, rows = made.model.eval(), []
    for text in TEXTS:
        ids = made.tokenizer(text, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = model(input_ids=ids).last_hidden_state[0].double().numpy()
        rows.append(by_loops(made.token_pooler, states)[0] if made.pooler == "text_cnn" else np.mean(
            local_vectors(made.token_pooler, states.tolist(), len(states)), axis=0))
    model.train()
    return np.stack(rows)


@pytest.fixture(scope="module", params=EACH, ids=str)
def exported(request, tmp_path_factory):
    """(what was exported, its folder, its vectors); not to be changed."""
    pooler, family = request.param
    folder = tmp_path_factory.mktemp("exported")
    made = inference(folder / "model", family, pooler)
    export_model(made, folder / "out", method="simcse", recipe="tiny-run")
    return made, folder / "out", by_hand(made)


def test_three_readers_give_the_same_vectors(exported, tmp_path):
    made, folder, vectors = exported
    width = POOLERS[made.pooler][2]
    parts = [*made.model.modules(), *made.token_pooler.modules()]
    assert vectors.shape == (len(TEXTS), width) and all(part.training for part in parts)
    close(live_encoder(made, "live").encode(TEXTS), vectors)
    assert all(part.training for part in parts)
    ours = load_encoder(str(folder))
    assert (ours.spec.kind, ours.spec.pooler, ours.spec.max_length) == ("transformers", made.pooler, 64)
    assert ours.spec == ours.built.spec
    close(ours.encode(TEXTS), vectors)
    close(loaded(folder, attention="padded", batch_tokens=90).encode(TEXTS), vectors)
    model = library(folder, trust_remote_code=True)
    assert model.get_embedding_dimension() == width
    close(model.encode(TEXTS), vectors)
    with pytest.raises(ValueError, match="trust_remote_code"):  # it asks before it imports
        library(folder)
    model.save(str(tmp_path / "saved"), create_model_card=False)
    assert not (tmp_path / "saved" / "stsbench.json").exists()
    again = load_encoder(str(tmp_path / "saved"))
    assert (again.spec.kind, again.spec.pooler) == ("transformers", made.pooler)
    close(again.encode(TEXTS), vectors)
    close(library(tmp_path / "saved", trust_remote_code=True).encode(TEXTS), vectors)


@pytest.mark.parametrize("exported", EACH, indirect=True, ids=str)
def test_the_weights_are_part_of_what_identifies_the_encoder_and_are_not_replaced(exported, tmp_path):
    made, folder, _ = exported
    kind, _, _, name = POOLERS[made.pooler]
    first = load_encoder(str(folder))
    export_model(made, tmp_path / "again", card="another", method="simcse", recipe="tiny-run")
    assert load_encoder(str(tmp_path / "again")).spec.fingerprint() == first.spec.fingerprint()
    shutil.copytree(folder, tmp_path / name)
    file = tmp_path / name / f"1_{kind}" / "model.safetensors"
    stored = load_file(file)
    save_file({**stored, name: stored[name] + 0.5}, file)
    changed = load_encoder(str(tmp_path / name))  # stsbench.json holds no more, modules.json does
    assert changed.spec.weights != first.spec.weights and changed.spec.fingerprint() != first.spec.fingerprint()
    assert np.abs(changed.encode(TEXTS) - first.encode(TEXTS)).max() > 1e-3
    for name in ("config.json", "model.safetensors"):
        shutil.copytree(folder, tmp_path / name)
        (tmp_path / name / f"1_{kind}" / name).unlink()
        with pytest.raises(EncoderError, match=f"lacks the {kind} that its modules.json promises .1_{kind}/{name}"):
            load_encoder(str(tmp_path / name))
        with pytest.raises(EncoderError, match=f"lacks the {kind}"):
            load_backbone(tmp_path / name, "gone", made.pooler)


@pytest.mark.parametrize("exported", [("text_cnn", "roberta")], indirect=True, ids=str)
def test_a_head_of_another_models_width_is_not_read(exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "wide")
    TextCNN(8, **CNN).save(tmp_path / "wide" / "1_TextCNN")
    with pytest.raises(EncoderError, match="reads states of width 8, and its model gives 32"):
        load_encoder(str(tmp_path / "wide")).encode(TEXTS)
    with pytest.raises(EncoderError, match=r"stores a different TextCNN \(width 32 instead of 8\)"):
        load_backbone(tmp_path / "wide", "wide", "text_cnn")
    (tmp_path / "wide" / "modules.json").write_text("[1]")
    with pytest.raises(EncoderError, match=r"cannot read .*modules\.json"):
        token_pooler_folder(tmp_path / "wide")


@pytest.mark.parametrize("exported", EACH, indirect=True, ids=str)
def test_a_pooler_and_its_head_go_together(exported, tmp_path):
    made, folder, _ = exported
    other = {"text_cnn": "mean_cnn", "mean_cnn": "text_cnn"}[made.pooler]
    for head, pooler in ((None, made.pooler), (made.token_pooler, "cls"), (made.token_pooler, other)):
        with pytest.raises(EncoderError, match="go together"):
            LiveEncoder(Parts(made.model, made.tokenizer, token_pooler=head), pooler=pooler, name="dev")
        with pytest.raises(ValueError, match="cannot be exported with token_pooler="):
            export_model(Inference(made.model, made.tokenizer, pooler, token_pooler=head), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(EncoderError, match=f"--pooler {other}: .* stores no {POOLERS[other][0]}, and it is learned"):
        load_encoder(str(folder), pooler=other)
    assert load_backbone(folder, "first", other).head.kind.pooler == other  # a new one


@pytest.mark.parametrize("exported", EACH, indirect=True, ids=str)
def test_as_a_backbone_it_keeps_its_head(exported):
    made, folder, _ = exported
    kind, settings, *_ = POOLERS[made.pooler]
    for token_poolers in (None, {made.pooler: settings}):
        kept = load_backbone(folder, "first", made.pooler, token_poolers=token_poolers)
        stored = kept.head.state_dict()
        assert all(torch.equal(stored[name], value) for name, value in made.token_pooler.state_dict().items())
        assert all(weight.requires_grad for weight in kept.parameters())
    changed = {**settings, "channels": settings["channels"] + 1, "activation": "tanh"}
    with pytest.raises(EncoderError, match=rf"{kind} \(channels \d+ instead of \d+, activation tanh instead of relu\)"):
        load_backbone(folder, "first", made.pooler, token_poolers={made.pooler: changed})
    assert load_backbone(folder, "first", "cls").head is None
