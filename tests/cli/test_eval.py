"""`stsbench eval` and what reads its runs: what is written, counted, printed, and left behind by an accident; its options,
made of the fields of dataclasses, and the tab key that completes them."""

import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import light_process
import numpy as np
import pytest
from click.testing import CliRunner
from clirun import STSB, cli, damaged, evaluate, fails, measured, place, record, refuses  # noqa: F401 - fixtures

import stsbench
from stsbench.cli.eval import evaluate as eval_command
from stsbench.cli.options import add_options
from stsbench.errors import StsbenchError
from stsbench.evaluation.options import EvalOptions
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.options import extensible, flag_name, option


def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_measured(evaluate):
    code, out, err = evaluate("lexical:token-set", "--output", os.fsdecode(b"r\xfc"))
    assert (code, out) == (2, "") and r"'r\udcfc' is not UTF-8: type a text in UTF-8" in err
    assert not list(Path.cwd().glob("r*"))


def test_a_training_stands_for_its_test_and_one_of_several_seeds_for_those_of_its_seeds(cli, evaluate):
    for seed, model in (("42", "token-set"), ("43", "tfidf")):
        assert evaluate(f"lexical:{model}", "--output", f"seeds/seed-{seed}/eval")[0] == 0
        Path(f"seeds/seed-{seed}/begun.json").write_text("{}")
    Path("seeds/seeds.json").write_text("{}")
    assert cli("score", "seeds/seed-42")[:2] == cli("score", "seeds/seed-42/eval")[:2]
    fails(cli("compare", "seeds", "seeds/seed-43"), "seeds/seed-42 and seeds/seed-43 differ in more than their seed")


def test_json_is_pure_and_the_same_again(cli, evaluate):
    code, out, _ = evaluate("lexical:token-set", "--json", "-", "--resamples", "50")
    assert code == 0 and out == cli("score", "run", "--json", "-")[1]
    rows = json.loads(out)
    scores = {(metric, how) for metric in ("spearman", "pearson") for how in ("all", "mean", "wmean")}
    assert {(row["metric"], row["aggregation"]) for row in rows} == scores
    assert all(row["low"] < row["value"] < row["high"] and row["n"] == 42 for row in rows)
    code, out, _ = cli("score", "run", "--json", "rows.json")
    assert code == 0 and json.loads(Path("rows.json").read_text()) == rows and "STS-B" in out


def test_the_sample_is_labelled_wherever_it_shows_and_quiet_leaves_results_alone(cli, evaluate):
    words = ("--model", "lexical:token-set", "--sample", "--tasks", "STS-B", "--resamples", "0", "--output")
    quiet = cli("--quiet", "eval", *words, "first")
    as_json = cli("eval", "--quiet", *words, "second", "--json", "-")
    assert as_json[2] == "sample data: not comparable with published numbers\n"
    code, out, err = evaluate("lexical:token-set")
    assert "encoder lexical:token-set" in err and quiet == (0, out, "")  # it lasts for one command
    assert code == 0 and "(sample data: not comparable with published numbers)" in out
    assert "text version sample; items: stsb/test 42; from sample" in err and "fingerprint" in err
    assert "sample data: not comparable" in cli("score", "run")[1]
    assert record()["data"]["view"] == "sample"


def test_data_that_differ_from_the_catalog_are_marked_in_every_form(cli, evaluate, damaged):
    code, out, err = evaluate("lexical:token-set", data=("--data-dir", damaged))
    assert code == 0 and f"warning: {damaged / STSB} differs from the file known" in err
    assert "* Data differ from the catalog: stsb/test. Not comparable" in out and "STS-B*" in out
    for form, name in (("latex", "STS-B*"), ("markdown", r"STS-B\*")):
        assert name in cli("score", "run", "--format", form)[1]
    assert record()["data"]["known"] is False and record()["data"]["warnings"]


def test_pairs_that_share_a_sentence_with_another_set_are_left_out(evaluate, damaged):
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


