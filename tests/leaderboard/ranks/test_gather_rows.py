"""What a row of the board is flagged as, refused for or not ranked for, and what stands in its place."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from board_runs import Letters, copied, read_once, runs  # noqa: F401  fixtures
from gathered import LETTERS, board, own, tab  # noqa: F401  board is a fixture
from run_edits import edit, rows_of, write_rows
from toy_encoder import Toy

from stsbench.encoders.base import EncoderSpec
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import RESAMPLES
from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard.ranks import gather as gather_module
from stsbench.leaderboard.ranks.gather import gather, rounded


def test_scores_are_one_where_only_the_order_of_a_sum_differs():
    seeds = [0.1, 0.2, 0.3]
    assert len({*rounded([sum(seeds) / 3, sum(seeds[::-1]) / 3, 1e8 * sum(seeds) / 3])}) == 2
    assert len({*rounded([3.0e-9, 3.4e-9])}) == 2  # two errors of a metric with nine digits


@pytest.mark.parametrize(
    ("recipe", "flagged"), [("simcse/unsup-changed", True), ("simcse/unsup-swept", True), ("simcse/unsup", False)]
)
@pytest.mark.parametrize("saying", [0, -1])  # one of its records is enough, and which was measured first does not matter
def test_a_row_trained_by_a_changed_recipe_is_flagged(board, copied, recipe, flagged, saying):
    run = copied("letters")
    edit(run, lambda row: row.record["provenance"].update(recipe=recipe), rows_of(run)[saying].name)
    (row,) = tab(board(trained=([run], LETTERS)), "sts-spearman-all-sample").measured
    assert ("changed-recipe" in row.flags) == flagged


def test_a_row_says_which_prompts_its_texts_were_read_behind(board, copied):
    run = copied("letters")
    edit(run, lambda row: row.record["provenance"].update(prompts={"text": "query: "}), rows_of(run)[0].name)
    (row,) = tab(board(letters=([run], LETTERS)), "sts-spearman-all-sample").measured
    assert [mark for mark in row.marks if "read behind" in mark] == ['texts are read behind "query: " (STS12)']


def test_what_was_fitted_behind_weights_of_a_changed_recipe_is_flagged(board, tmp_path, monkeypatch):
    """Its records name no recipe: they are of a fit, and the weights are the training's."""
    runs = []
    for normalize, change in ((False, lambda vectors: vectors), (True, lambda vectors: vectors - [30, 500, 0])):
        spec = EncoderSpec(name="toy", kind="callable", weights="1" * 64, normalize=normalize)
        runs.append(own(tmp_path, monkeypatch, f"toy-{normalize}", Toy(spec, change), tasks=["STS-B"]))
    rows = rows_of(runs[0])
    for row in rows:
        row.record["provenance"]["recipe"] = "simcse/unsup-changed"
    write_rows(runs[0], rows)
    made = board(trained=([runs[0]], LETTERS), fitted=([runs[1]], LETTERS), letters=(["letters"], LETTERS))
    rows = {row.id: "changed-recipe" in row.flags for row in tab(made, "sts-spearman-all-sample").measured}
    assert rows == {"trained": True, "fitted": True, "letters": False}


def test_an_encoder_under_two_names_is_refused_by_the_build_too(board, tmp_path):
    """`add` refuses it; whoever copies folders, or two contributors at once, do not ask `add`."""
    board(letters=(["letters"], LETTERS))
    measured = tmp_path / "board/measured"
    shutil.copytree(measured / "letters", measured / "mine")
    with pytest.raises(StsbenchError, match=r"mine.*the entry letters holds this encoder already"):
        gather(tmp_path / "board")


def test_a_link_in_the_place_of_a_run_is_refused(board, tmp_path):
    board(letters=(["letters"], LETTERS))
    measured = tmp_path / "board/measured"
    (measured / "mine").mkdir()
    shutil.copy(measured / "letters/entry.yaml", measured / "mine")
    run = next(path for path in (measured / "letters").iterdir() if path.is_dir())
    (measured / "mine" / run.name).symlink_to(run)
    with pytest.raises(StsbenchError, match=rf"mine/{run.name} is a link"):
        gather(tmp_path / "board")
    (measured / "mine" / run.name).unlink()
    (measured / "mine" / run.name).mkdir()
    (measured / "mine" / run.name / RUN).symlink_to(run / RUN)
    with pytest.raises(StsbenchError, match=rf"mine/{run.name}/{RUN} is a link"):
        gather(tmp_path / "board")


