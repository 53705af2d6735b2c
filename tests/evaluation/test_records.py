"""Records: what is written is read, what is wrong is named, nothing is overwritten, scores come back identical."""

import hashlib
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import light_process
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsbench.encoders.light.lexical import TfIdf
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.compare import compare
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import (
    DataIdentity,
    EncoderIdentity,
    ObservationFile,
    ProtocolIdentity,
    Record,
    ScoreRow,
    json_schema,
    load_records,
    now,
    read_record,
    record_stem,
    write_record,
)
from stsbench.evaluation.rescore import encoder_key, rescored, score_again, several_encoders, task_of
from stsbench.protocols.sts import StsProtocol

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "reference" / "record.schema.json"
SHA = "0" * 64


def make(**changes):
    parts = {
        "created": datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC),
        "encoder": EncoderIdentity(spec={"name": "m", "options": {}}, fingerprint=SHA, dimension=3),
        "protocol": ProtocolIdentity(name="sts", label="sts", version=1, settings={"metrics": ["spearman"]}),
        "data": DataIdentity(
            id="stsb/test", task="STS-B", text_version="senteval", digest=SHA, n=2, subsets={"STS-B": 2}, known=True,
            origin="user cache",
        ),
        "observations": ObservationFile(file="observations/x.npz", sha256=SHA),  # `own` names the file after the record
        "counts": {"zero_vectors": 0, "truncated": 0},
        "scores": [ScoreRow(protocol="sts", task="STS-B", aggregation="all", metric="spearman", value=1.5, n=2)],
        "provenance": {"git": None, "seconds": 0.25, "command": ["stsbench", "eval"]},
    }
    return Record(**{**parts, **changes})


def own(**changes):
    """A record that names the observations which would stand beside it."""
    record = make(**changes)
    record.observations.file = f"observations/{record_stem(record.encoder, record.protocol, record.data)}.npz"
    return record


numbers = st.floats(-100, 100, allow_nan=False)


@given(st.lists(st.tuples(st.text(max_size=9), numbers, st.none() | numbers, st.integers(1, 10**6)), max_size=4), st.text())
def test_round_trip(rows, name):
    scores = [ScoreRow(protocol="sts", task=t, metric="pearson", value=v, low=low, n=n) for t, v, low, n in rows]
    record = make(scores=scores, encoder=EncoderIdentity(spec={"name": name}, fingerprint=SHA, dimension=1))
    assert Record.model_validate_json(record.model_dump_json(indent=2)) == record


def test_written_and_read(tmp_path):
    record = own(created=now())
    path = write_record(tmp_path / "new" / "run", record)
    assert path.name == f"{record_stem(record.encoder, record.protocol, record.data)}.json"
    assert path.name.startswith("sts.stsb-test.") and path.read_text().endswith("}\n")
    assert read_record(path) == record and load_records(path.parent) == [(path, record)]


def test_never_overwritten(tmp_path):
    path = write_record(tmp_path, make())
    before = path.read_bytes()
    with pytest.raises(StsbenchError, match="already there; records are never overwritten: choose another --output"):
        write_record(tmp_path, make(counts={"zero_vectors": 9, "truncated": 0}))
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_the_name_follows_everything_that_identifies_a_record():
    base = make()
    changed = [
        base.encoder.model_copy(update={"fingerprint": "1" * 64}),
        base.protocol.model_copy(update={"settings": {"metrics": ["pearson"]}}),
        base.protocol.model_copy(update={"version": 2}),
        base.data.model_copy(update={"digest": "1" * 64}),
    ]
    stems = {record_stem(base.encoder, base.protocol, base.data)}
    for part in changed:
        parts = {"encoder": base.encoder, "protocol": base.protocol, "data": base.data}
        kind = {EncoderIdentity: "encoder", ProtocolIdentity: "protocol", DataIdentity: "data"}[type(part)]
        stems.add(record_stem(**{**parts, kind: part}))
    assert len(stems) == 5


