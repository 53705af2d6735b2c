"""Token ids are held against the model's table of embeddings, of whatever kind it is."""

from __future__ import annotations

import numpy as np
import peft
import pytest
import tiny_models
import transformers
from training_runs import make_text

import stsbench
from stsbench.encoders.prompt.tokenizer import check_ids, table_size
from stsbench.errors import EncoderError, StsbenchError

SHAPE = {**tiny_models.SHAPE, "max_position_embeddings": 64}


def model_of(family, **more):
    config = getattr(transformers, f"{family}Config")(**SHAPE, **more)
    return getattr(transformers, f"{family}Model")(config)


def test_a_table_of_any_kind_has_its_size():
    """I-BERT's and peft's are no torch.nn.Embedding, CANINE has hashes of characters."""
    bert = model_of("Bert", vocab_size=70)
    assert table_size(bert) == table_size(model_of("IBert", vocab_size=70)) == 70
    assert table_size(peft.get_peft_model(bert, peft.TrainableTokensConfig(token_indices=[5, 6]))) == 70
    assert table_size(model_of("Canine")) is None
    with pytest.raises(EncoderError, match=r"^m: its tokenizer gives .* the token id 70, and the model has a voc"):
        check_ids(np.array([3, 70]), model_of("IBert", vocab_size=70), tiny_models.tokenizer("bert"), "m")


@pytest.mark.parametrize("family", ["NomicBert", "LayoutLM"])
def test_families_with_tables_or_stored_weights_of_their_own_are_trained(tmp_path, family):
    """NomicBert's q, k and v are stored as one, and each is a part of it once read; LayoutLM always asks its pooler."""
    tokenizer = tiny_models.tokenizer("roberta")
    model = model_of(family, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    stsbench.train(
        "simcse", backbone=tmp_path / "model", data=make_text(tmp_path), output=tmp_path / "run", device="cpu",
        settings={"training.max_steps": 2, "training.batch_size": 8, "selection.by": "none"},
    )
    texts = tiny_models.sentences(4)
    folders = [str(tmp_path / name) for name in ("model", "run/best")]
    before, after = (stsbench.load_encoder(folder, pooler="cls").encode(texts) for folder in folders)
    assert before.shape == after.shape and np.abs(before - after).max() > 1e-6


def test_families_that_cannot_be_trained_are_refused_in_a_line(tmp_path):
    sizes = {"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16], "attn_layers": ["local"]}
    for family, more, reason in (
        ("Canine", {}, r"a CanineModel cannot read a text of three tokens \(RuntimeError: .*\): choose another backbone$"),
        ("Reformer", sizes, "the states of a ReformerModel have 64 numbers, and its hidden_size is 32: choose"),
    ):
        for part in (model_of(family, **more), tiny_models.tokenizer("roberta")):
            part.save_pretrained(tmp_path / family)
        with pytest.raises(StsbenchError, match=reason):
            stsbench.train("simcse", backbone=tmp_path / family, data=make_text(tmp_path), output=tmp_path / "run")
