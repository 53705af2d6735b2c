"""`stsbench export`: a run's records as they are, a training's model, and mteb's result files, which mteb reads."""

import json
import shutil
from pathlib import Path

import pytest
from clirun import cli, contents, measured, place  # noqa: F401
from mteb_run import SIZE, run, vectors  # noqa: F401  a fixture
from run_edits import edit, put_beside
from tiny_models import build, sentences

import stsbench
from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.sets.catalog import entry, hub_revision
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.measure import measure
from stsbench.evaluation.records import Record
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import load_records
from stsbench.extensions.publish.export import RECORDS, export_json
from stsbench.extensions.publish.mteb_results import export_mteb, why_not_mteb
from stsbench.protocols.mteb import MtebProtocol

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")


def test_a_training_run_exports_as_the_model_that_it_kept(place, cli):
    run = place / "trained"
    run.mkdir()
    (run / "recipe.yaml").write_text("name: tiny-run\n")
    words = ("export", "trained", "--to", "sentence-transformers")
    build(run / "best")
    code, out, _ = cli(*words)
    copied = place / "trained-sentence-transformers"
    assert code == 0 and out.split() == [str(path) for path in sorted(copied.rglob("*")) if path.is_file()]
    assert contents(copied) == contents(run / "best") and len(contents(copied)) > 3
    stsbench.export("trained", "sentence-transformers", "by-function")
    assert contents("by-function") == contents(copied)
    vectors = [load_encoder(str(folder), pooler="mean").encode(sentences(4)) for folder in (copied, run)]
    assert (vectors[0] == vectors[1]).all()
    assert "already there" in cli(*words)[2]


def test_every_record_comes_back_in_the_order_of_measuring(measured, place):
    """Nothing is overwritten, and a damaged run gives nothing."""
    run = measured.folder
    [path] = export_json(run, place / "out")
    assert path == place / "out" / RECORDS and list(path.parent.iterdir()) == [path]
    before = path.read_bytes()
    objects = json.loads(before)
    assert [(each.pop("name"), Record.model_validate(each)) for each in objects] == [
        (pseudo.name, record) for pseudo, record in load_records(run)]
    assert "similarity" not in {key for each in objects for key in each}
    with pytest.raises(StsbenchError, match="is already there"):
        export_json(run, place / "out")
    assert path.read_bytes() == before
    copy = shutil.copytree(run, place / "copy")
    damaged = edit(copy, lambda row: row.record["data"].update(n=-1))
    with pytest.raises(StsbenchError) as caught:
        export_json(copy, place / "other")
    assert str(caught.value).startswith(f"{damaged} is not a valid record: data.n: ") and not (place / "other").exists()


def test_mteb_reads_what_is_written(run, tmp_path):
    files, left_out = export_mteb(run, tmp_path / "out")
    [(_, record)] = load_records(run)
    fingerprint = record.encoder.fingerprint
    assert left_out == {} and [path.name for path in files] == ["STSBenchmark.json"]
    assert files[0].parts[-4:-2] == ("results", "stsbench__" + record.encoder.spec["name"].replace(":", "-"))
    assert files[0].parent.name == f"stsbench-{fingerprint}"
    rows = {row.metric: row.value / 100 for row in record.scores}
    with undisturbed() as mteb:
        loaded = mteb.ResultCache(tmp_path / "out").load_results(validate_and_filter=True)
        [model] = loaded.model_results
        [result] = model.task_results
        assert model.model_name.startswith("stsbench/") and model.model_revision == f"stsbench-{fingerprint}"
        assert model.model_meta.embed_dim == 4
        assert result.dataset_revision == mteb.get_task("STSBenchmark").metadata.revision
        assert result.get_score() == pytest.approx(rows["cosine_spearman"], abs=1e-6)
        assert result.scores["test"][0]["spearman"] == pytest.approx(rows["spearman"], abs=1e-6)


