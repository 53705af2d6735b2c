"""What builds keep: the same lines as scoring, scored again when anything changes, and never taken from a damaged file."""

import os
import pickle
import shutil

import numpy as np
import pytest
from board_runs import LETTERS, entry, load_entries, read_once, runs  # noqa: F401 - fixtures
from clirun import refuses
from run_edits import edit

from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard.ranks import results, scored
from stsbench.leaderboard.ranks.lines import lines_of_runs
from stsbench.leaderboard.ranks.scored import scored_entries
from stsbench.leaderboard.records.add import add


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    home = tmp_path_factory.mktemp("made") / "board"
    add(home, [runs["letters"]], "letters", LETTERS)
    add(home, [runs["noisy"], runs["noisy-2"]], "noisy", entry("noisy"))
    return home


@pytest.fixture
def board(made, tmp_path):
    return shutil.copytree(made, tmp_path / "board")


@pytest.fixture
def counted(monkeypatch):
    """The run folders that were scored, call by call."""
    calls, score = [], scored._score
    monkeypatch.setattr(scored, "_score", lambda folders: (calls.append(list(folders)), score(folders)))
    return calls


def assert_same(some, others):
    assert [line.setting for line in some] == [line.setting for line in others]
    for one, other in zip(some, others, strict=True):
        assert (one.cells, one.digests, one.cut, one.subsets) == (other.cells, other.digests, other.cut, other.subsets)
        assert (one.sample, one.known, one.protocol.settings) == (other.sample, other.known, other.protocol.settings)
        assert one.draws.keys() == other.draws.keys()
        for column, drawn in one.draws.items():
            np.testing.assert_allclose(drawn, other.draws[column], rtol=0, atol=1e-9)


def test_what_is_kept_is_what_scoring_gives(board, counted, monkeypatch):
    results.clear()
    entries, first = scored_entries(board)
    again, kept = scored_entries(board)
    assert [len(call) for call in counted] == [3]
    assert [entry.id for entry in entries] == [entry.id for entry in again] == ["letters", "noisy"]
    alone = {run.folder: lines_of_runs([run])[0] for entry in load_entries(board / "measured") for run in entry.runs}
    assert first.keys() == kept.keys() == alone.keys()
    together = lines_of_runs([run for entry in entries for run in entry.runs])
    for (path, lines), also in zip(alone.items(), together, strict=True):
        for others in (first[path], kept[path], also):
            assert_same(lines, others)
    # Of runs that are kept no observation is read: not even to see that an entry's runs are several seeds.
    monkeypatch.setattr("stsbench.comparison.comparability.read_observations", lambda run, _: pytest.fail(f"{run} is read"))
    assert scored_entries(board)[1].keys() == alone.keys()
    old, new = sorted(results.folder().glob("*/*"))[:2]
    os.utime(old, (0, 0))
    results.prune()
    assert not old.exists() and new.exists()


def test_batches_are_scored_as_one_is_by_processes_of_one_thread_each(board, monkeypatch):
    _, one = scored_entries(board)
    results.clear()
    assert scored.across(os.getenv, ["OMP_NUM_THREADS", "RAYON_NUM_THREADS", "HOME"], 2) == ["1", "1", os.getenv("HOME")]
    across = []
    monkeypatch.setattr(scored, "FEW", 2)
    monkeypatch.setattr(scored, "cores", lambda: 2)
    monkeypatch.setattr(scored, "across", lambda function, items, workers: (
        across.append((len(items), workers)), [function(item) for item in pickle.loads(pickle.dumps(items))])[1])
    _, several = scored_entries(board)
    assert across == [(2, 2)]
    for path, lines in one.items():
        assert_same(lines, several[path])


def test_an_edited_score_or_observation_is_refused_although_the_run_was_scored(board, counted, monkeypatch):
    results.clear()
    (file,) = (board / "measured/letters").glob(f"*/{RUN}")
    content = file.read_bytes()
    edit(file, lambda row: row.record["scores"][0].update(value=row.record["scores"][0]["value"] + 0.01))
    refuses(StsbenchError, "was edited: its scores", scored_entries, board)
    file.write_bytes(content)
    counted.clear()
    scored_entries(board)
    assert counted == [[file.parent]]  # the others were scored, and kept
    edit(file, lambda row: next(iter(row.observed.arrays.values())).__setitem__(0, 0))
    words = r"run\.parquet: the observations of .* \(sha256 differs\): damaged or replaced"
    refuses(StsbenchError, words, scored_entries, board)
    file.write_bytes(content)
    scored_entries(board)
    shared = next(record.observations.shared.file for _, record in load_records(file) if record.observations.shared)
    for path in (file, file.parent / shared):
        content = path.read_bytes()
        path.write_bytes(content[:8] + b"damaged!" + content[16:])
        words = f"{path.name} (is not a valid (run file|file of observations)|cannot be read): "
        refuses(StsbenchError, words, scored_entries, board)
        path.write_bytes(content)
    scored_entries(board)
    counted.clear()
    edit(file, lambda row: row.record["provenance"].update(seconds=1.5))
    scored_entries(board)
    monkeypatch.setattr(results, "scorer", lambda: "another scorer")
    scored_entries(board)
    assert counted[0] == [file.parent] and len(counted[1]) == 3


def test_a_damaged_file_of_the_cache_is_made_again(board, counted):
    shutil.rmtree(board / "measured/noisy")
    _, before = scored_entries(board)
    before = {path: [line.cells for line in lines] for path, lines in before.items()}
    for damage in (lambda content: b"", lambda content: content[:-3] + b"xyz"):
        counted.clear()
        for path in results.folder().glob("*/*"):
            content = path.read_bytes()
            path.unlink()  # what is mapped stays as it was
            path.write_bytes(damage(content))
        _, after = scored_entries(board)
        assert len(counted[0]) == 1
        assert {path: [line.cells for line in lines] for path, lines in after.items()} == before
    scored_entries(board)
    assert len(counted) == 1
