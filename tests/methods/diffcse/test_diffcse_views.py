"""What DiffCSE makes of a batch: its blocks, their order, their labels, and what they cost the random generator."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import LIMIT, MemoryRows, tokens
from tiny_models import build, sentences

from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.auxiliary import ViewMaker, blocks
from stsbench.methods.diffcse.options import DiffCSEOptions
from stsbench.training.api.batch import Shares
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.rows.batches import to_batch

TEXTS = sentences(60, longest=9, seed=8)
OPERATORS = ("replace", "insert", "delete")
SIX = {"sentence": TEXTS[:6]}
QUADRUPLES = {role: TEXTS[5 * i : 5 * i + 5] for i, role in enumerate(("anchor", "positive", "negative", "negative2"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("diffcse") / "tiny-bert")


@pytest.fixture(scope="module")
def backbone(folder):
    found = load_backbone(folder, "tiny-bert", max_length=LIMIT)
    found.name = "tiny-bert"
    return found


def lists(view):
    return [list(map(int, row)) for row in view]


def make(backbone, rows, seed=0, **options):
    return ViewMaker(backbone, DiffCSEOptions(**options))(rows, np.random.default_rng(seed))


def is_copy_of(tokenizer, operator, copy, original, labels):
    """Whether a row can be the operator's copy of `original`, with these labels."""
    special, mask = set(tokenizer.all_special_ids), tokenizer.mask_token_id
    if operator == "replace":
        assert len(copy) == len(labels) == len(original)
        return all(
            (label == -100 and now == before) or (label == before and before not in special)
            for now, before, label in zip(copy, original, labels, strict=True)
        )
    if operator == "insert":
        rest = [token for token, new in zip(copy, labels, strict=True) if not new]
        whole = rest == original or (len(copy) == LIMIT and [*rest[:-1]] == original[: len(rest) - 1])
        return whole and copy[-1] == original[-1] and all(
            token == mask for token, new in zip(copy, labels, strict=True) if new
        )
    gone, place, expected = len(original) - len(copy), 0, []
    for token in copy:  # repeated words may be read either way: the count of gaps decides
        skipped = 0
        while original[place] != token:
            place, skipped = place + 1, skipped + 1
        expected.append(int(skipped > 0))
        place += 1
    return set(labels) <= {0, 1} and sum(labels) <= gone and (gone > 0) == (sum(labels) > 0) and (
        labels == expected or len(set(original)) < len(original)
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(OPERATORS), min_size=1, unique=True), st.sampled_from(["same", "next", "same+next"]),
    st.integers(0, 2**32 - 1), st.sampled_from([0.15, 0.4]),
)
def test_blocks_of_changed_copies(folder, backbone, operators, sentence, seed, ratio):
    every = MemoryRows(folder, SIX, documents=[0] * 6)
    rows = every.at([3, 0, 2, 4])
    ratios = {"mask_ratio" if operator == "replace" else "edit_ratio": ratio for operator in operators}
    views, again = (make(backbone, rows, seed, operators=operators, sentence=sentence, **ratios) for _ in range(2))
    assert list(map(lists, views.tokens)) == list(map(lists, again.tokens))
    plain = tokens(folder, [TEXTS[row] for row in (3, 0, 2, 4)])
    ahead = tokens(folder, [TEXTS[row] for row in (4, 1, 3, 5)])
    wanted = [(operator, which) for which in sentence.split("+") for operator in operators]
    assert blocks(views.extra) == wanted
    assert len(views.tokens) == 2 + 2 * len(wanted)
    assert list(map(lists, views.tokens[:2])) == [plain, plain]
    for number, (operator, which) in enumerate(wanted):
        originals, labels = plain if which == "same" else ahead, views.extra[f"{operator} {which} labels"]
        assert len(labels) == 2
        if operator == "replace":
            assert list(map(lists, views.extra[f"replace {which} original"])) == [originals, originals]
        for copies, marks in zip(map(lists, views.tokens[2 + 2 * number : 4 + 2 * number]), map(lists, labels), strict=True):
            for row, original, marked in zip(copies, originals, marks, strict=True):
                assert len(row) <= LIMIT and is_copy_of(backbone.tokenizer, operator, row, original, marked)
    assert len(views.extra) == len(wanted) + sum(operator == "replace" for operator, _ in wanted)


