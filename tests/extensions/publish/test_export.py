"""`stsbench export` and `stsbench.export` write the same files, byte for byte; a training gives the model that it kept."""

from pathlib import Path

import pytest
from clirun import cli, evaluate, place  # noqa: F401 - fixtures
from tiny_models import build, sentences

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")


@pytest.fixture
def measured(place):
    """A run on the sample, with intervals and an average."""
    return stsbench.evaluate("lexical:token-set", sample=True, resamples=20, output="run")


def contents(folder):
    """Name -> bytes of every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", ["json", "model-card", "model-index"])
def test_export(cli, measured, to):
    code, out, _ = cli("export", "run", "--to", to, "--output", "by-command")
    files = stsbench.export(measured, to, "by-function")
    assert code == 0 and [path.name for path in files] == [Path(line).name for line in out.splitlines()]
    assert contents("by-command") == contents("by-function")
    assert stsbench.export("run", to)[0].parent == Path(f"run-{to}").resolve()


def test_export_refuses_an_unknown_format(measured):
    with pytest.raises(StsbenchError, match="'model-crad': no such format; did you mean model-card"):
        stsbench.export(measured, "model-crad")
    with pytest.raises(StsbenchError, match="output=3: must be a path, not of type int"):
        stsbench.export(measured, "json", 3)


def test_export_of_an_sts_run_to_mteb_names_the_protocol_to_measure(cli, evaluate):
    assert evaluate("lexical:token-set")[0] == 0
    code, _, err = cli("export", "run", "--to", "mteb")
    assert code == 1 and "stsbench eval --protocol mteb --text raw" in err


def test_a_training_run_exports_as_the_model_that_it_kept(place, cli):
    run = place / "trained"
    run.mkdir()
    (run / "recipe.yaml").write_text("name: tiny-run\n")
    words = ("export", "trained", "--to", "sentence-transformers")
    code, _, err = cli(*words)
    assert code == 1 and err.endswith("the training has not finished (go on with --resume)\n")
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
    assert "run folder of `stsbench train`" in cli("export", "trained/best", *words[2:])[2]
