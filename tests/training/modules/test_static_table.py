"""A table of tokens' vectors, trained: sentence-transformers' loss of the same table, and three readers of the export."""

import numpy as np
import pytest
import torch
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
