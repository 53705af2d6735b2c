"""CMLM against its equation, one text at a time by transformers' layers and head, with its gradients. BERT's masking against
its stated shares, and continued masked-LM training against AutoModelForMaskedLM. DeCLUTR's spans against the sampling
written out, draw by draw, and both terms of its loss span by span."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, _reference, _tokenizer, batch_of, logits, make, naive_mlm, states, tokens
from tiny_models import build, sentences
from torch.nn import functional
from transformers import AutoModelForMaskedLM

from stsbench import losses
from stsbench.errors import EncoderError, StsbenchError
from stsbench.methods.cmlm.method import ConditionalMaskedLM
from stsbench.methods.declutr.method import DeCLUTR, least, sample_spans
from stsbench.methods.mlm.method import MaskedLM
from stsbench.training.api.batch import IGNORED
from stsbench.training.modules.edits import mask_tokens

TEXTS = [
    "the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue",
    "the dog runs with a cat", "red food", "a man sleeps in the big park .", "the woman plays", "a big blue dog eats food"]
DOCUMENTS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
PAIRED = [0, 1, 2, 4, 5, 7, 8]  # rows that another one follows
FIRST, NEXT = ([TEXTS[row + by] for row in PAIRED] for by in (0, 1))


def documents(folder, rows=PAIRED):
    return MemoryRows(folder, {"sentence": TEXTS}, rows, DOCUMENTS)


def cmlm(folder, pooler="mean", **options):
    """In float64 and train mode, its projections with biases and gains that a forgotten one would show by."""
    method = make(ConditionalMaskedLM, folder, options, pooler=pooler)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if name.startswith("projections"):
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return method


def lists(ragged):
    return [[*map(int, row)] for row in ragged]


def naive_losses(folder, pooler, method, sources, masked, labels):
    """(m,) -log p of every masked word, text by text. sources: None, or the token ids of the sentences that give vectors."""
    whole, losses = _reference(AutoModelForMaskedLM, folder), []
    encoder, head = whole.base_model, getattr(whole, "cls", None) or whole.lm_head
    for number, (ids, wanted) in enumerate(zip(masked, map(torch.tensor, labels), strict=True)):
        embedded, before = encoder.embeddings(torch.tensor([ids]))[0], []
        if sources is not None:
            read = encoder(torch.tensor([sources[number]])).last_hidden_state[0]
            vector = {"cls": read[0], "max": read.amax(0), "mean": read.mean(0)}[pooler]
            before = [vector]
            for linear, _, norm in method.projections.learned:
                projected = functional.gelu(linear.weight @ vector + linear.bias)
                before.append(functional.layer_norm(projected, projected.shape, norm.weight, norm.bias, 1e-12))
        states = torch.cat([*(vector[None] for vector in before), embedded])
        hidden = encoder.encoder(states[None]).last_hidden_state[0, len(before) :]
        chosen = wanted != IGNORED
        losses.append(functional.cross_entropy(head(hidden[chosen]), wanted[chosen], reduction="none"))
    return torch.cat(losses)


@pytest.mark.parametrize(("family", "pooler", "options"), [
    ("bert", "mean", {}), ("roberta", "mean", {"both_directions": True, "probability": 0.4, "vectors": 3}),
    ("bert", "max", {"both_directions": True, "vectors": 0}),
    ("roberta", "cls", {"sentence": "same", "vectors": 3, "masked": 0.0, "random": 0.5})], ids=str)
def test_loss_and_gradients_are_those_of_single_texts_in_either_engine(masked_lms, family, pooler, options):
    folder = masked_lms[family]
    method, rows = cmlm(folder, pooler, **options), documents(folder)
    views = method.views(rows, np.random.default_rng(1))
    labels = views.extra["mlm_labels"]
    sources = [None, None] if method.projections is None else [tokens(folder, FIRST), tokens(folder, NEXT)]
    masked, batch = views.tokens[-len(labels) :], batch_of(method, rows, seed=1, more_padding=7)
    guessed = [FIRST] if method.options.sentence == "same" else [NEXT, FIRST][: len(labels)]
    for texts, copies, those in zip(guessed, masked, labels, strict=True):
        whole = [np.where(np.array(wanted) == IGNORED, ids, wanted) for ids, wanted in zip(copies, those, strict=True)]
        assert lists(whole) == tokens(folder, texts)
    plain = [lists(each) for each in views.tokens[: -len(labels)]]
    assert plain == [tokens(folder, FIRST), tokens(folder, NEXT)][: len(plain)]
    weights = dict(method.backbone.model.named_parameters())
    theirs = dict(_reference(AutoModelForMaskedLM, folder).base_model.named_parameters())
    for engine in ("packed", "padded"):
        method.backbone.engine = engine
        terms = method(batch)
        assert list(terms) == (["mlm", "mlm_back"] if method.options.both_directions else ["mlm"])
        for number, (name, term) in enumerate(terms.items()):
            losses = naive_losses(folder, pooler, method, sources[number], lists(masked[number]), lists(labels[number]))
            assert term.count == len(losses) == method.counts(batch)[name] > 0 and term.weight == 1
            assert abs(term.value.item() - losses.mean().item()) < 1e-10
            ours = torch.autograd.grad(term.value, weights.values(), retain_graph=True)
            expected = torch.autograd.grad(losses.mean(), [theirs[each] for each in weights])
            assert all(torch.allclose(*pair, rtol=0, atol=1e-10) for pair in zip(ours, expected, strict=True))
    assert method.inference().pooler == pooler and method.inference().model is method.backbone.model


def test_the_projections_start_as_transformers_draws_weights(masked_lms):
    learned = make(ConditionalMaskedLM, masked_lms["bert"], {"vectors": 200}).projections.learned
    assert len(learned) == 199
    weights = torch.cat([projection[0].weight.flatten() for projection in learned])
    assert abs(weights.std().item() - 0.3) < 0.01 and abs(weights.mean().item()) < 0.01  # its initializer_range
    assert not any(projection[0].bias.any() or projection[2].bias.any() for projection in learned)


def test_rows_that_another_one_follows_can_be_used_and_a_model_with_positions_of_its_own(masked_lms, tmp_path):
    folder, needs = masked_lms["bert"], ConditionalMaskedLM.needs
    every = documents(folder, range(len(TEXTS)))
    assert np.flatnonzero(needs(ConditionalMaskedLM.Options()).usable(every)).tolist() == PAIRED
    assert needs(ConditionalMaskedLM.Options(sentence="same")).usable is None
    assert not any(needs(ConditionalMaskedLM.Options(sentence=which)).negatives for which in ("same", "next"))
    with pytest.raises(StsbenchError):
        cmlm(folder).views(documents(folder, [0, 3]), np.random.default_rng(0))
    other = build(tmp_path / "distil", "distilbert")
    method = make(ConditionalMaskedLM, other)
    with pytest.raises(EncoderError):
        method(batch_of(method, documents(other)))


COLUMNS = {"sentence": sentences(12, longest=9, seed=3)}
SPECIAL, MASK, SIZE = (0, 1, 2, 3), 3, 50


class Vocabulary:
    all_special_ids, mask_token_id = SPECIAL, MASK

    def __len__(self):
        return SIZE


def within(count, trials, probability):
    """Five standard deviations of a binomial count."""
    return abs(count - trials * probability) <= 5 * math.sqrt(trials * probability * (1 - probability)) + 1e-9


@pytest.mark.parametrize(("probability", "masked", "random"), [(0.15, 0.8, 0.1), (0.3, 0.0, 0.0)])
def test_the_shares_of_masking(probability, masked, random):
    rng = np.random.default_rng(0)
    rows = [np.concatenate([[1], rng.integers(4, SIZE, 18), [2]]) for _ in range(3000)]
    plain = np.array(rows)
    copies, labels = mask_tokens(rows, Vocabulary(), rng, probability, masked, random)
    assert np.array_equal(plain, rows)  # the argument stays as it was
    before, after, wanted = (np.concatenate(part) for part in (rows, copies, labels))
    chosen = wanted != IGNORED
    count = int(chosen.sum())
    assert within(count, 18 * 3000, probability)
    assert not chosen[np.isin(before, SPECIAL)].any()
    assert np.array_equal(wanted[chosen], before[chosen]) and np.array_equal(after[~chosen], before[~chosen])
    assert within(int((after[chosen] == MASK).sum()), count, masked + random / SIZE)
    assert within(int((after[chosen] == before[chosen]).sum()), count, 1 - masked - random + random / SIZE)
    others = after[chosen & (after != MASK) & (after != before)]
    if random:
        actual = np.bincount(others, minlength=SIZE)
        ratio = len(others) / (SIZE - 1)
        assert actual[MASK] == 0 and actual[0] > 0 and actual[SIZE - 1] > 0  # special ids, too, may come, as in BERT
        assert np.abs(np.delete(actual, MASK) - ratio).max() < 6 * math.sqrt(ratio) + 0.1 * ratio
    else:
        assert not len(others)


def test_loss_and_accuracy(folder):
    method = make(MaskedLM, folder)
    rights = counts = 0
    for seed in range(2):
        batch = batch_of(method, MemoryRows(folder, COLUMNS), seed=seed)
        (term,) = method(batch).values()
        expected, right, count = naive_mlm(folder, batch)
        assert term.value.item() == pytest.approx(expected, rel=1e-9)
        assert term.count == count and term.weight == 1
        rights, counts = rights + right, counts + count
    assert method.state_dict()["guesses"].tolist() == [rights, counts]  # what a resumed run goes on with
    assert method.metrics() == {"masked_accuracy": rights / counts}


def test_the_tested_encoder_stands_in_its_masked_lm_and_reads_anchors_of_pairs_too(folder):
    method = make(MaskedLM, folder, pooler="mean", dropout=0.1)
    whole, ids = method.inference().masked_lm.eval(), tokens(folder, COLUMNS["sentence"])
    with torch.no_grad():
        for row, scores in zip(ids, logits(folder, ids), strict=True):
            assert torch.allclose(whole(torch.tensor([row])).logits[0], scores, atol=1e-10)
    views = method.views(MemoryRows(folder, {"anchor": COLUMNS["sentence"]}), np.random.default_rng(0))
    assert [len(row) for (*view,) in views.tokens for row in view] == [len(row) for row in ids]


# DeCLUTR -------------------------------------------------------------------------------------------------------
WORDS = ["man", "cat", "dog", "runs", "food", "park", "red", "blue", "plays", "the", "a", "guitar", "big", "sleeps", "."]
LENGTHS = (31, 24, 40)


class NotedDraws:
    def __init__(self, rng):
        self.rng, self.numbers = rng, []

    def beta(self, a, b):
        self.numbers.append(float(self.rng.beta(a, b)))
        return self.numbers[-1]

    def integers(self, low, high, endpoint):
        self.numbers.append(int(self.rng.integers(low, high + endpoint)))
        return self.numbers[-1]


def naive_spans(n, numbers, anchors=2, positives=2, l_min=32, l_max=512, sampling="default"):
    """[anchor] -> (start, end, [(start, end) of each positive]). numbers: the draws, in their order.
    A span's start is drawn itself, but for an adjacent one, where its place among the one or two that there are is."""
    numbers, result = list(numbers), []
    free = [start for start in range(n) if start % l_max == 0 and start + l_max <= n]
    for done in range(anchors):
        length, which, begin = math.floor(numbers.pop(0) * (l_max - l_min) + l_min), numbers.pop(0), numbers.pop(0)
        if math.floor(len(free) / (anchors - done)) < anchors - done:
            which = [0, len(free) - 1][which]
        assert free[which] <= begin <= free[which] + l_max - length
        free = [start for place, start in enumerate(free) if abs(place - which) > 1]
        end, near = begin + length, []
        for _ in range(positives):
            longest = {"default": l_max, "subsuming": length, "adjacent": min(l_max, max(begin, n - end))}[sampling]
            size, start = math.floor(numbers.pop(0) * (longest - l_min) + l_min), numbers.pop(0)
            if sampling == "adjacent":
                starts = [begin - size] if begin - size > 0 else []
                starts += [end] if end + size <= n else []
                start = starts[start]
            elif sampling == "subsuming":
                assert begin <= start <= end - size
            else:
                assert max(0, begin - size) <= start <= min(end, n - size)
            near.append((start, start + size))
        result.append((begin, end, near))
    assert not numbers
    return result


