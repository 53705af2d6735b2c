"""Running the command line in tests: a folder of its own, callables that misbehave, a copy of the sample to damage."""

import shutil
import sys
from pathlib import Path

import pytest

import stsbench
from stsbench.cli.main import main
from stsbench.evaluation.run_file import load_records

SAMPLE = Path(stsbench.__file__).parent / "data" / "sample"
STSB = "downstream/STS/STSBenchmark/sts-test.csv"

MODULE = """
import zlib
import numpy as np

def hashed(texts):
    return np.array([[(zlib.crc32(t.encode()) >> s) % 97 for s in (0, 7, 13)] for t in texts], dtype=float)

def stsb_texts():
    import pathlib, stsbench
    path = pathlib.Path(stsbench.__file__).parent / "data/sample/downstream/STS/STSBenchmark/sts-test.csv"
    rows = [line.split("\\t") for line in path.read_text("utf-8").splitlines()]
    return [" ".join(cell.split()) for row in rows for cell in row[5:7]]

def some_zero(texts):
    vectors, zero = hashed(texts), set(sorted(set(stsb_texts()))[:5])
    vectors[[t in zero for t in texts]] = 0
    return vectors

def with_nan(texts):
    vectors = hashed(texts)
    vectors[texts.index(stsb_texts()[4]), 1] = np.nan
    return vectors

def too_few(texts): return hashed(texts)[1:]
def flat(texts): return hashed(texts)[:, 0]
def constant(texts): return np.ones((len(texts), 3))

def constant_on_stsb(texts):
    vectors, these = hashed(texts), set(stsb_texts())
    vectors[[t in these for t in texts]] = 1
    return vectors
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A working folder with the user's own module, an empty cache and no data anywhere."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mine_cli.py").write_text(MODULE)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    yield folder
    sys.modules.pop("mine_cli", None)


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["stsbench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


@pytest.fixture
def evaluate(cli):
    """`stsbench eval` on the sample, STS-B only, without intervals, into `run`, unless told otherwise."""

    def run(model, *more, data=("--sample",), tasks=("--tasks", "STS-B")):
        usual = {"--resamples": "0", "--output": "run"}
        options = [word for option, value in usual.items() if option not in more for word in (option, value)]
        return cli("eval", "--model", model, *data, *tasks, *options, *more)

    return run


@pytest.fixture
def damaged(tmp_path):
    return Path(shutil.copytree(SAMPLE, tmp_path / "data"))


LINES = ["a cat sleeps", "the dog runs", "a cat sleeps", "", "rain falls", "the old man reads", "birds sing"]


@pytest.fixture
def lines(place):
    path = place / "lines.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture
def tiny(place):
    import tiny_models

    return tiny_models.build(place / "model")


@pytest.fixture
def measured(place):
    return stsbench.evaluate("lexical:token-set", sample=True, resamples=20, output="run")


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def fails(outcome, *parts, code=1):
    """Exit `code`, nothing on stdout, exactly one error line with all `parts`, and no run folder. Returns the line."""
    got, out, err = outcome
    lines = [line for line in err.splitlines() if line.startswith("stsbench: error: ")]
    assert (got, out, len(lines)) == (code, "", 1), (got, out, err)
    assert err.endswith(lines[0] + "\n") and "Traceback" not in err
    for part in parts:
        assert str(part) in lines[0], (part, lines[0])
    assert not Path("run").exists() and not Path("runs").exists()
    return lines[0]


def refuses(kind, words, call, *arguments, **named):
    """A call must end in an error of this kind, one line with these words, a regular expression. Returns the line."""
    with pytest.raises(kind, match=words) as error:
        call(*arguments, **named)
    assert "\n" not in str(error.value)
    return str(error.value)


def record(run="run"):
    [(_, only)] = load_records(run)
    return only.model_dump(mode="json")
