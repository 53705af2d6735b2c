"""DeCLUTR's loss against spans read one by one, its options, and what it refuses."""

import numpy as np
import pytest
import torch
from declutr_oracle import Documents, declutr, documents, naive_contrastive, naive_mlm, spans_of
from method_oracle import _tokenizer, batch_of, masked_lm_folder, total
from shipped_recipes import one_line
from tiny_models import build

from stsbench.config import validate
from stsbench.methods.declutr.method import DeCLUTR
from stsbench.methods.declutr.options import DeCLUTROptions
from stsbench.methods.declutr.spans import RandomDraws, sample_spans
from stsbench.training.api.batch import IGNORED
from stsbench.training.recipes.method_plan import MethodPlan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("declutr") / "tiny-mlm")


@pytest.mark.parametrize("more_padding", [0, 3])
@pytest.mark.parametrize("options", [
    {}, {"anchors": 1, "positives": 1}, {"anchors": 1, "positives": 3, "temperature": 0.5}, {"sampling": "subsuming"},
    {"sampling": "adjacent", "positives": 1}, {"spans": "retokenised"},
], ids=str)
def test_both_terms_are_those_of_the_spans_read_one_by_one(folder, options, more_padding):
    method, rows = declutr(folder, mlm_probability=0.4, **options), documents(folder)
    anchors, positives = method.options.anchors, method.options.positives
    views = method.views(rows, np.random.default_rng(4))
    assert len(views.tokens) == anchors * (1 + positives) and len(views.extra["mlm_labels"]) == anchors
    with torch.no_grad():
        losses = method(batch_of(method, rows, 4, more_padding))
    contrastive = naive_contrastive(folder, views.tokens, 3, anchors, positives, method.options.temperature)
    assert abs(float(losses["contrastive"].value) - contrastive) < 1e-8
    assert abs(float(losses["mlm"].value) - naive_mlm(folder, views.tokens, views.extra["mlm_labels"])) < 1e-8
    assert losses["contrastive"].count == 3 * anchors and losses["contrastive"].weight == losses["mlm"].weight == 1
    chosen = sum(int((row != IGNORED).sum()) for view in views.extra["mlm_labels"] for row in view)
    assert losses["mlm"].count == chosen == method.counts(batch_of(method, rows, 4))["mlm"] > 0


def test_what_is_read_are_the_spans_that_were_drawn(folder):
    """The draws of spans come first, document by document; then those of the masks."""
    method, rows = declutr(folder, mlm_probability=0.5), documents(folder)
    views, rng = method.views(rows, np.random.default_rng(9)), np.random.default_rng(9)
    ids, tokenizer = rows.ids("sentence"), _tokenizer(folder)
    drawn = [spans_of(sample_spans(len(each), method.options, RandomDraws(rng))) for each in ids]
    changed = 0
    for a in range(2):
        for row, document in enumerate(ids):
            start, end, near = drawn[row][a]
            whole = [tokenizer.cls_token_id, *document[start:end], tokenizer.sep_token_id]
            labels, read = views.extra["mlm_labels"][a][row], views.tokens[a][row]
            assert np.where(labels == IGNORED, read, labels).tolist() == whole
            changed += int((read != whole).sum())
            for p, (first, last) in enumerate(near):
                expected = [tokenizer.cls_token_id, *document[first:last], tokenizer.sep_token_id]
                assert views.tokens[2 + 2 * a + p][row].tolist() == expected  # positives are clean
    assert changed > 5


def test_several_documents_in_another_order_have_the_same_loss(folder):
    """Anchors of one document are negatives of each other, wherever they stand."""
    method = declutr(folder, anchors=2, mlm_weight=0.0)
    batch = batch_of(method, documents(folder))
    order = torch.tensor([2, 0, 1])
    places = torch.cat([view * 3 + order for view in range(batch.views)])
    value = method(batch)["contrastive"].value
    batch.ids, batch.mask = batch.ids[places], batch.mask[places]
    assert abs(method(batch)["contrastive"].value - value) < 1e-12