def spans_of(pairs):
    """What `sample_spans` gave, in the oracle's form."""
    return [(a.start, a.stop, [(p.start, p.stop) for p in near]) for a, near in pairs]


@pytest.mark.parametrize(("sampling", "anchors", "positives"), [("default", 4, 1), ("subsuming", 2, 2), ("adjacent", 1, 3)])
def test_the_sampling_written_out_gives_the_same_spans_for_the_same_draws(sampling, anchors, positives):
    shape = {"anchors": anchors, "positives": positives, "l_min": 3, "l_max": 20, "sampling": sampling}
    options, draws = DeCLUTR.Options(**shape), NotedDraws(np.random.default_rng(anchors))
    for n in [least(options), least(options) + 7, 3 * least(options)] * 20:
        draws.numbers = []
        assert spans_of(sample_spans(n, options, draws)) == naive_spans(n, draws.numbers, **shape)


def test_anchors_are_long_and_positives_short():
    """Beta(4, 2) has the mean 2/3, Beta(2, 4) 1/3: swapping them is the classic slip."""
    draws = np.random.default_rng(0)
    pairs = [pair for _ in range(400) for pair in sample_spans(4096, DeCLUTR.Options(), draws)]
    anchors = np.mean([len(anchor) for anchor, _ in pairs])
    positives = np.mean([len(span) for _, near in pairs for span in near])
    assert anchors == pytest.approx(32 + 480 * 2 / 3, abs=15) and positives == pytest.approx(32 + 480 / 3, abs=12)


