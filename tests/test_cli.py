"""The command line, run: every error is one line that names what is at fault, and nothing half-written stays behind."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stsbench
from stsbench.cli.main import main

SAMPLE = Path(stsbench.__file__).parent / "data" / "sample"
STS12 = "downstream/STS/STS12-en-test"
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

def with_infinity(texts):
    vectors = hashed(texts)
    vectors[texts.index(stsb_texts()[4]), 1] = np.inf
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
    monkeypatch.setenv("COLUMNS", "200")
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
        return cli("eval", "--model", model, *data, *tasks, "--resamples", "0", "--output", "run", *more)

    return run


@pytest.fixture
def damaged(tmp_path):
    """A copy of the sample, to be damaged, as a data folder."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "data"))


@pytest.fixture
def folder(tmp_path):
    """A transformers model without modules.json: nothing says how to pool."""
    return pytest.importorskip("tests.tiny_models" if __package__ else "tiny_models").build(tmp_path / "tiny")


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


def record():
    [path] = Path("run").glob("*.json")
    return json.loads(path.read_text())


# Names -----------------------------------------------------------------------------------------------------------


def test_no_pooler_lists_the_poolers(evaluate, folder):
    every = ("cls", "cls+dense", "mean", "first_last:embeddings", "first_last:layer1", "last2", "max", "mask")
    fails(evaluate(folder), folder, "--pooler", *every)
    fails(evaluate(folder, "--pooler", "first_last:layer"), "first_last:layer1")


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("lexical:token-sets", ["lexical:token-sets", "did you mean 'lexical:token-set'?"]),
        ("lexcal:token-set", ["'lexcal:'", "did you mean 'lexical:'?"]),
        ("no/such-model-here", ["no/such-model-here"]),
        ("./no-such-folder", ["no-such-folder"]),
        ("vectors:none.npz", ["none.npz"]),
        ("words:none.txt", ["none.txt"]),
        ("python:mine_cli:nothing", ["mine_cli.py has no 'nothing'"]),
        ("lexical:", ["names nothing after the colon"]),
    ],
)
def test_unknown_models(evaluate, model, parts):
    fails(evaluate(model, "--offline"), *parts)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--protocol", "stss"], ["unknown protocol 'stss'; did you mean sts?"]),
        (["--protocol", "simsce"], ["unknown protocol 'simsce'; did you mean simcse"]),
        (["--protocol", "sts:wmeen"], ["'wmeen'", "did you mean wmean"]),
        (["--protocol", "sts,retrieval"], ["'retrieval' is not in this version"]),
        (["--tasks", "STS21"], ["unknown task 'STS21' of protocol sts; did you mean STS1"]),
        (["--tasks", "STS12,sickr"], ["unknown task 'sickr'", "SICK-R"]),
        (["--similarity", "cosin"], ["unknown similarity 'cosin'; did you mean cosine?"]),
        (["--without-overlap", "stsb/devel"], ["stsb/devel", "stsb/dev"]),
        (["--pooler", "mean"], ["--pooler does not apply to lexical:token-set"]),
    ],
)
def test_unknown_names(evaluate, words, parts):
    fails(evaluate("lexical:token-set", *words), *parts)


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--sample"],
        ["eval", "--model", "lexical:token-set", "--no-such-option"],
        ["eval", "--model", "lexical:token-set", "--sample", "--data-dir", "x"],
        ["eval", "--model", "lexical:token-set", "--sample", "--cache", "x", "--no-cache"],
        ["eval", "--model", "lexical:token-set", "--sample", "--resamples", "many"],
        ["eval", "--model", "lexical:token-set", "--view", "cooked"],
        ["evla"], ["score"], ["list", "colours"],
    ],
)  # fmt: skip
def test_wrong_usage_exits_with_2(cli, words):
    code, out, err = cli(*words)
    assert code == 2 and out == "" and len([line for line in err.splitlines() if line.startswith("Error:")]) == 1
    assert not Path("runs").exists()
    if words == ["evla"]:
        assert "did you mean eval?" in err


