"""SimCSE's passes and masks, on texts encoded one at a time by transformers. Its plain loss: test_terms.py. The positives
that SimCSE's ablations make of a sentence, and the loss on them, against loops. ESimCSE step by step against a loop; its
queue and repetition, in other methods, too."""

import copy
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, logits, make, naive_mlm, states, tokens
from simcse_oracle import PLAIN, TEXTS, TRIPLETS, cls, count_passes, heads, info_nce, loss, same, simcse
from transformers import AutoTokenizer

from stsbench import losses
from stsbench.errors import StsbenchError
from stsbench.losses.contrastive import info_nce as info_nce_of_all
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.esimcse.method import ESimCSE
from stsbench.methods.simcse.method import SimCSE, words_to_replace
from stsbench.training.api.options import Repetition
from stsbench.training.api.views import repeated
from stsbench.training.modules import edits


@pytest.mark.parametrize("fixed", [False, True])
def test_one_forward_pass_has_two_dropout_masks_or_a_fixed_one_which_makes_both_views_one_vector(folder, fixed):
    method, rows = simcse(folder, dropout=0.1, fixed_dropout_mask=fixed), MemoryRows(folder, PLAIN)
    calls, plain = count_passes(method.backbone), cls(folder, PLAIN["sentence"], method.head.dense)
    value = loss(method, rows)
    [(count, pooled)] = calls
    first, *second = heads(pooled, method.head.dense).split(5)
    same(value, info_nce(first, *(second or [first])))
    if fixed:
        assert count == 5 and abs(value.item() - info_nce(plain, plain)) > 1e-4  # dropout did act
    else:
        assert count == 2 * 5
        assert (pooled[:5] - pooled[5:]).abs().amax(1).min() > 1e-3  # every sentence's two vectors differ
    method.eval()
    same(loss(method, rows), info_nce(plain, plain))


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
    same(value, info_nce(cls(folder, TRIPLETS["anchor"], method.head.dense), keys, negatives))
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


@pytest.mark.parametrize(("view", "both", "options", "change"), [
    ("crop", True, {"rate": 0.3}, lambda words, rng: edits.crop(words, 0.3, rng)),
    ("delete_words", False, {"rate": 0.3}, lambda words, rng: edits.delete_words(words, 0.3, rng)),
    ("delete_one_word", True, {}, edits.delete_one_word),
    ("synonym", False, {"thesaurus": "words.tsv"},
     lambda words, rng: edits.synonym(words, {"cat": ("dog",), "big": ("small", "red")}, rng))])
def test_changed_words(folder, tmp_path, monkeypatch, view, both, options, change):
    monkeypatch.chdir(tmp_path)
    Path("words.tsv").write_text("cat\tdog\nbig\tsmall\tred\n", "utf-8")
    method = simcse(folder, view=view, augment_both=both, **options)
    rows = MemoryRows(folder, {"sentence": [*TEXTS[:12], "", "the big cat plays a red guitar in the blue park with a dog"]})
    rng, texts = np.random.default_rng(3), rows.texts("sentence")
    first = [" ".join(change(text.split(), rng)) for text in texts] if both else texts
    second = [" ".join(change(text.split(), rng)) for text in texts]
    views = method.views(rows, np.random.default_rng(3))
    assert [[list(row) for row in view] for view in views.tokens] == [tokens(folder, first), tokens(folder, second)]
    assert second != texts and (first != texts) == both
    # what it tokenises itself leaves the tokenizer that training and testing share alone
    lengths = {len(each.backend_tokenizer.encode(" ".join(["cat"] * 30)).ids)
               for each in (method.backbone.tokenizer, AutoTokenizer.from_pretrained(folder))}
    assert len(lengths) == 1


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
        for row, first, second in zip(rows.rows, *method.views(rows, np.random.default_rng(seed)).tokens, strict=True):
            assert first.tolist() == tokens(folder, [TEXTS[row]])[0]
            seen.setdefault(row, set()).add(tuple(second.tolist()))
    for row, actual in seen.items():
        ahead = [other for other in range(row + 1, min(row + reach, 12) + 1) if DOCUMENTS[other] == DOCUMENTS[row]]
        assert actual == {tuple(ids) for ids in tokens(folder, [TEXTS[other] for other in ahead])}
    with pytest.raises(StsbenchError, match="row 7 has no next sentence"):
        method.views(every.at([0, 7]), np.random.default_rng(0))