def test_a_batch_lines_up_block_by_block(folder, backbone):
    rows = MemoryRows(folder, SIX, documents=[0] * 6).at([0, 1, 2])
    views = make(backbone, rows, operators=OPERATORS, sentence="same+next", edit_ratio=0.4)
    batch = to_batch(views, Shares((3,)), backbone.tokenizer.pad_token_id, torch.device("cpu"))
    wanted = [(operator, which) for which in ("same", "next") for operator in OPERATORS]
    assert blocks(batch.extra) == wanted
    assert batch.views == 2 + 2 * 6 and len(batch) == 3
    for number, (operator, which) in enumerate(wanted):
        part = slice(6 + 6 * number, 12 + 6 * number)
        ids, mask, labels = batch.ids[part], batch.mask[part].bool(), batch.extra[f"{operator} {which} labels"]
        assert labels.shape == ids.shape and bool((labels[~mask] == -100).all())
        if operator == "replace":
            original = batch.extra[f"replace {which} original"]
            assert torch.equal(original[labels == -100], ids[labels == -100])
            assert torch.equal(original[labels != -100], labels[labels != -100])
        else:
            assert bool(((labels == 0) | (labels == 1))[mask].all())
        if operator == "insert":
            assert bool((ids[labels == 1] == backbone.tokenizer.mask_token_id).all())


def test_copies_of_one_sentence_are_drawn_on_their_own(folder, backbone):
    rows = MemoryRows(folder, {"sentence": TEXTS[:30]}, documents=[0] * 30).at(range(29))
    views = make(backbone, rows, operators=OPERATORS, sentence="same+next", edit_ratio=0.4)
    for number in range(6):
        assert lists(views.tokens[2 + 2 * number]) != lists(views.tokens[3 + 2 * number])


def test_the_stated_share_is_masked_as_stated(folder, backbone):
    texts = sentences(1000, longest=8, seed=3)
    views = make(backbone, MemoryRows(folder, {"sentence": texts}), mask_ratio=0.2, masked=0.5, random=0.3)
    special, mask = backbone.tokenizer.all_special_ids, backbone.tokenizer.mask_token_id
    flat = [np.concatenate(views.extra["replace same labels"][view]) for view in (0, 1)]
    ids, original = (np.concatenate([np.concatenate(view) for view in found])
                     for found in (views.tokens[2:], views.extra["replace same original"]))
    chosen = np.concatenate(flat) != -100
    ordinary = ~np.isin(original, special)
    count, total = int(chosen.sum()), int(ordinary.sum())
    assert not (chosen & ~ordinary).any()
    assert abs(count - 0.2 * total) < 5 * math.sqrt(total * 0.2 * 0.8)
    masks = int((ids[chosen] == mask).sum()) - 0.3 * count / len(backbone.tokenizer)  # a random token may be the mask, too
    assert abs(masks - 0.5 * count) < 5 * math.sqrt(count * 0.25)
    stay = int((ids[chosen] == original[chosen]).sum()) - 0.3 * count / len(backbone.tokenizer)
    assert abs(stay - 0.2 * count) < 5 * math.sqrt(count * 0.16)


def test_one_operator_a_batch(folder, backbone):
    rows, seen = MemoryRows(folder, SIX, documents=[0] * 6).at([0, 1]), {}
    for seed in range(300):
        views = make(backbone, rows, seed, operators=OPERATORS, combine="choice", sentence="same+next")
        (first, one), (second, other) = blocks(views.extra)
        assert first == second and (one, other) == ("same", "next") and len(views.tokens) == 6
        seen[first] = seen.get(first, 0) + 1
    assert set(seen) == set(OPERATORS) and all(abs(count - 100) < 5 * math.sqrt(300 * 2 / 9) for count in seen.values())


