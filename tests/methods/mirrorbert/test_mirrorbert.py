"""Mirror-BERT's loss against its equation written out, in float64; spans and heads replayed from draws; every option."""

from __future__ import annotations

import numpy as np
import pytest
from method_oracle import total
from mirrorbert_oracle import MASK, OTHERS, TEXTS, batch_for, folders, loss, masked, mirrorbert, pairs, plain, vectors
from tiny_models import build
from training_runs import one_thread

from stsbench.config import validate
from stsbench.errors import EncoderError, StsbenchError
from stsbench.methods.mirrorbert.method import MirrorBERT, mask_span, mask_spans
from stsbench.methods.mirrorbert.options import MirrorBERTOptions
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.method_plan import MethodPlan

__all__ = ["folders", "one_thread"]
POOLERS = ["mean_padded:12", "mean", "cls"]


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


@pytest.mark.parametrize("pooler", POOLERS)
def test_the_loss_is_nt_xent_of_the_text_and_its_masked_copy(folders, family, pooler):
    method = mirrorbert(folders[family], pooler)
    batch, _ = batch_for(method, plain(folders[family]), more_padding=2)
    terms = method(batch)
    second = masked(TEXTS, MASK[family])
    assert sum(text != other for text, other in zip(TEXTS, second, strict=True)) == 3  # two are too short
    want = loss(*(vectors(folders[family], family, texts, pooler) for texts in (TEXTS, second)))
    assert set(terms) == {"contrastive"} and terms["contrastive"].count == len(TEXTS)
    assert abs(total(terms) - want) < 1e-10


@pytest.mark.parametrize("pooler", ["mean_padded:12", "cls"])
def test_drophead_replayed_from_its_draws(folders, family, pooler):
    method = mirrorbert(folders[family], pooler, drophead=0.4)
    batch, views = batch_for(method, plain(folders[family]), more_padding=2)
    kept = views.by_row["kept heads"]
    assert [part.shape for part in kept] == [(5, 3, 4)] * 2 and not (kept[0] == kept[1]).all()
    assert all(part.any(axis=2).all() for part in kept)  # the oracle's case
    second = masked(TEXTS, MASK[family])
    want = loss(*(
        vectors(folders[family], family, texts, pooler, each) for texts, each in zip((TEXTS, second), kept, strict=True)
    ))
    for method.backbone.engine in ("auto", "padded"):
        assert abs(total(method(batch)) - want) < 1e-10
    method.eval()
    without = loss(*(vectors(folders[family], family, texts, pooler) for texts in (TEXTS, second)))
    assert abs(total(method(batch)) - without) < 1e-10


def test_how_often_heads_are_dropped(folders):
    method = mirrorbert(folders["bert"], drophead=0.3)
    draws = [batch_for(method, plain(folders["bert"]), seed=seed)[1].by_row["kept heads"] for seed in range(60)]
    assert abs(1 - np.mean(draws) - 0.3) < 0.02  # 7,200 draws: 4 standard errors


def test_pairs_are_those_of_the_data_and_the_second_text_is_masked(folders):
    method = mirrorbert(folders["bert"])
    batch, _ = batch_for(method, pairs(folders["bert"]))
    second = masked(OTHERS, "[MASK]")
    want = loss(*(vectors(folders["bert"], "bert", texts) for texts in (TEXTS, second)))
    assert abs(total(method(batch)) - want) < 1e-10
    plan = MethodPlan(MirrorBERT, MirrorBERTOptions())
    chosen = [plan.roles(given) for given in (("sentence",), ("anchor", "positive", "negative"))]
    assert chosen == [("sentence",), ("anchor", "positive")]
    for given, part in ((("anchor",), "needs the column positive"), (("label",), "needs the column sentence")):
        with pytest.raises(StsbenchError, match=part):
            plan.roles(given)


# Spans -----------------------------------------------------------------------------------------------------------


def test_the_released_mask_stands_where_the_characters_first_occur():
    text = "bread and butter and bread and jam"
    options = MirrorBERTOptions()
    released = MirrorBERTOptions(first_occurrence=True)
    draw = (text.rindex("bread") + 0.5) / (len(text) - 5)
    assert mask_span(text, draw, options, "[MASK]") == "bread and butter and  [MASK]  and jam"
    assert mask_span(text, draw, released, "[MASK]") == " [MASK]  and butter and bread and jam"
    for seed in range(20):
        want = masked([text, "a short one", text * 2], "[MASK]", seed, size=5, least=30, first=seed % 2 == 1)
        masked_texts = mask_spans(
            [text, "a short one", text * 2], released if seed % 2 else options, "[MASK]", np.random.default_rng(seed)
        )
        assert masked_texts == want


def test_the_range_of_the_draws_and_texts_that_stay():
    options = MirrorBERTOptions()
    text = "".join(chr(65 + place) for place in range(30))
    assert mask_span(text, 0.0, options, "M") == " M FGHIJKLMNOPQRSTUVWXYZ[\\]^"
    assert mask_span(text, 1 - 1e-9, options, "M") == "ABCDEFGHIJKLMNOPQRSTUVWX M ^"  # the last character stays
    assert mask_span(text[:29], 0.5, options, "M") == text[:29]
    short = MirrorBERTOptions(min_chars=0)
    assert [mask_span(text[:size], 0.5, short, "M") for size in (0, 5, 6)] == ["", "ABCDE", " M F"]
    starts = [mask_span(text, draw, options, "M").index(" ") for draw in np.random.default_rng(0).random(5000)]
    assert sorted(set(starts)) == list(range(25)) and np.bincount(starts).min() > 140