def test_score_show_and_list_name_what_is_unknown(cli):
    fails(cli("score", "nowhere"), "nowhere is no run folder: no such folder")
    Path("empty").mkdir()
    fails(cli("score", "empty"), "empty is no run folder")
    fails(cli("show", "protocol", "simcs"), "did you mean simcse")
    fails(cli("show", "data", "stsb/tset"), "stsb/tset", "stsb/test")


# Data ------------------------------------------------------------------------------------------------------------


def edit(path, line, change):
    """Replace line number `line` (from 1) of a file by change(line)."""
    lines = path.read_text("utf-8").split("\n")
    lines[line - 1] = change(lines[line - 1])
    path.write_text("\n".join(lines), "utf-8")


def test_a_missing_tab_is_named_by_file_and_line(evaluate, damaged):
    path = damaged / STS12 / "STS.input.MSRvid.txt"
    edit(path, 4, lambda line: line.replace("\t", " "))
    outcome = evaluate("lexical:token-set", data=("--data-dir", damaged), tasks=("--tasks", "STS12"))
    fails(outcome, f"{path}:4:", "tab")


def test_input_and_gold_of_different_length(evaluate, damaged):
    path, gold = damaged / STS12 / "STS.input.MSRpar.txt", damaged / STS12 / "STS.gs.MSRpar.txt"
    with gold.open("a") as stream:
        stream.write("1.0\n")
    outcome = evaluate("lexical:token-set", data=("--data-dir", damaged), tasks=("--tasks", "STS12"))
    fails(outcome, path, gold, "9 lines", "10")


@pytest.mark.parametrize(
    ("score", "reason"), [("x1", "'x1' is not a number"), ("5.5", "5.5 is outside 0-5"), ("-1", "-1 is outside"),
                          ("nan", "nan is outside"), ("inf", "inf is outside")],
)  # fmt: skip
def test_scores_that_are_none(evaluate, damaged, score, reason):
    path = damaged / STS12 / "STS.gs.SMTeuroparl.txt"
    edit(path, 7, lambda line: score)
    outcome = evaluate("lexical:token-set", data=("--data-dir", damaged), tasks=("--tasks", "STS12"))
    fails(outcome, f"{path}:7: the score {reason}")


def test_a_wrong_encoding_is_named_by_file_and_line(evaluate, damaged):
    path = damaged / STSB
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"a", b"\xe9", 1)
    path.write_bytes(b"\n".join(lines))
    fails(evaluate("lexical:token-set", data=("--data-dir", damaged)), f"{path}:3: not UTF-8 (byte 0xe9)")


def test_data_that_differ_from_the_catalog(cli, evaluate, damaged):
    data = ("--data-dir", damaged)
    fails(evaluate("lexical:token-set", "--strict-data", data=data), damaged / STSB, "differs from the file known")
    code, out, err = evaluate("lexical:token-set", data=data)
    assert code == 0 and f"warning: {damaged / STSB} differs from the file known" in err
    assert "Data differ from the catalog: stsb/test. Not comparable" in out
    assert record()["data"]["known"] is False and record()["data"]["warnings"]
    code, out, _ = cli("score", "run")
    assert code == 0 and "Not comparable" in out


def test_missing_data_offline_says_three_ways(evaluate, tmp_path):
    fails(
        evaluate("lexical:token-set", "--offline", data=()),
        "stsb/test", "--data-dir", "$STSBENCH_DATA", "stsbench data fetch", "--sample", tmp_path / "cache",
    )  # fmt: skip


