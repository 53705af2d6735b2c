"""What DiffCSE makes of a batch: its blocks, their order, their labels, their random numbers; and which options act."""

import math

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

__all__ = ["folder"]
TEXTS = sentences(60, longest=9, seed=8)
ALL = ["replace", "insert", "delete"]
SIX = {"sentence": TEXTS[:6]}


@pytest.fixture(scope="module")
def backbone(folder):
    backbone = load_backbone(folder, "tiny-bert", max_length=LIMIT)
    backbone.name = "tiny-bert"
    return backbone


def lists(view):
    return [list(map(int, row)) for row in view]


def views_of(backbone, rows, seed=0, **options):
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
        whole = rest == original or (len(copy) == LIMIT and rest[:-1] == original[: len(rest) - 1])
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


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(ALL), min_size=1, unique=True), st.sampled_from(["same", "next", "same+next"]),
    st.integers(0, 2**32 - 1), st.sampled_from([0.15, 0.4]),
)
def test_a_block_of_changed_copies_for_each_operator_and_sentence(folder, backbone, operators, sentence, seed, ratio):
    rows = MemoryRows(folder, SIX, documents=[0] * 6).at([3, 0, 2, 4])
    ratios = {"mask_ratio" if operator == "replace" else "edit_ratio": ratio for operator in operators}
    views, again = (views_of(backbone, rows, seed, operators=operators, sentence=sentence, **ratios) for _ in range(2))
    assert list(map(lists, views.tokens)) == list(map(lists, again.tokens))
    plain, ahead = (tokens(folder, [TEXTS[row + by] for row in (3, 0, 2, 4)]) for by in (0, 1))
    expected = [(operator, which) for which in sentence.split("+") for operator in operators]
    assert blocks(views.extra) == expected
    assert len(views.tokens) == 2 + 2 * len(expected)
    assert list(map(lists, views.tokens[:2])) == [plain, plain]
    for number, (operator, which) in enumerate(expected):
        originals, labels = plain if which == "same" else ahead, views.extra[f"{operator} {which} labels"]
        assert len(labels) == 2
        if operator == "replace":
            assert list(map(lists, views.extra[f"replace {which} original"])) == [originals, originals]
        for copies, marks in zip(map(lists, views.tokens[2 + 2 * number : 4 + 2 * number]), map(lists, labels), strict=True):
            for row, original, marked in zip(copies, originals, marks, strict=True):
                assert len(row) <= LIMIT and is_copy_of(backbone.tokenizer, operator, row, original, marked)
    assert len(views.extra) == len(expected) + sum(operator == "replace" for operator, _ in expected)


def test_copies_of_one_sentence_are_drawn_on_their_own(folder, backbone):
    rows = MemoryRows(folder, {"sentence": TEXTS[:30]}, documents=[0] * 30).at(range(29))
    views = views_of(backbone, rows, operators=ALL, sentence="same+next", edit_ratio=0.4)
    for number in range(6):
        assert lists(views.tokens[2 + 2 * number]) != lists(views.tokens[3 + 2 * number])


def test_the_stated_share_is_masked_as_stated(folder, backbone):
    texts = sentences(1000, longest=8, seed=3)
    views = views_of(backbone, MemoryRows(folder, {"sentence": texts}), mask_ratio=0.2, masked=0.5, random=0.3)
    special, mask = backbone.tokenizer.all_special_ids, backbone.tokenizer.mask_token_id
    labels, ids, original = (np.concatenate([np.concatenate(view) for view in part]) for part in (
        views.extra["replace same labels"], views.tokens[2:], views.extra["replace same original"]))
    chosen, ordinary = labels != -100, ~np.isin(original, special)
    count, total = int(chosen.sum()), int(ordinary.sum())
    assert not (chosen & ~ordinary).any()
    assert abs(count - 0.2 * total) < 5 * math.sqrt(total * 0.2 * 0.8)
    by_chance = 0.3 * count / len(backbone.tokenizer)  # a random token may be the mask or the token itself, too
    assert abs(int((ids[chosen] == mask).sum()) - by_chance - 0.5 * count) < 5 * math.sqrt(count * 0.25)
    assert abs(int((ids[chosen] == original[chosen]).sum()) - by_chance - 0.2 * count) < 5 * math.sqrt(count * 0.16)


def test_one_operator_is_drawn_for_each_batch_where_they_are_a_choice(folder, backbone):
    rows, counts = MemoryRows(folder, SIX, documents=[0] * 6).at([0, 1]), dict.fromkeys(ALL, 0)
    for seed in range(300):
        views = views_of(backbone, rows, seed, operators=ALL, combine="choice", sentence="same+next")
        operators, which = zip(*blocks(views.extra), strict=True)
        assert len(set(operators)) == 1 and which == ("same", "next") and len(views.tokens) == 6
        counts[operators[0]] += 1
    assert all(abs(count - 100) < 5 * math.sqrt(300 * 2 / 9) for count in counts.values())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_role_that_is_given_has_a_changed_copy(folder, backbone, count):
    roles = ("anchor", "positive", "negative", "negative2")[:count]
    data = {role: TEXTS[5 * i : 5 * i + 5] for i, role in enumerate(roles)}
    plain = [tokens(folder, texts) for texts in data.values()]
    views = views_of(backbone, MemoryRows(folder, data), view="given", operators=["replace", "delete"])
    assert list(map(lists, views.tokens[:count])) == plain and len(views.tokens) == 3 * count
    assert list(map(lists, views.extra["replace same original"])) == plain
    assert len(views.extra["delete same labels"]) == count
    for view, copies in enumerate(views.tokens[2 * count :]):
        for copy, original, labels in zip(copies, plain[view], views.extra["delete same labels"][view], strict=True):
            assert is_copy_of(backbone.tokenizer, "delete", lists([copy])[0], original, labels.tolist())


@pytest.mark.parametrize("augmented_as", ["positive", "negative"])
@pytest.mark.parametrize("operator", ALL)
def test_one_changed_copy_as_a_further_view(folder, backbone, operator, augmented_as):
    ratio = {} if operator == "replace" else {"edit_ratio": 0.3}
    rows, plain = MemoryRows(folder, SIX), tokens(folder, SIX["sentence"])
    views = views_of(backbone, rows, rtd_weight=0, augmented_as=augmented_as, operators=[operator], **ratio)
    assert list(map(lists, views.tokens[:2])) == [plain, plain] and len(views.tokens) == 3
    assert blocks(views.extra) == [(operator, "same")] and not views.one_length
    (labels,) = views.extra[f"{operator} same labels"]
    assert all(is_copy_of(backbone.tokenizer, operator, *row)
               for row in zip(lists(views.tokens[2]), plain, lists(labels), strict=True))


def test_plain_sentences_cost_no_random_number(folder, backbone):
    rng = np.random.default_rng(4)
    views = ViewMaker(backbone, DiffCSEOptions(rtd_weight=0))(MemoryRows(folder, SIX), rng)
    assert list(map(lists, views.tokens)) == [tokens(folder, SIX["sentence"])] * 2
    assert views.extra == {} and blocks(views.extra) == [] and not views.one_length
    assert rng.bit_generator.state == np.random.default_rng(4).bit_generator.state


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


def test_every_option_is_drawn_below_from_its_default():
    assert set(CHOICES) == set(DiffCSEOptions.model_fields)
    assert all(DiffCSEOptions(**{name: values[0]}) == DiffCSEOptions() for name, values in CHOICES.items())


@settings(max_examples=400)
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
