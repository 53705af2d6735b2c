"""Records: what is written is read, a name follows what identifies, and what a record says of its encoder's cost. Run
folders: runs that end at one moment under one name are all kept, and none is half there.

Records that are wrong are refused by tests/refusals/board.yaml."""

import errno
import json
import multiprocessing
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_edits import edit_all
from sts_runs import sts_run

from stsbench.comparison.comparability import bytes_a_vector, machine_and_use, recorded_cost
from stsbench.errors import StsbenchError
from stsbench.evaluation import result as result_file
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import (
    Cost,
    DataIdentity,
    EncoderIdentity,
    Observed,
    ProtocolIdentity,
    Record,
    ScoreRow,
    json_schema,
    now,
    parsed,
    record_name,
)
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import RUN, load_records, read_observations, write_run

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "reference" / "record.schema.json"
SHA = "0" * 64
SEEN = Observations({"similarity": np.array([0.5, 0.25]), "gold": np.array([1.0, 2.0])}, {"subsets": ["STS-B"]})


def make(**changes):
    parts = {
        "created": datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC),
        "encoder": EncoderIdentity(spec={"name": "m", "options": {}}, fingerprint=SHA, dimension=3),
        "protocol": ProtocolIdentity(name="sts", label="sts", version=1, settings={"metrics": ["spearman"]}),
        "data": DataIdentity(
            id="stsb/test", task="STS-B", text_version="senteval", digest=SHA, n=2, subsets={"STS-B": 2}, known=True,
            origin="user cache",
        ),
        "observations": Observed(sha256=observations_digest(SEEN)),
        "counts": {"zero_vectors": 0, "truncated": 0},
        "scores": [ScoreRow(protocol="sts", task="STS-B", aggregation="all", metric="spearman", value=1.5, n=2)],
        "provenance": {"git": None, "seconds": 0.25, "command": ["stsbench", "eval"]},
    }
    return Record(**{**parts, **changes})


def written(folder, *records):
    """A run of these records, each with SEEN beside it."""
    write_run(folder / RUN, [(record, SEEN) for record in records])
    return folder


numbers = st.floats(-100, 100, allow_nan=False)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(max_size=9), numbers, st.none() | numbers, st.integers(1, 10**6)), max_size=4), st.text())
def test_round_trip(rows, name):
    scores = [ScoreRow(protocol="sts", task=t, metric="pearson", value=v, low=low, n=n) for t, v, low, n in rows]
    record = make(scores=scores, encoder=EncoderIdentity(spec={"name": name}, fingerprint=SHA, dimension=1))
    assert Record.model_validate_json(record.model_dump_json(indent=2)) == record


def test_written_and_read(tmp_path):
    records = [make(created=now()), make(data=make().data.model_copy(update={"id": "sts12/test"}))]
    run = written(tmp_path / "new" / "run", *records)
    assert load_records(run) == [(run / RUN / record_name(record), record) for record in records]
    assert [path.name.rpartition(".")[0] for path, _ in load_records(run)] == ["sts.stsb-test", "sts.sts12-test"]
    assert load_records(run / RUN) == load_records(str(run)) == load_records(run)
    for record in records:
        back = read_observations(run, record)
        assert observations_digest(back) == observations_digest(SEEN) and back.names == SEEN.names
    assert [path.name for path in run.iterdir()] == [RUN]


def test_the_name_follows_everything_that_identifies_a_record():
    base = make()
    changed = [
        base.encoder.model_copy(update={"fingerprint": "1" * 64}),
        base.protocol.model_copy(update={"settings": {"metrics": ["pearson"]}}),
        base.protocol.model_copy(update={"version": 2}),
        base.data.model_copy(update={"digest": "1" * 64}),
    ]
    kinds = {EncoderIdentity: "encoder", ProtocolIdentity: "protocol", DataIdentity: "data"}
    names = [record_name(make(**{kinds[type(part)]: part})) for part in changed]
    assert len({record_name(base), *names}) == 5