def cut(record):
    del record["data"]["digest"]


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (cut, "data.digest: Field required"),
        (lambda r: r.update(extra=1), "extra: "),
        (lambda r: r.update(schema_version=2), "schema_version: "),
        (lambda r: r.update(kind="copied"), "kind: "),
        (lambda r: r["data"].update(digest="abc"), "data.digest: "),
        (lambda r: r["data"].update(known="perhaps"), "data.known: "),
        (lambda r: r["scores"][0].update(value="much"), "scores.0.value: "),
        (lambda r: r["scores"][0].update(value=float("nan")), "scores.0.value: "),
        (lambda r: r["scores"][0].update(n=0), "scores.0.n: "),
        (lambda r: r.update(created="yesterday"), "created: "),
        (lambda r: r["counts"].update(truncated=-5), "counts.truncated: "),
        (lambda r: r["encoder"].update(dimension=0), "encoder.dimension: "),
        (lambda r: r["data"].update(n=-1), "data.n: "),
        (lambda r: r["data"].update(n=0), "data: Value error, n: data without items"),
        (lambda r: r["observations"].update(file="../other/x.npz"), "observations.file: "),
        (lambda r: r["observations"].update(file="/etc/x.npz"), "observations.file: "),
        (lambda r: r["observations"].update(file="observations/../../x.npz"), "observations.file: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path, damage, field):
    path = write_record(tmp_path, make())
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(StsbenchError) as caught:
        load_records(tmp_path)
    assert str(caught.value).startswith(f"{path} is not a valid record: {field}")


def test_data_that_mteb_loads_by_itself_have_no_items():
    data = make().data.model_copy(update={"text_version": "own", "n": 0})
    assert make(data=DataIdentity(**data.model_dump())).data.n == 0


@pytest.mark.parametrize("file", ["observations/x.npz", "observations/..npz"])
def test_another_record_s_observations_are_refused(tmp_path, file):
    path = write_record(tmp_path, own(observations=ObservationFile(file="observations/y.npz", sha256=SHA)))
    content = json.loads(path.read_text())
    content["observations"]["file"] = file
    path.write_text(json.dumps(content))
    with pytest.raises(StsbenchError, match=f"{path} was renamed or edited: its observations would be observations/sts"):
        read_record(path)


def test_a_renamed_record_is_refused(tmp_path):
    path = write_record(tmp_path, own())
    with pytest.raises(StsbenchError, match=r"other\.json was renamed or edited"):
        read_record(path.rename(tmp_path / "other.json"))


@pytest.mark.parametrize("part", ['"scores": [', '"n": 2', '"kind": "measured"', '"metric": "spearman"'])
def test_a_key_that_stands_twice_is_refused(tmp_path, part):
    """Readers of JSON differ in which of two values they take: what a person reads need not be what is ranked."""
    path = write_record(tmp_path, own())
    key, rest = part.split(": ")
    twice = f"{key}: {'[], ' if rest == '[' else rest + ', '}{part}"
    assert part in path.read_text()
    path.write_text(path.read_text().replace(part, twice, 1))
    with pytest.raises(StsbenchError) as caught:
        read_record(path)
    assert str(caught.value) == f"{path} is not a valid record: the key '{key.strip(chr(34))}' stands in it twice"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null"])
def test_files_that_are_no_record(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(StsbenchError, match=r"a\.json is not a valid record: file: "):
        load_records(tmp_path)


def test_unreadable_records(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(StsbenchError, match=r"a\.json"):
        load_records(tmp_path)
    with pytest.raises(StsbenchError, match=r"cannot read .*b\.json"):
        read_record(tmp_path / "b.json")


def test_nan_scores_cannot_be_made():
    with pytest.raises(ValueError, match="finite"):
        ScoreRow(protocol="sts", task="x", metric="pearson", value=float("nan"), n=2)


def test_the_published_schema_is_the_code_s():
    """Written by: json.dumps(stsbench.evaluation.records.json_schema(), indent=1) and a line end."""
    assert SCHEMA.read_text("utf-8") == json.dumps(json_schema(), indent=1) + "\n"


# Scores again ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    return evaluate("lexical:token-set", output=tmp_path / "run", sample=True, resamples=30)


def test_score_again_gives_identical_rows(run):
    again = score_again(run.folder)
    assert again.rows == run.rows and not again.failures
    assert [record.data.id for record in again.records] == [record.data.id for record in run.records]


@pytest.mark.parametrize("protocols", [["sts:mean", "sts:all"], ["simcse", "senteval"], ["sts", "bert-flow"]])
def test_score_again_for_several_protocols(tmp_path, protocols):
    """Every row comes back; which protocol comes first is not stored."""
    run = evaluate("lexical:tfidf", output=tmp_path / "run", sample=True, resamples=0, protocols=protocols)
    again = score_again(run.folder)
    assert sorted(r.model_dump_json() for r in again.rows) == sorted(r.model_dump_json() for r in run.rows)


def test_a_tampered_observations_file_is_refused(run):
    path = run.folder / run.records[2].observations.file
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["similarity"] = arrays["gold"]  # a perfect score
    np.savez(path, **arrays)
    with pytest.raises(StsbenchError, match=f"{path} is not the file its record names .sha256 differs.: damaged or repl"):
        score_again(run.folder)
    path.unlink()
    with pytest.raises(StsbenchError, match=f"{path} is missing"):
        score_again(run.folder)


def test_a_version_that_measured_otherwise_is_refused(run):
    path = next(run.folder.glob("*.json"))
    content = json.loads(path.read_text())
    content["protocol"]["version"] = 99
    path.write_text(json.dumps(content))
    with pytest.raises(StsbenchError, match="scored by version 99 of protocol sts; this is version 1"):
        score_again(run.folder)
    content["protocol"]["name"] = "stz"
    path.write_text(json.dumps(content))
    with pytest.raises(StsbenchError, match="unknown protocol 'stz'"):
        score_again(run.folder)


def test_an_edited_record_is_refused(run):
    """Scores are computed from the observations; a record that says otherwise, or names other settings, was edited."""
    path = next(run.folder.glob("*.json"))
    whole = path.read_text()
    content = json.loads(whole)
    content["scores"][0]["value"] = 99.9
    path.write_text(json.dumps(content))
    with pytest.raises(StsbenchError, match="was edited"):
        score_again(run.folder)
    content = json.loads(whole)
    content["protocol"]["settings"]["similarity"] = "dot"
    path.write_text(json.dumps(content))
    with pytest.raises(StsbenchError, match="renamed or edited"):
        score_again(run.folder)


def test_without_intervals_an_edited_value_is_refused_all_the_same(tmp_path):
    folder = evaluate("lexical:token-set", output=tmp_path / "run", sample=True, tasks=["STS-B"], resamples=50).folder
    [(path, record)] = load_records(folder)
    protocol, rows = rescored(path, record, intervals=False)
    assert [row.value for row in rows] == pytest.approx([row.value for row in record.scores], abs=1e-9)
    assert all(row.low is row.high is None for row in rows) and all(row.low < row.high for row in record.scores)
    assert protocol.settings["resamples"] == 50 and rescored(path, record)[1][0].low is not None
    record.scores[0].value += 0.01
    with pytest.raises(StsbenchError, match="was edited"):
        rescored(path, record, intervals=False)


def test_a_record_that_names_no_interval_of_pearson_has_percentiles(tmp_path):
    options = {"sample": True, "tasks": ["STS-B"], "resamples": 50}
    runs = []
    for name, chosen in (("old", {"sts.pearson_interval": "percentile"}), ("new", {})):
        folder = evaluate("lexical:token-set", output=tmp_path / name, settings=chosen, **options).folder
        [(path, record)] = load_records(folder)
        runs.append((path, record))
    (path, record), (_, new) = runs
    del record.protocol.settings["pearson_interval"]  # as before records held it
    old = path.with_name(record_stem(record.encoder, record.protocol, record.data) + path.suffix)
    assert rescored(old, record)[1] == record.scores
    assert new.protocol.settings["pearson_interval"] == "fisher-z"
    for one, other in zip(record.scores, new.scores, strict=True):
        assert one.value == other.value
        assert (one.low, one.high) == (other.low, other.high) or one.metric == "pearson"
    assert any((one.low, one.high) != (other.low, other.high) for one, other in zip(record.scores, new.scores, strict=True))


def test_records_of_two_encoders_share_no_table(run, tmp_path):
    other = evaluate("lexical:tfidf", output=tmp_path / "other", sample=True, tasks=["STS12"], resamples=0)
    for path in other.folder.rglob("*.*"):
        (run.folder / path.relative_to(other.folder)).write_bytes(path.read_bytes())
    with pytest.raises(StsbenchError, match="several encoders"):
        score_again(run.folder)


def fitted(source):
    return TfIdf().fit(["red apples", "green pears and a plane is on the man"], source)


def put_beside(folder, *others):
    for other in others:
        for path in other.rglob("*.*"):
            (folder / path.relative_to(other)).write_bytes(path.read_bytes())
    return folder


def test_a_model_measured_from_two_folders_is_one_encoder(run):
    """Its name is as the user wrote it, and no part of the fingerprint."""
    here = load_records(run.folder)[0][1]
    there = here.model_copy(deep=True)
    there.encoder.spec["name"] = f"elsewhere/{here.encoder.spec['name']}"
    assert encoder_key(here) == encoder_key(there) and not several_encoders([here, there])
    there.encoder.spec["weights"] = "f" * 64
    assert encoder_key(here) != encoder_key(there) and several_encoders([here, there])
    there.encoder.spec |= {"kind": "callable", "weights": here.encoder.spec["weights"]}
    here.encoder.spec["kind"] = "callable"  # two closures of one source: the name is all that tells them from each other
    assert several_encoders([here, there])


def test_what_an_encoder_was_fitted_on_makes_it_another(tmp_path):
    """Records of one that is fitted on every set by itself belong together; of two that were fitted on other texts, not."""
    folders = [
        evaluate(fitted(f"{name}@{number}"), output=tmp_path / name, sample=True, tasks=[task], resamples=0).folder
        for number, (name, task) in enumerate({"nli": "STS-B", "wiki": "STS12"}.items())
    ]
    first, second = (load_records(folder)[0][1] for folder in folders)
    assert first.encoder.spec["fitted_on"] == "nli@0" and encoder_key(first) != encoder_key(second)
    with pytest.raises(StsbenchError, match="several encoders"):
        score_again(put_beside(*folders))
    each = evaluate("lexical:tfidf", output=tmp_path / "each", sample=True, tasks=["STS-B", "STS12"], resamples=0)
    assert len({record.encoder.fingerprint for record in each.records}) == 2
    assert len({encoder_key(record) for record in each.records}) == 1 and len(score_again(each.folder).records) == 2


def test_an_encoder_fitted_once_on_a_set_it_is_scored_on_is_one(tmp_path):
    source = f"stsb/test@{SHA}"
    run = evaluate(fitted(source), output=tmp_path / "run", sample=True, tasks=["STS-B", "STS12"], resamples=0)
    assert {record.encoder.spec["fitted_on"] for record in run.records} == {source}
    assert score_again(run.folder).rows == run.rows


def packed(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def relabelled(folder, change):
    """A folder's first record once more under a paper's label, after `change` to it and its observations."""
    path, record = load_records(folder)[0]
    with np.load(path.parent / record.observations.file) as stored:
        arrays = dict(stored)
    record = record.model_copy(deep=True)
    record.protocol.label = "paper"
    change(record, arrays)
    content = packed(**arrays)
    stem = record_stem(record.encoder, record.protocol, record.data)
    names = {"subsets": arrays.pop("names.subsets").tolist()}
    protocol = StsProtocol(record.protocol.settings, "paper")
    record.scores = protocol.score(Observations(arrays, names), record.data.id, task_of(protocol, record))
    record.observations = ObservationFile(file=f"observations/{stem}.npz", sha256=hashlib.sha256(content).hexdigest())
    (folder / record.observations.file).write_bytes(content)
    return path, write_record(folder, record)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r, arrays: arrays.update(similarity=arrays["similarity"][::-1]), "with different scores"),
        (lambda r, arrays: setattr(r.encoder, "fingerprint", "1" * 64), "of encoders with different fingerprints"),
        (lambda r, arrays: setattr(r.data, "digest", "1" * 64), "on different data of that name"),
    ],
)
def test_two_measurements_of_one_thing_are_refused(run, tmp_path, change, reason):
    paths = relabelled(run.folder, change)
    for call in (score_again, lambda folder: compare(folder, folder, resamples=2)):
        with pytest.raises(StsbenchError, match=reason) as caught:
            call(run.folder)
        assert all(str(path) in str(caught.value) for path in paths)


def test_one_measurement_under_two_names_is_not(run, tmp_path):
    """A paper's preset and the protocol, as `eval --protocol sts,simcse` writes them; intervals are no measurement."""
    relabelled(run.folder, lambda r, arrays: r.protocol.settings.update(resamples=7, metrics=["spearman"]))
    assert len(score_again(run.folder).records) == len(run.records) + 1
    table = compare(run.folder, run.folder, resamples=20).tables[0]
    assert {row.difference.value for row in table.rows} == {0}


def test_options_that_would_be_ignored_are_refused(tmp_path):
    encoder = load_encoder("lexical:token-set")
    for options in ({"pooler": "cls"}, {"max_length": 8}, {"dtype": "bfloat16"}):
        with pytest.raises(StsbenchError, match="already loaded"):
            evaluate(encoder, output=tmp_path / "run", sample=True, **options)
    with pytest.raises(StsbenchError, match="exclude each other"):
        evaluate(encoder, output=tmp_path / "run", sample=True, data_dir=tmp_path)
    with pytest.raises(StsbenchError, match="scored itself"):
        evaluate(encoder, output=tmp_path / "run", sample=True, without_overlap=["stsb/test"])


def test_score_imports_no_torch_and_needs_no_data(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = (
        f"import sys; sys.argv = ['stsbench', 'score', {str(run.folder)!r}, '--json', '-']\n"
        "from stsbench.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'transformers', 'sklearn', 'tokenizers'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [row.model_dump() for row in run.rows]
