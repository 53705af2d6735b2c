"""A run's records as JSON: what the run file says, read back with the record's own model."""

import json
import shutil

import pytest
from clirun import cli as cli
from clirun import fails
from run_edits import edit

from stsbench.errors import StsbenchError
from stsbench.evaluation import api
from stsbench.evaluation.records import Record
from stsbench.evaluation.run_file import load_records
from stsbench.extensions.publish.export import RECORDS, export_json


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    where = tmp_path_factory.mktemp("runs") / "run"
    return api.evaluate("lexical:token-set", output=where, sample=True, tasks=["STS-B", "STS12"], resamples=30).folder


def read_back(path):
    """(name, record) of every object in the file."""
    objects = json.loads(path.read_text("utf-8"))
    return [(stated.pop("name"), Record.model_validate(stated)) for stated in objects]


def test_every_record_comes_back_in_the_order_of_measuring(run, tmp_path):
    [path] = export_json(run, tmp_path / "out")
    assert path == tmp_path / "out" / RECORDS and list(path.parent.iterdir()) == [path]
    assert read_back(path) == [(pseudo.name, record) for pseudo, record in load_records(run)]
    assert "similarity" not in {key for stated in json.loads(path.read_text("utf-8")) for key in stated}


def test_nothing_is_overwritten_and_a_damaged_run_gives_nothing(run, tmp_path):
    export_json(run, tmp_path / "out")
    before = (tmp_path / "out" / RECORDS).read_bytes()
    with pytest.raises(StsbenchError, match="is already there"):
        export_json(run, tmp_path / "out")
    assert (tmp_path / "out" / RECORDS).read_bytes() == before
    copy = shutil.copytree(run, tmp_path / "copy")
    path = edit(copy, lambda row: row.record["data"].update(n=-1))
    with pytest.raises(StsbenchError) as caught:
        export_json(copy, tmp_path / "other")
    assert str(caught.value).startswith(f"{path} is not a valid record: data.n: ") and not (tmp_path / "other").exists()


def test_the_command_writes_them_beside_the_run(run, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a checkout may hold runs of its own
    copy = shutil.copytree(run, tmp_path / "mine")
    assert cli("export", copy, "--to", "json") == (0, f"{tmp_path}/mine-json/{RECORDS}\n", "")
    assert [name for name, _ in read_back(tmp_path / "mine-json" / RECORDS)] == [path.name for path, _ in load_records(run)]
    fails(cli("export", copy, "--to", "json"), "already there", "mine-json")
    fails(cli("export", tmp_path, "--to", "json", "--output", "none"), "is not a run folder")
