"""The form in which a board keeps a run: the same scores in fewer bytes, what the data decide once for all encoders."""

import shutil

import numpy as np
import pytest
from board_runs import read_once, runs  # noqa: F401  fixtures
from checked_entries import load_entries

from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.records import record_name
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.run_file import RUN, load_records, read_observations, read_own_observations
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry


@pytest.fixture
def board(runs, tmp_path):
    """`board(name)`: a board to which that run was added."""

    def added(name):
        add(tmp_path / "board", [runs[name]], name, Entry(method=name, backbone="none", setting="unsup"))
        return tmp_path / "board"

    return added


def run_of(board, name):
    (file,) = (board / "measured" / name).glob(f"*/{RUN}")
    return file.parent


def pairs(run, folder):
    """(record of a run, record of a board's run) of one name."""
    kept = {record_name(record): record for _, record in load_records(folder)}
    return [(record, kept[record_name(record)]) for _, record in load_records(run)]


def test_records_are_the_same_and_arrays_but_for_rounding(runs, board):
    folder = run_of(board("letters"), "letters")
    kept_as = pairs(runs["letters"], folder)
    assert [kept for _, kept in kept_as] == [record for _, record in load_records(folder)]
    assert any(kept.observations.shared for _, kept in kept_as)
    assert (folder / RUN).stat().st_size < 0.8 * (runs["letters"] / RUN).stat().st_size
    for record, kept in kept_as:
        assert kept.model_dump(exclude={"observations"}) == record.model_dump(exclude={"observations"})
        assert record.observations.shared is None
        was, now = read_observations(runs["letters"], record), read_observations(folder, kept)
        assert now.names == was.names and now.arrays.keys() == was.arrays.keys()
        for key, array in was.arrays.items():
            assert now.arrays[key].dtype == array.dtype
            tolerance = 1e-6 if kinds()[record.protocol.name].arrays[key].rounded else 0
            np.testing.assert_allclose(now.arrays[key], array, rtol=tolerance, atol=0)
    assert [row.value for row in score_again(folder).rows] == pytest.approx(
        [row.value for row in score_again(runs["letters"]).rows], abs=1e-6)


def test_what_the_data_decide_is_kept_once(runs, board):
    folder = run_of(board("letters"), "letters")
    before = {path.name: path.read_bytes() for path in (board("letters") / "observations").iterdir()}
    board("noisy")
    after = {path.name: path.read_bytes() for path in (folder.parents[2] / "observations").iterdir()}
    assert after == before
    shared = 0
    for record, kept in pairs(runs["letters"], folder):
        kind = kinds()[record.protocol.name]
        whole = read_observations(folder, kept).arrays
        decided = {key for key, array in kind.arrays.items() if array.shared and (key in whole or not array.optional)}
        stored = read_own_observations(folder, kept)
        assert not decided & stored.arrays.keys() and decided <= whole.keys()
        shared += bool(decided)
    assert len(after) == shared


def test_scores_that_rounding_would_move_keep_their_arrays(runs, board, monkeypatch):
    monkeypatch.setattr("stsbench.leaderboard.records.add.MOVED", -1.0)
    folder = run_of(board("letters"), "letters")
    for record, kept in pairs(runs["letters"], folder):
        now = read_observations(folder, kept)
        for key, array in read_observations(runs["letters"], record).arrays.items():
            np.testing.assert_array_equal(now.arrays[key], array)


def test_a_damaged_shared_file_is_named(board):
    made = board("letters")
    folder = run_of(made, "letters")
    record = next(record for _, record in load_records(folder) if record.observations.shared)
    shared = made / "observations" / record.observations.shared.file.rpartition("/")[2]
    content = shared.read_bytes()
    other = next(path for path in (made / "observations").iterdir() if path != shared)
    shared.write_bytes(other.read_bytes())
    with pytest.raises(StsbenchError, match=rf"observations/{shared.name} does not hold what its record names"):
        load_entries(made / "measured")
    shared.write_bytes(content[: len(content) // 2])
    with pytest.raises(StsbenchError, match=rf"observations/{shared.name} is not a valid"):
        load_entries(made / "measured")


def test_another_content_under_the_name_of_a_shared_file_is_not_overwritten(runs, board):
    made = board("letters")
    first, second = sorted((made / "observations").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    with pytest.raises(StsbenchError, match=rf"{first.name} does not hold what its record names"):
        board("noisy")
    shutil.rmtree(made / "measured")  # now it belongs to no record
    with pytest.raises(StsbenchError, match=rf"{first.name} does not hold .*nothing is overwritten: remove that file"):
        board("noisy")
    assert first.read_bytes() == second.read_bytes() and not list(made.rglob(RUN))