class Documents(MemoryRows):
    def ids(self, role):
        spaced = [" " + text for text in self.texts(role)]
        read = _tokenizer(self.folder)(spaced, add_special_tokens=False, padding=False, truncation=False)["input_ids"]
        return [np.array(row, np.int32) for row in read]


def long_documents(folder, *texts):
    """Documents of so many words as LENGTHS says, a word piece each, or these."""
    rng = np.random.default_rng(0)
    return Documents(folder, {"sentence": texts or [" ".join(rng.choice(WORDS, length)) for length in LENGTHS]})


def declutr(folder, pooler="mean", **options):
    """In float64 and train mode, of spans that fit into ten tokens."""
    return make(DeCLUTR, folder, {"l_min": 2, "l_max": 6, **options}, pooler=pooler)


@pytest.mark.parametrize("options", [
    {"anchors": 1, "positives": 3, "temperature": 0.5}, {"spans": "retokenised", "contrastive_weight": 0.25}], ids=str)
def test_both_terms_are_those_of_the_spans_read_one_by_one(folder, options):
    method, rows = declutr(folder, mlm_probability=0.4, **options), long_documents(folder)
    anchors, positives = method.options.anchors, method.options.positives
    views, batch = method.views(rows, np.random.default_rng(4)), batch_of(method, rows, 4, more_padding=3)
    labels = views.extra["mlm_labels"]
    assert len(views.tokens) == anchors * (1 + positives) and len(labels) == anchors
    with torch.no_grad():
        terms = method(batch)
    vectors = [[states(folder, [ids])[0].mean(0) for ids in view] for view in views.tokens]
    first = [vectors[a][row] for row in range(len(LENGTHS)) for a in range(anchors)]
    near = [[vectors[anchors + a * positives + p][row] for p in range(positives)]
            for row in range(len(LENGTHS)) for a in range(anchors)]
    second = [sum(each) / positives for each in near]
    expected = float(losses.declutr(torch.stack(first), torch.stack(second), temperature=method.options.temperature))
    assert abs(float(terms["contrastive"].value) - expected) < 1e-8
    guesses = [-float(torch.log_softmax(logits(folder, [ids])[0], dim=1)[place, token])
               for view, targets in zip(views.tokens, labels, strict=False)
               for ids, row in zip(view, targets, strict=True) for place, token in enumerate(row) if token != IGNORED]
    assert abs(float(terms["mlm"].value) - sum(guesses) / len(guesses)) < 1e-8
    assert terms["contrastive"].count == len(first) and terms["mlm"].weight == 1
    assert terms["contrastive"].weight == options.get("contrastive_weight", 1)
    assert terms["mlm"].count == len(guesses) == method.counts(batch)["mlm"] > 0


