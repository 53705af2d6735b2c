"""Run folders: runs that end at one moment under one name are all kept, and none is half there."""

import errno
import multiprocessing
import os
from pathlib import Path

import pytest
from test_records import SEEN, SHA, make

from stsbench.errors import StsbenchError
from stsbench.evaluation import result as result_file
from stsbench.evaluation.records import EncoderIdentity, ScoreRow
from stsbench.evaluation.result import Result, claim
from stsbench.evaluation.run_file import load_records, write_run

PROCESSES, ROUNDS = 8, 3


def result(folder, number=0):
    record = make(encoder=EncoderIdentity(spec={"name": str(number)}, fingerprint=SHA, dimension=3))
    return Result(Path(folder), [record], observed=[SEEN])


def save_at_once(folder, process, barrier):
    for round in range(ROUNDS):
        mine = result(folder, process * ROUNDS + round)
        barrier.wait(30)
        mine.write()


def test_runs_that_end_at_one_moment_are_all_kept(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(PROCESSES)
    racing = [context.Process(target=save_at_once, args=(tmp_path / "run", each, barrier)) for each in range(PROCESSES)]
    for each in racing:
        each.start()
    for each in racing:
        each.join(60)
    assert [each.exitcode for each in racing] == [0] * PROCESSES
    folders = sorted(tmp_path.iterdir(), key=lambda path: (len(path.name), path.name))
    assert [path.name for path in folders] == ["run", *(f"run-{n}" for n in range(2, PROCESSES * ROUNDS + 1))]
    kept = [record.encoder.spec["name"] for folder in folders for _, record in load_records(folder)]
    assert sorted(map(int, kept)) == list(range(PROCESSES * ROUNDS))
    assert all({path.name for path in folder.iterdir()} == {"run.parquet", "scores.csv"} for folder in folders)


def test_a_folder_that_another_run_takes_while_this_one_is_written_is_left_alone(tmp_path, monkeypatch):
    def overtaken(building, folder):
        monkeypatch.setattr(result_file, "claim", claim)
        result(tmp_path / "run", 1).write()
        return claim(building, folder)

    monkeypatch.setattr(result_file, "claim", overtaken)
    second = result(tmp_path / "run", 2)
    second.write()
    names = {path.name: load_records(path)[0][1].encoder.spec["name"] for path in tmp_path.iterdir()}
    assert names == {"run": "1", "run-2": "2"} and second.folder == tmp_path / "run-2"


def test_an_empty_folder_is_taken_and_a_file_or_a_dangling_link_is_not(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name, want in (("run", "run"), ("file", "file-2"), ("link", "link-2")):
        saved = result(tmp_path / name)
        saved.write()
        assert saved.folder == tmp_path / want and load_records(saved.folder)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("failing", ["write_run", "claim"])
def test_an_interrupted_or_failed_save_leaves_nothing(tmp_path, monkeypatch, failing):
    def interrupted(*_):
        raise KeyboardInterrupt

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for how, error in ((interrupted, KeyboardInterrupt), (full, StsbenchError)):
        monkeypatch.setattr(result_file, failing, how)
        with pytest.raises(error):
            result(tmp_path / "run").write()
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_became_nan_or_infinite_is_not_written(tmp_path, value):
    row = ScoreRow(protocol="sts", task="STS-B", metric="spearman", value=1.5, n=2)
    with pytest.raises(ValueError, match="finite"):
        row.value = value
    record = make(scores=[row.model_copy(update={"value": value})])  # what no validation sees
    with pytest.raises(StsbenchError, match=r"not written, since sts\.stsb\S* is not a valid record: scores\.0\.value"):
        write_run(tmp_path / "run" / "run.parquet", [(record, SEEN)])
    assert not list(tmp_path.iterdir())
