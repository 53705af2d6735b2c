"""Template denoising: whose dropout is whose, positions, and models that cannot be prompted. Its values: the oracles of
PromptBERT and DiffAug."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from prompt_models import backbone
from tiny_models import build

from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.prompting import check_prompted, template_vectors
from stsbench.training.modules.soft_prompt import Prefix

TEMPLATES = {"bert": 'the man of "{}" means [MASK].', "bpe": "This sentence : ' {} ' means{mask}."}
COUNTS = torch.tensor([3, 0, 7, 3, 12, 7])


@pytest.mark.parametrize("positions", ["matched", "empty"])
@pytest.mark.parametrize("gradient", [True, False])
def test_texts_of_one_count_share_a_rows_dropout_and_others_have_their_own(tmp_path, positions, gradient):
    made = backbone(tmp_path, "bert").train()
    template = TokenTemplate(made.tokenizer, TEMPLATES["bert"], "t")
    asked: list[int] = []

    def prefix(m):
        asked.append(m)
        slots = torch.zeros(3, m, 1, 32, dtype=torch.float64)
        return Prefix(slots, slots, torch.zeros(m, 1, dtype=torch.bool))

    got = template_vectors(made, template, COUNTS, positions=positions, gradient=gradient, prefix=prefix)
    assert asked == [4]  # one pass, a row for each distinct count
    assert torch.equal(got[0], got[3]) and torch.equal(got[2], got[5])
    for i, j in ((0, 1), (0, 2), (1, 4)):
        assert (got[i] - got[j]).abs().max() > 1e-3
    assert not torch.equal(got, template_vectors(made, template, COUNTS, positions=positions, prefix=prefix))
    assert made.training


def test_positions_beyond_the_models_are_one_line(tmp_path):
    made = backbone(tmp_path, "bert").eval()
    template = TokenTemplate(made.tokenizer, TEMPLATES["bert"], "t")
    last = 64 - template.length
    assert template_vectors(made, template, torch.tensor([last])).shape == (1, 32)
    with pytest.raises(EncoderError, match="position") as caught:
        template_vectors(made, template, torch.tensor([last + 1]))
    assert "\n" not in str(caught.value)


def test_the_sentence_pass_without_the_sentence_is_the_vector_subtracted(tmp_path):
    """An empty sentence, denoised, is zero: the template's own mask is then all that is left."""
    for family in ("bert", "bpe"):
        made = backbone(tmp_path / family, family).eval()
        template = TokenTemplate(made.tokenizer, TEMPLATES[family], "t")
        ids = torch.tensor(np.stack(template.wrap([[0, 2]])))
        mask = torch.ones_like(ids)
        states = made.at(ids, mask, template.mask_indices(mask))
        torch.testing.assert_close(template_vectors(made, template, template.counts(mask)), states, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("family", "start", "said"), [
    ("mpnet", "own", "families BERT and RoBERTa"), ("distilbert", "own", "families BERT and RoBERTa"),
    ("bert", "zero", "begin with 0"),
])
def test_a_model_that_cannot_be_prompted_is_refused_before_any_batch(tmp_path, family, start, said):
    made = load_backbone(build(tmp_path / family, family), family, "mask")
    made.name = family
    with pytest.raises(EncoderError, match=said):
        check_prompted(made, start)