def test_what_is_read_are_the_spans_that_were_drawn_anchors_masked_and_positives_clean(folder):
    """The draws of spans come first, document by document; then those of the masks."""
    method, rows = declutr(folder, mlm_probability=0.5), long_documents(folder)
    views, draws = method.views(rows, np.random.default_rng(9)), np.random.default_rng(9)
    ids, tokenizer, changed = rows.ids("sentence"), _tokenizer(folder), 0
    drawn = [spans_of(sample_spans(len(document), method.options, draws)) for document in ids]

    def whole(document, start, end):
        return [tokenizer.cls_token_id, *document[start:end], tokenizer.sep_token_id]

    for a in range(2):
        for row, document in enumerate(ids):
            start, end, near = drawn[row][a]
            labels, read = views.extra["mlm_labels"][a][row], views.tokens[a][row]
            assert np.where(labels == IGNORED, read, labels).tolist() == whole(document, start, end)
            changed += int((read != whole(document, start, end)).sum())
            for p, span in enumerate(near):
                assert views.tokens[2 + 2 * a + p][row].tolist() == whole(document, *span)
    assert changed > 5
    labels = np.concatenate([row[1:-1] for view in views.extra["mlm_labels"] for row in view])
    assert 0.3 < (labels != IGNORED).mean() < 0.7