def naive_replaced(folder, ids, labels):
    tokenizer, result = AutoTokenizer.from_pretrained(folder), []
    special, mask = tokenizer.all_special_ids, tokenizer.mask_token_id
    for row, wanted in zip(ids, labels, strict=True):
        masked = [mask if label != -100 else int(token) for token, label in zip(row, wanted, strict=True)]
        (scores,) = logits(folder, [masked])
        best = [max((i for i in range(len(s)) if i not in special), key=s.tolist().__getitem__) for s in scores]
        result.append([guess if label != -100 else int(t) for t, label, guess in zip(row, wanted, best, strict=True)])
    return result


@pytest.mark.parametrize("both", [False, True])
def test_words_filled_in_by_a_masked_lm(folder, encoders, both):
    """Of its own checkpoint, or of another folder, which brings its own head. No special token, however likely it is."""
    model = {"replacer": str(folder)} if both else {}
    method = simcse(encoders["bert"] if both else folder, view="mlm", rate=0.4, augment_both=both, **model)
    with torch.no_grad():
        method.replacer.head.decoder.bias[method.backbone.tokenizer.all_special_ids] += 1000
    rows = MemoryRows(folder, {"sentence": [*TEXTS[:4], "xyz catdog"]})
    views = method.views(rows, np.random.default_rng(2))
    replaced = [naive_replaced(folder, *pair) for pair in zip(views.tokens, views.extra["replaced_labels"], strict=True)]
    plain = tokens(folder, rows.texts("sentence"))
    assert [[list(row) for row in view] for view in views.tokens] == [plain, plain]
    assert replaced[1] != plain and (replaced[0] != plain) == both
    queries, keys = (heads([state[0] for state in states(method.backbone.folder, ids)], method.head.dense)
                     for ids in replaced)
    value = loss(method, rows, seed=2)
    same(value, info_nce(queries, keys))
    value.backward()
    assert not any(weight.requires_grad or weight.grad is not None for weight in method.replacer.parameters())
    assert not method.replacer.backbone.training and method.backbone.training


def test_whole_words_are_replaced_in_the_stated_share(folder):
    tok, rng = AutoTokenizer.from_pretrained(folder), np.random.default_rng(0)
    texts = ["catdog the manx plays", "a", "", "the cat eats red food in the big park ."]  # catdog, manx: in pieces
    encoded, drawn = tok(texts, padding=False, truncation=False), []
    for _ in range(300):
        ids, labels = words_to_replace(encoded, 0.25, rng)
        assert [row.tolist() for row in ids] == encoded["input_ids"]
        for number, (row, wanted) in enumerate(zip(ids, labels, strict=True)):
            words = encoded.word_ids(number)
            chosen = {word for word, label in zip(words, wanted, strict=True) if label != -100}
            assert None not in chosen
            assert all((word in chosen) == (label != -100) for word, label in zip(words, wanted, strict=True))
            assert all(label in (-100, token) for token, label in zip(row, wanted, strict=True))
            assert len(chosen) == math.floor(0.25 * len({word for word in words if word is not None}) + 0.5)
            drawn += [word for word in chosen if number == 3]
    assert np.abs(np.bincount(drawn, minlength=10) - len(drawn) / 10).max() < 5 * math.sqrt(len(drawn) * 0.1 * 0.9)


# ESimCSE -------------------------------------------------------------------------------------------------------
N, REPEAT = 5, {"rate": 0.6}


def esimcse(folder, **options):
    return make(ESimCSE, folder, options)


def queue(size=12, **more):
    return {"size": size, **more}


def rows(folder, step=0):
    return MemoryRows(folder, {"sentence": TEXTS[N * step : N * step + N]})


@pytest.mark.parametrize("options", [
    {"queue": queue(7, start="random")}, {"queue": queue(3, momentum=0.5), "temperature": 0.3}])
