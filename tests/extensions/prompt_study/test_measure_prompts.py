"""Every prompt measured with one load: the scores are those of `evaluate`, and what is made of them is plain arithmetic."""

import csv
import json

import numpy as np
import pytest
from clirun import cli  # noqa: F401
from tiny_models import add_modules, build

from stsbench import evaluate, load_encoder
from stsbench.encoders.transformer import parts
from stsbench.errors import EncoderError
from stsbench.extensions.prompt_study import prompts
from stsbench.extensions.prompt_study.prompts import PromptScore, PromptScores, measure_prompts, read_prompts

PROMPTS = ["the red cat: ", "a man: ", "park: "]
HOW = {"sample": True, "resamples": 50, "no_cache": True}
ONE = ("sts", "STS-B")


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "all"
    return measure_prompts(load_encoder(folder, pooler="mean"), PROMPTS, tasks="STS-B", output=out, **HOW), out


def test_scores_are_those_of_evaluate_behind_the_same_prompt(folder, made):
    scores = {(score.kind, score.prompt): score for score in made[0].scores}
    kinds = [("default", ""), ("no prompt", ""), ("neutral prompt", "text: "), *(("prompt", text) for text in PROMPTS)]
    assert list(scores) == kinds
    for kind, prompt in (("default", None), ("neutral prompt", "text: "), ("prompt", PROMPTS[1])):
        rows = evaluate(str(folder), pooler="mean", protocol="sts:all", tasks="STS-B", prompt=prompt, **HOW).rows
        row = next(row for row in rows if row.metric == "spearman" and row.aggregation == "all")
        score = scores[kind, prompt or ""]
        assert (score.value, score.low, score.high, score.n) == (row.value, row.low, row.high, 42)
    assert len({score.fingerprint for score in made[0].scores}) == 5  # this model has no prompt of its own
    assert len({score.value for score in made[0].scores}) == 5
    names = sorted(path.name for path in made[1].iterdir())
    assert names == ["00-default", "02-neutral-prompt", "03-prompt", "04-prompt", "05-prompt"]


def test_a_prompt_that_cannot_be_measured_costs_no_other(folder, made, monkeypatch):
    """Behind it a server refuses, say, or all vectors are one."""
    def refused(reader, **how):
        if reader.spec.prefix in broken:
            raise EncoderError("all vectors are one")
        return evaluate(reader, **how)

    monkeypatch.setattr(prompts, "evaluate", refused)
    encoder, broken = load_encoder(folder, pooler="mean"), (PROMPTS[1], "text: ")
    scores = measure_prompts(encoder, PROMPTS, tasks="STS-B", log=lambda line: None, **HOW)
    assert scores.failures == tuple(f"{kind} {prompt!r}: all vectors are one" for kind, prompt in
                                    (("neutral prompt", "text: "), ("prompt", PROMPTS[1])))
    assert scores.scores == tuple(score for score in made[0].scores if score.prompt not in broken)
    assert "2 prompts" in repr(scores) and str(scores) and next(iter(scores.rows()))["neutral"] is None
    broken = PROMPTS
    with pytest.raises(EncoderError, match="all vectors are one"):
        measure_prompts(encoder, PROMPTS, tasks="STS-B", log=lambda line: None, **HOW)


def test_a_row_is_plain_arithmetic(made):
    [row] = made[0].rows()
    values = [score.value for score in made[0].task_scores(ONE, "prompt")]
    assert (row["n"], row["min"], row["max"]) == (3, min(values), max(values))
    assert row["mean"] == pytest.approx(sum(values) / 3) and row["sd"] == pytest.approx(np.std(values, ddof=1))
    assert (row["prompts_low"], row["prompts_high"]) == tuple(np.quantile(values, [0.025, 0.975]))
    [default] = made[0].task_scores(ONE, "default")
    assert (row["default"], row["items_low"], row["items_high"]) == (default.value, default.low, default.high)
    assert row["no_prompt"] == default.value and row["percentile"] == sum(value < default.value for value in values) / 3
    text = str(made[0])
    best = max(made[0].task_scores(ONE, "prompt"), key=lambda score: score.value)
    assert f"STS-B: best {best.value:.2f} behind {best.prompt!r}" in text and f"{row['sd']:.2f}" in text
    assert made[0].to_arrow().num_rows == 6 and "3 prompts, 1 task" in repr(made[0])
    [axes] = made[0].plot().axes  # which shows every score
    drawn = {float(x) for line in axes.lines if line.get_linestyle() == "None" or len(line.get_xdata()) != 2
             for x in line.get_xdata()}
    assert {score.value for score in made[0].scores} <= drawn


