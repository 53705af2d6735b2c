"""--quiet, anywhere on the line: results, warnings and errors alone."""

import json

import pytest
from clirun import cli, damaged, evaluate, place, record  # noqa: F401 - fixtures


def test_what_is_measured_is_the_same(evaluate):
    code, out, err = evaluate("lexical:token-set")
    assert code == 0 and "encoder lexical:token-set" in err
    loud = record()["scores"]
    code, quiet_out, err = evaluate("lexical:token-set", "--quiet", "--json", "-", "--output", "again")
    assert (code, err) == (0, "sample data: not comparable with published numbers\n")
    assert [row["value"] for row in json.loads(quiet_out)] == [row["value"] for row in loud] and "STS-B" in out


def test_warnings_and_failures_are_kept(evaluate, damaged):
    code, _, err = evaluate("python:mine_cli:constant", "--quiet", data=("--data-dir", damaged), tasks=("--tasks", "STS12"))
    lines = err.splitlines()
    assert code == 1 and lines[-1] == "stsbench: error: no task could be scored"
    assert lines[-2].startswith("failed: sts STS12")
    assert lines[:-2] and all(line.startswith("warning: ") for line in lines[:-2])


@pytest.mark.parametrize("words", [["--quiet", "list", "post"], ["list", "--quiet", "post"]])
def test_it_lasts_for_one_command(cli, evaluate, words):
    assert cli(*words)[0] == 0
    assert "encoder lexical:token-set" in evaluate("lexical:token-set")[2]
