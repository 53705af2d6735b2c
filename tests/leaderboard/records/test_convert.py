"""A board of older records is converted in place: the same scores, fewer bytes, and no harm in an interruption."""

import json
import shutil

import numpy as np
import pytest
from board_runs import own_runs, read_once, runs  # noqa: F401

from stsbench.errors import StsbenchError
from stsbench.evaluation.load import kinds
from stsbench.evaluation.records import load_records
from stsbench.evaluation.rescore import observations_of, score_again
from stsbench.leaderboard.records import convert as converting
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.convert import convert
from stsbench.leaderboard.records.entries import Entry, load_entries, run_name

ENTRY = "method: {name}\nbackbone: none\nsetting: unsup\n"


def old_board(root, **runs):
    """Entries as they were kept before: a run folder's files."""
    for name, folder in runs.items():
        _, record = load_records(folder)[0]
        shutil.copytree(folder, root / "measured" / name / run_name(record))
        (root / "measured" / name / "entry.yaml").write_text(ENTRY.format(name=name))
    return root


def files(board):
    return {path.relative_to(board).as_posix(): path.read_bytes() for path in board.rglob("*") if path.is_file()}


def test_records_are_the_same_but_for_their_observations(runs, tmp_path):
    board = old_board(tmp_path, letters=runs["letters"], words=runs["words"])
    before = {path: path.read_text() for path in board.glob("measured/*/*/*.json")}
    load_entries(board / "measured")  # boards of older records are read as they are
    done = convert(board)
    assert done.records == len(before) and done.after < done.before and done.moved <= 5e-7
    assert not list(board.rglob("*.npz"))
    for path, text in before.items():
        now, then = json.loads(path.read_text()), json.loads(text)
        assert now.pop("observations")["file"] == f"observations/{path.stem}.parquet"
        assert then.pop("observations")["file"] == f"observations/{path.stem}.npz"
        assert now == then
    load_entries(board / "measured")


def test_arrays_are_the_same_but_for_rounding(runs, tmp_path):
    board = old_board(tmp_path, letters=runs["letters"])
    convert(board)
    [folder] = (board / "measured" / "letters").glob("*/")
    for path, record in load_records(runs["letters"]):
        was, now = observations_of(path.parent, record), observations_of(folder, load_records_by(folder, path.name))
        assert now.names == was.names and now.arrays.keys() == was.arrays.keys()
        for key, array in was.arrays.items():
            assert now.arrays[key].dtype == array.dtype
            tolerance = 1e-6 if kinds()[record.protocol.name].arrays[key].rounded else 0
            np.testing.assert_allclose(now.arrays[key], array, rtol=tolerance, atol=0)
    assert [row.value for row in score_again(folder).rows] == pytest.approx(
        [row.value for row in score_again(runs["letters"]).rows], abs=1e-6)


def load_records_by(folder, name):
    return next(record for path, record in load_records(folder) if path.name == name)


def test_what_the_data_decide_is_kept_once(runs, tmp_path):
    board = old_board(tmp_path, letters=runs["letters"], noisy=runs["noisy"])
    convert(board)
    arrays = [kinds()[record.protocol.name].arrays for _, record in load_records(runs["letters"])]
    shared = [any(array.shared for array in each.values()) for each in arrays]
    assert len(list((board / "observations").iterdir())) == sum(shared)


def test_adding_and_converting_give_the_same_bytes(runs, tmp_path):
    convert(old_board(tmp_path / "old", letters=runs["letters"]))
    (tmp_path / "new").mkdir()
    add(tmp_path / "new", [runs["letters"]], "letters", Entry(method="letters", backbone="none", setting="unsup"))
    assert files(tmp_path / "old") == files(tmp_path / "new")


def test_a_second_call_goes_on_where_the_first_was_interrupted(runs, tmp_path, monkeypatch):
    board = old_board(tmp_path / "board", letters=runs["letters"])
    convert(old_board(tmp_path / "other", letters=runs["letters"]))
    calls, write = [], converting.write_observations

    def interrupted(folder, made):
        calls.append(made)
        if len(calls) == 4:
            raise KeyboardInterrupt
        write(folder, made)

    monkeypatch.setattr(converting, "write_observations", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(board)
    load_entries(board / "measured")
    monkeypatch.setattr(converting, "write_observations", write)
    assert convert(board).records == len(load_records(runs["letters"])) - 3
    assert files(board) == files(tmp_path / "other")
    assert convert(board).records == 0


def test_scores_that_rounding_would_move_keep_their_arrays(runs, tmp_path, monkeypatch):
    board = old_board(tmp_path, letters=runs["letters"])
    monkeypatch.setattr("stsbench.leaderboard.records.board_form.MOVED", -1.0)
    assert convert(board).moved == 0
    [folder] = (board / "measured" / "letters").glob("*/")
    for path, record in load_records(runs["letters"]):
        now = observations_of(folder, load_records_by(folder, path.name))
        for key, array in observations_of(path.parent, record).arrays.items():
            np.testing.assert_array_equal(now.arrays[key], array)


def test_a_missing_or_damaged_shared_file_is_named(runs, tmp_path):
    board = old_board(tmp_path, letters=runs["letters"])
    convert(board)
    [folder] = (board / "measured" / "letters").glob("*/")
    path, record = load_records(folder)[0]
    shared = board / "observations" / record.observations.shared.file.rpartition("/")[2]
    shared.rename(tmp_path / "elsewhere")
    with pytest.raises(StsbenchError, match=rf"observations/{shared.name} is missing"):
        load_entries(board / "measured")
    stored = json.loads(path.read_text())
    stored["observations"]["shared"]["file"] = "../../../../elsewhere.parquet"
    path.write_text(json.dumps(stored))
    with pytest.raises(StsbenchError, match=r"observations\.shared\.file"):
        load_entries(board / "measured")
