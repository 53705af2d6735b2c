"""Template denoising against a table of rows written out: one row at a time through transformers' own model, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from prompt_models import backbone
from tiny_models import build
from transformers import DynamicCache

from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.prompting import check_prompted, template_vectors
from stsbench.training.modules.soft_prompt import Prefix

FAMILIES = ["bert", "roberta", "bpe"]
TEMPLATES = {"bert": 'the man of "{}" means [MASK].', "roberta": "[MASK] in the {} means .",
             "bpe": "This sentence : ' {} ' means{mask}."}
COUNTS = torch.tensor([3, 0, 7, 3, 12, 7])
SLOTS = 4


def keys_and_values(made):
    torch.manual_seed(11)
    layers, width = made.model.config.num_hidden_layers, made.width
    return (torch.randn(2, layers, SLOTS, width, dtype=torch.float64) * 0.7).requires_grad_()


def rows_of(slots, m):
    """The same keys and values for m rows, every slot of them seen."""
    return Prefix(*(part.unsqueeze(1).expand(-1, m, -1, -1) for part in slots), torch.ones(m, SLOTS, dtype=torch.bool))


def table(made, template, positions, start, split, slots=None, words=None):
    """delta_k of each of COUNTS as the paper's table has it: [CLS] bs es [SEP], what follows the sentence k places later."""
    model, rows = made.model, []
    ids = [*template.before, *template.after]
    own = 0 if model.config.model_type == "bert" else model.config.pad_token_id + 1
    begin = (own if start == "own" else 0) + (0 if slots is None else SLOTS)
    at = len(template.before) if split is None else split
    for k in range(int(COUNTS.max()) + 1):
        if k not in COUNTS:
            rows.append(torch.full((made.width,), torch.nan, dtype=torch.float64))
            continue
        places = []
        for i in range(len(ids)):
            places.append(begin + i + (k if i >= at and positions == "matched" else 0))
        embedded = model.get_input_embeddings()(torch.tensor([ids]))
        if words is not None:
            pieces, number = [], 0
            for i, token in enumerate(ids):
                learned = i not in (0, len(ids) - 1) and token != template.mask_id
                pieces.append(words[number] if learned else embedded[0, i])
                number += learned
            embedded = torch.stack(pieces).unsqueeze(0)
        more, seen = {}, torch.ones(1, len(ids), dtype=torch.long)
        if slots is not None:
            cache, heads = DynamicCache(), model.config.num_attention_heads
            for layer in range(model.config.num_hidden_layers):
                cache.update(*(part[layer].view(1, SLOTS, heads, -1).transpose(1, 2) for part in slots), layer)
            more["past_key_values"] = cache
            seen = torch.ones(1, 1, len(ids), SLOTS + len(ids), dtype=torch.bool)
        states = model(inputs_embeds=embedded, attention_mask=seen, position_ids=torch.tensor([places]), **more)
        rows.append(states.last_hidden_state[0, ids.index(template.mask_id)])
    return torch.stack(rows)


@pytest.mark.parametrize("engine", ["packed", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("positions", "start", "split"), [
    ("matched", "own", None), ("matched", "zero", 3), ("empty", "own", None),
])
def test_equals_the_table(tmp_path, family, engine, positions, start, split):
    made = backbone(tmp_path, family, engine).eval()
    template = TokenTemplate(made.tokenizer, TEMPLATES[family], "t")
    learned = torch.randn(len(template.word_ids), 32, dtype=torch.float64)
    for slots, words in ((None, None), (keys_and_values(made), learned)):

        def prefix(m, held=slots):
            return rows_of(held, m)

        got = template_vectors(
            made, template, COUNTS, positions=positions, start=start, split=split,
            prefix=None if slots is None else prefix, vectors=words,
        )
        want = table(made, template, positions, start, split, slots, words)
        torch.testing.assert_close(got, want[COUNTS], rtol=0, atol=1e-6)
        spread = (want[COUNTS] - want[0]).abs().max()
        assert (spread == 0) if positions == "empty" else (spread > 1e-3)  # the positions matter


@pytest.mark.parametrize("family", ["bert", "bpe"])
def test_gradients_are_those_of_the_table_and_none_without(tmp_path, family):
    made = backbone(tmp_path, family).eval()
    template = TokenTemplate(made.tokenizer, TEMPLATES[family], "t")
    slots, weights = keys_and_values(made), torch.randn(len(COUNTS), 32, dtype=torch.float64)
    words = torch.randn(len(template.word_ids), 32, dtype=torch.float64, requires_grad=True)

    def prefix(m):
        return rows_of(slots, m)

    def gradients(vectors):
        learned = [slots, words, *made.model.parameters()]
        found = torch.autograd.grad((vectors * weights).sum(), learned, allow_unused=True)
        return [torch.zeros_like(own) if part is None else part for own, part in zip(learned, found, strict=True)]

    ours = gradients(template_vectors(made, template, COUNTS, prefix=prefix, vectors=words))
    wanted = gradients(table(made, template, "matched", "own", None, slots, words)[COUNTS])
    for got, want in zip(ours, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)
    assert ours[0].abs().max() > 1e-3 and ours[1].abs().max() > 1e-3
    frozen = template_vectors(made, template, COUNTS, gradient=False, prefix=prefix, vectors=words)
    assert not frozen.requires_grad
    torch.testing.assert_close(frozen, template_vectors(made, template, COUNTS, prefix=prefix, vectors=words).detach())


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


def test_roberta_may_start_at_zero(tmp_path):
    made = load_backbone(build(tmp_path / "roberta", "roberta"), "roberta", "mask")
    made.name = "roberta"
    check_prompted(made, "zero")