def test_one_failed_task_leaves_the_others_and_exits_with_3(cli, evaluate, damaged):
    (damaged / "downstream/SICK/SICK_test_annotated.txt").unlink()
    code, out, err = evaluate("python:mine_cli:constant_on_stsb", "--json", "-", data=("--data-dir", damaged), tasks=())
    assert code == 3 and {row["task"] for row in json.loads(out)} == {"STS12", "STS13", "STS14", "STS15", "STS16"}
    missing, constant = sorted(line for line in err.splitlines() if line.startswith("failed: sts "))
    assert "SICK_test_annotated.txt is missing" in missing and "STS-B: all 42 predictions are equal" in constant
    said = cli("score", "run")[1]
    assert "No average" in said and "sts, spearman all: STS12" not in said  # nor a line of five scores


def test_zero_vectors_are_counted_and_have_cosine_0(evaluate):
    code, _, err = evaluate("python:mine_cli:some_zero")
    assert code == 0 and "STS-B: 5 of 8" in err and "distinct texts have a zero vector (cosine 0)" in err
    assert record()["counts"] == {"zero_vectors": 5, "truncated": 0}
    [(path, only)] = load_records("run")
    similarity = read_observations(path.parent, only).arrays["similarity"]
    assert 3 <= (similarity == 0).sum() <= 10 and np.isfinite(similarity).all()


def test_texts_over_the_limit_are_counted(evaluate, folder):
    code, _, err = evaluate(folder, "--pooler", "mean", "--max-length", "12", "--device", "cpu", "--no-cache")
    assert code == 0 and "distinct texts were truncated to the model's limit of 12 tokens" in err
    assert record()["counts"]["truncated"] > 10 and f"STS-B: {record()['counts']['truncated']} of " in err


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(cli, monkeypatch, given, expected):
    if given:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    else:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    cli("list", "protocols")
    assert os.environ["OMP_WAIT_POLICY"] == expected


@pytest.mark.parametrize(("words", "said"), [
    (("--truncate-dims", "8", "--prompt-file", "p.txt"), "prompts of a file and smaller copies exclude each other"),
    (("--truncate-dims", "8", "--format", "csv"), "--format csv: smaller copies are printed as a table"),
    (("--truncate-dims", "8", "--processes", "2"), "--processes: smaller copies are measured in one process")])
def test_what_studies_of_extensions_do_not_take_is_wrong_usage(cli, words, said):
    for extension in ("smaller_copies", "prompt_study"):
        pytest.importorskip(f"stsbench.extensions.{extension}")
    code, out, err = cli("eval", "--model", "lexical:token-set", "--sample", "--output", "out", *words)
    assert (code, out) == (2, "") and said in " ".join(err.split()) and not Path("out").exists()


def test_load_gives_what_evaluate_returned(place, measured):
    loaded = stsbench.load("run")
    assert loaded.folder == measured.folder == Path("run") and loaded.rows == measured.rows
    assert loaded.records == measured.records and loaded.summaries == measured.summaries and len(loaded.summaries) > 2
    assert str(loaded) == str(measured) and repr(loaded) == repr(measured)
    assert stsbench.load("run/run.parquet").rows == measured.rows
    table = Path("run/scores.csv")
    whole = table.read_text("utf-8")
    edited = whole.replace(f"{measured.summaries[-1].value}", "99.9")
    assert edited != whole
    table.write_text(edited, "utf-8")
    assert stsbench.load("run").rows == measured.rows  # a table for people is nothing to read scores from


def test_evaluate_takes_what_its_command_takes_and_help_says_its_defaults():
    parameters = dict(inspect.signature(stsbench.evaluate).parameters)
    expected = {entry.name: entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()
                for entry in dataclasses.fields(EvalOptions) if entry.name not in ("model", "command", "extra_provenance")}
    assert set(parameters) - {"model", "protocol", "task", "text", "cache"} == set(expected)
    assert {key: parameters[key].default for key in expected} == expected
    assert all(parameters[key].kind is inspect.Parameter.KEYWORD_ONLY for key in expected)
    lines = [line.split() for line in called("--help").output.splitlines() if line.lstrip().startswith("--")]
    shown = {words[0]: " ".join(words) for words in lines}
    assert "[default: 2.5]" in shown["--limit"] and "default" not in shown["--size"] + shown["--whole"]