def test_a_width_that_differs_by_data_set_is_none(board, copied):
    """tf-idf is as wide as the words of each set: the first set's width said nothing of the others."""
    run = copied("words")
    edit(run, lambda row: row.record["encoder"].update(dimension=row.record["encoder"]["dimension"] + 1))
    made = board(letters=(["letters"], LETTERS), words=([run], LETTERS))
    assert {id: entry.runs[0]["width"] for id, entry in made.entries.items()} == {"letters": 27, "words": None}


COST = {"probe": 1, "texts": 8, "seconds": [0.1] * 5, "sentences_per_second": 80.0, "latency_seconds": 0.1,
        "memory_bytes": 250_000_000, "parameters": 7, "bytes_a_vector": 108.0, "machine": {"cpu": "Some CPU", "cores": 2},
        "device": "cpu", "threads": 2}


def test_costs_are_those_of_the_records(board, copied):
    run = copied("letters")
    edit(run, lambda row: row.record["provenance"].update(cost=COST), rows_of(run)[-1].name)
    made = board(letters=([run], LETTERS), words=(["words"], LETTERS))
    assert made.entries["letters"].runs[0]["costs"] == {
        "bytes_a_vector": 108.0, "parameters": 7, "sentences_per_second": 80.0, "memory_mb": 250.0,
        "machine": "Some CPU, 2 cores", "run_on": "cpu, 2 threads",
    }
    assert made.entries["words"].runs[0]["costs"] == {"bytes_a_vector": None}  # sparse: not known without a measurement


def test_a_row_that_has_no_score_in_many_resamples_is_not_ranked(board, monkeypatch):
    """It would take these resamples from the test of all rows."""
    lines = gather_module.scored_entries

    def poorer(*where):
        entries, scored = lines(*where)
        for run, each in scored.items():
            for line in each if run.parent.name == "poor" else []:
                some = np.arange(RESAMPLES) % 10 == 0
                line.draws = {column: np.where(some, np.nan, draws) for column, draws in line.draws.items()}
        return entries, scored

    monkeypatch.setattr(gather_module, "scored_entries", poorer)
    made = tab(board(letters=(["letters"], LETTERS), poor=(["noisy"], LETTERS)), "sts-spearman-all-sample")
    reasons = {row.id: row.unranked for row in made.measured}
    assert reasons == {"letters": "", "poor": "not ranked: too many resamples have no score"}


def test_scores_that_differ_by_rounding_share_a_place(board, monkeypatch):
    lines = gather_module.scored_entries

    def equal(*where):
        entries, scored = lines(*where)
        for value, each in zip((0.1 + 0.2, 0.3), scored.values(), strict=True):
            for line in each:
                line.cells = {column: replace(cell, value=value) for column, cell in line.cells.items()}
        return entries, scored

    monkeypatch.setattr(gather_module, "scored_entries", equal)
    made = board(letters=(["letters"], LETTERS), noisy=(["noisy"], LETTERS))
    assert [row.rank.position for row in tab(made, "sts-spearman-all-sample").measured] == [1, 1]


def test_a_score_whose_record_has_no_interval_gets_the_boards(board, tmp_path, monkeypatch):
    """Records hold none of the mean squared error; a bare dot looks like certainty."""
    run = own(tmp_path, monkeypatch, "regressed", Letters(1, 1), protocols=["regression"], tasks=["STS-B"], resamples=None)
    (stored,) = [row for _, record in load_records(run) for row in record.scores if row.metric == "mse"]
    (row,) = tab(board(one=([run], LETTERS)), "regression-mse-sample").measured
    cell = row.cells["STS-B"]
    assert stored.low is None and cell.value == stored.value and cell.low < cell.value < cell.high
