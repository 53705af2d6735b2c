"""Records: what is written is read, a name follows what identifies. Run folders: all are kept, and none is half there.
Settings of protocols and what is measured by them. The revision that a record names."""

import errno
import json
import multiprocessing
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from clirun import refuses
from hypothesis import given, settings
from hypothesis import strategies as st

import stsbench
from stsbench.cli.eval import _setting
from stsbench.comparison.comparability import bytes_a_vector, machine_and_use, recorded_cost
from stsbench.errors import StsbenchError
from stsbench.evaluation import provenance
from stsbench.evaluation import records as form
from stsbench.evaluation import result as result_file
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.plan import plan, split_names
from stsbench.evaluation.protocol import Observations, kinds
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import RUN, load_records, read_observations, write_run

ROOT = Path(__file__).resolve().parents[2]
SHA = "0" * 64
SEEN = Observations({"similarity": np.array([0.5, 0.25]), "gold": np.array([1.0, 2.0])}, {"subsets": ["STS-B"]})
numbers = st.floats(-100, 100, allow_nan=False)
texts = st.text(st.sampled_from("a Z0\"\\/\n\0\x1f\u2028é猫😀"), max_size=9)
PROCESSES, ROUNDS = 3, 2
COST = {"probe": 1, "texts": 64, "seconds": [0.1] * 5, "sentences_per_second": 640.0, "latency_seconds": 0.004,
        "bytes_a_vector": 12.0, "machine": {"cpu": "Some CPU", "cores": 8}, "device": "cpu", "threads": 4}
revision = provenance.git_revision  # the suite asks git once


def make(**changes):
    parts = {
        "created": datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC),
        "encoder": form.EncoderIdentity(spec={"name": "m", "options": {}}, fingerprint=SHA, dimension=3),
        "protocol": form.ProtocolIdentity(name="sts", label="sts", version=1, settings={"metrics": ["spearman"]}),
        "data": form.DataIdentity(id="stsb/test", task="STS-B", text_version="senteval", digest=SHA, n=2,
                                  subsets={"STS-B": 2}, known=True, origin="user cache"),
        "observations": form.Observed(sha256=observations_digest(SEEN)),
        "counts": {"zero_vectors": 0, "truncated": 0},
        "scores": [form.ScoreRow(protocol="sts", task="STS-B", aggregation="all", metric="spearman", value=1.5, n=2)],
        "provenance": {"git": None, "seconds": 0.25, "command": ["stsbench", "eval"]}}
    return form.Record(**{**parts, **changes})


def written(folder, *records):
    """A run of these records, each with SEEN beside it."""
    write_run(folder / RUN, [(record, SEEN) for record in records])
    return folder


@settings(max_examples=25)
@given(st.lists(st.tuples(texts, numbers, st.none() | numbers, st.integers(1, 10**6)), max_size=4), texts)
def test_round_trip(rows, name):
    scores = [form.ScoreRow(protocol="sts", task=t, metric="pearson", value=v, low=low, n=n) for t, v, low, n in rows]
    record = make(scores=scores, encoder=form.EncoderIdentity(spec={"name": name}, fingerprint=SHA, dimension=1))
    assert form.Record.model_validate_json(record.model_dump_json(indent=2)) == record


def test_written_and_read(tmp_path):
    records = [make(created=form.now()), make(data=make().data.model_copy(update={"id": "sts12/test"}))]
    run = written(tmp_path / "new" / "run", *records)
    assert load_records(run) == [(run / RUN / form.record_name(record), record) for record in records]
    assert [path.name.rpartition(".")[0] for path, _ in load_records(run)] == ["sts.stsb-test", "sts.sts12-test"]
    assert load_records(run / RUN) == load_records(str(run)) == load_records(run)
    for record in records:
        back = read_observations(run, record)
        assert observations_digest(back) == observations_digest(SEEN) and back.names == SEEN.names
    assert [path.name for path in run.iterdir()] == [RUN]


def test_the_name_follows_everything_that_identifies_a_record():
    base = make()
    changes = (("encoder", {"fingerprint": "1" * 64}), ("protocol", {"settings": {"metrics": ["pearson"]}}),
               ("protocol", {"version": 2}), ("data", {"digest": "1" * 64}))
    names = [form.record_name(make(**{part: getattr(base, part).model_copy(update=change)})) for part, change in changes]
    assert len({form.record_name(base), *names}) == 5


