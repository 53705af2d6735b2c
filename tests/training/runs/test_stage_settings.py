"""What the stages of a run share: the best of all, schedules, diagnostics, and the classes of labelled rows."""

from __future__ import annotations

import json
import shutil
import sys

import nli_files
import pytest
import torch
import training_runs
from safetensors.torch import load_file
from stage_runs import one, place, recipe_of, refused, run, summary, two, whole  # noqa: F401
from training_runs import log_of, weights_of

import stsbench
from stsbench.errors import StsbenchError
from stsbench.training.engine.callbacks import to_scalars
from stsbench.training.engine.selection import diagnosed
from stsbench.training.runs.finish import load_trained
from stsbench.training.runs.report import best_dev, read_log


@pytest.fixture(scope="module")
def high(place):
    """A recipe whose second stage spoils what the first gave, the best of all being wanted."""
    return recipe_of(place, selection__over="all", stages={"second.training.learning_rate": 2e-2})


def test_the_best_of_all_stages(place, high, tmp_path):
    found, _ = run(tmp_path, "whole", high)
    best = found["best"]
    lines = [line for line in read_log(tmp_path / "whole" / "log.jsonl") if line["kind"] == "dev" and line["step"] % 4 == 0]
    top = max((line for line in lines if line["step"]), key=lambda line: line["score"])
    assert (best["stage"], best["step"], best["score"]) == (top["stage"], top["step"], top["score"])
    assert best["stage"] == "first" and found["exported"] == f"step {best['step']} of stage first"
    run(tmp_path, "one", high, stage=1)
    mine, _ = run(tmp_path, "two", high, stage=2, start_from=tmp_path / "one")
    assert mine["best"] == best and mine["exported"] == found["exported"]
    assert weights_of(tmp_path / "two") == weights_of(tmp_path / "whole")
    assert log_of(tmp_path / "one") + log_of(tmp_path / "two") == log_of(tmp_path / "whole")
    for name in ("whole", "two"):
        said = best_dev(read_log(tmp_path / name / "log.jsonl"))
        assert {key: said[key] for key in ("name", "stage", "step", "score")} == best
        stored = tmp_path / name / "checkpoints" / f"best-first-{best['step']:08d}" / "model.safetensors"
        state = load_trained(tmp_path / name, "cpu").state_dict()
        assert all(torch.equal(state[key], weight) for key, weight in load_file(stored).items())


def test_bests_that_cannot_be_compared(place, one, high, tmp_path):
    run(tmp_path, "none", recipe_of(place, selection__by="none"), stage=1)
    said = refused(place, recipe=high, stage=2, start_from=tmp_path / "none")
    assert "selection.over all" in said and "was not scored on this run's development data" in said
    held_out = recipe_of(place, selection__over="all", selection__by="held-out", data__held_out=10)
    assert "held-out rows do not compare" in refused(place, recipe=held_out)


def test_each_stage_is_scored_by_its_own_held_out_rows(place, tmp_path):
    values = {"selection__by": "held-out", "selection__every": 2}
    found, _ = run(tmp_path, "both", recipe_of(place, data__held_out=10, **values))
    lines = [line for line in read_log(tmp_path / "both" / "log.jsonl") if line["kind"] == "dev"]
    assert {line["stage"] for line in lines} == {"first", "second"} and found["best"]["stage"] == "second"
    run(tmp_path, "last", recipe_of(place, stages={"second.data.held_out": 10}, **values))
    lines = [line for line in read_log(tmp_path / "last" / "log.jsonl") if line["kind"] == "dev"]
    assert {line["stage"] for line in lines} == {"second"}


def test_a_schedule_that_counts_another_stages_steps(place, tmp_path):
    short = {"first.training.epochs": 0.5, "first.training.schedule_of": "second"}
    alone = run(tmp_path, "alone", recipe_of(place, stages=short), stage=1)[0]
    assert alone["stages"] == {"first": 3} and set(alone["data"]) == {"first"}
    [line] = [line for line in read_log(tmp_path / "alone" / "log.jsonl") if line["kind"] == "train"]
    assert line["learning_rate"] == pytest.approx(1e-3 * 4 / 6)
    long = {"first.training.schedule_of": "second"}
    said = refused(place, recipe=recipe_of(place, stages=long))
    assert "the learning rate of stage first is 0 after the 6 steps of stage second, and it has 12" in said
    constant = recipe_of(place, stages={**long, "first.training.schedule": "constant"})
    assert run(tmp_path, "constant", constant, stage=1)[0]["stages"] == {"first": 12}
    wrong = recipe_of(place, stages={"first.training.schedule_of": "secnd"})
    assert "schedule_of secnd of stage first: toy has no such stage; did you mean second?" in refused(place, recipe=wrong)
    lacking = recipe_of(place, stages={**short, "second.data.file": str(place / "nowhere.txt")})
    assert "nowhere.txt are not here" in refused(place, recipe=lacking, stage=1)


def test_a_methods_own_numbers_stand_beside_each_dev_score(whole):
    assert summary(whole)["best"]["stage"] == "second"  # the last one's, by default
    lines = [line for line in log_of(whole) if line["kind"] == "dev"]
    first = [line for line in lines if line["stage"] == "first"]
    assert [line["step"] for line in first] == [0, 4, 8, 12] and len({line["delta"] for line in first}) == 4
    assert len({line["kappa"] for line in first}) == 1  # drawn by the same seed every time
    assert all(line["broken"] is None for line in first)
    assert not any("delta" in line for line in lines if line["stage"] == "second")
    scalars = to_scalars(first[0])
    assert set(scalars) == {"first/sts-b-dev-(sample)", "first/delta", "first/kappa"}


