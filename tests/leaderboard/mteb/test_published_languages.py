"""MTEB's languages as published: who has a score, what is refused, ranks against a loop over pairs."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from stsbench.leaderboard.mteb.results import Score, load_published
from stsbench.leaderboard.mteb.rows import NO_MODELS, PAIRS, languages
from stsbench.metrics.aggregation import FEWEST_ITEMS

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"
COMMIT = "a" * 40


@pytest.fixture(scope="module")
def published():
    return load_published(BOARD).scores


@pytest.fixture(scope="module")
def made(published):
    return {(one.task, one.name): one for one in languages(published)}


def test_every_language_of_the_table_is_shown_and_no_score_is_lost(made, published):
    assert [key for key in made] == [(task, name) for task, of in PAIRS.items() for name in of]
    shown = {(one.task, one.name, row.model): row.score for one in made.values() for row in one.rows}
    printed = {(score.task, score.subset, score.model): 100 * score.number for score in published if score.task in PAIRS}
    assert shown == {key: value for key, value in printed.items() if key[2] not in NO_MODELS}


def test_fewer_pairs_than_fifty_rank_nothing(made):
    refused = {key for key, one in made.items() if one.refused}
    assert refused == {("STS22.v2", "pl-en"), ("STS22.v2", "de-pl"), ("STS22.v2", "fr-pl")}
    for one in made.values():
        assert bool(one.refused) == (one.pairs < FEWEST_ITEMS) == (one.ranked == 0)
    scores = [row.score for row in made["STS22.v2", "fr-pl"].rows]
    assert sum(abs(score - 84.5154) < 0.001 for score in scores) > 50  # of 8 pairs, most models have the same correlation


def test_ranks_are_those_of_a_loop_over_pairs(made):
    one = made["STS17", "en-de"]
    rows = [row for row in one.rows if row.position is not None]
    critical = norm.isf(0.025 / (len(rows) - 1))
    errors = [(1 - r * r) * np.sqrt((1 + r * r / 2) / 247) for r in (row.score / 100 for row in rows)]
    for i, row in enumerate(rows[:40]):
        gaps = [abs(row.score - other.score) / 100 for other in rows]
        apart = [j for j in range(len(rows)) if gaps[j] > critical * np.hypot(errors[i], errors[j])]
        assert row.position == 1 + sum(other.score > row.score for other in rows)
        assert row.first == 1 + sum(rows[j].score > row.score for j in apart)
        assert row.last == len(rows) - sum(rows[j].score < row.score for j in apart)


def test_a_file_that_was_divided_twice_has_no_rank_in_any_language(made):
    broken = "Gameselo/STS-multilingual-mpnet-base-v2"
    for name in PAIRS["STS17"]:
        (row,) = [row for row in made["STS17", name].rows if row.model == broken]
        assert row.position is None and row.score < 1 and "divided" in dict(row.doubts)
        assert made["STS17", name].rows[-1] is row
    ranked = {row.model for one in made.values() for row in one.rows if row.position is None and not one.refused}
    assert ranked == {broken}


def test_a_commit_is_taken_before_a_model_card_and_doubts_are_flagged():
    scores = [Score("a/b", folder, "STS17", "en-de", value, "", data)
              for folder, value, data in (("external", "0.9", "x"), (COMMIT, "0.8", "x"))]
    others = [Score(f"c/{i}", "external", "STS17", "en-de", "0.7", "", "x") for i in range(3)]
    old = [Score("d/e", "1", "STS17", "en-de", "0.6", "", "y")]
    made = {row.model: row for one in languages([*scores, *others, *old]) for row in one.rows}
    assert made["a/b"].score == 80 and made["a/b"].doubts == ()
    assert made["c/0"].doubts == (("card", "this task"),)
    assert [key for key, _ in made["d/e"].doubts] == ["no-commit", "data"]