def test_four_steps_are_those_of_a_loop(folder, options):
    """What the released code does in one step after another, without its Trainer: the loss, then theta_m, then the queue;
    while weights move and the queue fills and runs over."""
    method = esimcse(folder, **{"repeat": REPEAT, **options})
    held, stored = method.options.queue, []
    slow = copy.deepcopy(method.queue.encoder.backbone)
    weights = [weight for weight in method.parameters() if weight.requires_grad]
    for step in range(4):
        batch = batch_of(method, rows(folder, step), seed=step, more_padding=3)
        queries, keys = method.vectors(batch.ids, batch.mask).split(N)
        expected = losses.esimcse(queries, keys, torch.stack(stored) if stored else None,  # in loops: tests/losses
                                  temperature=method.options.temperature)
        with torch.no_grad():
            for mine, fast in zip(slow.parameters(), method.backbone.parameters(), strict=True):
                mine.copy_(mine * held.momentum + fast * (1 - held.momentum))
            stored = [*stored, *method.head(slow.pooled(batch.ids[:N], batch.mask[:N]))][-held.size :]
        term = method(batch)["contrastive"]
        assert term.count == N and term.value.item() == pytest.approx(expected.item(), abs=1e-8)
        gradients = [torch.autograd.grad(value, weights) for value in (term.value, expected)]
        with torch.no_grad():
            for weight, ours, theirs in zip(weights, *gradients, strict=True):
                assert (ours - theirs).abs().max() < 1e-8
                weight -= 0.01 * ours / ours.norm().clamp(min=1e-12)
    assert len(method.queue.stored()) == held.size == len(stored)
    assert (method.queue.stored() - torch.stack(stored)).abs().max() < 1e-8
    assert not any(weight.requires_grad or weight.grad is not None for weight in method.queue.parameters())


@pytest.mark.parametrize("start", ["copy", "random"])
def test_a_stage_begins_with_an_empty_queue_and_the_encoder_as_it_is_or_weights_that_know_nothing_of_it(folder, start):
    method = esimcse(folder, queue=queue(start=start))
    method(batch_of(method, rows(folder)))
    slow = copy.deepcopy(method.queue.encoder.backbone.state_dict())
    with torch.no_grad():
        for weight in method.backbone.parameters():
            weight.add_(0.01)
    method.start_stage("main")
    assert len(method.queue.stored()) == 0
    fast, now = method.backbone.state_dict(), method.queue.encoder.backbone.state_dict()
    assert all(torch.equal(now[name], value) for name, value in (fast if start == "copy" else slow).items())
    both = [torch.cat([state[name].flatten() for name in fast if fast[name].ndim == 2]) for state in (now, fast)]
    assert (torch.corrcoef(torch.stack(both))[0, 1] > 0.05) == (start == "copy")


@pytest.mark.parametrize(("kind", "options"), [(ESimCSE, {}), (DiffCSE, {"rtd_weight": 0.0})])
def test_what_is_stored_has_neither_dropout_nor_statistics_of_the_batch(folder, kind, options):
    method = make(kind, folder, {"queue": queue(momentum=0.0), **options}, dropout=0.3)
    batch = batch_of(method, rows(folder))
    method(batch)
    assert method.training and not any(module.training for module in method.queue.encoder.modules())
    stored = method.queue.stored()
    if kind is DiffCSE:
        assert int(method.projector.inner_norm.num_batches_tracked) == 1 and method.projector.training
    method.eval()
    with torch.no_grad():
        expected = method.vectors(batch.ids[:N], batch.mask[:N])
    assert (stored - expected).abs().max() < 1e-12


def test_held_out_rows_see_no_queue_and_leave_it_alone(folder):
    method = esimcse(folder, queue=queue(), repeat=None)
    method(batch_of(method, rows(folder)))
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.eval()
    batch = batch_of(method, rows(folder, 1))
    same(method(batch)["contrastive"].value, info_nce(*method.vectors(batch.ids, batch.mask).split(N)))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


