"""Ranks and tiers of published rows: against loops, and against rows whose items are known."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from stsbench.leaderboard.mteb.differences import different_over_tasks
from stsbench.leaderboard.mteb.results import ITEMS, load_published
from stsbench.leaderboard.mteb.standings import as_published, score_matrix, shared_errors, standings, tiers

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"


@pytest.fixture(scope="module")
def published():
    return as_published(load_published(BOARD))


def test_ranks_and_tiers_are_those_of_a_loop(published):
    ranked = [(row, at) for row, at in zip(published.rows, published.standings, strict=True) if at]
    assert len(ranked) == published.ranked == 206
    different = different_over_tasks(score_matrix([row for row, _ in ranked])).alone
    means = [row.mean for row, _ in ranked]
    for i, (_, at) in enumerate(ranked):
        better = [j for j in range(206) if means[j] > means[i]]
        worse = [j for j in range(206) if means[j] < means[i]]
        assert at.position == 1 + len(better)
        assert at.first == 1 + sum(bool(different[i, j]) for j in better)
        assert at.last == 206 - sum(bool(different[i, j]) for j in worse)
        assert at.jointly[0] <= at.first <= at.position <= at.last <= at.jointly[1]
        assert (at.tier == 1) == (at.first == 1)
    left, number = list(range(206)), 0
    while left:
        number += 1
        members = [i for i in left if not any(means[j] > means[i] and different[i, j] for j in left)]
        assert members == [i for i in left if ranked[i][1].tier == number]
        left = [i for i in left if i not in members]


def test_few_neighbours_can_be_told_apart_and_a_t_test_says_the_same(published):
    tasks = published.separated[0]
    assert (tasks.adjacent, tasks.first) == (3, 3) and tasks.pairs == 16026
    rows = score_matrix([row for row, at in zip(published.rows, published.standings, strict=True) if at])
    assert sum(ttest_1samp(rows[i] - rows[i + 1], 0).pvalue < 0.05 for i in range(205)) == 3
    assert [row.model for row in published.tier(1)] == [
        "Qwen/Qwen3-Embedding-4B", "Qwen/Qwen3-Embedding-8B", "Lajavaness/bilingual-embedding-large"
    ]


def test_a_tier_has_those_that_none_is_better_than():
    different = np.zeros((4, 4), dtype=bool)
    different[2, 0] = different[3, 0] = different[3, 2] = True
    assert tiers(np.array([4.0, 3, 2, 1]), different).tolist() == [1, 1, 2, 3]
    assert tiers(np.array([1.0, 2, 3, 4]), different).tolist() == [1, 1, 1, 1]  # the lines speak of the rows' own tests
    assert tiers(np.zeros(0), np.zeros((0, 0), dtype=bool)).tolist() == []


def drawn_rows(count=12, resamples=400):
    """Scores near each other and resamples of them whose errors are the computed ones and correlate by .8."""
    from stsbench.leaderboard.mteb.differences import spearman_error

    rng = np.random.default_rng(9)
    truth = np.linspace(0.75, 0.765, count)[:, None] + rng.normal(0, 0.03, (1, 7))
    errors = spearman_error(truth, np.array(list(ITEMS.values())))[:, :, None]
    noise = np.sqrt(0.8) * rng.normal(size=(1, 7, resamples)) + np.sqrt(0.2) * rng.normal(size=(count, 7, resamples))
    return truth, truth[:, :, None] + errors * noise


def test_what_errors_share_is_measured_and_the_verdicts_are_checked_against_the_items(published):
    scores, draws = drawn_rows()
    shared = shared_errors(scores, draws)
    assert shared.middle == pytest.approx(0.8, abs=0.03) and shared.low < shared.middle < shared.high
    assert shared.ratio == pytest.approx(1, abs=0.05) and (shared.rows, shared.pairs) == (12, 66)
    made = as_published(load_published(BOARD), scores, draws)
    check = made.check
    assert check.pairs == 66 and check.sure_differ + check.sure_same <= 66
    assert check.wrong_differ == 0 and check.wrong_same <= 2 and 30 < check.differ < 66
    assert [one.assumption for one in made.separated][:2] == ["over tasks", "errors independent"]
    sizes = [one.adjacent for one in made.separated[1:]]
    assert sizes == sorted(sizes) and made.standings == published.standings  # a bolder assumption separates more


def test_over_items_the_cautious_bound_is_the_widest():
    scores = np.clip(np.random.default_rng(1).normal(0.75, 0.02, (20, 7)), 0, 1)
    rows, separated = standings(scores, None)
    assert len(separated) == 2 and all(row.on_items[0] <= row.position <= row.on_items[1] for row in rows)
