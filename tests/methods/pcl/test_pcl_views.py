"""The ten views of PCL: what is changed between the special tokens, and never beyond them."""

import numpy as np
import pytest
from method_oracle import LIMIT, MemoryRows
from pcl_oracle import TEXTS, pcl
from tiny_models import build

ROWS = TEXTS[:30]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def folder(request, tmp_path_factory):
    return build(tmp_path_factory.mktemp("views") / request.param, request.param)


def views_of(folder, augmentations, seed=0, limit=None):
    method = pcl(folder, augmentations=augmentations)
    if limit:
        method.backbone.max_length = limit
    rows = MemoryRows(folder, {"sentence": ROWS})
    return method, [[list(map(int, ids)) for ids in view] for view in method.views(rows, np.random.default_rng(seed)).tokens]


def test_the_ends_stay(folder):
    method, views = views_of(folder, ["shuffle", "reverse", "delete", "repeat", "copy"])
    tokenizer = method.backbone.tokenizer
    for view in views:
        assert all((ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id) for ids in view)
    plain, second, shuffle, reverse, delete, repeat, copy = views
    assert plain == second == copy
    assert [ids[1:-1][::-1] for ids in plain] == [ids[1:-1] for ids in reverse]
    assert shuffle != plain and [sorted(ids) for ids in shuffle] == [sorted(ids) for ids in plain]
    for ids, fewer, more in zip(plain, delete, repeat, strict=True):
        m = len(ids) - 2
        assert len(fewer) == len(ids) - round(0.2 * m)
        assert len(more) == min(len(ids) + round(0.2 * m), LIMIT)
        assert set(fewer) <= set(ids) and set(more) == set(ids)
    assert any(len(ids) == LIMIT for ids in plain) and max(map(len, repeat)) == LIMIT


def test_a_reversed_view_is_the_same_each_time_and_a_shuffled_one_is_not(folder):
    _, views = views_of(folder, ["reverse", "reverse", "shuffle", "shuffle"])
    assert views[2] == views[3] and views[4] != views[5]
    again = views_of(folder, ["reverse", "reverse", "shuffle", "shuffle"])[1]
    other = views_of(folder, ["reverse", "reverse", "shuffle", "shuffle"], seed=1)[1]
    assert again == views and other[4] != views[4]


def test_a_longer_limit_leaves_room_to_repeat(folder):
    _, views = views_of(folder, ["repeat"], limit=LIMIT + 4)
    assert all(len(more) == len(ids) + round(0.2 * (len(ids) - 2)) for ids, more in zip(views[0], views[2], strict=True))


def test_a_text_without_a_word_is_left_alone(folder):
    method = pcl(folder)
    views = method.views(MemoryRows(folder, {"sentence": ["", "a"]}), np.random.default_rng(0)).tokens
    assert all([len(ids) for ids in view] == [2, 3] for view in views)


def test_a_tokenizer_that_adds_no_special_tokens_has_no_ends_to_keep(folder):
    method = pcl(folder)
    words = np.array([20, 21, 22])
    assert method._augmented(words, "reverse", np.random.default_rng(0)).tolist() == [22, 21, 20]
    ended = np.array([20, 21, method.backbone.tokenizer.sep_token_id])
    assert method._augmented(ended, "reverse", np.random.default_rng(0)).tolist() == [21, 20, ended[2]]
