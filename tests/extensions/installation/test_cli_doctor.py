"""`stsbench doctor`: what it says would be measured is what `eval` plans; its exit code says whether something is broken."""

import inspect
import json
from pathlib import Path

import pytest
from clirun import SAMPLE, cli, damaged, place  # noqa: F401 - fixtures

import stsbench
from stsbench.evaluation.api import EvalOptions, _chosen
from stsbench.extensions.installation import checks


def test_a_bare_machine_is_not_broken(cli):
    code, out, err = cli("doctor", "--offline")
    assert (code, err) == (0, "")
    assert "senteval text: 0 of 22 sets; not sts12/test" in out and "--sample has some" in out
    assert "is not asked: --offline" in out and "\n  no data: sts STS12" in out


def test_all_is_what_eval_would_measure(cli, damaged):
    (damaged / "downstream/MR/rt-polarity.neg").unlink()
    (damaged / "downstream/STS/STS12-en-test/STS.gs.MSRpar.txt").unlink()
    code, out, _ = cli("doctor", "--data-dir", damaged, "--offline", "--json", "-")
    said = json.loads(out)["all"]
    options = EvalOptions(model="lexical:token-set", output=Path("run"), protocols=["all"], data_dir=damaged, offline=True)
    _, chosen = _chosen(options, print)
    assert code == 0 and said["measured"] == {each.label: list(sets) for each, sets in chosen if sets}
    assert "STS12" in said["without_data"]["sts"] and "MR" in said["without_data"]["transfer:exact"]


def test_the_user_cache_comes_after_stsbench_data(monkeypatch, tmp_path):
    monkeypatch.setenv("STSBENCH_DATA", str(SAMPLE))
    assert [each.named for each in checks.folders()] == ["$STSBENCH_DATA", "user cache"]
    assert {each.folder for each in checks.sets() if each.text_version == "senteval"} == {SAMPLE}


@pytest.mark.parametrize("data_dir", [None, "nowhere"])
def test_the_function_says_what_the_command_prints(cli, place, data_dir):
    options = ["--data-dir", data_dir] if data_dir else []
    code, out, err = cli("doctor", "--offline", *options)
    report = stsbench.doctor(data_dir=data_dir, offline=True)
    assert str(report) == (out + err).removesuffix("\n") and code == bool(report.problems) == bool(data_dir)
    assert json.loads(json.dumps(report.to_dict())) == json.loads(cli("doctor", "--offline", "--json", "-", *options)[1])
    assert len(repr(report)) < 100 and err.count("\n") == code == err.count("broken: ") == err.count("nowhere")
    cli("doctor", "--offline", "--json", "report.json", *options)
    assert json.loads(Path("report.json").read_text("utf-8")) == report.to_dict() and report.to_dict()["devices"]


def test_doctor_is_the_function_after_its_room_was_imported():
    import stsbench.extensions.installation.report

    assert inspect.isfunction(stsbench.doctor)