CHANGES = [
    {"anchors": 1}, {"positives": 1}, {"l_min": 4}, {"l_max": 5}, {"sampling": "subsuming"}, {"sampling": "adjacent"},
    {"temperature": 0.1}, {"contrastive_weight": 0.25}, {"contrastive_weight": 0.0}, {"mlm_weight": 0.5},
    {"mlm_weight": 0.0}, {"mlm_probability": 0.4},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_option_changes_the_loss(folder, change):
    rows = documents(folder)
    before, after = (declutr(folder, **options) for options in ({}, change))
    assert abs(total(before(batch_of(before, rows))) - total(after(batch_of(after, rows)))) > 1e-6


def test_spans_that_begin_within_a_word_are_other_tokens_when_retokenised(folder):
    """A word of several pieces, cut: ids keep the piece, the decoded text is read from its spelling."""
    rows = Documents(folder, {"sentence": ["zebra quagga zebu okapi vervet xerus gnu ibex"]})
    plain, again = (declutr(folder, spans=spans, mlm_weight=0.0) for spans in ("ids", "retokenised"))
    tokenizer, ids = _tokenizer(folder), rows.ids("sentence")[0]
    views = [method.views(rows, np.random.default_rng(1)).tokens for method in (plain, again)]
    drawn = spans_of(sample_spans(len(ids), plain.options, RandomDraws(np.random.default_rng(1))))
    spans = [drawn[0][:2], drawn[1][:2], *drawn[0][2], *drawn[1][2]]
    for place, (start, end) in enumerate(spans):
        text = tokenizer.decode(ids[start:end], clean_up_tokenization_spaces=True)
        expected = tokenizer(text, truncation=True, max_length=10, padding=False)["input_ids"]
        assert list(views[1][place][0]) == expected and views[0][place][0].tolist()[1:-1] == ids[start:end].tolist()
    assert any(list(a[0]) != list(b[0]) for a, b in zip(*views, strict=True))


def test_without_mlm_nothing_is_masked_and_without_contrast_there_are_no_positives(folder):
    rows = documents(folder)
    clean, alone = declutr(folder, mlm_weight=0.0), declutr(folder, contrastive_weight=0.0)
    views = clean.views(rows, np.random.default_rng(0))
    assert views.extra == {} and clean.lm_head is None and set(clean(batch_of(clean, rows))) == {"contrastive"}
    assert not any((row == _tokenizer(folder).mask_token_id).any() for view in views.tokens for row in view)
    assert len(alone.views(rows, np.random.default_rng(0)).tokens) == 2 and set(alone(batch_of(alone, rows))) == {"mlm"}
    assert alone.view_vectors(batch_of(alone, rows)) is None
    first, second = clean.view_vectors(batch_of(clean, rows))
    assert first.shape == second.shape == (6, 32)


@pytest.mark.parametrize(("options", "line"), [
    ({"l_min": 6, "l_max": 6}, "l_min 6 is to be less than l_max 6"),
    ({"contrastive_weight": 0, "mlm_weight": 0}, "contrastive_weight and mlm_weight are both 0: there is no loss"),
    ({"contrastive_weight": 0, "positives": 1}, "positives 1 has no effect with contrastive_weight 0"),
    ({"contrastive_weight": 0, "sampling": "adjacent"}, "sampling adjacent has no effect with contrastive_weight 0"),
    ({"contrastive_weight": 0, "temperature": 0.1}, "temperature 0.1 has no effect with contrastive_weight 0"),
    ({"mlm_weight": 0, "mlm_probability": 0.4}, "mlm_probability 0.4 has no effect with mlm_weight 0"),
])
def test_options_that_do_not_go_together(options, line):
    one_line(lambda: validate(DeCLUTROptions, options, "recipe", "options."), f"recipe: options.{line}")


def test_spans_longer_than_what_the_model_reads_are_refused(folder):
    one_line(lambda: declutr(folder, l_max=11), "options.l_max 11", "backbone.max_length 10")


def test_a_model_without_a_head_is_said_to_get_one(folder, tmp_path):
    assert declutr(folder).notes() == []
    made = declutr(build(tmp_path / "bare", pooler=False))
    assert "stores no masked-LM head" in made.notes()[0]
    assert MethodPlan(DeCLUTR, DeCLUTROptions()).roles(("sentence",)) == ("sentence",)
