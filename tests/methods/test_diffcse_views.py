"""What DiffCSE makes of a batch: its blocks, their order, their labels, their random numbers; and which options act."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import LIMIT, MemoryRows, tokens
from simcse_oracle import folder
from tiny_models import sentences

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.auxiliary import ViewMaker, blocks
from stsbench.methods.diffcse.options import DiffCSEOptions, changes, detects, generates
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.edits import delete_tokens, insert_masks, mask_tokens

__all__ = ["folder"]
TEXTS = sentences(60, longest=9, seed=8)
ALL = ["replace", "insert", "delete"]
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


@settings(max_examples=60)
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


CHOICES = {  # the default first
    "view": ["dropout", "given"], "similarity": ["cosine", "dot"], "temperature": [0.05, 0.1], "contrastive": [True, False],
    "projector": ["batchnorm", "tanh", "none"], "rtd_weight": [0.005, 0.0],
    "task": ["rtd", "conditional_mlm", "corrective_lm"], "sentence": ["same", "next", "same+next"],
    "operators": [("replace",), ("insert",), ("delete",), ("replace", "delete"), tuple(ALL)],
    "combine": ["sum", "choice"], "augmented_as": [None, "positive", "negative"], "mask_ratio": [0.3, 0.15],
    "masked": [0.8, 1.0], "random": [0.1, 0.0], "edit_ratio": [0.15, 0.3], "generator": [None, "some/model"],
    "generator_mode": ["train", "eval"], "replacement": ["argmax", "sampling"], "replace": ["all", "masked"],
    "condition": ["projected", "raw"], "detach": [False, True],
    "rtd_mean": ["all", "attended", "attended_without_specials"], "repeat": [None, {}], "queue": [None, {}],
}


@settings(max_examples=200)
@given(st.data())
def test_options_are_accepted_where_each_has_a_reader_and_none_contradicts_another(data):
    names = data.draw(st.lists(st.sampled_from(sorted(CHOICES)), max_size=5, unique=True))
    changed = {name: data.draw(st.sampled_from(CHOICES[name][1:])) for name in names}
    o = {name: values[0] for name, values in CHOICES.items()} | changed
    rtd, augmented = o["rtd_weight"] > 0, o["augmented_as"] is not None
    views = rtd or augmented
    words = views and o["task"] != "conditional_mlm" and o["operators"] != ("delete",)
    readers = {
        **dict.fromkeys(("task", "sentence", "detach"), rtd), "condition": rtd and o["projector"] != "none",
        "rtd_mean": rtd and o["task"] != "conditional_mlm", "operators": views, "combine": len(o["operators"]) > 1,
        "edit_ratio": {"insert", "delete"} & set(o["operators"]),
        **dict.fromkeys(("mask_ratio", "masked", "random"), views and "replace" in o["operators"]),
        **dict.fromkeys(("generator", "generator_mode", "replacement"), words),
        "replace": views and o["task"] != "conditional_mlm" and "replace" in o["operators"],
        **dict.fromkeys(("similarity", "augmented_as", "queue"), o["contrastive"]),
        "temperature": o["contrastive"] and o["similarity"] == "cosine",
    }
    contradictions = [
        not o["contrastive"] and not rtd, augmented and rtd, o["detach"] and not o["contrastive"],
        o["condition"] == "raw" and not o["contrastive"], o["task"] != "rtd" and o["operators"] != ("replace",),
        o["sentence"] != "same" and o["view"] == "given", o["masked"] + o["random"] > 1,
        augmented and len(o["operators"]) > 1 and o["combine"] == "sum",
        o["task"] == "corrective_lm" and o["rtd_mean"] == "attended",
    ]
    acts = all(readers.get(name, True) for name in changed) and not any(contradictions)
    try:
        options = validate(DiffCSEOptions, changed, "recipe", "options.")
    except StsbenchError as error:
        assert not acts and any(name in str(error) for name in changed)
        return
    assert acts
    assert (changes(options), generates(options)) == (views, bool(words))
    assert detects(options) == (rtd and options.task == "rtd")
