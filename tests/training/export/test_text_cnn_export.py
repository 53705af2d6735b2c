"""A model with the learned pooler text_cnn as a folder: one vector for a text, whoever reads it, and nothing made up."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from clirun import cli, place
from loaded import loaded
from safetensors.torch import load_file, save_file
from text_cnn_oracle import SMALL, by_loops
from training_runs import make_text, one_thread

import stsbench
from stsbench.encoders.forward.pooling import token_pooler_folder
from stsbench.encoders.forward.token_pooler import TextCNN
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.encoders.transformer.parts import Parts
from stsbench.errors import EncoderError, StsbenchError
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder
from stsbench.training.export.card import describe, model_card
from stsbench.training.export.export import export_model
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.recipe import Recipe

__all__ = ["cli", "one_thread", "place"]
TEXTS = [*tiny_models.sentences(25), "", "a", "a cat", "the cat " * 25]
RECIPE = Recipe(name="tiny-run", method="simcse", backbone={"model": "/home/me/tiny"})
CNN = {**SMALL, "activation": "relu"}


def inference(folder, family="bert", **cnn):
    """As a method gives it: every weight trainable, train mode."""
    torch.manual_seed(3)
    settings = {"text_cnn": {**CNN, **cnn}}
    backbone = load_backbone(tiny_models.build(folder, family), "tiny", "text_cnn", token_poolers=settings)
    return Inference(backbone.model, backbone.tokenizer, "text_cnn", token_pooler=backbone.head)


def want(made, texts=TEXTS, limit=64):
    """float64 vectors of transformers' own states, one text at a time, by loops over windows."""
    model, rows = made.model.eval(), []
    for text in texts:
        ids = made.tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            rows.append(by_loops(made.token_pooler, model(input_ids=ids).last_hidden_state[0].double().numpy())[0])
    model.train()
    return np.stack(rows)


def close(vectors, other):
    """To 1e-6 of a vector's length."""
    assert (np.linalg.norm(np.asarray(vectors) - other, axis=1) / np.linalg.norm(other, axis=1)).max() < 1e-6


def same_weights(one, other):
    return all(torch.equal(one.state_dict()[name], value) for name, value in other.state_dict().items())


