"""Every option of DiffCSE in what it has to change, and in what it may not."""

from __future__ import annotations

import math

import pytest
import torch
from diffcse_oracle import PAIRS, TEXTS, diffcse, folder, generator, place
from method_oracle import MemoryRows, batch_of, total
from training_runs import one_thread

__all__ = ["folder", "generator", "one_thread", "place"]

A, R = "contrastive", "rtd"
MORE = {"sentence": TEXTS[:12]}
CASES = [  # base, change, terms that keep their value, terms that do not
    ({}, {"temperature": 0.2}, {R}, {A}), ({}, {"similarity": "dot"}, {R}, {A}),
    ({}, {"projector": "tanh"}, set(), {A, R}), ({}, {"projector": "none"}, set(), {A, R}),
    ({}, {"condition": "raw"}, {A}, {R}), ({}, {"mask_ratio": 0.6}, {A}, {R}), ({}, {"masked": 0.1}, {A}, {R}),
    ({"masked": 0.3}, {"random": 0.7}, {A}, {R}), ({}, {"generator_mode": "train"}, {A}, {R}),
    ({}, {"generator": "the encoder's"}, {A}, {R}), ({}, {"replacement": "sampling"}, {A}, {R}),
    ({}, {"replace": "masked"}, {A}, {R}),
    ({}, {"rtd_mean": "attended"}, {A}, {R}), ({}, {"rtd_mean": "attended_without_specials"}, {A}, {R}),
    ({"operators": ["insert"]}, {"edit_ratio": 0.5}, {A}, {"rtd_insert"}),
    ({"operators": ["delete"]}, {"edit_ratio": 0.5}, {A}, {"rtd_delete"}),
    ({}, {"contrastive": False}, {R}, {A}), ({}, {"rtd_weight": 0}, {A}, {R}),
    ({}, {"operators": ["insert"]}, {A}, {R, "rtd_insert"}), ({}, {"operators": ["delete"]}, {A}, {R, "rtd_delete"}),
    ({}, {"operators": ["replace", "delete"]}, {A}, {"rtd_delete"}),
    ({"operators": ["replace", "delete"]}, {"combine": "choice"}, {A}, {R, "rtd_delete"}),
    ({}, {"task": "corrective_lm"}, {A}, {R, "corrective_lm", "copy"}),
    ({}, {"task": "conditional_mlm"}, {A}, {R, "conditional_mlm"}),
    ({}, {"sentence": "next"}, {A}, {R, "rtd_next"}), ({}, {"sentence": "same+next"}, {A}, {"rtd_next"}),
    ({"rtd_weight": 0}, {"augmented_as": "positive"}, set(), {A, "contrastive_augmented"}),
    ({"rtd_weight": 0}, {"augmented_as": "negative"}, set(), {A}),
]


def terms_of(folder, generator, options, projector=None):
    """The method, its terms and their values on one batch; projector: that of another method, to start from."""
    options = dict(options)
    generator = generator if options.pop("generator", None) is None else folder
    changes = options.get("rtd_weight", 1) > 0 or "augmented_as" in options
    method = diffcse(folder, generator if changes else None, moved=False, **options)
    if type(projector) is type(method.projector):  # what is drawn before it has no say here
        method.projector.load_state_dict(projector.state_dict())
    rows = MemoryRows(folder, MORE, documents=[0] * 12).at(range(11))
    terms = method(batch_of(method, rows, seed=1))
    return method, terms, {name: term.value.item() for name, term in terms.items()}


@pytest.mark.parametrize(("base", "change", "kept", "other"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES])
def test_an_option_changes_its_terms_and_no_others(folder, generator, base, change, kept, other):
    method, _, before = terms_of(folder, generator, base)
    after = terms_of(folder, generator, {**base, **change}, method.projector)[2]
    assert {name for name in before.keys() & after.keys() if after[name] == pytest.approx(before[name], rel=1e-9)} >= kept
    for name in other:
        assert after.get(name) != pytest.approx(before.get(name, math.inf), rel=1e-6), name
    assert kept | other >= before.keys() ^ after.keys()


def test_the_weight_scales_the_term_and_detach_cuts_the_graph_alone(folder, generator):
    base, terms, values = terms_of(folder, generator, {})
    _, more, same = terms_of(folder, generator, {"rtd_weight": 0.5})
    assert same == values
    assert (total(more) - total(terms)).item() == pytest.approx(0.495 * values[R], rel=1e-6)
    cut, detached, same = terms_of(folder, generator, {"detach": True})
    assert same == values
    terms[R].value.backward()
    detached[R].value.backward()
    assert all(weight.grad is not None for weight in base.backbone.parameters())
    assert all(weight.grad is None for part in (cut.backbone, cut.projector) for weight in part.parameters())
    for mine, theirs in zip(base.auxiliary.parameters(), cut.auxiliary.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)


def test_the_view_given_takes_its_positives_from_the_data(folder, generator):
    given = diffcse(folder, generator, view="given", moved=False)
    pairs = given(batch_of(given, MemoryRows(folder, PAIRS)))
    method = diffcse(folder, generator, moved=False)
    twice = method(batch_of(method, MemoryRows(folder, {"sentence": PAIRS["anchor"]})))
    assert set(pairs) == set(twice) and all(pairs[name].value != twice[name].value for name in pairs)