def test_diagnosing_leaves_everything_as_it_was(one):
    method = load_trained(one, "cpu")
    method.start_stage("first")
    method.train()
    method.head[1].eval()
    before, state = [module.training for module in method.modules()], torch.get_rng_state()
    assert set(diagnosed(method)) == {"delta", "kappa", "broken"}
    assert [module.training for module in method.modules()] == before and torch.equal(torch.get_rng_state(), state)
    method.diagnose = lambda: {"score": 1.0}
    with pytest.raises(StsbenchError, match="names a number of diagnose 'score'"):
        diagnosed(method)


def test_dev_scores_are_of_the_dev_encoder(place, tmp_path, monkeypatch):
    method = sys.modules["toy_stages.method"]

    def dev_inference(self):
        found = self.inference()
        found.pooler = "mean"
        return found

    monkeypatch.setattr(method.Toy, "dev_inference", dev_inference)
    run(tmp_path, "dev", recipe_of(place), stage=1)
    encoder = stsbench.load_encoder(str(tmp_path / "dev"))
    assert encoder.spec.pooler == "cls"
    before = next(line["score"] for line in read_log(tmp_path / "dev" / "log.jsonl") if line["kind"] == "dev")
    monkeypatch.setattr(method.Toy, "dev_inference", method.Method.dev_inference)
    mean, _ = run(tmp_path, "mean", recipe_of(place, backbone__pooler="mean"), stage=1)
    assert before == mean["before"]


def with_labels(path, **names):
    text = nli_files.pairs(path.parent).read_text("utf-8")
    for old, new in names.items():
        text = text.replace(f"\t{old}", f"\t{new}")
    path.write_text(text, "utf-8")
    return path


def test_other_labels_than_the_classifiers(place, tmp_path):
    known = with_labels(tmp_path / "known.tsv")

    def call(name, labelled, **more):
        values = nli_files.settings(place / "tiny", place / "second.txt", labelled, "sup-joint", **{"training.max_steps": 1})
        return stsbench.train("simcse", output=tmp_path / name, settings=values, device="cpu", **more)

    def refused(labelled, run="one"):
        with pytest.raises(StsbenchError) as error:
            call("two", labelled, stage=2, start_from=tmp_path / run)
        assert "\n" not in str(error.value) and not (tmp_path / "two").exists()
        return str(error.value)

    call("one", known, stage=1)
    said = (f'--from {tmp_path / "one"} was trained on the labels ["contradiction", "entailment", "neutral"], and the '
            "labelled rows have {} here: give rows with the same labels")
    other = with_labels(tmp_path / "other.tsv", entailment="yes", contradiction="no")
    assert refused(other) == said.format('["neutral", "no", "yes"]')
    triplets = nli_files.triplets(tmp_path)
    assert refused(triplets) == said.format('["contradiction", "entailment"]')
    # triplets have two classes; pairs of two go on from them by the same names alone
    call("triplets", triplets, stage=1)
    swapped = with_labels(tmp_path / "swapped.tsv", neutral="entailment", contradiction="not entailment")
    assert 'trained on the labels ["contradiction", "entailment"], and' in refused(swapped, "triplets")
    two = with_labels(tmp_path / "two.tsv", neutral="contradiction")
    call("pairs", two, stage=2, start_from=tmp_path / "triplets")
    # a run of an older version does not tell its labels: the weights do
    for path in (tmp_path / "one" / "checkpoints").glob("*/position.json"):
        stored = json.loads(path.read_text())
        labels = stored["inputs"].pop("labels")
        path.write_text(json.dumps(stored))
    found = refused(two)
    assert found.startswith(f"--from {tmp_path / 'one'}: its weights do not fit what this run trains")
    assert "size mismatch for nli_classifier.linear.weight" in found
    # resumed, with other labels in the same file
    path.write_text(json.dumps({**stored, "inputs": {**stored["inputs"], "labels": labels}}))
    (tmp_path / "one" / "train.json").unlink()
    shutil.copy(other, known)
    with pytest.raises(StsbenchError, match=r'^--resume: .* was trained on .* have \["neutral", "no", "yes"\] here'):
        call("one", known, resume=True)


def test_what_a_method_learns_from_its_first_rows_when_a_stage_comes_before_it(place, tmp_path):
    """With semi the stage sup is no stage of sarcse's: the token weights of Eq. 8 are learnt by the second command."""
    text = shutil.copy(place / "second.txt", tmp_path / "second.txt")
    values = {
        **training_runs.settings(place / "tiny", text), "selection.by": "none", "training.max_steps": 2,
        "training.batch_size": 8, "backbone.pooler": "text_cnn", "backbone.text_cnn": {"kernels": [1, 2, 3], "channels": 12},
        "labelled.file": str(nli_files.triplets(tmp_path, 20)), "semi.procedure": "sup-unsup",
    }

    def call(name, **more):
        return stsbench.train("sarcse", output=tmp_path / name, settings=values, device="cpu", **more)

    whole, one = call("whole"), call("one", stage=1)
    two = call("two", stage=2, start_from=tmp_path / "one")
    assert {**one["stages"], **two["stages"]} == whole["stages"] == {"sup": 2, "main": 2}
    assert weights_of(tmp_path / "two") == weights_of(tmp_path / "whole")
    assert log_of(tmp_path / "one") + log_of(tmp_path / "two") == log_of(tmp_path / "whole")
    text.unlink()  # the weights are there when the text is gone
    assert float(load_trained(tmp_path / "two", "cpu").weights.std()) > 0
