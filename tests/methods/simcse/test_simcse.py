"""SimCSE's passes and masks, on texts encoded one at a time by transformers. Its plain loss: test_terms.py. The positives
that SimCSE's ablations make of a sentence, and the loss on them, against loops."""

import math

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, logits, naive_mlm, states, tokens
from simcse_oracle import PLAIN, TEXTS, TRIPLETS, cls, count_passes, heads, info_nce, loss, same, simcse
from transformers import AutoTokenizer

from stsbench.errors import StsbenchError
from stsbench.methods.simcse.method import SimCSE, words_to_replace
from stsbench.methods.simcse.options import SimCSEOptions
from stsbench.training.modules import edits


def test_two_dropout_masks_in_one_forward_pass(folder):
    method = simcse(folder, dropout=0.1)
    calls = count_passes(method.backbone)
    first = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 2 * 5
    assert (pooled[:5] - pooled[5:]).abs().amax(1).min() > 1e-3  # every sentence's two vectors differ
    vectors = heads(pooled, method.head.dense)
    same(first, info_nce(vectors[:5], vectors[5:]))
    method.eval()
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    same(loss(method, MemoryRows(folder, PLAIN)), info_nce(plain, plain))


def test_fixed_dropout_mask_makes_both_views_one_vector(folder):
    method = simcse(folder, dropout=0.1, fixed_dropout_mask=True)
    calls = count_passes(method.backbone)
    value = loss(method, MemoryRows(folder, PLAIN))
    ((rows, pooled),) = calls
    assert rows == 5
    vectors = heads(pooled, method.head.dense)
    same(value, info_nce(vectors, vectors))
    plain = cls(folder, PLAIN["sentence"], method.head.dense)
    assert abs(value.item() - info_nce(plain, plain)) > 1e-4  # dropout did act


def test_two_encoders(folder):
    method = simcse(folder, encoders=2)
    backbone, head = method.second
    for mine, other in zip(method.backbone.parameters(), backbone.parameters(), strict=True):
        assert torch.equal(mine, other) and mine is not other
    assert backbone.tokenizer is method.backbone.tokenizer
    assert torch.equal(head.dense.weight, method.head.dense.weight)
    rows = MemoryRows(folder, TRIPLETS)
    same(loss(method, rows), loss(simcse(folder), rows).item())  # they start alike
    with torch.no_grad():
        for weight in method.second.parameters():
            weight.add_(0.05)
    first, second = count_passes(method.backbone), count_passes(backbone)
    value = loss(method, rows)
    assert [count for count, _ in first] == [5] and [count for count, _ in second] == [10]
    backbone.model.eval()
    with torch.no_grad():
        first = [[backbone.model(torch.tensor([row])).last_hidden_state[0, 0] for row in tokens(folder, TRIPLETS[role])]
                 for role in ("positive", "negative")]
        keys, negatives = (heads(vectors, head.dense) for vectors in first)
    queries = cls(folder, TRIPLETS["anchor"], method.head.dense)
    same(value, info_nce(queries, keys, negatives))
    value.backward()
    assert all(weight.grad.any() for weight in method.second.parameters())
    assert method.inference().model is method.backbone.model


@pytest.mark.parametrize("in_place", [False, True])
def test_masked_lm_term(folder, in_place):
    method = simcse(folder, mlm_weight=0.3, mlm_probability=0.4, mlm_in_place=in_place)
    batch = batch_of(method, MemoryRows(folder, TRIPLETS))
    terms = method(batch)
    expected, _, count = naive_mlm(folder, batch)
    same(terms["mlm"].value, expected)
    first, second, _ = ([row.tolist() for row in part] for part in batch.extra["mlm_labels"].split(5))
    assert first != second  # each view has masks of its own
    assert terms["mlm"].count == count and terms["mlm"].weight == 0.3 and terms["contrastive"].weight == 1
    assert method.lm_head.decoder.weight is not method.backbone.model.get_input_embeddings().weight
    ids = batch.extra["mlm_ids"] if in_place else batch.ids
    rows = [row[: int(real.sum())].tolist() for row, real in zip(ids, batch.mask, strict=True)]
    vectors = heads([state[0] for state in states(folder, rows)], method.head.dense)
    same(terms["contrastive"].value, info_nce(*vectors.split(5)))


