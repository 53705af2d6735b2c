"""Records: what is written is read, what is wrong is named, scores come back identical."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_edits import edit, rows_of, write_rows

from stsbench.errors import StsbenchError
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import (
    DataIdentity,
    EncoderIdentity,
    Observed,
    ProtocolIdentity,
    Record,
    ScoreRow,
    json_schema,
    now,
    record_name,
)
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


def cut(record):
    del record["data"]["digest"]


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (cut, "data.digest: Field required"),
        (lambda r: r["data"].update(extra=1), "data.extra: "),
        (lambda r: r["scores"][0].update(value=float("nan")), "scores.0.value: "),
        (lambda r: r["scores"][0].update(n=0), "scores.0.n: "),
        (lambda r: r["counts"].update(truncated=-5), "counts.truncated: "),
        (lambda r: r["data"].update(n=-1), "data.n: "),
        (lambda r: r["data"].update(n=0), "data: Value error, n: data without items"),
        (lambda r: r["observations"].update(sha256="abc"), "observations.sha256: "),
        *((lambda r, file=file: r["observations"].update(shared={"file": file, "sha256": SHA}), "observations.shared.file: ")
          for file in ("../other/x.parquet", "/etc/x.parquet", "../../../observations/../x.parquet", "x.parquet")),
    ],
)
def test_what_is_wrong_is_named(tmp_path, damage, field):
    path = edit(written(tmp_path, make()), lambda row: damage(row.record))
    with pytest.raises(StsbenchError) as caught:
        load_records(tmp_path)
    assert str(caught.value).startswith(f"{path} is not a valid record: {field}")


def test_data_that_mteb_loads_by_itself_have_no_items():
    data = make().data.model_copy(update={"text_version": "own", "n": 0})
    assert make(data=DataIdentity(**data.model_dump())).data.n == 0


def test_a_renamed_record_is_refused(tmp_path):
    path = edit(written(tmp_path, make()), lambda row: setattr(row, "name", "sts.stsb-test.0123456789ab"))
    with pytest.raises(StsbenchError, match=f"{path} was edited: its name does not fit what it says was measured"):
        load_records(tmp_path)


def test_two_records_of_one_name_are_refused(tmp_path):
    rows = rows_of(written(tmp_path, make()))
    write_rows(tmp_path, rows * 2)
    with pytest.raises(StsbenchError, match=r"run\.parquet holds two records of one name"):
        load_records(tmp_path)
    write_rows(tmp_path, [])
    with pytest.raises(StsbenchError, match=r"run\.parquet holds no records"):
        load_records(tmp_path)


@pytest.mark.parametrize(("column", "text", "problem"), [
    ("data", lambda text: text.replace('"n": 2', '"n": 3, "n": 2'), "data: the key 'n' stands in it twice"),
    ("counts", lambda text: text + ', "counts": {}', "counts: Extra data"),
    ("counts", lambda text: text.replace("0", "1e999", 1), "counts: 1e999 is not a finite number"),
    ("provenance", lambda text: text.replace("0.25", "NaN"), "provenance: NaN is not a finite number"),
    ("provenance", lambda text: text.replace("0.25", "[" * 99 + "]" * 99), "provenance: its lists and mappings are nested"),
    ("encoder", lambda text: text[:-1], "encoder: Expecting"),
    ("encoder", lambda text: "[]", "encoder: Input should be"),
])
def test_a_text_that_no_reader_of_json_should_take_is_refused(tmp_path, column, text, problem):
    """Readers of JSON differ in which of two values they take: what a person reads need not be what is ranked."""
    def change(row):
        row.texts[column] = text(json.dumps(row.record[column]))

    path = edit(written(tmp_path, make()), change)
    with pytest.raises(StsbenchError) as caught:
        load_records(tmp_path)
    assert str(caught.value).startswith(f"{path} is not a valid record: {problem}"), caught.value


def test_a_record_that_is_not_valid_is_not_written(tmp_path):
    record = make()
    record.counts["truncated"] = -1
    with pytest.raises(StsbenchError, match=r"not written, since sts\.\S* is not a valid record: counts\.truncated"):
        written(tmp_path / "run", record)
    assert not list(tmp_path.iterdir())


def test_the_published_schema_is_the_code_s():
    """Written by: json.dumps(stsbench.evaluation.records.json_schema(), indent=1) and a line end."""
    assert SCHEMA.read_text("utf-8") == json.dumps(json_schema(), indent=1) + "\n"