@pytest.mark.parametrize(("kind", "more"), [(SimCSE, {}), (DiffCSE, {"projector": "tanh", "rtd_weight": 0.0})])
def test_simcse_and_diffcse_with_its_options_are_esimcse(folder, kind, more):
    options = {"repeat": REPEAT, "queue": queue(7)}
    methods = make(ESimCSE, folder, options), make(kind, folder, {**options, **more})
    state = methods[0].state_dict()
    methods[1].load_state_dict(
        {name.replace("head.", "projector.") if kind is DiffCSE else name: value for name, value in state.items()})
    for step in range(3):
        values = [method(batch_of(method, rows(folder, step), seed=step))["contrastive"].value for method in methods]
        assert values[0].item() == values[1].item()
    assert torch.equal(*(method.queue.stored() for method in methods))


def test_pairs_with_hard_negatives_and_a_queue(folder):
    data = MemoryRows(folder, {"anchor": TEXTS[:5], "positive": TEXTS[5:10], "negative": TEXTS[10:15]})
    method = make(SimCSE, folder, {"view": "given", "repeat": REPEAT, "queue": queue(), "alpha": 2.0})
    method(batch_of(method, data, seed=1))
    stored, plain, batch = method.queue.stored(), [data.ids(role) for role in data.roles], batch_of(method, data, seed=2)
    lengths = batch.mask.sum(1).split(N)
    assert lengths[0].tolist() == [len(ids) for ids in plain[0]]  # the anchor stays, what comes later is repeated
    assert all(later.sum() > sum(map(len, ids)) for later, ids in zip(lengths[1:], plain[1:], strict=True))
    queries, keys, hard = method.vectors(batch.ids, batch.mask).split(N)
    same(method(batch)["contrastive"].value, info_nce_of_all(queries, keys, negatives=[hard], stored=stored, alpha=2.0))


def uniform(counter, values):
    """Each of the values as often as any other, up to five standard deviations, and no other."""
    assert set(counter) == set(values)
    p, total = 1 / len(values), sum(counter.values())
    assert all(abs(count - p * total) <= 5 * (total * p * (1 - p)) ** 0.5 for count in counter.values())


@pytest.mark.parametrize(("items", "options", "most", "first", "last"), [
    (12, {"rate": 0.32}, 2, 1, 10), (40, {"rate": 0.5, "unit": "word"}, 9, 0, 38),
    (42, {"rate": 0.5, "count": "paper"}, 20, 1, 40), (1, {"unit": "word", "count": "paper"}, 1, 0, 0),
    (6, {"rate": 0.32}, 0, 0, 0), (1, {"unit": "word"}, 0, 0, 0)])
def test_how_many_are_repeated_and_which(items, options, most, first, last):
    rng = np.random.default_rng(0)
    drawn = [repeated(items, Repetition(**options), rng).tolist() for _ in range(2000)]
    assert all(indices == sorted(set(indices)) for indices in drawn)
    uniform(Counter(map(len, drawn)), range(most + 1))
    if most:
        uniform(Counter(index for indices in drawn for index in indices), range(first, last + 1))


@pytest.mark.parametrize("repeat", [REPEAT, {"unit": "word", "count": "paper", **REPEAT}], ids=str)
def test_the_first_view_is_the_sentence_and_the_second_has_what_is_drawn_twice(folder, repeat):
    """Words are repeated in the text, which is cut afterwards; repeated sub-words stand beyond backbone.max_length."""
    method, texts = esimcse(folder, repeat=repeat, queue=None), [*TEXTS[:20], "cat", "the cat " * 9]
    first, second = method.views(MemoryRows(folder, {"sentence": texts}), np.random.default_rng(4)).tokens
    plain, rng, expected = tokens(folder, texts), np.random.default_rng(4), []
    for text, ids in zip(texts, plain, strict=True):
        items = text.split(" ") if "unit" in repeat else ids
        twice = set(repeated(len(items), Repetition(**repeat), rng).tolist())
        grown = [item for index, each in enumerate(items) for item in [each] * (1 + (index in twice))]
        expected.append(tokens(folder, [" ".join(grown)])[0] if "unit" in repeat else grown)
    assert [row.tolist() for row in first] == plain
    assert [list(map(int, row)) for row in second] == expected != plain
    assert (max(map(len, second)) > 10) == ("unit" not in repeat)