def test_data_that_mteb_loads_by_itself_have_no_items():
    data = make().data.model_copy(update={"text_version": "own", "n": 0})
    assert make(data=DataIdentity(**data.model_dump())).data.n == 0


def test_the_published_schema_is_the_code_s():
    """Written by: json.dumps(stsbench.evaluation.records.json_schema(), indent=1) and a line end."""
    assert SCHEMA.read_text("utf-8") == json.dumps(json_schema(), indent=1) + "\n"


PROCESSES, ROUNDS = 3, 2


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

    for how, error, said in ((interrupted, KeyboardInterrupt, ""), (full, StsbenchError, "cannot write .*: No space left")):
        monkeypatch.setattr(result_file, failing, how)
        with pytest.raises(error, match=said):
            result(tmp_path / "run").write()
        assert not list(tmp_path.iterdir())


def test_a_score_that_became_nan_is_not_written(tmp_path):
    row = ScoreRow(protocol="sts", task="STS-B", metric="spearman", value=1.5, n=2)
    with pytest.raises(ValueError, match="finite"):
        row.value = float("nan")
    record = make(scores=[row.model_copy(update={"value": float("nan")})])  # what no validation sees
    with pytest.raises(StsbenchError, match=r"not written, since sts\.stsb\S* is not a valid record: scores\.0\.value"):
        write_run(tmp_path / "run" / "run.parquet", [(record, SEEN)])
    assert not list(tmp_path.iterdir())


COST = {"probe": 1, "texts": 64, "seconds": [0.1] * 5, "sentences_per_second": 640.0, "latency_seconds": 0.004,
        "bytes_a_vector": 12.0, "machine": {"cpu": "Some CPU", "cores": 8}, "device": "cpu", "threads": 4}


def test_costs_are_read_off_the_record(tmp_path):
    [(_, record)] = load_records(sts_run(tmp_path / "run", 0.2, ["STS-B"]))
    assert recorded_cost(record) is None
    [(_, record)] = load_records(edit_all(tmp_path / "run", lambda row: row.record["provenance"].update(cost=COST)))
    assert recorded_cost(record) == Cost.model_validate(COST)
    stored = json.loads(record.model_dump_json())
    assert parsed(json.dumps(stored)).provenance["cost"] == COST
    for key, value in (("seconds", ["1"]), ("sentences_per_second", 0), ("memory_bytes", 1.5), ("machine", "mine")):
        edited = {**stored, "provenance": {**stored["provenance"], "cost": {**COST, key: value}}}
        with pytest.raises(ValueError, match=f"provenance.cost.{key}"):
            parsed(json.dumps(edited))


@pytest.mark.parametrize(("changed", "words"), [
    ({}, ("Some CPU, 8 cores", "cpu, 4 threads")), ({"threads": None}, ("Some CPU, 8 cores", None)),
    ({"where": "processes", "processes": 2, "probe": 3},
     ("Some CPU, 8 cores, 2 processes, probe texts 3", "cpu, 4 threads")),
    ({"where": "server", "device": "server", "threads": None}, ("Some CPU, 8 cores, a server", None)),
])
def test_a_machine_and_its_use_in_words(changed, words):
    assert machine_and_use(Cost.model_validate({**COST, **changed})) == words


@pytest.mark.parametrize(("spec", "expected"), [
    ({}, 400), ({"options": {"precision": "int8"}}, 100), ({"options": {"precision": "ubinary"}}, 13),
    ({"kind": "vectors", "options": {"dtype": "float16"}}, 200), ({"kind": "lexical"}, None),
    ({"kind": "callable"}, None), ({"options": {"precision": "int3"}}, None),
])
def test_bytes_follow_from_width_and_precision(tmp_path, spec, expected):
    [(_, record)] = load_records(sts_run(tmp_path / "run", 0.2, ["STS-B"]))
    encoder = record.encoder.model_copy(update={"dimension": 100, "spec": {"name": "x", **spec}})
    assert bytes_a_vector(record.model_copy(update={"encoder": encoder})) == expected
