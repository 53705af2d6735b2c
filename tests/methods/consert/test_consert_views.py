"""ConSERT's augmentations: what is drawn, and each view against given position ids and zeroed entries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from consert_oracle import PAD, START, TEXTS, batch_for, consert, folders, pairs, plain, vectors
from method_oracle import tokens
from training_runs import one_thread

from stsbench.methods.consert.augment import changed

__all__ = ["folders", "one_thread"]
RATES = {"none": None, "shuffle": None, "token_cutoff": 0.3, "feature_cutoff": 0.3, "dropout": 0.2, "span": 0.5}


@pytest.fixture(params=["bert", "roberta"])
def family(request):
    return request.param


def made(folder, name, **more):
    """A method whose second view is `name`."""
    return consert(folder, views=("none", name), rates=(None, RATES[name]), **more)


@pytest.mark.parametrize("engine", ["packed", "padded"])
@pytest.mark.parametrize("name", RATES)
def test_a_view_is_what_given_positions_and_zeroed_entries_make_it(folders, family, name, engine):
    method = made(folders[family], name)
    method.backbone.engine = engine
    batch, views = batch_for(method, plain(folders[family]), more_padding=2)
    with torch.no_grad():
        changed_states = method._view(batch, "second", "unsup")
        unchanged = method._view(batch, "first", "unsup")
    assert (changed_states - vectors(folders[family], family, views, "second", name)).abs().max() < 1e-10
    assert (unchanged - vectors(folders[family], family, views, "first", "none")).abs().max() < 1e-10
    assert ((changed_states - unchanged).abs().max(1).values > 1e-4).sum() >= (3 if name != "none" else 0)


@pytest.mark.parametrize("pooler", ["cls", "max"])
def test_other_poolers_read_the_same_change(folders, family, pooler):
    method = made(folders[family], "dropout", pooler=pooler)
    batch, views = batch_for(method, plain(folders[family]))
    with torch.no_grad():
        changed_states = method._view(batch, "second", "unsup")
    assert (changed_states - vectors(folders[family], family, views, "second", "dropout", pooler=pooler)).abs().max() < 1e-10


def test_shuffle_permutes_the_models_own_positions_and_leaves_padding(folders, family):
    method = made(folders[family], "shuffle")
    batch, _ = batch_for(method, plain(folders[family]), more_padding=3)
    ids, soft = changed(method.backbone, batch, "second", "shuffle")
    assert ids is batch.ids
    moved = 0
    for row, length in enumerate(batch.mask.sum(1).tolist()):
        own = [START[family] + place for place in range(length)]
        assert sorted(soft.positions[row, :length].tolist()) == own
        moved += soft.positions[row, :length].tolist() != own
        rest = range(START[family] + length, START[family] + batch.ids.shape[1]) if family == "bert" else [1] * 99
        assert all(place == want for place, want in zip(soft.positions[row, length:].tolist(), rest, strict=False))
    assert moved >= 3


def draws(folder, name, rate, count=40):
    """[draw] -> what was drawn for the second view of the texts."""
    method = consert(folder, views=("none", name), rates=(None, rate))
    changed_states = []
    for seed in range(count):
        _, views = batch_for(method, plain(folder), seed=seed)
        changed_states.append((views.extra | views.by_row)[f"second {'ids' if name == 'span' else 'cut'}"][0])
    return changed_states


LENGTHS = [9, 4, 10, 5, 3]  # in tokens, special ones included


@pytest.mark.parametrize("rate", [0.1, 0.15, 0.2, 0.34, 0.7])
def test_counts_are_rounded_down_and_every_place_may_be_cut(folders, rate):
    folder = folders["bert"]
    assert [len(row) for row in tokens(folder, TEXTS)] == LENGTHS
    chosen = draws(folder, "token_cutoff", rate)
    for row, length in enumerate(LENGTHS):
        assert all(sum(each[row]) == int(length * rate) for each in chosen)
    if rate >= 0.34:  # special tokens among them
        assert all(any(each[row][place] for each in chosen) for row in (0, 2) for place in (0, -1))
    assert all(part.sum(1).tolist() == [int(32 * rate)] * 5 for part in draws(folder, "feature_cutoff", rate, 3))
    for part in draws(folder, "dropout", rate, 3):
        assert part.sum((1, 2)).tolist() == [int(length * 32 * rate) for length in LENGTHS]
        assert not any(part[row, length:].any() for row, length in enumerate(LENGTHS))
    for part in draws(folder, "span", rate, 10):
        for text, row in zip(tokens(folder, TEXTS), part, strict=True):
            kept = np.flatnonzero(row)  # no token of a text is 0 here
            assert len(kept) == max(int(len(text) * (1 - rate)), 1) == kept[-1] - kept[0] + 1
            assert [text[place] for place in kept] == row[kept].tolist()


def test_a_draw_belongs_to_its_row_and_differs_from_row_to_row(folders):
    first, second = (part for part in draws(folders["bert"], "feature_cutoff", 0.3, 2))
    assert len({tuple(row) for part in (first, second) for row in part.tolist()}) == 10
    again = draws(folders["bert"], "feature_cutoff", 0.3, 1)[0]
    assert np.array_equal(first, again)


def test_what_has_no_draw_costs_nothing(folders):
    method = consert(folders["bert"], views=("none", "none"), rates=(None, None))
    rng = np.random.default_rng(3)
    method.views(plain(folders["bert"]), rng)
    assert rng.integers(1 << 40) == np.random.default_rng(3).integers(1 << 40)


def test_premises_and_hypotheses_have_draws_of_their_own(folders, family):
    method = consert(folders[family], setting="joint", joint_views=("shuffle", "feature_cutoff"), joint_rates=(None, 0.3))
    batch, views = batch_for(method, pairs(folders[family]), labelled=True)
    with torch.no_grad():
        for slot, name in (("first", "shuffle"), ("second", "feature_cutoff")):
            changed_states = method._view(batch, slot, "joint").split(len(TEXTS))
            for text in (0, 1):
                want = vectors(folders[family], family, views, slot, name, text)
                assert (changed_states[text] - want).abs().max() < 1e-10


def test_a_span_keeps_its_place_in_attention_and_pooling(folders, family):
    method = made(folders[family], "span")
    batch, _ = batch_for(method, plain(folders[family]))
    ids, soft = changed(method.backbone, batch, "second", "span")
    outside = (ids != batch.ids) & batch.mask.bool()
    assert outside.any() and (ids[outside] == PAD[family]).all()
    own = changed(method.backbone, batch, "second", "none")[0]
    assert own is batch.ids and soft.change is None
