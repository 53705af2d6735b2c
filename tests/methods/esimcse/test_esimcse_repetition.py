"""Which sub-words and words are repeated, and how many: counted over many draws, by the released code and by the paper."""

import re
from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from esimcse_oracle import TEXTS, esimcse
from method_oracle import MemoryRows, make, masked_lm_folder, tokens

from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.training.api.options import Repetition
from stsbench.training.api.views import repeated

DRAWS = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("repeated") / "tiny-mlm")


def draws(items, **options):
    rng = np.random.default_rng(0)
    return [repeated(items, Repetition(**options), rng).tolist() for _ in range(DRAWS)]


def uniform(counter, values):
    """Each of the values as often as any other, up to five standard deviations, and no other."""
    assert set(counter) == set(values)
    p, total = 1 / len(values), sum(counter.values())
    assert all(abs(count - p * total) < 5 * (total * p * (1 - p)) ** 0.5 for count in counter.values())


# items, options -> the most that are repeated, the first item that may be, the last
RULES = [
    (12, {"rate": 0.32}, 2, 1, 10), (20, {"rate": 0.32}, 5, 1, 18), (32, {"rate": 0.32}, 9, 1, 30),
    (64, {"rate": 0.32}, 9, 1, 62), (25, {"rate": 0.28}, 6, 1, 23),
    (12, {"rate": 0.32, "unit": "word"}, 2, 0, 10), (4, {"rate": 0.32, "unit": "word"}, 1, 0, 2),
    (40, {"rate": 0.5, "unit": "word"}, 9, 0, 38),
    (12, {"rate": 0.32, "count": "paper"}, 3, 1, 10), (6, {"rate": 0.32, "count": "paper"}, 2, 1, 4),
    (42, {"rate": 0.5, "count": "paper"}, 20, 1, 40), (10, {"rate": 0.4, "unit": "word", "count": "paper"}, 4, 0, 9),
]


@pytest.mark.parametrize(("items", "options", "most", "first", "last"), RULES)
def test_how_many_and_which(items, options, most, first, last):
    drawn = draws(items, **options)
    assert all(indices == sorted(set(indices)) for indices in drawn)
    uniform(Counter(map(len, drawn)), range(most + 1))
    uniform(Counter(index for indices in drawn for index in indices), range(first, last + 1))


@pytest.mark.parametrize(("items", "options"), [
    (3, {}), (6, {"rate": 0.32}), (2, {"count": "paper"}), (1, {"unit": "word"}), (2, {"rate": 0.9, "unit": "subword"}),
])
def test_too_short_to_repeat(items, options):
    assert set(map(len, draws(items, **options))) == {0}


def test_a_copy_of_one_word_or_none(folder):
    assert {len(indices) for indices in draws(1, unit="word", count="paper")} == {0, 1}


def test_the_first_view_is_the_sentence_and_the_second_has_runs_of_two(folder):
    method = esimcse(folder, repeat={"rate": 0.6}, queue=None)
    rows = MemoryRows(folder, {"sentence": TEXTS})
    first, second = method.views(rows, np.random.default_rng(1)).tokens
    assert [row.tolist() for row in first] == tokens(folder, TEXTS)
    grown = 0
    for before, after in zip(first, second, strict=True):
        runs, at = [(token, len([*each])) for token, each in groupby(after.tolist())], 0
        for token, each in groupby(before.tolist()):
            known, longer = runs[at]
            length = len([*each])
            assert known == token and length <= longer <= 2 * length
            grown, at = grown + longer - length, at + 1
        assert at == len(runs) and (before[0], before[-1]) == (after[0], after[-1])
    assert grown > len(TEXTS)
    assert max(map(len, second)) > 10  # beyond backbone.max_length: not cut again
    again = method.views(rows, np.random.default_rng(1)).tokens[1]
    assert all(np.array_equal(one, other) for one, other in zip(second, again, strict=True))


@pytest.mark.parametrize("count", ["released", "paper"])
def test_words_are_repeated_in_the_text_and_cut_afterwards(folder, count):
    method = esimcse(folder, repeat={"unit": "word", "rate": 0.6, "count": count}, queue=None)
    texts = [*TEXTS[:20], "cat", "the cat " * 9]
    second = method.views(MemoryRows(folder, {"sentence": texts}), np.random.default_rng(4)).tokens[1]
    rng, expected, last = np.random.default_rng(4), [], 0
    for text in texts:
        words = text.split(" ")
        indices = repeated(len(words), Repetition(unit="word", rate=0.6, count=count), rng)
        last += len(words) - 1 in indices
        expected.append(" ".join(f"{word} {word}" if at in indices else word for at, word in enumerate(words)))
    assert [list(map(int, row)) for row in second] == tokens(folder, expected)
    assert expected != texts and (last > 0) == (count == "paper")


def test_changed_copies_of_diffcse_are_of_the_repeated_sentence(folder):
    method = make(DiffCSE, folder, {"repeat": {"rate": 0.6}, "generator": None})
    views = method.views(MemoryRows(folder, {"sentence": TEXTS[:9]}), np.random.default_rng(1))
    assert [len(row) for row in views.tokens[1]] == [len(row) for row in views.tokens[3]]
    assert views.tokens[1] is not views.tokens[0] and max(map(len, views.tokens[1])) > max(map(len, views.tokens[0]))
    assert all(np.array_equal(*pair) for pair in zip(views.tokens[1], views.extra["replace same original"][1], strict=True))


def test_more_tokens_than_the_model_has_positions_are_refused_before_training(folder):
    method = esimcse(folder)
    method.backbone.max_length = 60
    with pytest.raises(StsbenchError) as caught:
        type(method)(method.backbone, type(method).Options())
    assert re.fullmatch(r"options\.repeat makes texts of up to 69 tokens of backbone\.max_length 60, and .* has 64 "
                        r"positions: lower backbone\.max_length", str(caught.value))
    type(method)(method.backbone, type(method).Options(repeat={"unit": "word"}))
