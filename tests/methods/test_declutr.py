"""DeCLUTR: its spans against the sampling written out, draw by draw, and both terms of the loss span by span."""

import math

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, _tokenizer, batch_of, logits, make, states
from method_runs import cached_place, recipe_of, train

from stsbench import losses
from stsbench.methods.declutr.method import DeCLUTR, least, sample_spans
from stsbench.methods.declutr.options import DeCLUTROptions
from stsbench.training.api.batch import IGNORED

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


@pytest.mark.parametrize(("sampling", "anchors", "positives"), [
    ("default", 1, 3), ("default", 4, 1), ("subsuming", 2, 2), ("adjacent", 1, 3), ("adjacent", 4, 1)])
def test_the_sampling_written_out_gives_the_same_spans_for_the_same_draws(sampling, anchors, positives):
    shape = {"anchors": anchors, "positives": positives, "l_min": 3, "l_max": 20, "sampling": sampling}
    options, draws = DeCLUTROptions(**shape), NotedDraws(np.random.default_rng(anchors))
    for n in [least(options), least(options) + 7, 3 * least(options)] * 20:
        draws.numbers = []
        assert spans_of(sample_spans(n, options, draws)) == naive_spans(n, draws.numbers, **shape)


def test_anchors_are_long_and_positives_short():
    """Beta(4, 2) has the mean 2/3, Beta(2, 4) 1/3: swapping them is the classic slip."""
    draws = np.random.default_rng(0)
    pairs = [pair for _ in range(400) for pair in sample_spans(4096, DeCLUTROptions(), draws)]
    anchors = np.mean([len(anchor) for anchor, _ in pairs])
    positives = np.mean([len(span) for _, near in pairs for span in near])
    assert anchors == pytest.approx(32 + 480 * 2 / 3, abs=15) and positives == pytest.approx(32 + 480 / 3, abs=12)


def test_a_document_shorter_than_the_least_has_no_spans():
    assert least(DeCLUTROptions()) == 2048
    with pytest.raises(ValueError):
        sample_spans(2047, DeCLUTROptions(), np.random.default_rng(0))


class Documents(MemoryRows):
    def ids(self, role):
        spaced = [" " + text for text in self.texts(role)]
        read = _tokenizer(self.folder)(spaced, add_special_tokens=False, padding=False, truncation=False)["input_ids"]
        return [np.array(row, np.int32) for row in read]


def documents(folder, *texts):
    """Documents of so many words as LENGTHS says, a word piece each, or these."""
    rng = np.random.default_rng(0)
    return Documents(folder, {"sentence": texts or [" ".join(rng.choice(WORDS, length)) for length in LENGTHS]})


def declutr(folder, pooler="mean", **options):
    """In float64 and train mode, of spans that fit into ten tokens."""
    return make(DeCLUTR, folder, {"l_min": 2, "l_max": 6, **options}, pooler=pooler)


@pytest.mark.parametrize("options", [
    {}, {"anchors": 1, "positives": 3, "temperature": 0.5}, {"spans": "retokenised", "contrastive_weight": 0.25},
], ids=str)
def test_both_terms_are_those_of_the_spans_read_one_by_one(folder, options):
    method, rows = declutr(folder, mlm_probability=0.4, **options), documents(folder)
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
    method, rows = declutr(folder, mlm_probability=0.5), documents(folder)
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


def test_spans_that_begin_within_a_word_are_other_tokens_when_retokenised(folder):
    """A word of several pieces, cut: ids keep the piece, the decoded text is read from its spelling."""
    rows = documents(folder, "zebra quagga zebu okapi vervet xerus gnu ibex")
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
    rows = documents(folder)
    clean, alone = declutr(folder, mlm_weight=0.0), declutr(folder, contrastive_weight=0.0)
    views = clean.views(rows, np.random.default_rng(0))
    assert views.extra == {} and clean.lm_head is None and set(clean(batch_of(clean, rows))) == {"contrastive"}
    assert clean.counts(batch_of(clean, rows)) == {} and clean.notes() == []
    assert not any((row == _tokenizer(folder).mask_token_id).any() for view in views.tokens for row in view)
    assert len(alone.views(rows, np.random.default_rng(0)).tokens) == 2 and set(alone(batch_of(alone, rows))) == {"mlm"}
    assert alone.view_vectors(batch_of(alone, rows)) is None
    first, second = clean.view_vectors(batch_of(clean, rows))
    assert len(first) == len(second) == 2 * len(LENGTHS)


def test_short_documents_are_dropped_and_counted(tmp_path):
    """2 anchors of less than 5 word pieces need 20."""
    long, short = " ".join(["cat"] * 20), " ".join(["dog"] * 19)
    for place in cached_place(tmp_path):
        (place / "short.txt").write_text("\n".join([long, short, f"{long} a", "a", *[f"{long} the"] * 5]) + "\n", "utf-8")
        changes = {"data.file": str(place / "short.txt"), "data.lines_per_row": 1, "selection.by": "none"}
        _, log = train(recipe_of(place, "declutr", **changes), place / "run", place)
        assert log[0]["examples"] == 7