def changed(record, **parts):
    """The record with other fields in its data or its encoder's spec."""
    copy = record.model_copy(deep=True)
    for key, value in parts.items():
        if key == "fitted_on":
            copy.encoder.spec[key] = value
        else:
            setattr(copy.data, key, value)
    return copy


def test_each_reason(run):
    [(_, record)] = load_records(run)
    for parts, revision, reason in (
        ({}, None, None), ({"text_version": "senteval"}, None, "text version 'senteval'"),
        ({"text_version": "sample"}, None, "sample data"), ({"known": False}, None, "not known"),
        ({"n": SIZE - 1}, None, "not the set that MTEB measures on"),
        ({"id": "sick-r/test", "n": 4927}, None, "sick-r/test with 4927 pairs is not the set"),
        ({"fitted_on": "stsb/test@abc"}, None, "fitted on the very texts"), ({"fitted_on": "nli@abc"}, None, None),
        ({}, "another", "another revision"),
        ({"id": "mteb:BIOSSES", "text_version": "own", "known": False, "n": 0}, "theirs", None),
    ):
        result = {"dataset_revision": revision or entry("stsb/test", "raw").hub.revision}
        why = why_not_mteb(changed(record, **parts), result)
        assert (why is None) if reason is None else (reason in why and "\n" not in why)


def test_every_raw_set_is_measured_at_the_revision_that_mteb_pins():
    with undisturbed() as mteb:
        pinned = {name: mteb.get_task(name).metadata.revision for name in ("STS12", "STS13", "STS14", "STS15", "STS16")}
        pinned |= {"STS-B": mteb.get_task("STSBenchmark").metadata.revision}
        pinned |= {"SICK-R-MTEB": mteb.get_task("SICK-R").metadata.revision}
    for task, id in MtebProtocol({}).tasks().items():
        if task != "SICK-R":
            assert hub_revision(id, "raw", True, entry(id, "raw").total) == pinned[task]
    assert hub_revision("sick-r/test", "raw", True, 4927) is None
    assert hub_revision("stsb/test", "senteval", True, SIZE) is None


def test_the_command_writes_what_it_can_and_says_what_it_left_out(run, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("export", run, "--to", "mteb", "--output", "out")
    assert (code, err) == (0, "") and out.startswith("out/results/stsbench__") and out.count("\n") == 1
    [made] = stsbench.export(run, "mteb", "by-function")
    assert made.read_bytes() == Path(out.strip()).read_bytes()
    sample = evaluate(vectors, output=tmp_path / "sample", protocols=["mteb:STS12"], sample=True, no_cache=True)
    mixed = put_beside(shutil.copytree(run, tmp_path / "mixed"), sample.folder)
    code, out, err = cli("export", mixed, "--to", "mteb")
    assert code == 3 and "STS12 left out: it was measured on the sample data" in err
    assert out == f"{tmp_path}/mixed-mteb/{next(Path('out').rglob('STSBenchmark.json')).relative_to('out')}\n"
    code, out, err = cli("export", sample.folder, "--to", "mteb")
    assert code == 1 and out == "" and err.count("\n") == 1 and "sample data" in err


def test_a_task_of_the_hub_is_exported_as_mteb_named_it(tmp_path, monkeypatch):
    with undisturbed():
        from mteb.mocks import mock_tasks

        task = mock_tasks.MockSTSTask()
    monkeypatch.setattr(MtebProtocol, "_task", lambda self, mteb, name: task)
    protocol = MtebProtocol({"tasks": {"MockSTSTask": "mteb:MockSTSTask"}})
    sets = {"MockSTSTask": protocol.load("mteb:MockSTSTask")}
    result = Result(tmp_path / "run")
    measure(result, Embed(CallableEncoder(vectors)), protocol, sets)
    assert not result.failures
    result.write()
    files, left_out = export_mteb(result.folder, tmp_path / "out")
    assert left_out == {} and json.loads(files[0].read_text())["task_name"] == task.metadata.name