def library(folder, **options):
    module = pytest.importorskip("sentence_transformers")
    return module.SentenceTransformer(str(folder), device="cpu", local_files_only=True, **options)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(what was exported, its folder); not to be changed."""
    folder = tmp_path_factory.mktemp("exported")
    made = inference(folder / "model", "roberta")
    export_model(made, folder / "out", card=model_card(RECIPE, describe(made)), method="simcse", recipe="tiny-run")
    return made, folder / "out"


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_three_readers_give_the_same_vectors(tmp_path, family):
    made = inference(tmp_path / "model", family)
    export_model(made, tmp_path / "out", card="")
    live, vectors = live_encoder(made, "live"), want(made)
    assert vectors.shape == (len(TEXTS), 16)
    modes = [part.training for part in (*made.model.modules(), *made.token_pooler.modules())]
    close(live.encode(TEXTS), vectors)
    assert all(modes) and modes == [part.training for part in (*made.model.modules(), *made.token_pooler.modules())]
    ours = load_encoder(str(tmp_path / "out"))
    assert (ours.spec.kind, ours.spec.pooler, ours.spec.max_length) == ("transformers", "text_cnn", 64)
    close(ours.encode(TEXTS), vectors)
    close(loaded(tmp_path / "out", attention="padded", batch_tokens=90).encode(TEXTS), vectors)
    model = library(tmp_path / "out", trust_remote_code=True)
    assert model.get_embedding_dimension() == 16
    close(model.encode(TEXTS), vectors)


def test_the_folder_and_its_card(exported):
    made, folder = exported
    modules = json.loads((folder / "modules.json").read_text())
    assert [module["path"] for module in modules] == ["", "1_TextCNN"]
    assert {path.name for path in (folder / "1_TextCNN").iterdir()} == {"config.json", "model.safetensors"}
    assert json.loads((folder / "stsbench.json").read_text())["pooler"] == "text_cnn"
    card = (folder / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert len(snippets) == 2 and "All three" not in card and "With transformers alone there are no sentence vectors" in card
    pytest.importorskip("sentence_transformers")
    for code in snippets:
        names = {"texts": TEXTS}
        exec(code.replace("PATH", str(folder)), names)
        close(names["vectors"], want(made))


def test_sentence_transformers_asks_before_it_imports(exported):
    with pytest.raises(ValueError, match="trust_remote_code"):
        library(exported[1])


def test_what_the_library_saved_is_read_as_it_reads_it(exported, tmp_path):
    made, folder = exported
    library(folder, trust_remote_code=True).save(str(tmp_path / "saved"), create_model_card=False)
    assert not (tmp_path / "saved" / "stsbench.json").exists()
    encoder = load_encoder(str(tmp_path / "saved"))
    assert (encoder.spec.kind, encoder.spec.pooler) == ("transformers", "text_cnn")
    close(encoder.encode(TEXTS), want(made))
    close(library(tmp_path / "saved", trust_remote_code=True).encode(TEXTS), want(made))


def test_padding_at_the_left_changes_nothing(exported):
    pooling = library(exported[1], trust_remote_code=True)[1]
    states = torch.randn(3, 9, 32)
    right = (torch.arange(9) < torch.tensor([[9], [2], [6]])).long()
    left = right.flip(1)
    moved = torch.full_like(states, torch.nan)
    moved[left.bool()] = states[right.bool()]
    pairs = ((states, right), (moved, left))
    both = [pooling({"token_embeddings": s, "attention_mask": m})["sentence_embedding"] for s, m in pairs]
    assert torch.allclose(*both, atol=1e-6)


def test_the_head_is_part_of_what_identifies_the_encoder(exported, tmp_path):
    made, folder = exported
    first = load_encoder(str(folder))
    export_model(made, tmp_path / "again", card="another", method="simcse", recipe="tiny-run")
    assert load_encoder(str(tmp_path / "again")).spec.fingerprint() == first.spec.fingerprint()
    for place_of_change in ("convs.1.weight", "fusion.bias"):
        shutil.copytree(folder, tmp_path / place_of_change)
        file = tmp_path / place_of_change / "1_TextCNN" / "model.safetensors"
        weights = load_file(file)
        weights[place_of_change] = weights[place_of_change] + 0.5
        save_file(weights, file)
        changed = load_encoder(str(tmp_path / place_of_change))  # stsbench.json holds no more, modules.json does
        assert changed.spec.weights != first.spec.weights and changed.spec.fingerprint() != first.spec.fingerprint()
        assert np.abs(changed.encode(TEXTS) - first.encode(TEXTS)).max() > 1e-3
    assert first.spec == first.built.spec


def test_a_head_that_is_gone_or_another_models_is_not_replaced(exported, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copytree(exported[1], tmp_path / name)
        (tmp_path / name / "1_TextCNN" / name).unlink()
        with pytest.raises(EncoderError, match=f"lacks the TextCNN that its modules.json promises .1_TextCNN/{name}"):
            load_encoder(str(tmp_path / name))
        with pytest.raises(EncoderError, match="lacks the TextCNN"):
            load_backbone(tmp_path / name, "gone", "text_cnn")
    shutil.copytree(exported[1], tmp_path / "wide")
    TextCNN(8, **CNN).save(tmp_path / "wide" / "1_TextCNN")
    with pytest.raises(EncoderError, match="reads states of width 8, and its model gives 32"):
        load_encoder(str(tmp_path / "wide")).encode(TEXTS)
    with pytest.raises(EncoderError, match=r"stores a different TextCNN \(width 32 instead of 8\)"):
        load_backbone(tmp_path / "wide", "wide", "text_cnn")
    (tmp_path / "wide" / "modules.json").write_text("[1]")
    with pytest.raises(EncoderError, match=r"cannot read .*modules\.json") as error:
        token_pooler_folder(tmp_path / "wide")
    assert "\n" not in str(error.value)


def test_a_pooler_and_its_head_go_together(tmp_path):
    made = inference(tmp_path)
    with pytest.raises(EncoderError, match="pooler text_cnn and a TextCNN go together"):
        LiveEncoder(Parts(made.model, made.tokenizer), pooler="text_cnn", name="dev")
    with pytest.raises(EncoderError, match="pooler text_cnn and a TextCNN go together"):
        LiveEncoder(Parts(made.model, made.tokenizer, token_pooler=made.token_pooler), pooler="cls", name="dev")
    for wrong in (Inference(made.model, made.tokenizer, "text_cnn"),
                  Inference(made.model, made.tokenizer, "mean", token_pooler=made.token_pooler)):
        with pytest.raises(ValueError, match="cannot be exported with token_pooler="):
            export_model(wrong, tmp_path / "out", card="")
    assert not (tmp_path / "out").exists()


def test_as_a_backbone_it_keeps_its_head(exported):
    made, folder = exported
    for settings in (None, CNN):
        kept = load_backbone(folder, "first", "text_cnn", token_poolers={"text_cnn": settings} if settings else None)
        assert same_weights(kept.head, made.token_pooler)
        assert all(weight.requires_grad for weight in kept.parameters())
    with pytest.raises(EncoderError, match=r"TextCNN \(channels 4 instead of 9, activation tanh instead of relu\): set"):
        load_backbone(folder, "first", "text_cnn", token_poolers={"text_cnn": {**CNN, "channels": 4, "activation": "tanh"}})
    assert load_backbone(folder, "first", "cls").head is None


# --- a whole training ---


@pytest.fixture
def trained(cli):
    """Train a method for three steps on the tiny model in the folder `tiny`, without a dev score unless one is asked for."""
    tiny_models.build(Path("tiny"), pooler=False)
    text = make_text(Path("tiny"))

    def run(output, method="simcse", **more):
        values = {
            "backbone.model": "tiny", "backbone.pooler": "text_cnn", "backbone.max_length": 12, "data.file": str(text),
            "data.held_out": 0, "training.batch_size": 8, "training.max_steps": 3, "training.learning_rate": 1e-3,
            "precision": "float32", "selection.by": "none",
        }
        if method == "simcse":
            values["options.head"] = "none"
        return stsbench.train(method, output=output, settings={**values, **more}, device="cpu", sample=True)

    return run


def test_simcse_trains_it_and_everything_reads_it(trained, cli):
    trained("first", **{"backbone.text_cnn": CNN, "selection.by": "sts-b dev", "selection.every": 2})
    head = load_file("first/best/1_TextCNN/model.safetensors")
    best = load_file("first/checkpoints/0-main-00000002/model.safetensors")
    assert all(torch.equal(best[f"backbone.head.{name}"], value) for name, value in head.items())
    torch.manual_seed(42)
    new = load_backbone(Path("tiny"), "tiny", "text_cnn", token_poolers={"text_cnn": CNN}).head.state_dict()
    assert all(0 < (new[name] - head[name]).abs().max() < 0.01 for name in head)  # two steps of 0.001 from where it began
    log = [json.loads(line) for line in Path("first/log.jsonl").read_text().splitlines()]
    dev = [line for line in log if line["kind"] == "dev"]
    assert [line["step"] for line in dev] == [0, 2, 3] and len({line["score"] for line in dev}) == 3
    code, out, err = cli("eval", "--model", "first", "--sample", "--tasks", "STS-B", "--device", "cpu")
    assert code == 0 and "text_cnn" in out + err, err
    trained("second", **{"backbone.model": "first", "training.learning_rate": 1e-30})
    for name, value in load_file("second/best/1_TextCNN/model.safetensors").items():
        assert torch.equal(value, head[name])  # as a backbone it goes on with its own


def test_what_is_refused_and_what_is_said(trained, cli):
    trained("first", **{"backbone.text_cnn": CNN})
    more = ("--output", "second", "--sample", "--device", "cpu", "--dtype", "float32", "--max-steps", "1")
    less = ("--set", "selection.by=none", "--set", "training.batch_size=8")
    code, _, err = cli("train", "simcse", "--backbone", "first", "--data", "tiny/text.txt", *more, *less)
    assert code == 0 and "first is tested with a TextCNN; as a backbone of pooler cls it is used without" in err
    for method, options, message in (
        ("mlm", {}, r"mlm trains no TextCNN: set backbone\.pooler to cls or mean"),
        ("simcse", {"backbone.pooler": "mean", "backbone.text_cnn": CNN}, r"text_cnn has no effect with backbone\.pooler"),
        ("simcse", {"options.head": "mlp"}, r"options\.head mlp stands on the pooler cls, not on text_cnn"),
        ("simcse", {"backbone.model": "first", "backbone.text_cnn": {**CNN, "channels": 5}}, "channels 5 instead of 9"),
    ):
        with pytest.raises(StsbenchError, match=message) as error:
            trained("third", method, **options)
        assert "\n" not in str(error.value) and not Path("third").exists()
    code, _, err = cli("eval", "--model", "tiny", "--pooler", "text_cnn", "--sample", "--tasks", "STS-B")
    assert code != 0 and "tiny stores no TextCNN, and it is learned" in err and len(err.strip().splitlines()) == 1
