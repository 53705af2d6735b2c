"""The command line, run: every error is one line that names what is at fault, and nothing half-written stays behind."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from clirun import SAMPLE, STS12, STSB, cli, damaged, evaluate, fails, folder, place, record  # noqa: F401 - fixtures

from stsbench.evaluation.run_file import load_records, observations_of

# Names -----------------------------------------------------------------------------------------------------------


def test_no_pooler_lists_the_poolers(evaluate, folder):
    every = ("cls", "cls+dense", "mean", "first_last:embeddings", "first_last:layer1", "last2", "max", "mask")
    fails(evaluate(folder), folder, "--pooler", *every)
    line = "--pooler first_last:layer is unknown; did you mean first_last:layer1? (there are cls, "
    fails(evaluate(folder, "--pooler", "first_last:layer"), line)


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
        (["--protocol", "sts:wmeen"], ["'sts:wmeen'", "did you mean sts:wmean"]),
        (["--set", "sts.metric=[pearson]"], ["protocol sts has no setting 'metric'; did you mean metrics"]),
        (["--set", "geometry.alpha=1"], ["geometry.alpha does not apply to protocol sts"]),
        (["--protocol", "geometry", "--similarity", "dot"], ["--similarity does not apply to protocol geometry"]),
        (["--tasks", "STS21"], ["unknown task 'STS21' of protocol sts; did you mean STS1"]),
        (["--tasks", "STS12,sickr"], ["unknown task 'sickr'", "SICK-R"]),
        (["--similarity", "cosin"], ["sts: similarity must be", "not 'cosin'; did you mean cosine?"]),
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
        ["eval", "--model", "lexical:token-set", "--text", "cooked"],
        ["eval", "--model", "lexical:token-set", "--sample", "--tasks", " "],
        ["eval", "--model", "lexical:token-set", "--sample", "--protocol", ","],
        ["evla"], ["score"], ["list", "colours"],
    ],
)
def test_wrong_usage_exits_with_2(cli, words):
    code, out, err = cli(*words)
    assert code == 2 and out == "" and len([line for line in err.splitlines() if line.startswith("Error:")]) == 1
    assert not Path("runs").exists()
    if words == ["evla"]:
        assert "did you mean eval?" in err


def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_measured(evaluate):
    code, out, err = evaluate("lexical:token-set", "--output", os.fsdecode(b"r\xfc"))
    told = r"Error: 'r\udcfc' is not UTF-8: type a text in UTF-8, rename a file"
    assert (code, out) == (2, "") and err.splitlines()[-1].startswith(told)
    assert not list(Path.cwd().glob("r*"))


def test_score_show_and_list_name_what_is_unknown(cli):
    fails(cli("score", "nowhere"), "nowhere is not a run folder: no such folder")
    Path("empty").mkdir()
    fails(cli("score", "empty"), "empty is not a run folder")
    fails(cli("show", "protocol", "simcs"), "did you mean simcse")
    fails(cli("show", "data", "stsb/tset"), "stsb/tset", "stsb/test")


def test_a_training_run_says_where_its_records_are(cli):
    Path("trained").mkdir()
    Path("trained/begun.json").write_text("{}")
    no_records = "trained is a run of `stsbench train`, and holds no records itself"
    fails(cli("score", "trained"), f"{no_records}: stsbench eval --model trained/best --output trained/eval gives some")
    Path("seeds/seed-42").mkdir(parents=True)
    Path("seeds/seeds.json").write_text("{}")
    fails(cli("score", "seeds"), "its seeds were not tested")
    Path("trained/eval").mkdir()
    Path("trained").rename("seeds/seed-43")
    fails(cli("score", "seeds"), "name the run of one seed, as seeds/seed-43")
    fails(cli("score", "seeds/seed-43"), "seeds/seed-43/eval is not a run folder: it holds no run.parquet")


def test_a_training_stands_for_its_test_and_one_of_several_seeds_for_those_of_its_seeds(cli, evaluate):
    for seed, model in (("42", "token-set"), ("43", "tfidf")):
        assert evaluate(f"lexical:{model}", "--output", f"seeds/seed-{seed}/eval")[0] == 0
        Path(f"seeds/seed-{seed}/begun.json").write_text("{}")
    Path("seeds/seeds.json").write_text("{}")
    assert cli("score", "seeds/seed-42")[:2] == cli("score", "seeds/seed-42/eval")[:2]
    fails(cli("compare", "seeds", "seeds/seed-43"), "seeds/seed-42 and seeds/seed-43 differ in more than their seed")


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
)
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
    fails(evaluate("lexical:token-set", data=("--data-dir", damaged)), f"{path}:3: not valid UTF-8 (byte 0xe9)")


def test_data_that_differ_from_the_catalog(cli, evaluate, damaged):
    data = ("--data-dir", damaged)
    fails(evaluate("lexical:token-set", "--strict-data", data=data), damaged / STSB, "differs from the file known")
    code, out, err = evaluate("lexical:token-set", data=data)
    assert code == 0 and f"warning: {damaged / STSB} differs from the file known" in err
    assert "* Data differ from the catalog: stsb/test. Not comparable" in out and "STS-B*" in out
    for form, name in (("latex", "STS-B*"), ("markdown", r"STS-B\*")):
        assert name in cli("score", "run", "--format", form)[1]
    assert record()["data"]["known"] is False and record()["data"]["warnings"]
    code, out, _ = cli("score", "run")
    assert code == 0 and "Not comparable" in out


def test_missing_data_offline_says_three_ways(evaluate, tmp_path):
    fails(
        evaluate("lexical:token-set", "--offline", data=()),
        "stsb/test", "--data-dir", "$STSBENCH_DATA", "stsbench data fetch", "--sample", tmp_path / "cache",
    )


def test_a_data_folder_without_the_set(evaluate, damaged):
    (damaged / STSB).unlink()
    fails(evaluate("lexical:token-set", data=("--data-dir", damaged)), damaged / STSB, "is missing")
    code, out, err = evaluate("lexical:token-set", data=("--data-dir", damaged), tasks=())
    assert code == 3 and "STS-B" not in out and "No average" in out
    [line] = [line for line in err.splitlines() if line.startswith("failed: sts STS-B:")]
    assert f"{damaged / STSB} is missing" in line


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
    [(path, only)] = load_records("run")
    similarity = observations_of(path.parent, only).arrays["similarity"]
    assert 3 <= (similarity == 0).sum() <= 10 and np.isfinite(similarity).all()


@pytest.mark.parametrize("name", ["with_nan", "with_infinity"])
def test_nan_and_infinity_name_the_text(evaluate, name):
    text = " ".join((SAMPLE / STSB).read_text("utf-8").splitlines()[2].split("\t")[5].split())
    code, out, err = evaluate(f"python:mine_cli:{name}")
    assert (code, out) == (1, "") and not Path("run").exists()
    [line] = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert f"sts STS-B: python:mine_cli:{name} returned NaN or infinity for 1 of" in line and text[:60] in line


@pytest.mark.parametrize(("name", "shape"), [("too_few", ", 3)"), ("flat", ",)")])
def test_vectors_of_the_wrong_shape(evaluate, name, shape):
    fails(evaluate(f"python:mine_cli:{name}"), f"python:mine_cli:{name} returned", shape, "expected")


def test_constant_predictions_fail_with_a_reason(evaluate):
    code, out, err = evaluate("python:mine_cli:constant")
    assert (code, out) == (1, "") and not Path("run").exists()
    assert "failed: sts STS-B: all 42 predictions are equal (1): their correlation is undefined" in err
    assert err.endswith("stsbench: error: no task could be scored\n")


def test_one_failed_task_leaves_the_others_and_exits_with_3(cli, evaluate):
    code, out, err = evaluate("python:mine_cli:constant_on_stsb", tasks=("--tasks", "STS-B,SICK-R"))
    assert code == 3 and "SICK-R" in out and "STS-B" not in out
    assert [line for line in err.splitlines() if line.startswith("failed: sts STS-B: all 42 predictions are equal")]
    assert record()["data"]["task"] == "SICK-R"
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
    code, out, err = evaluate(folder, *words, "--strict")
    assert (code, out) == (1, "") and not Path("run").exists()
    [line] = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert "texts of stsb/test exceed the limit of 12 tokens" in line and "--strict" in line


def test_strict_fails_the_task_with_long_texts(evaluate, folder, monkeypatch):
    """STS12's texts (shortened here) pass, STS-B's do not."""
    from stsbench.data.fetch import sources

    load = sources.load

    def shortened(set_id, **options):
        data = load(set_id, **options)
        if set_id == "sts12/test":
            object.__setattr__(data, "first", tuple(chr(97 + i % 9) for i in range(len(data))))
            object.__setattr__(data, "second", tuple("the " + chr(97 + i // 9) for i in range(len(data))))
        return data

    monkeypatch.setattr(sources, "load", shortened)
    words = ("--pooler", "mean", "--max-length", "12", "--device", "cpu", "--no-cache", "--strict")
    code, out, err = evaluate(folder, *words, tasks=("--tasks", "STS12,STS-B"))
    assert code == 3 and "failed: sts STS-B: " in err and "texts of stsb/test exceed" in err and "STS12" in out


@pytest.mark.parametrize("said, expected", [(None, "passive"), ("active", "active")])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(cli, monkeypatch, said, expected):
    if said:
        monkeypatch.setenv("OMP_WAIT_POLICY", said)
    else:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    cli("list", "protocols")
    assert os.environ["OMP_WAIT_POLICY"] == expected
