"""A table of tokens' vectors, trained: sentence-transformers' loss of the same table, and three readers of the export."""

import numpy as np
import pytest
import torch
import yaml
from model_folder_kinds import WIDTH, declare, normalize, static
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss
from tiny_models import sentences

import stsbench
from stsbench import losses
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.find import backbone_folder
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.prepare import _dropped_parts

TEXTS = sentences(20, longest=9)
PAIRS = [("a cat sits", "the cat sat"), ("two dogs run fast", "dogs run"), ("music in the park", "a guitar played")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("static") / "model"
    declare(path, static(6), normalize(), first=None)
    return path


def test_the_loss_and_its_gradient_are_sentence_transformers(folder):
    backbone = load_backbone(backbone_folder(str(folder)), "x", "mean", max_length=64)
    columns = [[pair[k] for pair in PAIRS] for k in (0, 1)]
    vectors = []
    for texts in columns:
        rows = [torch.tensor(ids) for ids in backbone.tokenise(texts)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        vectors.append(backbone.pooled(ids, mask))
    value = losses.info_nce(*vectors, temperature=0.05)
    value.backward()
    model = SentenceTransformer(str(folder), device="cpu")
    expected = MultipleNegativesRankingLoss(model, scale=20)([model.preprocess(texts) for texts in columns], None)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(backbone.model.embeddings.weight.grad, model[0].embedding.weight.grad, atol=1e-6, rtol=1e-5)


def test_what_stands_behind_the_table_is_told(folder):
    recipe = load_recipe("distil", "static", [f"backbone.model={folder}"])
    assert _dropped_parts(recipe, backbone_folder(str(folder))) == [
        f"{folder} is tested with a module Normalize; as a backbone it is used without"]


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    """Five large steps: a text is to be nearer to its vector in the table at first than to those of other texts."""
    place = tmp_path_factory.mktemp("trained")
    (place / "text.txt").write_text("".join(f"{text}\n" for text in TEXTS * 4), "utf-8")
    stsbench.train("distil", recipe="static", output=place / "run", device="cpu", settings={
        "backbone.model": str(folder), "data.file": str(place / "text.txt"), "data.held_out": 4, "training.batch_size": 8,
        "options.teachers": [{"model": str(folder)}], "options.projection": "none", "options.pca_texts": 40_000,
        "options.center": False, "training.max_steps": 5, "training.learning_rate": 0.1,
    })
    return place / "run"


def test_a_run_is_read_alike_by_all_and_has_learnt(folder, trained):
    vectors = load_encoder(str(trained)).encode(TEXTS)
    np.testing.assert_array_equal(vectors, SentenceTransformer(str(trained / "best"), device="cpu").encode(TEXTS))
    rows = load_file(trained / "best/model.safetensors")["embeddings"]
    before = load_file(folder / "0_StaticEmbedding/model.safetensors")["embedding.weight"]
    assert rows.shape == before.shape == (len(before), WIDTH) and (rows - before).abs().max() > 0.01
    StaticModel = pytest.importorskip("model2vec").StaticModel
    np.testing.assert_allclose(StaticModel.from_pretrained(trained / "best").encode(TEXTS), vectors, atol=1e-6)


def test_its_card_says_how_to_load_it_and_a_later_training_goes_on_from_it(trained, tmp_path):
    card = (trained / "best/README.md").read_text("utf-8")
    assert "StaticModel.from_pretrained" in card and "AutoModel" not in card
    stored = yaml.safe_load((trained / "recipe.yaml").read_text("utf-8"))
    table = load_backbone(backbone_folder(str(trained)), "x", "mean", max_length=stored["backbone"]["max_length"])
    rows = load_file(trained / "best/model.safetensors")["embeddings"]
    assert torch.equal(table.model.embeddings.weight, rows)
