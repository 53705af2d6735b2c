"""mteb's result files: loadable by mteb where the data are MTEB's, refused with the reason everywhere else."""

import json
import shutil
from pathlib import Path

import pytest
from clirun import cli as cli
from mteb_run import RAW, SIZE, hub_file, run, vectors  # noqa: F401  a fixture
from run_edits import put_beside

import stsbench
from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.sets.catalog import entry, hub_revision
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.measure import measure
from stsbench.evaluation.result import Result
from stsbench.evaluation.run_file import load_records
from stsbench.extensions.publish.mteb_results import export_mteb, why_not_mteb
from stsbench.protocols.mteb import MtebProtocol


def test_mteb_reads_what_is_written(run, tmp_path, monkeypatch):
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
        monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "out"))
        [older] = mteb.load_results(download_latest=False).model_results  # the function that is on its way out
        assert older.model_revision == model.model_revision and len(older.task_results) == 1
        # mteb takes the file for its own: an encoder of this name and revision is not run again
        from stsbench.encoders.cache.mteb import MtebEncoder

        encoder, task = MtebEncoder(Embed(CallableEncoder(vectors))), mteb.get_task("STSBenchmark")
        store = mteb.ResultCache(tmp_path / "out")
        done = mteb.evaluate(encoder, task, cache=store, co2_tracker=False, show_progress_bar=False)
        assert done.task_results[0].get_score() == result.get_score() and not encoder.texts


def test_what_is_not_mteb_s_is_refused(tmp_path):
    data = hub_file(tmp_path / "data", SIZE, False)
    for number, (options, reason) in enumerate((
        ({"sample": True}, "sample data"), ({"text_version": "raw", "data_dir": data}, "not known to be the Hub's file"),
        ({"sample": True, "protocols": ["sts"]}, "no record of the protocol mteb"),
    )):
        options = {"protocols": ["mteb:STSBenchmark"], "tasks": ["STS-B"], "no_cache": True, **options}
        result = evaluate(vectors, output=tmp_path / str(number), **options)
        with pytest.raises(StsbenchError, match=reason) as caught:
            export_mteb(result.folder, tmp_path / "out")
        assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


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
