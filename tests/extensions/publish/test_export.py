"""`stsbench export` and `stsbench.export` write the same files: a run's records as they are, a training's model."""

import json
import shutil
from pathlib import Path

import pytest
from clirun import cli, contents, evaluate, fails, measured, place  # noqa: F401
from run_edits import edit
from tiny_models import build, sentences

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.records import Record
from stsbench.evaluation.run_file import load_records
from stsbench.extensions.publish.export import RECORDS, export_json

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")


def test_export(cli, measured):
    for to in ("json", "model-card", "model-index"):
        code, out, _ = cli("export", "run", "--to", to, "--output", f"{to}-by-command")
        files = stsbench.export(measured, to, f"{to}-by-function")
        assert code == 0 and [path.name for path in files] == [Path(line).name for line in out.splitlines()]
        assert contents(f"{to}-by-command") == contents(f"{to}-by-function")
        assert stsbench.export("run", to)[0].parent == Path(f"run-{to}").resolve()


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
