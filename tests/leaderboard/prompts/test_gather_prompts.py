"""Rows of encoders that were read behind prompts: their spread, and ranks over prompts and items."""

import json
from dataclasses import replace

import numpy as np
import pytest
from board_runs import PROMPTS, STS_TAB, Prompted, entry, prompted, read_once, rows_by_id, tab  # noqa: F401 - fixtures

from stsbench.comparison.comparability import SeedPairs
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.prompts import ranks as prompts_module
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.ranks.scored import scored_entries
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Prompts

QUICK = {"tasks": ["STS12", "STS-B"], "resamples": 50}
HARMLESS = ["query: ", "the cat: ", "a: "]
ENCODERS = {"clear": (1, 0.05, HARMLESS), "noisy": (2, 0.05, PROMPTS), "noisier": (3, 0.6, [])}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name -> its scores behind the prompts by task, and its folder."""
    home = tmp_path_factory.mktemp("prompts")
    return {name: (prompted(home / name, Prompted(*how), prompts, **QUICK), home / name)
            for name, (*how, prompts) in ENCODERS.items()}


def board(root, runs, with_prompts):
    for name, (_, folder) in runs.items():
        add(root, [folder / "00-default"], name, entry(name))
        if name in with_prompts:
            add(root, [folder], f"{name}-prompts", Prompts(prompt_of=name))
    return gather(root)


@pytest.fixture(scope="module")
def both(runs, tmp_path_factory):
    root = tmp_path_factory.mktemp("board")
    return root, board(root, runs, ("clear", "noisy"))


def test_spread_and_ranks_are_those_of_the_scores_behind_the_prompts(runs, both, tmp_path):
    _, made = both
    rows = rows_by_id(made)
    assert set(rows) == set(ENCODERS) and set(made.entries) == set(ENCODERS)  # an entry of prompts has no row
    assert rows["noisier"].prompts is None
    for name in ("clear", "noisy"):
        scores = runs[name][0][tab(made).lead]
        over = rows[name].prompts
        assert (over.n, over.lowest, over.highest) == (3, min(scores), max(scores))
        assert over.mean == pytest.approx(np.mean(scores)) and over.sd == pytest.approx(np.std(scores, ddof=1))
        assert made.entries[name].prompts and set(made.entries[name].prompts) == set(ENCODERS[name][2])
        assert rows[name].seeds == 1 and not any("left out" in mark for mark in rows[name].marks)
    # Ranks over prompts and items are wider; how they are computed is tested by enumeration, in test_prompt_study.py.
    assert sum(row.rank.chance for row in rows.values()) == pytest.approx(1)
    assert [(rows[name].rank.first, rows[name].rank.last, *rows[name].rank.prompts) for name in ENCODERS] == [
        (1, 2, 1, 2), (1, 2, 1, 3), (3, 3, 2, 3)]  # one prompt of `noisy` is worse than `noisier`
    assert 0 < rows["noisy"].rank.chance < 0.5
    # Ranks by default and scores are as without prompts.
    plain = board(tmp_path, runs, ())
    for row in tab(plain).measured:
        other = rows[row.id]
        assert row == replace(other, prompts=None, rank=replace(other.rank, prompts=None, chance=None))
    assert np.array_equal(tab(plain).pairs.halves, tab(made).pairs.halves)
    # The files of the page hold them.
    files = site(made)
    index = json.loads(files["index.json"])
    assert {one["id"]: one.get("prompts") for one in index["tabs"]}[STS_TAB] == 2
    assert set(index["entries"]) == set(ENCODERS)
    shown = {row["id"]: row for row in json.loads(files[f"tabs/{STS_TAB}.json"])["measured"]}
    for row in tab(made).measured:
        rank = shown[row.id]["rank"]
        assert rank["prompts"] == list(row.rank.prompts) and rank["chance"] == round(row.rank.chance, 4)
        assert ("prompts" in shown[row.id]) == (row.prompts is not None)
    over = rows["clear"].prompts
    assert shown["clear"]["prompts"] == {"n": 3, "mean": round(over.mean, 4), "lowest": round(over.lowest, 4),
                                         "highest": round(over.highest, 4), "sd": round(over.sd, 2)}
    held = json.loads(files["entries/clear.json"])
    assert sorted(held["prompts"]) == sorted(HARMLESS) and len(held["runs"]) == 1
    assert "prompts" not in json.loads(files["entries/noisier.json"])


def test_seeds_behind_one_prompt_count_as_their_mean(runs, tmp_path):
    """Of a row of two seeds whose prompts were measured with both."""
    second = prompted(tmp_path / "second", Prompted(7, 0.05), **QUICK)
    root = tmp_path / "board"
    add(root, [runs["noisy"][1] / "00-default", tmp_path / "second/00-default"], "noisy", entry("noisy"))
    add(root, [runs["noisy"][1], tmp_path / "second"], "noisy-prompts", Prompts(prompt_of="noisy"))
    made = gather(root)
    row, lead = rows_by_id(made)["noisy"], tab(made).lead
    means = np.mean([runs["noisy"][0][lead], second[lead]], axis=0)
    assert row.seeds == 2 and row.prompts.n == 3
    assert (row.prompts.lowest, row.prompts.highest) == (pytest.approx(min(means)), pytest.approx(max(means)))
    (one,) = scored_entries(root)[0]
    grouped = [[run for run in one.prompts if run.prompt == prompt] for prompt in PROMPTS]
    pairs = SeedPairs([[[item.record for item in run.records] for run in some] for some in [one.runs, *grouped]])
    assert len({*pairs.groups}) == 1 and pairs.groups[0] >= 0  # so prompts are compared seed by seed


def test_prompts_that_were_not_measured_as_the_row_are_left_out_and_told(runs, tmp_path):
    root, clear = tmp_path / "board", ENCODERS["clear"][:2]
    before = rows_by_id(board(root, runs, ("clear",)))["clear"]
    assert before.prompts.n == 3 and before.rank.prompts is None and before.rank.chance is None  # of one row alone
    prompted(tmp_path / "less", Prompted(*clear), ["a dog: "], tasks="STS12", resamples=50)
    add(root, [tmp_path / "less"], "less", Prompts(prompt_of="clear"))
    made = gather(root)
    assert tab(made).lead == "STS-B"  # which that of the second folder lacks
    row = rows_by_id(made)["clear"]
    assert row.prompts == before.prompts and any(mark.startswith("1 prompt left out: no STS-B") for mark in row.marks)


def test_a_prompt_that_has_no_score_in_many_resamples_is_left_out(both, monkeypatch):
    """It would take these resamples from the test of all."""
    root, before = both
    merged = prompts_module.merged

    def poorer(variant, lines):
        made = merged(variant, lines)
        for line, _ in made if variant.runs[0].prompt == PROMPTS[0] and variant.id == "clear" else ():
            line.draws = {column: np.where(np.arange(len(draws)) % 10 == 0, np.nan, draws)
                          for column, draws in line.draws.items()}
        return made

    monkeypatch.setattr(prompts_module, "merged", poorer)
    row = rows_by_id(gather(root))["clear"]
    assert (rows_by_id(before)["clear"].prompts.n, row.prompts.n) == (3, 2)
    assert any(mark.startswith("1 prompt left out") for mark in row.marks)