@pytest.mark.parametrize("roles", [2, 3, 4])
def test_given_pairs(folder, backbone, roles):
    data = dict(list(QUADRUPLES.items())[:roles])
    rows = MemoryRows(folder, data)
    plain = [tokens(folder, texts) for texts in data.values()]
    views = make(backbone, rows, view="given", operators=["replace", "delete"])
    assert list(map(lists, views.tokens[:roles])) == plain and len(views.tokens) == 3 * roles
    assert list(map(lists, views.extra["replace same original"])) == plain
    assert len(views.extra["delete same labels"]) == roles
    for view, copies in enumerate(views.tokens[2 * roles :]):
        for copy, original, labels in zip(copies, plain[view], views.extra["delete same labels"][view], strict=True):
            assert is_copy_of(backbone.tokenizer, "delete", lists([copy])[0], original, labels.tolist())


@pytest.mark.parametrize("augmented_as", ["positive", "negative"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_one_changed_copy_as_a_further_view(folder, backbone, operator, augmented_as):
    rows = MemoryRows(folder, SIX)
    ratio = {} if operator == "replace" else {"edit_ratio": 0.3}
    views = make(backbone, rows, rtd_weight=0, augmented_as=augmented_as, operators=[operator], **ratio)
    plain = tokens(folder, SIX["sentence"])
    assert list(map(lists, views.tokens[:2])) == [plain, plain] and len(views.tokens) == 3
    assert blocks(views.extra) == [(operator, "same")] and not views.one_length
    (labels,) = views.extra[f"{operator} same labels"]
    assert all(is_copy_of(backbone.tokenizer, operator, *found)
               for found in zip(lists(views.tokens[2]), plain, lists(labels), strict=True))


def test_plain_sentences_cost_no_random_number(folder, backbone):
    rng = np.random.default_rng(4)
    views = ViewMaker(backbone, DiffCSEOptions(rtd_weight=0))(MemoryRows(folder, SIX), rng)
    assert list(map(lists, views.tokens)) == [tokens(folder, SIX["sentence"])] * 2
    assert views.extra == {} and blocks(views.extra) == [] and not views.one_length
    assert rng.bit_generator.state == np.random.default_rng(4).bit_generator.state


def test_padding_counts_only_where_the_loss_has_it(folder, backbone):
    rows = MemoryRows(folder, SIX)
    assert make(backbone, rows).one_length and make(backbone, rows, operators=["delete"]).one_length
    assert not make(backbone, rows, rtd_mean="attended").one_length
    for task in ("conditional_mlm", "corrective_lm"):
        assert not make(backbone, rows, task=task).one_length


def test_the_last_sentence_of_a_document_has_no_next_one(folder, backbone):
    every = MemoryRows(folder, SIX, documents=[0, 0, 0, 1, 1, 1])
    with pytest.raises(StsbenchError, match="row 2 has no next sentence"):
        make(backbone, every.at([0, 2]), sentence="next")


def test_a_mask_token_is_needed_where_one_is_put_in(folder, tmp_path):
    bare = load_backbone(folder, "bare", max_length=LIMIT)
    bare.name, bare.tokenizer.mask_token = "bare", None
    for operator in ("replace", "insert"):
        with pytest.raises(StsbenchError, match=rf"options\.operators {operator} needs a mask token, .* bare has none"):
            ViewMaker(bare, DiffCSEOptions(operators=["delete", operator]))
    assert len(make(bare, MemoryRows(folder, SIX), operators=["delete"]).tokens) == 4
    assert len(make(bare, MemoryRows(folder, SIX), rtd_weight=0).tokens) == 2