@pytest.mark.parametrize(("options", "needed"), [
    ({}, True), ({"mlm_weight": 0.1}, True), ({"encoders": 2}, True), ({"fixed_dropout_mask": True}, False),
    ({"mlm_weight": 0.1, "mlm_in_place": True}, False), ({"repeat": {}}, False), ({"view": "given"}, False),
    ({"view": "next"}, False),
])
def test_dropout_is_needed_where_the_views_are_one_sentence_twice(options, needed):
    assert SimCSE.needs(SimCSEOptions(**options)).dropout == needed


def test_the_head_starts_as_published_and_is_not_the_checkpoints_pooler(encoders):
    method = simcse(encoders["bert"])
    weight = method.head.dense.weight
    assert not method.head.dense.bias.any()
    assert weight.std().item() == pytest.approx(method.backbone.model.config.initializer_range, rel=0.1)
    assert torch.equal(weight, simcse(encoders["bert"]).head.dense.weight)  # by the seed


@pytest.fixture
def thesaurus(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("cat\tdog\nbig\tsmall\tred\n", encoding="utf-8")
    return path


def changed_views(thesaurus):
    table = edits.read_thesaurus(thesaurus)
    return {
        "crop": ({"rate": 0.3}, lambda words, rng: edits.crop(words, 0.3, rng)),
        "delete_words": ({"rate": 0.3}, lambda words, rng: edits.delete_words(words, 0.3, rng)),
        "delete_one_word": ({}, edits.delete_one_word),
        "synonym": ({"thesaurus": str(thesaurus)}, lambda words, rng: edits.synonym(words, table, rng)),
    }


@pytest.mark.parametrize(("view", "both"), [
    ("crop", True), ("delete_words", False), ("delete_one_word", True), ("synonym", False)])
def test_changed_words(folder, thesaurus, view, both):
    options, change = changed_views(thesaurus)[view]
    method = simcse(folder, view=view, augment_both=both, **options)
    rows = MemoryRows(folder, {"sentence": [*TEXTS[:12], "", "the big cat plays a red guitar in the blue park with a dog"]})
    rng, texts = np.random.default_rng(3), rows.texts("sentence")
    first = [" ".join(change(text.split(), rng)) for text in texts] if both else texts
    second = [" ".join(change(text.split(), rng)) for text in texts]
    views = method.views(rows, np.random.default_rng(3))
    assert [[list(row) for row in view] for view in views.tokens] == [tokens(folder, first), tokens(folder, second)]
    assert second != texts and (first != texts) == both
    queries, keys = cls(folder, first, method.head.dense), cls(folder, second, method.head.dense)
    same(loss(method, rows, seed=3), info_nce(queries, keys))
    # what it tokenises itself leaves the tokenizer that training and testing share alone
    assert len(method.backbone.tokenizer.backend_tokenizer.encode(" ".join(["cat"] * 30)).ids) == len(
        AutoTokenizer.from_pretrained(folder).backend_tokenizer.encode(" ".join(["cat"] * 30)).ids
    )


DOCUMENTS = [0] * 6 + [1] * 2 + [2] * 5


@pytest.mark.parametrize(("view", "reach"), [("next", 1), ("next3", 3)])
def test_following_sentences(folder, view, reach):
    method = simcse(folder, view=view)
    every = MemoryRows(folder, {"sentence": TEXTS[:13]}, documents=DOCUMENTS)
    usable = SimCSE.needs(method.options).usable(every)
    assert np.flatnonzero(~usable).tolist() == [5, 7, 12]
    seen = {}
    for seed in range(40):
        rows = every.at(np.flatnonzero(usable)[::-1])
        views = method.views(rows, np.random.default_rng(seed))
        for row, first, second in zip(rows.rows, *views.tokens, strict=True):
            assert first.tolist() == tokens(folder, [TEXTS[row]])[0]
            seen.setdefault(row, set()).add(tuple(second.tolist()))
    for row, actual in seen.items():
        ahead = [other for other in range(row + 1, min(row + reach, 12) + 1) if DOCUMENTS[other] == DOCUMENTS[row]]
        assert actual == {tuple(ids) for ids in tokens(folder, [TEXTS[other] for other in ahead])}
    keys = [TEXTS[row + 1] for row in (0, 6, 8)]
    if reach == 1:
        queries = [TEXTS[row] for row in (0, 6, 8)]
        vectors = [cls(folder, texts, method.head.dense) for texts in (queries, keys)]
        same(loss(method, every.at([0, 6, 8])), info_nce(*vectors))
    with pytest.raises(StsbenchError, match="row 7 has no next sentence"):
        method.views(every.at([0, 7]), np.random.default_rng(0))


def naive_replaced(folder, ids, labels):
    special = AutoTokenizer.from_pretrained(folder).all_special_ids
    mask = AutoTokenizer.from_pretrained(folder).mask_token_id
    result = []
    for row, wanted in zip(ids, labels, strict=True):
        masked = [mask if label != -100 else int(token) for token, label in zip(row, wanted, strict=True)]
        (scores,) = logits(folder, [masked])
        best = [max((i for i in range(len(s)) if i not in special), key=s.tolist().__getitem__) for s in scores]
        result.append([guess if label != -100 else int(t) for t, label, guess in zip(row, wanted, best, strict=True)])
    return result


@pytest.mark.parametrize("both", [False, True])
def test_words_filled_in_by_a_masked_lm(folder, both):
    method = simcse(folder, view="mlm", rate=0.4, augment_both=both)
    rows = MemoryRows(folder, {"sentence": [*TEXTS[:4], "xyz catdog"]})
    views = method.views(rows, np.random.default_rng(2))
    replaced = [naive_replaced(folder, *pair) for pair in zip(views.tokens, views.extra["replaced_labels"], strict=True)]
    plain = tokens(folder, rows.texts("sentence"))
    assert [[list(row) for row in view] for view in views.tokens] == [plain, plain]
    assert replaced[1] != plain and (replaced[0] != plain) == both
    queries, keys = (heads([state[0] for state in states(folder, ids)], method.head.dense) for ids in replaced)
    value = loss(method, rows, seed=2)
    same(value, info_nce(queries, keys))
    value.backward()
    assert not any(weight.requires_grad or weight.grad is not None for weight in method.replacer.parameters())
    assert not method.replacer.backbone.training and method.backbone.training


def test_no_special_token_is_filled_in(folder):
    method = simcse(folder, view="mlm", rate=0.5)
    special = torch.tensor(method.backbone.tokenizer.all_special_ids)
    with torch.no_grad():
        method.replacer.head.decoder.bias[special] += 1000
    batch = batch_of(method, MemoryRows(folder, PLAIN))
    labels = batch.extra["replaced_labels"]
    replaced = method.replacer(batch.ids, batch.mask, labels)
    assert (labels != -100).any() and not torch.isin(replaced[labels != -100], special).any()
    assert torch.equal(replaced[labels == -100], batch.ids[labels == -100])


def test_whole_words_are_replaced_in_the_stated_share(folder):
    tok, rng = AutoTokenizer.from_pretrained(folder), np.random.default_rng(0)
    texts = ["catdog the manx plays", "a", "", "the cat eats red food in the big park ."]  # catdog, manx: in pieces
    encoded = tok(texts, padding=False, truncation=False)
    drawn = []
    for _ in range(300):
        ids, labels = words_to_replace(encoded, 0.25, rng)
        assert [row.tolist() for row in ids] == encoded["input_ids"]
        for number, (row, wanted) in enumerate(zip(ids, labels, strict=True)):
            words = encoded.word_ids(number)
            chosen = {word for word, label in zip(words, wanted, strict=True) if label != -100}
            assert None not in chosen
            assert all((word in chosen) == (label != -100) for word, label in zip(words, wanted, strict=True))
            assert all(label in (-100, token) for token, label in zip(row, wanted, strict=True))
            count = len({word for word in words if word is not None})
            assert len(chosen) == math.floor(0.25 * count + 0.5)
            drawn += [word for word in chosen if number == 3]
    counts = np.bincount(drawn, minlength=10)
    assert np.abs(counts - len(drawn) / 10).max() < 5 * math.sqrt(len(drawn) * 0.1 * 0.9)


def test_a_replacer_of_another_folder_brings_its_own_head(folder, encoders):
    assert simcse(encoders["bert"], view="mlm", rate=0.15, replacer=str(folder)).replacer.head.stored