def test_spans_that_begin_within_a_word_are_other_tokens_when_retokenised(folder):
    """A word of several pieces, cut: ids keep the piece, the decoded text is read from its spelling."""
    rows = long_documents(folder, "zebra quagga zebu okapi vervet xerus gnu ibex")
    plain, again = (declutr(folder, spans=spans, mlm_weight=0.0) for spans in ("ids", "retokenised"))
    tokenizer, ids = _tokenizer(folder), rows.ids("sentence")[0]
    views = [method.views(rows, np.random.default_rng(1)).tokens for method in (plain, again)]
    drawn = spans_of(sample_spans(len(ids), plain.options, np.random.default_rng(1)))
    for place, (start, end) in enumerate([drawn[0][:2], drawn[1][:2], *drawn[0][2], *drawn[1][2]]):
        text = tokenizer.decode(ids[start:end], clean_up_tokenization_spaces=True)
        expected = tokenizer(text, truncation=True, max_length=10, padding=False)["input_ids"]
        assert list(views[1][place][0]) == expected and views[0][place][0].tolist()[1:-1] == ids[start:end].tolist()
    assert any(list(a[0]) != list(b[0]) for a, b in zip(*views, strict=True))


def test_without_mlm_nothing_is_masked_and_without_contrast_there_are_no_positives(folder):
    rows = long_documents(folder)
    clean, alone = declutr(folder, mlm_weight=0.0), declutr(folder, contrastive_weight=0.0)
    views = clean.views(rows, np.random.default_rng(0))
    assert views.extra == {} and clean.lm_head is None and set(clean(batch_of(clean, rows))) == {"contrastive"}
    assert clean.counts(batch_of(clean, rows)) == {} and clean.notes() == []
    assert not any((row == _tokenizer(folder).mask_token_id).any() for view in views.tokens for row in view)
    assert len(alone.views(rows, np.random.default_rng(0)).tokens) == 2 and set(alone(batch_of(alone, rows))) == {"mlm"}
    assert alone.view_vectors(batch_of(alone, rows)) is None
    first, second = clean.view_vectors(batch_of(clean, rows))
    assert len(first) == len(second) == 2 * len(LENGTHS)


def test_short_documents_have_no_spans_and_are_dropped():
    """2 anchors of less than 5 word pieces need 20. What a training says of it: tests/refusals/method-options.yaml."""
    options = DeCLUTR.Options(l_min=2, l_max=5)
    rows = SimpleNamespace(lengths=lambda role: np.array([20, 19, 21]), store=None)
    assert DeCLUTR.needs(options).usable(rows).tolist() == [True, False, True]
    assert least(options) == 20 and least(DeCLUTR.Options()) == 2048
    with pytest.raises(ValueError):
        sample_spans(19, options, np.random.default_rng(0))