def test_what_reads_a_run_loads_no_heavy_library_and_needs_no_data(cli, evaluate):
    evaluate("lexical:token-set")
    commands = [("score", "run", "--json", "-"), ("compare", "run", "run", "--resamples", "40")]
    code = ("import sys; from stsbench.cli.main import main\n"
            f"for words in {commands!r}:\n"
            "    sys.argv = ['stsbench', *words]\n"
            "    try: main()\n    except SystemExit as stop: assert not stop.code\n"
            "heavy = {'torch', 'transformers', 'sklearn', 'tokenizers', 'mteb', 'matplotlib'}\n"
            "assert not heavy & set(sys.modules), sorted(sys.modules)\n")
    done = light_process.run(code)
    assert (done.returncode, done.stdout) == (0, "".join(cli(*words)[1] for words in commands)), done.stderr


@dataclass(frozen=True, kw_only=True)
class Options:
    name: str = option("", "Who.", required=True)
    size: int | None = option(None, "How many.", least=1)
    folder: Path | None = option(None, "Where.", flag="--to")
    kind: str = option("plain", "Of which kind.", choices=("plain", "other"))
    parts: tuple[str, ...] = option(("one", "two"), "Parts.", metavar="A,B")
    limit: float = option(2.5, "Most.")
    whole: bool = option(False, "All.")
    ends: bool | None = option(None, "With ends.")
    values: Mapping[str, Any] = option(dict, "Values.", metavar="KEY=VALUE")
    inner: int = 3  # no option


@click.command()
@add_options(Options)
def command(**options):
    click.echo(repr(sorted(options.items())))


def called(*words):
    return CliRunner().invoke(command, words)


def test_every_type_of_field_has_its_option():
    defaults = {"name": "a", "size": None, "folder": None, "kind": "plain", "parts": "one,two", "limit": 2.5, "whole": False,
                "ends": None, "values": ()}
    assert called("--name", "a").output == f"{sorted(defaults.items())!r}\n"
    told = called("--name", "a", "--size", "2", "--to", "x", "--kind", "other", "--limit", "1", "--whole", "--no-ends",
                  "--values", "a=1", "--values", "b=2", "--parts", "three").output
    named = {"name": "a", "size": 2, "folder": Path("x"), "kind": "other", "parts": "three", "limit": 1.0, "whole": True,
             "ends": False, "values": ("a=1", "b=2")}
    assert told == f"{sorted(named.items())!r}\n"
    assert Options(name="a").values == {} and Options(name="a").parts == ("one", "two")


def test_help_lists_what_many_need_and_help_all_the_rest():
    def listed(word):
        return re.findall(r"^  (?:-h, )?(--[\w-]+)", CliRunner().invoke(eval_command, [word]).output, re.MULTILINE)

    of_extensions = {name for kind in EvalOptions.__mro__ if kind.__module__.startswith("stsbench.extensions")
                     for name in vars(kind).get("__annotations__", {})}
    flags = {entry.name: flag_name(entry) for entry in fields(EvalOptions) if "help" in entry.metadata}
    core = {flag for name, flag in flags.items() if name not in of_extensions}
    shown, everything = {*listed("--help")}, {*listed("--help-all")}
    assert shown < everything and {*flags.values()} <= everything
    assert len(shown - {"--help", "--help-all"}) == 15 and shown & core == shown & {*flags.values()}


def test_an_extension_cannot_take_the_name_of_another_option(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Taking:
        size: int | None = option(7, "Another default.")

    monkeypatch.setattr("stsbench.options.names", lambda group: ["one"])
    monkeypatch.setattr("stsbench.options.resolve", lambda group, name: Taking)
    said = r"Taking .*has the option size of Options .*: give it another name"
    refuses(StsbenchError, said, extensible("a group"), Options)
    refuses(StsbenchError, r"Options .* and Taking .* have the option size twice", add_options, Options, Taking)


@pytest.mark.parametrize(("line", "completed"), [
    ("stsbench eva", "plain,eval\n"), ("stsbench eval --strict-d", "plain,--strict-data\n"),
    ("stsbench eval --text sent", "plain,senteval\n")])
def test_what_is_typed_is_completed(cli, monkeypatch, line, completed):
    """As bash asks: its script puts the line into the environment."""
    asked = {"_STSBENCH_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert cli() == (0, completed, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_read_by_their_shell(cli, shell, tmp_path):
    code, out, err = cli("completion", shell)
    assert code == 0 and err == "" and "_STSBENCH_COMPLETE" in out
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    (tmp_path / "script").write_text(out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
