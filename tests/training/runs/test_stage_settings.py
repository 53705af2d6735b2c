"""What the stages of a run share: the best of all, schedules, the classes of labelled rows; and the runs of several seeds or
subsets, a stage each."""

import json
import shutil
import sys

import nli_files
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from stage_runs import place, recipe_of, refused, run, summary  # noqa: F401
from training_runs import log_of, weights_of

import stsbench
from stsbench.cli.train import train as command
from stsbench.errors import StsbenchError
from stsbench.training.engine.loop import Loop
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.finish import load_trained
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.report import best_dev, over_runs, read_log, shared_line
from stsbench.training.runs.seed_runs import train_seeds, train_subsets


@pytest.fixture(scope="module")
def high(place):
    """A recipe whose second stage spoils what the first gave, the best of all being wanted."""
    stages = {"first.training.epochs": 1.0, "second.training.learning_rate": 0.1}
    return recipe_of(place, selection__over="all", stages=stages)


def test_the_best_of_all_stages(place, high, tmp_path):
    actual, _ = run(tmp_path, "whole", high)
    best = actual["best"]
    lines = [line for line in read_log(tmp_path / "whole" / "log.jsonl") if line["kind"] == "dev" and line["step"] % 2 == 0]
    top = max((line for line in lines if line["step"]), key=lambda line: line["score"])
    assert (best["stage"], best["step"], best["score"]) == (top["stage"], top["step"], top["score"])
    assert best["stage"] == "first" and actual["exported"] == f"step {best['step']} of stage first"
    run(tmp_path, "one", high, stage=1)
    mine, _ = run(tmp_path, "two", high, stage=2, start_from=tmp_path / "one")
    assert mine["best"] == best and mine["exported"] == actual["exported"]
    assert weights_of(tmp_path / "two") == weights_of(tmp_path / "whole")
    assert log_of(tmp_path / "one") + log_of(tmp_path / "two") == log_of(tmp_path / "whole")
    for name in ("whole", "two"):
        said = best_dev(read_log(tmp_path / name / "log.jsonl"))
        assert {key: said[key] for key in ("name", "stage", "step", "score")} == best
        stored = tmp_path / name / "checkpoints" / f"best-first-{best['step']:08d}" / "model.safetensors"
        state = load_trained(tmp_path / name, "cpu").state_dict()
        assert all(torch.equal(state[key], weight) for key, weight in load_file(stored).items())


def test_bests_that_cannot_be_compared(place, high, tmp_path):
    run(tmp_path, "none", recipe_of(place, selection__by="none", training__max_steps=1), stage=1)
    said = refused(place, recipe=high, stage=2, start_from=tmp_path / "none")
    assert "selection.over all" in said and "was not scored on this run's development data" in said
    held_out = recipe_of(place, selection__over="all", selection__by="held-out", data__held_out=10)
    assert "held-out rows do not compare" in refused(place, recipe=held_out)


def test_each_stage_is_scored_by_its_own_held_out_rows(place, tmp_path):
    values = {"selection__by": "held-out", "selection__every": 2, "training__max_steps": 2}
    actual, _ = run(tmp_path, "both", recipe_of(place, data__held_out=10, **values))
    lines = [line for line in read_log(tmp_path / "both" / "log.jsonl") if line["kind"] == "dev"]
    assert {line["stage"] for line in lines} == {"first", "second"} and actual["best"]["stage"] == "second"
    run(tmp_path, "last", recipe_of(place, stages={"second.data.held_out": 10}, **values))
    lines = [line for line in read_log(tmp_path / "last" / "log.jsonl") if line["kind"] == "dev"]
    assert {line["stage"] for line in lines} == {"second"}


def test_a_schedule_that_counts_another_stages_steps(place, tmp_path):
    short = {"first.training.epochs": 0.5, "first.training.schedule_of": "second"}
    alone = run(tmp_path, "alone", recipe_of(place, stages=short), stage=1)[0]
    assert alone["stages"] == {"first": 2} and set(alone["data"]) == {"first"}
    [line] = [line for line in read_log(tmp_path / "alone" / "log.jsonl") if line["kind"] == "train"]
    assert line["learning_rate"] == pytest.approx(1e-3 * 2 / 3)
    long = {"first.training.schedule_of": "second"}
    said = refused(place, recipe=recipe_of(place, stages=long))
    assert "the learning rate of stage first is 0 after the 3 steps of stage second, and it has 6" in said
    constant = recipe_of(place, stages={**long, "first.training.schedule": "constant", "first.training.max_steps": 4})
    assert run(tmp_path, "constant", constant, stage=1)[0]["stages"] == {"first": 4}
    wrong = recipe_of(place, stages={"first.training.schedule_of": "secnd"})
    assert "schedule_of secnd of stage first: toy has no such stage; did you mean second?" in refused(place, recipe=wrong)
    lacking = recipe_of(place, stages={**short, "second.data.file": str(place / "nowhere.txt")})
    assert "nowhere.txt are not here" in refused(place, recipe=lacking, stage=1)


