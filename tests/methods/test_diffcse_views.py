"""What DiffCSE makes of a batch: its blocks, their order, their labels, their random numbers; and which options act."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import LIMIT, MemoryRows, tokens
from tiny_models import sentences

from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.method import ViewMaker, blocks
from stsbench.methods.diffcse.options import DiffCSEOptions
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.edits import delete_tokens, insert_masks, mask_tokens

TEXTS, ALL = sentences(60, longest=9, seed=8), ["replace", "insert", "delete"]
SIX = {"sentence": TEXTS[:6]}
ROLES = ("anchor", "positive", "negative", "negative2")


@pytest.fixture(scope="module")
def backbone(folder):
    backbone = load_backbone(folder, "tiny-bert", max_length=LIMIT)
    backbone.name = "tiny-bert"
    return backbone


def lists(view):
    return [list(map(int, row)) for row in view]


def views_of(backbone, rows, seed=0, **options):
    return ViewMaker(backbone, DiffCSEOptions(**options))(rows, np.random.default_rng(seed))


def changed_copy(backbone, options, operator, ids, rng):
    """(copies, labels) of one view."""
    tokenizer = backbone.tokenizer
    special, mask = tokenizer.all_special_ids, tokenizer.mask_token_id
    if operator == "replace":
        shares = options.mask_ratio, options.masked, options.random
        return mask_tokens(ids, special, mask, len(tokenizer), rng, *shares)
    if operator == "insert":
        return insert_masks(ids, special, mask, rng, options.edit_ratio, LIMIT)
    return delete_tokens(ids, special, rng, options.edit_ratio)


SHAPES = [{}, {"sentence": "next"}, {"sentence": "same+next"}, {"view": "given"}, {"combine": "choice"},
          {"rtd_weight": 0, "augmented_as": "positive"}, {"rtd_weight": 0, "augmented_as": "negative"}]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(ALL), min_size=1, unique=True), st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))
def test_views_are_the_texts_and_a_copy_of_each_by_each_operator_drawn_in_turn(folder, backbone, operators, shape, seed):
    """One operator a batch where they are a choice; only the first text is changed where the copy is a further view."""
    operators = operators[:1] if "augmented_as" in shape else operators
    shape = {} if "combine" in shape and len(operators) == 1 else shape
    ratios = {"mask_ratio" if operator == "replace" else "edit_ratio": 0.4 for operator in operators}
    options, rows, numbers = {"operators": operators, **ratios, **shape}, [3, 0, 2, 4], np.random.default_rng(seed)
    given_rows = MemoryRows(folder, SIX, documents=[0] * 6).at(rows)
    if "view" in shape:
        given_rows = MemoryRows(folder, {role: TEXTS[5 * i : 5 * i + 5] for i, role in enumerate(ROLES)})
    own = [tokens(folder, given_rows.texts(role)) for role in given_rows.roles] * (1 if "view" in shape else 2)
    ahead = [tokens(folder, [TEXTS[row + 1] for row in rows])] * len(own)
    chosen = [operators[int(numbers.integers(len(operators)))]] if "combine" in shape else operators
    expected, extra = list(own), {}
    for which in shape.get("sentence", "same").split("+"):
        for operator in chosen:
            for ids in (own if which == "same" else ahead)[: 1 if "augmented_as" in shape else None]:
                copies, labels = changed_copy(backbone, DiffCSEOptions(**options), operator, ids, numbers)
                expected.append(lists(copies))
                extra.setdefault(f"{operator} {which} labels", []).append(lists(labels))
                if operator == "replace":
                    extra.setdefault(f"replace {which} original", []).append(ids)
    views = views_of(backbone, given_rows, seed, **options)
    assert list(map(lists, views.tokens)) == expected
    assert {name: list(map(lists, part)) for name, part in views.extra.items()} == extra
    assert blocks(views.extra) == [tuple(name.split(" ")[:2]) for name in extra if name.endswith("labels")]


@pytest.mark.parametrize(("options", "padded"), [
    ({}, True), ({"operators": ["delete"]}, True), ({"rtd_mean": "attended"}, False), ({"task": "conditional_mlm"}, False),
    ({"task": "corrective_lm"}, False)])
def test_padding_counts_only_where_the_loss_has_it(folder, backbone, options, padded):
    assert views_of(backbone, MemoryRows(folder, SIX), **options).one_length == padded


def test_a_next_sentence_or_a_mask_token_that_is_missing_is_refused_where_it_is_needed(folder, backbone):
    with pytest.raises(StsbenchError):
        views_of(backbone, MemoryRows(folder, SIX, documents=[0, 0, 0, 1, 1, 1]).at([0, 2]), sentence="next")
    bare = load_backbone(folder, "bare", max_length=LIMIT)
    bare.name, bare.tokenizer.mask_token = "bare", None
    for operator in ("replace", "insert"):
        with pytest.raises(StsbenchError, match=rf"options\.operators {operator} needs a mask token, .* bare has none"):
            ViewMaker(bare, DiffCSEOptions(operators=["delete", operator]))
    assert len(views_of(bare, MemoryRows(folder, SIX), operators=["delete"]).tokens) == 4
    assert len(views_of(bare, MemoryRows(folder, SIX), rtd_weight=0).tokens) == 2