def test_a_literal_mask_is_ordinary_text_for_roberta(folders):
    token_ids = {}
    for literal in (False, True):
        method = mirrorbert(folders["roberta"], literal_mask=literal)
        _, views = batch_for(method, plain(folders["roberta"]))
        token_ids[literal] = [list(map(int, row)) for row in views.tokens[1]]
        assert token_ids[literal] == method.backbone.tokenise(masked(TEXTS, "[MASK]" if literal else "<mask>"))
    mask = method.backbone.tokenizer.mask_token_id
    assert any(mask in row for row in token_ids[False]) and not any(mask in row for row in token_ids[True])


# Options ---------------------------------------------------------------------------------------------------------

CHANGES = {
    "temperature": {"temperature": 0.1}, "span_chars": {"span_chars": 5}, "min_chars": {"min_chars": 30},
    "first_occurrence": {"first_occurrence": True}, "literal_mask": {"literal_mask": True}, "drophead": {"drophead": 0.3},
}


def test_every_option_changes_the_loss_or_the_tested_vectors(folders):
    def value(**options):
        method = mirrorbert(folders["roberta"], span_chars=options.pop("span_chars", 1), **options)  # " " recurs
        return float(total(method(batch_for(method, plain(folders["roberta"]), seed=4)[0])).detach())

    plainly = value()
    assert {*CHANGES, "test_length"} == set(MirrorBERTOptions.model_fields)
    for name, change in CHANGES.items():
        assert abs(value(**change) - plainly) > 1e-6, name
    poolers = [mirrorbert(folders["bert"], test_length=length).inference().pooler for length in (None, 20)]
    assert poolers == ["mean_padded:12", "mean_padded:20"]


def test_the_length_that_is_padded_to_changes_the_loss(folders):
    losses = []
    for pooler in ("mean_padded:10", "mean_padded:12", "mean"):
        method = mirrorbert(folders["bert"], pooler)
        losses.append(float(total(method(batch_for(method, plain(folders["bert"]))[0])).detach()))
    assert min(abs(a - b) for a, b in zip(losses, losses[1:] + losses[:1], strict=True)) > 1e-4


def test_the_engine_that_is_recorded_is_the_one_that_computes(folders):
    for pooler, engine in (("mean_padded:12", "padded"), ("cls", "packed")):
        assert mirrorbert(folders["bert"], pooler).backbone.engine_on("cpu") == engine
    method = mirrorbert(folders["bert"])
    method.backbone.engine = "packed"
    with pytest.raises(EncoderError, match="use padded"):
        method(batch_for(method, plain(folders["bert"]))[0])


def test_which_views_need_dropout(folders):
    assert MirrorBERT.needs(MirrorBERTOptions(span_chars=0)).dropout
    assert not MirrorBERT.needs(MirrorBERTOptions(span_chars=0, drophead=0.1)).dropout
    assert not MirrorBERT.needs(MirrorBERTOptions()).dropout
    method = mirrorbert(folders["bert"], span_chars=0, min_chars=30, drophead=0.3)
    batch, views = batch_for(method, plain(folders["bert"]))
    assert all((a == b).all() for a, b in zip(*views.tokens, strict=True))
    first, second = method.view_vectors(batch)
    assert (first - second).abs().amax(1).min() > 1e-3


@pytest.mark.parametrize(("options", "part"), [
    ({"span_chars": 0, "first_occurrence": True}, "options.first_occurrence true has no effect with span_chars 0: it goes"),
    ({"span_chars": 0, "literal_mask": True}, "options.literal_mask true has no effect"),
    ({"span_chars": 0, "min_chars": 10}, "options.min_chars 10 has no effect"),
])
def test_options_without_effect_are_refused(options, part):
    with pytest.raises(StsbenchError, match=part):
        validate(MirrorBERTOptions, options, "recipe", "options.")


def test_what_the_backbone_cannot_do_is_refused(folders, tmp_path):
    for pooler, options, part in (
        ("cls", {"test_length": 20}, "test_length 20 has no effect"),
        ("mean_padded:12", {"test_length": 65}, "more than the 64 positions"),
    ):
        with pytest.raises(StsbenchError, match=part):
            mirrorbert(folders["bert"], pooler, **options)
    for pooler, part in (("mean_padded:9", "no room for texts"), ("mean_padded:65", "more than the 64 positions")):
        with pytest.raises(StsbenchError, match=part):
            load_backbone(folders["bert"], "tiny", pooler, max_length=10)
    other = load_backbone(build(tmp_path / "other", "distilbert"), "tiny", "mean", 10)
    with pytest.raises(StsbenchError, match="families BERT and RoBERTa"):
        MirrorBERT(other, MirrorBERTOptions(drophead=0.1))
    other.tokenizer.mask_token = None
    with pytest.raises(StsbenchError, match="no mask token"):
        MirrorBERT(other, MirrorBERTOptions())