def test_a_data_folder_without_the_set(evaluate, damaged):
    (damaged / STSB).unlink()
    fails(evaluate("lexical:token-set", data=("--data-dir", damaged)), damaged / STSB, "is missing")
    fails(evaluate("lexical:token-set", data=("--data-dir", damaged), tasks=()), damaged / STSB, "is missing")
    # Only --protocol all leaves it out, and says so.
    code, out, err = evaluate("lexical:token-set", "--protocol", "all", data=("--data-dir", damaged), tasks=())
    assert code == 0 and "STS-B" not in out and "No average" in out
    [line] = [line for line in err.splitlines() if line.startswith("left out: stsb/test:")]
    assert str(damaged / STSB) in line


def test_without_overlap(evaluate, tmp_path, damaged):
    test, dev = (damaged / "downstream/STS/STSBenchmark" / f"sts-{split}.csv" for split in ("test", "dev"))
    rows = test.read_text("utf-8").splitlines(keepends=True)
    dev.write_text("".join(rows[:10]), "utf-8")
    code, _, err = evaluate("lexical:token-set", "--without-overlap", "stsb/dev", data=("--data-dir", damaged))
    assert code == 0 and "10 of 42 pairs share a sentence with stsb/dev: left out" in err
    assert record()["data"]["n"] == 32 and record()["protocol"]["settings"]["without_overlap"] == ["stsb/dev"]
    shutil.rmtree("run")
    dev.write_text("".join(rows), "utf-8")
    outcome = evaluate("lexical:token-set", "--without-overlap", "stsb/dev", data=("--data-dir", damaged))
    fails(outcome, "stsb/test: no pair is left")


# Vectors ---------------------------------------------------------------------------------------------------------


def test_zero_vectors_are_counted_and_have_cosine_0(evaluate):
    code, _, err = evaluate("python:mine_cli:some_zero")
    assert code == 0 and "STS-B: 5 of 8" in err and "distinct texts have a zero vector (cosine 0)" in err
    assert record()["counts"] == {"zero_vectors": 5, "truncated": 0}
    with np.load(Path("run") / record()["observations"]["file"]) as stored:
        assert 3 <= (stored["similarity"] == 0).sum() <= 10 and np.isfinite(stored["similarity"]).all()


@pytest.mark.parametrize("name", ["with_nan", "with_infinity"])
def test_nan_and_infinity_name_the_text(evaluate, name):
    text = " ".join((SAMPLE / STSB).read_text("utf-8").splitlines()[2].split("\t")[5].split())
    fails(evaluate(f"python:mine_cli:{name}"), f"python:mine_cli:{name}", "NaN or infinity for 1 of", text[:60])


@pytest.mark.parametrize(("name", "shape"), [("too_few", ", 3)"), ("flat", ",)")])
def test_vectors_of_the_wrong_shape(evaluate, name, shape):
    fails(evaluate(f"python:mine_cli:{name}"), f"python:mine_cli:{name} returned", shape, "expected")


def test_constant_predictions_fail_with_a_reason(evaluate):
    code, out, err = evaluate("python:mine_cli:constant")
    assert (code, out) == (1, "") and not Path("run").exists()
    assert "failed: STS-B: all 42 predictions are equal (1): they correlate with nothing" in err
    assert err.endswith("stsbench: error: no task could be scored\n")


def test_one_failed_task_leaves_the_others_and_exits_with_3(cli, evaluate):
    code, out, err = evaluate("python:mine_cli:constant_on_stsb", tasks=("--tasks", "STS-B,SICK-R"))
    assert code == 3 and "SICK-R" in out and "STS-B" not in out
    assert [line for line in err.splitlines() if line.startswith("failed: STS-B: all 42 predictions are equal")]
    assert record()["data"]["task"] == "SICK-R"
    assert len(list(Path("run/observations").iterdir())) == 1
    shutil.rmtree("run")
    code, out, err = evaluate("python:mine_cli:constant_on_stsb", "--json", "-", tasks=())
    assert code == 3 and {row["task"] for row in json.loads(out)} >= {"STS12", "SICK-R"}
    assert "Avg" not in {row["task"] for row in json.loads(out)}


