"""The card beside a trained model: what was trained, and code that loads it in three libraries with the same vectors."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import tiny_models
import torch
from huggingface_hub import ModelCard
from live_models import by_hand, inference
from prompted import MORE, PLAIN, models, rich, with_prompt
from token_pooler_oracle import TEXT_CNN
from transformers import AutoModel, AutoTokenizer

from stsbench.encoders.load import load_encoder
from stsbench.extensions.publish.training_card import describe, model_card, training_card, transformers_snippet
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder
from stsbench.training.export.export import export_model
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.recipe import Recipe

__all__ = ["models", "rich"]
TEXTS = [*tiny_models.sentences(20), "", "a cat", "the cat " * 25]  # the last one is longer than 64 tokens
PATHS = {"backbone": {"model": "/home/me/models/tiny"}, "data": {"file": "/data/x/text.txt"}}
RECIPE = Recipe(name="tiny-run", method="simcse", **PATHS)
SAID = {"pooler": "cls", "max_length": None, "auto_pooler": ""}


def exported(made, folder):
    """The card, and what each of its snippets computes of TEXTS."""
    state = torch.get_rng_state()
    card = training_card(RECIPE, made, {})
    assert torch.equal(torch.get_rng_state(), state)
    export_model(made, folder, card=card)
    assert (folder / "README.md").read_text("utf-8") == card
    made_by = []
    for code in re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL):
        names = {"texts": TEXTS}
        exec(code.replace("PATH", str(folder)), names)
        made_by.append(np.asarray(names["vectors"]))
    return card, made_by


@pytest.mark.parametrize(("family", "pooler"), [("roberta", "cls+dense"), ("distilbert", "cls+dense"),
                                                ("distilbert", "first_last:layer1")])
def test_three_snippets_give_the_methods_vectors(tmp_path, family, pooler):
    made = inference(tmp_path / "model", family, pooler)
    want = by_hand(made, TEXTS)
    card, vectors = exported(made, tmp_path / "out")
    assert len(vectors) == 3 and "All three" in card
    assert all(np.abs(some - want).max() < 1e-5 for some in vectors)


def test_the_snippet_of_each_pooler_gives_its_vectors(tmp_path):
    made = inference(tmp_path / "model")
    made.model.config.output_hidden_states = True  # as in the folder of an export that needs them
    made.model.config.save_pretrained(tmp_path / "model")
    for pooler in ("cls", "mean", "cls_avg", "max", "last", "weighted_mean", "last2"):
        other, names = replace(made, pooler=pooler), {"texts": TEXTS}
        exec(transformers_snippet(describe(other)).replace("PATH", str(tmp_path / "model")), names)
        assert np.abs(np.asarray(names["vectors"]) - by_hand(other, TEXTS)).max() < 1e-5, pooler


def test_padded_to_a_length_they_say_so(tmp_path):
    folder = tiny_models.build(tmp_path / "model", "roberta")
    made = Inference(AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), "mean_padded:16")
    card, vectors = exported(made, tmp_path / "out")
    want = load_encoder(str(tmp_path / "out")).encode(TEXTS)
    assert len(vectors) == 3 and "of texts padded to 16 tokens" in card
    assert all(np.abs(some - want).max() < 1e-5 for some in vectors)


def test_transformers_alone_lacks_a_learned_pooler(tmp_path):
    learned, pooler = {"text_cnn": {**TEXT_CNN, "activation": "relu"}}, "text_cnn"
    backbone = load_backbone(tiny_models.build(tmp_path / "model"), "tiny", pooler, token_poolers=learned)
    made = Inference(backbone.model, backbone.tokenizer, pooler, token_pooler=backbone.head)
    card, vectors = exported(made, tmp_path / "out")
    want = load_encoder(str(tmp_path / "out")).encode(TEXTS)
    assert len(vectors) == 2 and "All three" not in card and "With transformers alone there are no sentence vectors" in card
    assert f"needs stsbench installed for the {backbone.head.kind.title}" in card
    assert all(np.abs(some - want).max() < 1e-5 for some in vectors)


@pytest.mark.parametrize(("family", "more"), [PLAIN[2], MORE[1]])
def test_of_a_prompted_encoder_as_far_as_transformers_goes(models, tmp_path, family, more):
    made = with_prompt(models, family, more)
    want = live_encoder(made, "live").encode(TEXTS)
    card, vectors = exported(made, tmp_path / "out")
    alone = (family, more) in PLAIN
    assert len(vectors) == 2 + alone and ("With transformers alone there are no sentence vectors" in card) is not alone
    assert all(np.abs(some - want).max() < 1e-4 for some in vectors)


def test_the_prompt_is_described(rich):
    card = model_card(RECIPE, describe(rich[0]))
    for row in ("pooler | mask", "prefix | 3 and 2 keys and values in every layer; the vectors of each are averaged",
                "positions before the text | 5", "learned words | 8 embeddings in the template", "head | a masked LM"):
        assert f"| {row}" in card, card
    assert "the vector of the template alone is subtracted, at its positions around a text of as many tokens" in card


def test_it_says_which_stage_and_what_it_went_on_from():
    earlier = {"stage": "first", "step": 12, "run": "one", "recipe": "toy", "seed": 42, "weights": "ab12", "from": None,
               "differs": {"stages.first.training.epochs": 2.0}}
    card = model_card(RECIPE, {**SAID, "stage": "second", "from": earlier, "adapter": True})
    assert "second alone" in card and "merged into its weights before the training" in card
    assert "| went on from | the end of stage first (step 12) of the run one, recipe toy, seed 42, weights" in card
    assert "stages.first.training.epochs 2.0" in card


def test_it_says_what_was_trained_and_keeps_folders_to_itself(tmp_path):
    own = {"description": "a `tick` | and ``` fence", "options": {"note": "see ```` here"}}
    recipe = Recipe(**{**RECIPE.model_dump(), **own})
    data = [{"name": "/data/x/text.txt", "digest": "ab12", "rows": 12345}]
    card = training_card(recipe, inference(tmp_path), {"data": data, "seed": 7, "steps": 2000})
    assert "| data | text.txt, 12,345 rows, sha256 ab12 |" in card and "file: text.txt" in card
    assert "/home/me" not in card and "/data/x" not in card
    data = ModelCard(card).data  # the Hub's own reader
    assert (data.library_name, data.pipeline_tag, data.base_model) == ("sentence-transformers", "sentence-similarity", None)
    assert card.rstrip().endswith("`````") and "`````yaml" in card  # longer than any fence inside
    assert "chose these weights" not in model_card(recipe, SAID)
    named = Recipe(**{**RECIPE.model_dump(), "backbone": {"model": "no-such-owner/no-such-model"}})
    assert ModelCard(model_card(named, SAID)).data.base_model == "no-such-owner/no-such-model"
    for name, score, words in (
        ("held-out", -2.345678, "on held-out: -2.35 |"), ("held-out", -0.012345, "on held-out: -0.0123 |"),
        ("sts-b dev (sample)", 84.618, "on sts-b dev: 84.62 (sample data: not comparable with published numbers) |"),
    ):
        best = {"name": name, "score": score, "stage": "main", "step": 5}
        card = model_card(RECIPE, {**SAID, "best": best, "sample": True})
        assert f"the weights of step 5, the best {words}" in card and "the dev score above chose these weights" in card
        assert card.count("sample") == (3 if "(sample)" in name else 2)