def test_dev_scores_are_of_the_dev_encoder(place, tmp_path, monkeypatch):
    method = sys.modules["toy_stages.method"]

    def dev_inference(self):
        actual = self.inference()
        actual.pooler = "mean"
        return actual

    monkeypatch.setattr(method.Toy, "dev_inference", dev_inference)
    run(tmp_path, "dev", recipe_of(place, training__max_steps=1), stage=1)
    encoder = stsbench.load_encoder(str(tmp_path / "dev"))
    assert encoder.spec.pooler == "cls"
    before = next(line["score"] for line in read_log(tmp_path / "dev" / "log.jsonl") if line["kind"] == "dev")
    monkeypatch.setattr(method.Toy, "dev_inference", method.Method.dev_inference)
    mean, _ = run(tmp_path, "mean", recipe_of(place, backbone__pooler="mean", training__max_steps=1), stage=1)
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
    # a run of an older version does not tell its labels: the weights do
    for path in (tmp_path / "one" / "checkpoints").glob("*/position.json"):
        stored = json.loads(path.read_text())
        labels = stored["inputs"].pop("labels")
        path.write_text(json.dumps(stored))
    actual = refused(two)
    assert actual.startswith(f"--from {tmp_path / 'one'}: its weights do not fit what this run trains")
    assert "size mismatch for nli_classifier.linear.weight" in actual
    # resumed, with other labels in the same file
    path.write_text(json.dumps({**stored, "inputs": {**stored["inputs"], "labels": labels}}))
    (tmp_path / "one" / "train.json").unlink()
    shutil.copy(other, known)
    with pytest.raises(StsbenchError, match=r'^--resume: .* was trained on .* have \["neutral", "no", "yes"\] here'):
        call("one", known, resume=True)


# --- several seeds, several subsets: each goes on from its own earlier run ---


def test_seeds_go_on_from_their_own(place, tmp_path):
    short = {"training__max_steps": 2, "selection__by": "none"}

    def seeds(name, **more):
        options = TrainOptions(recipe=recipe_of(place, **short), output=tmp_path / name, device="cpu", sample=True, **more)
        return train_seeds(options, 2, lambda line: None, None)

    seeds("ones", stage=1)
    seeds("twos", stage=2, start_from=tmp_path / "ones")
    run(tmp_path, "whole", recipe_of(place, seed=43, **short))
    after = weights_of(tmp_path / "twos" / "seed-43")
    assert after == weights_of(tmp_path / "whole")
    assert [summary(tmp_path / "twos" / f"seed-{seed}")["from"]["run"] for seed in (42, 43)] == ["seed-42", "seed-43"]
    assert json.loads((tmp_path / "twos" / "seeds.json").read_text())["shared"] is None
    from_one = over_runs(dict.fromkeys((42, 43), tmp_path / "twos" / "seed-42"))
    assert from_one["shared"] == {"runs": 2, "origins": 1, "stage": "first", "first": "seed-42"}
    assert shared_line({"shared": None}) is None and "of stage first of one run, seed-42" in str(shared_line(from_one))
    shutil.rmtree(tmp_path / "twos" / "seed-43")
    seeds("twos", resume=True)  # neither --stage nor --from: as the first seed began
    assert weights_of(tmp_path / "twos" / "seed-43") == after
    shutil.rmtree(tmp_path / "ones" / "seed-43")
    with pytest.raises(StsbenchError, match="holds no run of seed 43, but seed-42"):
        seeds("lacking", stage=2, start_from=tmp_path / "ones")
    assert not (tmp_path / "lacking").exists()
    with pytest.raises(StsbenchError, match="starts with the weights of stage first"):
        seeds("deep/refused", stage=2)
    assert not (tmp_path / "deep").exists()


def test_subsets_go_on_from_their_own(place, tmp_path, monkeypatch):
    short = {"training__max_steps": 2, "selection__by": "none", "data__share": 0.8}
    few, twos = tmp_path / "few", tmp_path / "twos"

    def subsets(output, count=2, **more):
        options = TrainOptions(recipe=recipe_of(place, **short), output=output, device="cpu", sample=True, **more)
        return train_subsets(options, count, 1, lambda line: None, None)

    def call(*words):
        words = ("toy", "--device", "cpu", "--sample", "--output", twos, *words)
        return CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)

    subsets(few, stage=1)
    run(tmp_path, "whole", recipe_of(place, data__sample_seed=1, **short))
    wanted = weights_of(tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(StopIteration):  # before the second subset has begun
        patch.setattr(Loop, "run", interrupted_after(1, Loop.run))
        call("--stage", 2, "--from", few, "--subsets", 2)
    assert weights_of(twos / "subset-0" / "seed-42") != wanted
    shutil.rmtree(twos / "subset-1", ignore_errors=True)
    done = call("--resume", "--subsets", 2)  # neither --stage nor --from: as the first subset began
    assert done.exit_code == 0, done.output
    assert weights_of(twos / "subset-1" / "seed-42") == wanted  # without --recipe, by that of the run gone on from
    assert summary(twos / "subset-1" / "seed-42")["stages"] == {"second": 2}  # and not both
    assert load_recipe("toy", str(twos / "subset-1" / "seed-42" / "recipe.yaml")).data.sample_seed == 1
    with pytest.raises(StsbenchError, match="holds subset-0, subset-1: name one of them, or go on from each with --subsets"):
        run(tmp_path, "refused", stage=2, start_from=few)
    for path, count, why in ((few, 3, "holds no subset-2, but subset-0, subset-1"), (few, 2, "no run of seed 42, but"),
                             (few / "subset-1", 2, f"subset-1 is one subset of several: name {few}, or a single run")):
        if "seed" in why:
            shutil.move(few / "subset-1" / "seed-42", few / "subset-1" / "seed-43")
        with pytest.raises(StsbenchError, match=why):
            subsets(tmp_path / "refused", count, stage=2, start_from=path)
    assert not (tmp_path / "refused").exists()


def interrupted_after(times, real):
    seen = []

    def stop(*words):
        seen.append(words)
        if len(seen) > times:
            raise StopIteration
        return real(*words)

    return stop