def test_texts_over_the_limit(evaluate, folder):
    words = ("--pooler", "mean", "--max-length", "12", "--device", "cpu", "--no-cache")
    code, _, err = evaluate(folder, *words)
    assert code == 0 and "distinct texts were truncated to the model's limit of 12 tokens" in err
    assert record()["counts"]["truncated"] > 10
    assert f"STS-B: {record()['counts']['truncated']} of " in err
    shutil.rmtree("run")
    fails(evaluate(folder, *words, "--strict"), "texts of stsb/test exceed the", "limit of 12 tokens", "--strict")


def test_strict_leaves_nothing_of_the_tasks_before(evaluate, folder, monkeypatch):
    """--strict refuses the run, not just the rest of it: STS12's texts (shortened here) pass, STS-B's do not."""
    from stsbench.data import sources

    load = sources.load

    def shortened(set_id, **options):
        data = load(set_id, **options)
        if set_id == "sts12/test":
            object.__setattr__(data, "first", tuple(chr(97 + i % 9) for i in range(len(data))))
            object.__setattr__(data, "second", tuple("the " + chr(97 + i // 9) for i in range(len(data))))
        return data

    monkeypatch.setattr(sources, "load", shortened)
    words = ("--pooler", "mean", "--max-length", "12", "--device", "cpu", "--no-cache", "--strict")
    fails(evaluate(folder, *words, tasks=("--tasks", "STS12,STS-B")), "texts of stsb/test exceed")


# Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_full_disk_leaves_nothing_half_written(evaluate, monkeypatch, after):
    """The disk is full after `after` of the run's files: the run folder does not appear, and nothing else stays."""
    sync, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = evaluate("lexical:token-set", tasks=("--tasks", "STS-B,SICK-R"))
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("stsbench: error: cannot write run/") and "No space left on device" in err
    assert not list(Path().glob("*run*")) and not list(Path().glob(".*.tmp"))


def test_a_full_disk_leaves_no_folder_and_no_orphan(evaluate, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    fails(evaluate("lexical:token-set"), "No space left on device")


def test_output_is_never_overwritten(evaluate):
    outs = [evaluate("lexical:token-set") for _ in range(3)]
    assert [code for code, _, _ in outs] == [0, 0, 0]
    assert [err.splitlines()[-1] for _, _, err in outs] == ["run: run", "run: run-2", "run: run-3"]
    first = next(Path("run").glob("*.json"))
    assert (Path("run-2") / first.name).is_file()
    shutil.rmtree("run")
    Path("run").write_text("a file of the user's")
    assert evaluate("lexical:token-set")[2].endswith("run: run-4\n")
    assert Path("run").read_text() == "a file of the user's"


def test_an_output_that_cannot_be_written(cli):
    Path("file").write_text("")
    outcome = cli("eval", "--model", "lexical:token-set", "--sample", "--tasks", "STS-B", "--output", "file/run")
    fails(outcome, "file")


def test_json_is_pure_and_the_same_again(evaluate):
    first = evaluate("lexical:token-set", "--json", "-", "--resamples", "50")
    again = evaluate("lexical:token-set", "--json", "-", "--resamples", "50")
    assert first[0] == again[0] == 0 and first[1] == again[1]
    rows = json.loads(first[1])
    assert {(row["metric"], row["aggregation"]) for row in rows} == {
        (metric, how) for metric in ("spearman", "pearson") for how in ("all", "mean", "wmean")
    }
    assert all(row["low"] < row["value"] < row["high"] and row["n"] == 42 for row in rows)
    assert "sample data: not comparable with published numbers" in first[2]
    code, out, _ = evaluate("lexical:token-set", "--json", "rows.json", "--resamples", "50")
    assert code == 0 and json.loads(Path("rows.json").read_text()) == rows and "STS-B" in out


def test_score_gives_the_same_json(cli, evaluate):
    out = evaluate("lexical:token-set", "--json", "-", "--resamples", "20", tasks=())[1]
    code, again, err = cli("score", "run", "--json", "-")
    assert (code, again) == (0, out) and err == ""


def test_the_sample_is_labelled_wherever_it_shows(cli, evaluate):
    code, out, err = evaluate("lexical:token-set")
    assert code == 0 and "(sample data: not comparable with published numbers)" in out
    assert "text view sample; pairs: stsb/test 42; from sample" in err and "fingerprint" in err
    assert "sample data: not comparable" in cli("score", "run")[1]
    assert record()["data"]["view"] == "sample"


def test_protocol_all_says_what_is_left_out(evaluate):
    from stsbench.plan import PLANNED
    from stsbench.registry import names

    code, out, err = evaluate("lexical:token-set", "--protocol", "all", tasks=())
    assert code == 0 and "Avg (of two-decimal scores, as papers print it)" in out
    lines = [line for line in err.splitlines() if line.startswith("left out: ")]
    want = [name for name in PLANNED if name not in names("stsbench.protocols")]
    assert [line.removeprefix("left out: ").rpartition(": ")[0] for line in lines] == want
    assert all("not in this version of stsbench" in line for line in lines)


def test_a_preset_says_what_it_leaves_out(evaluate):
    code, out, err = evaluate("lexical:token-set", "--protocol", "senteval", tasks=())
    assert code == 0 and "left out: senteval: STS-B and SICK-R go through a trained regressor" in err
    assert "STS16" in out and "STS-B" not in out and "pearson" in out and "spearman" not in out


def test_list_and_show(cli):
    code, out, _ = cli("list", "protocols")
    assert code == 0 and "simcse" in out and "not in this version: " in out
    assert "first_last:layer1" in cli("list", "encoders")[1] and "sick-r/mteb" in cli("list", "data")[1]
    assert "aggregations:" in cli("show", "protocol", "simcse")[1]
    assert "version: 1" in cli("show", "protocol", "sts")[1]
    assert "id: sts12/test" in cli("show", "data", "sts12/test")[1]


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["stsbench", "score", "nowhere", "--debug"])
    with pytest.raises(stsbench.load_records.__globals__["StsbenchError"], match="nowhere"):
        main()


# The program itself ----------------------------------------------------------------------------------------------


def program(*words):
    # The fixtures changed the working folder and the environment: a child process inherits both.
    return subprocess.run([sys.executable, "-m", "stsbench", *words], capture_output=True, text=True, timeout=60)


def test_the_program_s_streams_and_exit_codes():
    sample = ("--sample", "--tasks", "STS-B")
    done = program("eval", "--model", "lexical:token-set", *sample, "--json", "-", "--output", "run")
    assert done.returncode == 0 and len(json.loads(done.stdout)) == 6 and "Traceback" not in done.stderr
    failed = program("eval", "--model", "python:mine_cli:too_few", *sample, "--output", "bad")
    assert failed.returncode == 1 and failed.stdout == "" and not Path("bad").exists()
    assert failed.stderr.splitlines()[-1].startswith("stsbench: error: python:mine_cli:too_few returned ndarray")
    assert program("eval", "--nope").returncode == 2


def test_a_preset_scores_no_task_otherwise_than_its_paper(evaluate):
    """InferSent sends STS-B through a trained regressor: a plain cosine must not carry its name."""
    fails(evaluate("lexical:token-set", "--protocol", "infersent", tasks=("--tasks", "STS-B")), "STS-B", "regressor")
    code, out, err = evaluate("lexical:token-set", "--protocol", "infersent", tasks=("--tasks", "STS12"))
    assert code == 0 and "infersent" in out and "regressor" in err


def test_the_sample_has_no_raw_view(evaluate):
    code, _, err = evaluate("lexical:token-set", "--view", "raw")
    assert code == 2 and "--view" in err
