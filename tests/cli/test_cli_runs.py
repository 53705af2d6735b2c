"""The command line, run: what it writes, prints and says."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clirun import SAMPLE, STS12, STSB, cli, damaged, evaluate, fails, folder, place, record  # noqa: F401 - fixtures

import stsbench
from stsbench.cli.main import main

# Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1])
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
    assert ["run is there already and is left as it is" in err for _, _, err in outs] == [False, True, True]
    assert {path.name for path in Path("run-2").iterdir()} == {"run.parquet", "scores.csv"}
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
    assert "text version sample; items: stsb/test 42; from sample" in err and "fingerprint" in err
    assert "sample data: not comparable" in cli("score", "run")[1]
    assert record()["data"]["view"] == "sample"


def test_list_and_show(cli):
    code, out, _ = cli("list", "protocols")
    assert code == 0 and "simcse" in out and "sts:wmean" in out
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
    fails(evaluate("lexical:token-set", "--protocol", "infersent", tasks=("--tasks", "SICK-R-MTEB")), "SICK-R-MTEB")
    code, out, _ = evaluate("lexical:token-set", "--protocol", "infersent", tasks=("--tasks", "STS12"))
    assert code == 0 and "infersent" in out


def test_the_sample_has_no_raw_text(evaluate):
    code, _, err = evaluate("lexical:token-set", "--text", "raw")
    assert code == 2 and "--text" in err