def test_where_lower_is_better_the_best_is_the_smallest():
    values = {"a: ": 0.5, "b: ": 0.2, "c: ": 0.4}
    rows = [PromptScore("prompt", prompt, "regression", "SICK-R", "mse", value, None, None, 9, "x")
            for prompt, value in values.items()]
    made = PromptScores("m", (PromptScore("default", "", "regression", "SICK-R", "mse", 0.3, None, None, 9, "x"), *rows))
    spread = made.spread(("regression", "SICK-R"))
    assert (spread.percentile, spread.min, spread.max) == (2 / 3, 0.2, 0.5) and spread.headroom == pytest.approx(0.1)
    assert "SICK-R: best 0.20 behind 'b: ', worst 0.50 behind 'a: '" in str(made)


def test_prompts_by_task_are_measured_on_their_task_alone_with_one_load(folder, monkeypatch):
    loads, load = [], parts.load_parts
    monkeypatch.setattr(parts, "load_parts", lambda *how: loads.append(how) or load(*how))
    made = measure_prompts(load_encoder(folder, pooler="mean"), {"STS-B": PROMPTS[:2], "SICK-R": [PROMPTS[2]]},
                           tasks="STS-B,SICK-R", **HOW)
    prompts = {task: [score.prompt for score in made.task_scores(("sts", task), "prompt")] for task in ("STS-B", "SICK-R")}
    assert prompts == {"STS-B": PROMPTS[:2], "SICK-R": PROMPTS[2:]}
    assert len(loads) == 1
    assert [row["n"] for row in made.rows()] == [2, 1] and len(made.task_scores(("sts", "SICK-R"), "no prompt")) == 1


def test_lists_are_read_from_a_file(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone: \r\n\nb\u2028two:\n".encode())
    assert read_prompts(tmp_path / "a.txt") == ["one: ", "b\u2028two:"]
    (tmp_path / "a.yaml").write_text('STS14: ["one: ", two]\nSTS-B: [three]\n')
    assert read_prompts(tmp_path / "a.yaml") == {"STS14": ["one: ", "two"], "STS-B": ["three"]}


def test_prompts_that_a_model_has_by_task_or_by_default_stand_aside(tmp_path):
    stored, how = {"pooling_mode_mean_tokens": True}, {**HOW, "resamples": 0, "tasks": "STS-B"}
    folder = add_modules(build(tmp_path / "d"), stored, prompts={"sts": "the dog: "}, default_prompt_name="sts")
    made = measure_prompts(load_encoder(folder), PROMPTS[:1], **how)
    scores = {score.kind: score for score in made.scores}
    assert scores["default"].prompt == "the dog: " and scores["default"].value != scores["no prompt"].value
    assert len({score.fingerprint for score in made.scores}) == 4
    folder = add_modules(build(tmp_path / "m"), stored, prompts={"STS": "the dog: "})
    values = {score.kind: score.value for score in measure_prompts(load_encoder(folder), PROMPTS[:1], **how).scores}
    for kind, prompt in (("default", None), ("no prompt", "none")):
        rows = evaluate(str(folder), protocol="sts", prompt=prompt, **how).rows
        assert values[kind] == next(row.value for row in rows if row.metric == "spearman")
    assert len(set(values.values())) == 4


def test_the_command_measures_a_file_of_prompts(folder, made, tmp_path, cli):
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS[:2]))
    common = ("eval", "--model", folder, "--pooler", "mean", "--sample", "--no-cache", "--resamples", 50, "--tasks", "STS-B")
    files = ("--output", tmp_path / "run", "--json", tmp_path / "j.json")
    code, out, said = cli(*common, "--prompt-file", tmp_path / "p.txt", *files)
    assert code == 0, said
    with (tmp_path / "run" / "prompts.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["prompt"] for row in rows] == ["", "", "text: ", *PROMPTS[:2]]
    assert [float(row["value"]) for row in rows] == [score.value for score in made[0].scores[:5]]
    assert (tmp_path / "run" / "prompts.png").read_bytes()[:4] == b"\x89PNG"
    code, _, said = cli(*common, "--prompt-file", tmp_path / "p.txt", *files)
    assert code == 1 and "run is already there: choose another output" in said
    [row] = json.loads((tmp_path / "j.json").read_text())
    assert row["n"] == 2 and f"{row['mean']:.2f}" in out