def test_data_of_no_items_are_allowed_and_a_score_that_became_nan_is_not_written(tmp_path):
    data = make().data.model_copy(update={"text_version": "own", "n": 0})
    assert make(data=form.DataIdentity(**data.model_dump())).data.n == 0
    row = form.ScoreRow(protocol="sts", task="STS-B", metric="spearman", value=1.5, n=2)
    with pytest.raises(ValueError, match="finite"):
        row.value = float("nan")
    record = make(scores=[row.model_copy(update={"value": float("nan")})])  # what no validation sees
    said = r"not written, since sts\.stsb\S* is not a valid record: scores\.0\.value"
    refuses(StsbenchError, said, write_run, tmp_path / "run" / "run.parquet", [(record, SEEN)])
    assert not list(tmp_path.iterdir())


def test_the_published_schema_is_the_code_s():
    """Written by: json.dumps(Record.model_json_schema(), indent=1) and a line end."""
    published = (ROOT / "docs/reference/record.schema.json").read_text("utf-8")
    assert published == json.dumps(form.Record.model_json_schema(), indent=1) + "\n"


def result(folder, number=0):
    record = make(encoder=form.EncoderIdentity(spec={"name": str(number)}, fingerprint=SHA, dimension=3))
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


def test_costs_are_read_off_the_record():
    assert recorded_cost(make()) is None
    stored = make(provenance={**make().provenance, "cost": COST}).model_dump(mode="json")
    record = form.parsed(json.dumps(stored))
    assert recorded_cost(record) == form.Cost.model_validate(COST) and record.provenance["cost"] == COST
    for key, value in (("seconds", ["1"]), ("sentences_per_second", 0), ("memory_bytes", 1.5), ("machine", "mine")):
        edited = {**stored, "provenance": {**stored["provenance"], "cost": {**COST, key: value}}}
        with pytest.raises(ValueError, match=f"provenance.cost.{key}"):
            form.parsed(json.dumps(edited))


@pytest.mark.parametrize(("changed", "words"), [
    ({}, ("Some CPU, 8 cores", "cpu, 4 threads")), ({"threads": None}, ("Some CPU, 8 cores", None)),
    ({"where": "processes", "processes": 2, "probe": 3},
     ("Some CPU, 8 cores, 2 processes, probe texts 3", "cpu, 4 threads")),
    ({"where": "server", "device": "server", "threads": None}, ("Some CPU, 8 cores, a server", None))])
def test_a_machine_and_its_use_in_words(changed, words):
    assert machine_and_use(form.Cost.model_validate({**COST, **changed})) == words


@pytest.mark.parametrize(("spec", "expected"), [
    ({}, 400), ({"options": {"precision": "int8"}}, 100), ({"options": {"precision": "ubinary"}}, 13),
    ({"kind": "vectors", "options": {"dtype": "float16"}}, 200), ({"kind": "lexical"}, None),
    ({"kind": "callable"}, None), ({"options": {"precision": "int3"}}, None)])
def test_bytes_follow_from_width_and_precision(spec, expected):
    encoder = form.EncoderIdentity(spec={"name": "x", **spec}, fingerprint=SHA, dimension=100)
    assert bytes_a_vector(make(encoder=encoder)) == expected


def test_one_value_is_a_list_of_one_and_whole_numbers_are_floats_where_floats_are_meant():
    made = {name: kinds()[name] for name in ("sts", "retrieval", "geometry", "transfer")}
    assert made["sts"]({"metrics": "spearman", "aggregations": "all"}).settings["aggregations"] == ["all"]
    assert made["retrieval"]({"ks": 5}).settings["ks"] == [5]
    assert json.dumps(made["geometry"]({"t": 2, "alpha": 2}).settings) == json.dumps(made["geometry"]({}).settings)
    assert [type(reg) for reg in made["transfer"]({"grid": (1, 2)}).settings["grid"]] == [float, float]


