"""An option that excludes, or needs, another one is refused by command, function, recipe and plan in the same words."""

import json
from pathlib import Path

import pytest
from clirun import cli, place  # noqa: F401 - fixtures

import stsbench
from stsbench.errors import StsbenchError

RATE = "options.rate 0.1 has no effect with view dropout: it goes with view crop, delete_words or mlm; leave it at null"


def said(function, *args, **named):
    with pytest.raises(StsbenchError) as caught:
        function(*args, **named)
    return str(caught.value)


def plan_of(**groups):
    Path("plan.yaml").write_text(json.dumps({"output": "out", **groups}), "utf-8")
    return "plan.yaml"


def test_a_method_s_option(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text("method: simcse\nbackbone: {model: minilm}\noptions: {rate: 0.1}\n", "utf-8")
    plan = plan_of(train={"one": {"method": "simcse", "set": {"options.rate": 0.1}}})
    lines = {
        "command": cli("train", "simcse", "--set", "options.rate=0.1", "--sample")[2],
        "function": said(stsbench.train, "simcse", settings={"options.rate": 0.1}, sample=True),
        "recipe": said(stsbench.load_recipe, "own.yaml"),
        "plan": said(stsbench.run_plan, plan, status=True), "plan's command": cli("run", plan, "--status")[2],
    }
    assert all(line.strip().endswith(RATE) and len(line.strip().splitlines()) == 1 for line in lines.values()), lines


@pytest.mark.parametrize(("words", "keywords", "group", "line"), [
    (["--prompt", "a", "--template", "{}"], {"prompt": "a", "template": "{}"}, {"prompt": "a", "template": "{}"},
     "--template {} and --prompt a exclude each other"),
    (["--fit-on", "target"], {"fit_on": "target"}, {"fit_on": "target"}, "--fit-on needs --post"),
    (["--resamples", "10", "--text", "raw", "--sample"], {"resamples": 10, "text": "raw", "sample": True},
     {"resamples": 10, "text": "raw"}, "--text raw and --sample exclude each other: it is its own text version"),
])
def test_an_option_of_an_evaluation(cli, tmp_path, monkeypatch, words, keywords, group, line):
    monkeypatch.chdir(tmp_path)
    plan = plan_of(eval={"one": {"model": "minilm", **group}}, **({"defaults": {"sample": True}} if "text" in group else {}))
    code, _, error = cli("eval", "--model", "minilm", *words)
    assert code == 2 and error.strip().endswith(f"Error: {line}")
    assert said(stsbench.evaluate, "minilm", **keywords) == line
    assert said(stsbench.run_plan, plan, status=True) == f"{plan}: eval.one: {line}"