@pytest.mark.parametrize(("text", "value"), [
    ("[1e-5,1e-4]", [1e-5, 1e-4]), ("-2E+3", -2000.0), (".5e1", 5.0), ("1.e2", 100.0), ("{a: [1e3]}", {"a": [1000.0]}),
    ("'1e-4'", "1e-4"), ("1e", "1e"), ("e4", "e4"), ("2e4 b", "2e4 b"), ("7", 7), ("no", False), ("", None)])
def test_values_are_read_as_yaml_with_numbers_as_people_write_them(text, value):
    key, actual = _setting(f"transfer.blank={text}")
    assert (key, actual) == ("transfer.blank", value) and type(actual) is type(value)


def test_settings_reach_the_protocols_that_have_them_and_presets_have_their_own():
    planned, _ = plan(["all"], None, {"": {"resamples": 7}, "transfer": {"k": 3, "batch": 32}})
    settings = {each.label: each.protocol.settings for each in planned}
    assert settings["sts"]["resamples"] == settings["retrieval"]["resamples"] == 7
    assert settings["transfer"]["batch"] == 32 and "batch" not in settings["transfer:exact"]
    assert {settings[label]["k"] for label in ("transfer", "transfer:sklearn", "transfer:exact")} == {3}
    refuses(StsbenchError, "", plan, ["all"], None, {"transfer": {"bach": 32}})
    planned, left_out = plan(["sts:wmean", "simcse"], ["sts12"], {"": {"resamples": 5}})
    assert [(p.label, p.protocol.label, p.tasks) for p in planned] == [
        ("sts:wmean", "sts", {"STS12": "sts12/test"}), ("simcse", "simcse", {"STS12": "sts12/test"})]
    assert all(p.protocol.settings["resamples"] == 5 for p in planned) and left_out == {}
    assert planned[0].protocol.settings["aggregations"] == ["wmean"]
    assert planned[1].protocol.settings["metrics"] == ["spearman"]


def test_tasks_of_several_named_protocols_and_those_on_request():
    planned, left_out = plan(["sts", "transfer:exact", "infersent", "retrieval"], ["STS12", "CR"], {})
    tasks = [(each.label, list(each.tasks)) for each in planned]
    assert tasks == [("sts", ["STS12"]), ("transfer:exact", ["CR"]), ("infersent", ["STS12"])]
    assert left_out == {"retrieval": "it has none of the tasks STS12, CR"}
    planned, _ = plan(["sts", "all"], None, {})
    labels = [each.label for each in planned]
    assert len(labels) == len(set(labels)) and labels[0] == "sts"
    assert split_names("mteb:MTEB(eng, v2), sts") == ("mteb:MTEB(eng, v2)", "sts")
    for protocol in ("sts:mean", "simcse", "all"):
        chosen, _ = plan([protocol], None, {})
        assert not [each.label for each in chosen if each.protocol.name == "sts" and "SICK-R-MTEB" in each.tasks]
    named, _ = plan(["sts"], ["sick-r-mteb"], {})
    assert [each.tasks for each in named] == [{"SICK-R-MTEB": "sick-r/mteb"}]


WRITTEN = ["leaderboard/measured/a/run.json", "docs/findings/protocol-sensitivity.md", "README.md", "docs/notebooks/b.ipynb"]
BESIDE = ["sentences.txt", "runs/mean/a.json", "mymodel.py", "entries.svg", "docs/new.md"]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in ("stsbench/__init__.py", "methods/a.py", "docs/index.md", *WRITTEN):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"), "utf-8")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(stsbench, "__file__", str(tmp_path / "stsbench" / "__init__.py"))
    return tmp_path


def test_the_revision_tells_changes_and_new_files_of_the_code_from_what_is_no_part_of_it(checkout):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True).stdout.strip()
    assert revision() == head
    for name in [*BESIDE, *WRITTEN]:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("2\n")
    assert revision() == head and provenance.why_not_repeatable(head) is None
    for name in ("stsbench/new.py", "methods/new method/method.py", "methods/a.py", "docs/index.md"):
        path = checkout / name
        before = path.read_text() if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("3\n")
        assert revision() == f"{head}+changes", name
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert "new files in its code" in provenance.why_not_repeatable(f"{head}+changes")
