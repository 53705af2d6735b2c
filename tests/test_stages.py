"""Two commands, a stage each, give what one command does, bit for bit; what cannot go on from a run is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from click.testing import CliRunner
from safetensors.torch import load_file
from training_runs import log_of, one_thread, weights_of

import stsbench
from stsbench import registry
from stsbench.errors import StsbenchError
from stsbench.files import sha256_file
from stsbench.training import recipes
from stsbench.training.loop import Loop
from stsbench.training.recipes import load_recipe
from stsbench.training.report import best_dev, read_log
from stsbench.training.run import TrainOptions, train
from stsbench.training.seed_runs import train_seeds
from stsbench.training.selection import diagnosed
from stsbench.training.subset_runs import train_subsets
from stsbench.training.trackers import to_scalars
from stsbench.training.trained import load_trained

__all__ = ["one_thread"]
KEYS = ("best", "after", "stages", "exported", "data", "dev_data", "seed", "selected_by")


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """A folder with a tiny model, two texts and a recipe; the toy method is installed as a plugin's would be."""
    place = tmp_path_factory.mktemp("stages")
    facts = place / "site" / "toy_stages-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-stages\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[stsbench.methods]\ntoy = toy_stages.method:Toy\n")
    tiny_models.build(place / "tiny", pooler=False)
    for number, name in enumerate(("first", "second")):
        (place / f"{name}.txt").write_text("\n".join(tiny_models.sentences(60, longest=9, seed=number)) + "\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        patch.syspath_prepend(str(place / "site"))
        registry._points.cache_clear()
        yield place
    registry._points.cache_clear()
    recipes.package_of.cache_clear()


def recipe_of(place, *, stages=None, **settings):
    """12 steps in stage first, 6 in stage second; a dev score every 4, a checkpoint every 3."""
    values = {
        "name": "toy", "method": "toy", "backbone": {"model": str(place / "tiny"), "dropout": 0.1},
        "training": {"batch_size": 10, "learning_rate": 1e-3}, "selection": {"every": 4}, "checkpoint_every": 3,
        "stages": {
            "first": {"data": {"file": str(place / "first.txt")}, "training": {"epochs": 2.0}},
            "second": {"data": {"file": str(place / "second.txt")}},
        },
    }  # fmt: skip
    for key, value in settings.items():
        recipes.put(values, key.replace("__", "."), value, "test")
    for key, value in (stages or {}).items():
        recipes.put(values, f"stages.{key}", value, "test")
    return recipes.checked(values, "test")


def run(place, name, recipe=None, **options):
    said = []
    options = {"device": "cpu", "sample": True, **options}
    found = train(TrainOptions(recipe=recipe or recipe_of(place), output=place / name, **options), said.append)
    return found, said


def refused(place, name="refused", recipe=None, **options):
    """The one line; nothing is left behind."""
    with pytest.raises(StsbenchError) as error:
        run(place, name, recipe, **options)
    assert "\n" not in str(error.value) and not (place / name).exists()
    return str(error.value)


@pytest.fixture(scope="module")
def whole(place):
    run(place, "whole")
    return place / "whole"


@pytest.fixture(scope="module")
def one(place):
    """Stage first alone; the data of the other are not there."""
    run(place, "one", recipe_of(place, stages={"second.data.file": str(place / "nowhere.txt")}), stage=1)
    return place / "one"


@pytest.fixture(scope="module")
def two(place, one):
    """Stage second alone; the data of the first are gone."""
    (place / "first.txt").rename(place / "away.txt")
    try:
        run(place, "two", stage="second", start_from=one)
    finally:
        (place / "away.txt").rename(place / "first.txt")
    return place / "two"


def summary(folder):
    return json.loads((folder / "train.json").read_text())


def test_two_commands_are_one(whole, one, two):
    assert log_of(one) + log_of(two) == log_of(whole)
    assert weights_of(two) == weights_of(whole)
    mine, theirs = summary(two), summary(whole)
    assert {key: mine[key] for key in KEYS if key not in ("stages", "data")} == {
        key: theirs[key] for key in KEYS if key not in ("stages", "data")}  # fmt: skip
    assert {**summary(one)["stages"], **mine["stages"]} == theirs["stages"] == {"first": 12, "second": 6}
    assert {**summary(one)["data"], **mine["data"]} == theirs["data"]
    assert summary(one)["before"] == theirs["before"] and summary(one)["after"] == mine["before"]
    learnt = load_trained(two, "cpu").learnt
    assert float(learnt) == pytest.approx(0.6)  # by the rows of stage first, which the second command never saw


def test_a_whole_run_is_gone_on_from_as_well(place, whole, two):
    run(place, "from-whole", stage=2, start_from=whole)
    assert weights_of(place / "from-whole") == weights_of(two) and log_of(place / "from-whole") == log_of(two)
    assert {path.name for path in (whole / "checkpoints").glob("[0-9]*")} == {
        "0-first-00000012", "1-second-00000003", "1-second-00000006"}  # fmt: skip


def test_the_end_of_a_stage_and_not_its_best(one, two):
    best = summary(one)["best"]
    assert (best["stage"], best["step"] < 12) == ("first", True)  # else this shows nothing
    origin = summary(two)["from"]
    digest = sha256_file(one / "checkpoints" / "0-first-00000012" / "model.safetensors")
    assert (origin["run"], origin["stage"], origin["step"], origin["seed"]) == ("one", "first", 12, 42)
    assert origin["weights"] == digest and origin["stages"] == {"first": 12} and origin["from"] is None
    assert origin["data"] == summary(one)["data"] and summary(two)["stage"] == "second"
    begun = json.loads((two / "begun.json").read_text())
    assert begun["origin"] == origin and begun["start_from"] == str(one)
    card = (two / "best" / "README.md").read_text()
    assert "| went on from | the end of stage first (step 12) of the run one, recipe toy, seed 42, weights sha256" in card
    assert digest in card and "first.txt" in card and "second.txt" in card and "second alone" in card
    assert "first alone" in (one / "best" / "README.md").read_text()


def test_each_run_can_be_used(place, one, two):
    for folder in (one, two):
        vectors = stsbench.load_encoder(str(folder)).encode(["A cat sleeps."])
        method = load_trained(folder, "cpu")
        best = summary(folder)["best"]
        stored = load_file(folder / "checkpoints" / f"best-{best['stage']}-{best['step']:08d}" / "model.safetensors")
        assert all(torch.equal(method.state_dict()[key], weight) for key, weight in stored.items())
        batch = method.backbone.tokenizer("A cat sleeps.", return_tensors="pt")
        with torch.no_grad():
            own = method.backbone.pooled(batch["input_ids"], batch["attention_mask"])
        np.testing.assert_allclose(vectors, own.numpy(), atol=1e-5)
    result, _ = run(place, "tested", stage=2, start_from=one, evaluate=["sts"])
    records = [json.loads(path.read_text()) for path in (place / "tested" / "eval").glob("*.json")]
    assert records and all(record["provenance"]["from"] == result["from"] for record in records)
    assert all(record["provenance"]["stage"] == "second" for record in records)


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_a_stopped_second_stage_resumes_without_from(place, one, two, monkeypatch, tmp_path, steps):
    real, seen = Loop._step, []

    def stop(self, step):
        if len(seen) == steps:
            raise KeyboardInterrupt
        seen.append(step)
        real(self, step)

    monkeypatch.setattr(Loop, "_step", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "run", recipe_of(place), stage=2, start_from=one)
    monkeypatch.setattr(Loop, "_step", real)
    for wrong, why in (({"stage": 1}, "began with stage second alone: leave out --stage"),
                       ({"start_from": two}, f"began from {one}: leave out --from")):  # fmt: skip
        with pytest.raises(StsbenchError, match=why):
            run(tmp_path, "run", recipe_of(place), resume=True, **wrong)
    run(tmp_path, "run", recipe_of(place), resume=True)
    assert weights_of(tmp_path / "run") == weights_of(two) and log_of(tmp_path / "run") == log_of(two)
    assert summary(tmp_path / "run")["from"] == summary(two)["from"]


def test_a_stopped_whole_run_resumes_in_either_stage(place, whole, monkeypatch, tmp_path):
    real, seen = Loop._step, []

    def stop(self, step):
        seen.append(step)
        if len(seen) in (8, 19):  # in stage first; then, resumed at step 6, in the fifth step of stage second
            raise KeyboardInterrupt
        real(self, step)

    monkeypatch.setattr(Loop, "_step", stop)
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "run", recipe_of(place), resume=resume)
    run(tmp_path, "run", recipe_of(place), resume=True)
    assert weights_of(tmp_path / "run") == weights_of(whole) and log_of(tmp_path / "run") == log_of(whole)


def test_a_lost_origin_is_needed_only_until_there_is_a_checkpoint(place, one, two, monkeypatch, tmp_path):
    shutil.copytree(one, tmp_path / "one")
    real = Loop._step

    def stop(self, step):
        if step == 4:
            raise KeyboardInterrupt
        real(self, step)

    monkeypatch.setattr(Loop, "_step", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "run", recipe_of(place), stage=2, start_from=tmp_path / "one")
    monkeypatch.setattr(Loop, "_step", real)
    shutil.rmtree(tmp_path / "one")
    run(tmp_path, "run", recipe_of(place), resume=True)
    assert weights_of(tmp_path / "run") == weights_of(two)


def test_what_has_nothing_to_go_on_from(place, one, two):
    assert "--stage 1 --output RUN, then this with --stage 2 --from RUN" in refused(place, stage=2)
    assert "stage first is the first" in refused(place, stage=1, start_from=one)
    assert "all stages begin anew" in refused(place, start_from=one)
    assert "has 2 of them: first, second" in refused(place, stage=3)
    assert "did you mean second?" in refused(place, stage="secnd")
    assert "is no run folder of `stsbench train`" in refused(place, stage=2, start_from=place / "tiny")
    said = refused(place, stage=2, start_from=two)
    assert "it trained stage second alone (it began from one); name the run that trained stage first" in said


def test_a_run_that_does_not_fit(place, one, tmp_path):
    def against(**settings):
        return refused(place, recipe=recipe_of(place, **settings), stage=2, start_from=one)

    assert "options.hidden was 16 there and is 8 here" in against(options__hidden=8)
    assert "options.temperature was 0.05 there and is 0.1 here" in against(options__temperature=0.1)
    assert "backbone.pooler was 'cls' there and is 'mean' here" in against(backbone__pooler="mean")
    assert "backbone.dropout was 0.1 there" in against(backbone__dropout=0.2)
    other = tiny_models.build(tmp_path / "roberta", family="roberta", pooler=False)
    assert f"another backbone: {place / 'tiny'} there, {other} here" in against(backbone__model=str(other))
    shutil.copytree(place / "tiny", tmp_path / "tiny")
    vocabulary = tmp_path / "tiny" / "tokenizer.json"
    vocabulary.write_text(vocabulary.read_text().replace('"guitar"', '"violin"'))
    assert "began with another tokenizer" in against(backbone__model=str(tmp_path / "tiny"))
    shutil.copytree(place / "tiny", tmp_path / "moved")
    shutil.copytree(one, tmp_path / "simcse")
    stored = (tmp_path / "simcse" / "recipe.yaml").read_text().replace("method: toy", "method: simcse")
    (tmp_path / "simcse" / "recipe.yaml").write_text(stored)
    assert "was trained by the method simcse, not by toy" in refused(place, stage=2, start_from=tmp_path / "simcse")
    # the same backbone in another place is the same
    moved, _ = run(tmp_path, "ok", recipe_of(place, backbone__model=str(tmp_path / "moved")), stage=2, start_from=one)
    assert moved["best"] == summary(place / "two")["best"] and moved["from"]["differs"] == {}


def test_a_stage_that_has_not_finished(place, one, monkeypatch, tmp_path):
    real = Loop._step

    def stop(self, step):
        if step == 10:
            raise KeyboardInterrupt
        real(self, step)

    monkeypatch.setattr(Loop, "_step", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "run", recipe_of(place), stage=1)
    monkeypatch.setattr(Loop, "_step", real)
    assert "it has not finished stage first" in refused(place, stage=2, start_from=tmp_path / "run")
    shutil.copytree(one, tmp_path / "damaged")
    weights = tmp_path / "damaged" / "checkpoints" / "0-first-00000012" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    assert "checkpoint is damaged" in refused(place, stage=2, start_from=tmp_path / "damaged")


def test_another_seed_has_its_own_randomness_and_says_so(place, one, two):
    found, said = run(place, "seed", recipe_of(place, seed=7), stage=2, start_from=one)
    assert any("random states are not taken over: seed 42, 1 process(es) there, seed 7, 1 process(es) here" in line
               for line in said)  # fmt: skip
    assert found["from"]["seed"] == 42 and weights_of(place / "seed") != weights_of(two)
    again, _ = run(place, "again", recipe_of(place, seed=7), stage=2, start_from=one)
    assert weights_of(place / "again") == weights_of(place / "seed") and again["best"] == found["best"]


def test_settings_of_the_stage_that_is_over_are_said_to_differ(place, one):
    recipe = recipe_of(place, stages={"first.training.epochs": 1.0, "second.training.learning_rate": 2e-3})
    found, _ = run(place, "differs", recipe, stage=2, start_from=one)
    assert found["from"]["differs"] == {"stages.first.training.epochs": 2.0}
    assert "stages.first.training.epochs 2.0" in (place / "differs" / "best" / "README.md").read_text()


def test_seeds_go_on_from_their_own_or_from_one(place, tmp_path):
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
    seeds("from-one", stage=2, start_from=tmp_path / "ones" / "seed-42")
    assert [summary(tmp_path / "from-one" / f"seed-{seed}")["from"]["seed"] for seed in (42, 43)] == [42, 42]
    shutil.rmtree(tmp_path / "twos" / "seed-43")
    seeds("twos", resume=True)  # neither --stage nor --from: as the first seed began
    assert weights_of(tmp_path / "twos" / "seed-43") == after
    shutil.rmtree(tmp_path / "ones" / "seed-43")
    with pytest.raises(StsbenchError, match="holds no run of seed 43, but seed-42"):
        seeds("lacking", stage=2, start_from=tmp_path / "ones")
    assert not (tmp_path / "lacking").exists()


def test_subsets_go_on_from_their_own(place, tmp_path, monkeypatch):
    from stsbench.cli.train import train as command

    short = {"training__max_steps": 2, "selection__by": "none", "data__share": 0.8}
    few, twos = tmp_path / "few", tmp_path / "twos"

    def subsets(output, count=2, **more):
        options = TrainOptions(recipe=recipe_of(place, **short), output=output, device="cpu", sample=True, **more)
        return train_subsets(options, count, 1, lambda line: None, None)

    def call(*words):
        words = ("toy", "--device", "cpu", "--sample", "--output", twos, *words)
        return CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)

    def refused(path, why, count=2):
        with pytest.raises(StsbenchError, match=why):
            subsets(tmp_path / "refused", count, stage=2, start_from=path)
        assert not (tmp_path / "refused").exists()

    subsets(few, stage=1)
    for number in (0, 1):
        run(tmp_path, f"whole-{number}", recipe_of(place, data__sample_seed=number, **short))
    wanted = [weights_of(tmp_path / f"whole-{number}") for number in (0, 1)]
    assert wanted[0] != wanted[1]
    real = Loop.run
    monkeypatch.setattr(Loop, "run", interrupted_after(1, real))
    with pytest.raises(StopIteration):  # before the second subset has begun
        call("--stage", 2, "--from", few, "--subsets", 2)
    monkeypatch.setattr(Loop, "run", real)
    assert weights_of(twos / "subset-0" / "seed-42") == wanted[0]  # without --recipe, by that of the run gone on from
    shutil.rmtree(twos / "subset-1", ignore_errors=True)
    done = call("--resume", "--subsets", 2)  # neither --stage nor --from: as the first subset began
    assert done.exit_code == 0, done.output
    assert weights_of(twos / "subset-1" / "seed-42") == wanted[1]
    assert summary(twos / "subset-1" / "seed-42")["stages"] == {"second": 2}  # and not both
    assert load_recipe("toy", str(twos / "subset-1" / "seed-42" / "recipe.yaml")).data.sample_seed == 1
    refused(few, "holds no subset-2, but subset-0, subset-1", 3)
    refused(few / "subset-1", f"subset-1 is one subset of several: name {few}, or a single run")
    with pytest.raises(StsbenchError, match="holds subset-0, subset-1: name one of them, or go on from each with --subsets"):
        run(tmp_path, "refused", stage=2, start_from=few)
    shutil.rmtree(few / "subset-1" / "seed-42")
    (few / "subset-1" / "seed-43").mkdir()
    shutil.copy(few / "subset-0" / "seed-42" / "recipe.yaml", few / "subset-1" / "seed-43")
    refused(few, "holds no run of seed 42, but seed-43")


def interrupted_after(times, real):
    seen = []

    def stop(*words):
        seen.append(words)
        if len(seen) > times:
            raise StopIteration
        return real(*words)

    return stop


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


def test_the_best_of_the_last_stage_by_default(whole):
    assert summary(whole)["best"]["stage"] == "second"


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
    whole = run(tmp_path, "whole", recipe_of(place, stages=short))[0]
    assert whole["stages"] == {"first": 3, "second": 6}
    alone = run(tmp_path, "alone", recipe_of(place, stages=short), stage=1)[0]
    assert alone["stages"] == {"first": 3} and set(alone["data"]) == {"first"}
    for name in ("whole", "alone"):
        lines = [line for line in read_log(tmp_path / name / "log.jsonl") if line["kind"] == "train"]
        assert [line["learning_rate"] for line in lines if line["stage"] == "first"] == pytest.approx([1e-3 * 4 / 6])
    assert weights_of(tmp_path / "alone")
    long = {"first.training.schedule_of": "second"}
    said = refused(place, recipe=recipe_of(place, stages=long))
    assert "the learning rate of stage first is 0 after the 6 steps of stage second, and it has 12" in said
    constant = recipe_of(place, stages={**long, "first.training.schedule": "constant"})
    assert run(tmp_path, "constant", constant, stage=1)[0]["stages"] == {"first": 12}
    wrong = recipe_of(place, stages={"first.training.schedule_of": "secnd"})
    assert "schedule_of secnd of stage first: toy has no such stage; did you mean second?" in refused(place, recipe=wrong)
    lacking = recipe_of(place, stages={**short, "second.data.file": str(place / "nowhere.txt")})
    assert "nowhere.txt are not here" in refused(place, recipe=lacking, stage=1)


def test_a_methods_own_numbers_stand_beside_each_dev_score(one, whole):
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


def test_the_command_line(place, one, two, tmp_path):
    from stsbench.cli.train import train as command

    def call(*words):
        return CliRunner().invoke(command, ["toy", "--device", "cpu", "--sample", *map(str, words)], catch_exceptions=False)

    done = call("--from", one)
    assert done.exit_code == 2 and f"--from {one} goes with --stage N" in done.output
    # the recipe is that of the run gone on from
    done = call("--stage", 2, "--from", one, "--set", f"stages.second.data.file={place / 'second.txt'}",
                "--output", tmp_path / "run")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert f"goes on from {one}: stage first, step 12" in done.output and weights_of(tmp_path / "run") == weights_of(two)
    done = call("--resume", "--output", tmp_path / "run")
    assert done.exit_code == 0 and "is finished: nothing to resume" in done.output


def test_a_plain_method_has_one_stage(place, tmp_path):
    text = Path(training_runs.make_text(tmp_path))
    settings = training_runs.settings(place / "tiny", text, **{"training.max_steps": 2, "selection.by": "none"})
    found = stsbench.train("simcse", output=tmp_path / "run", settings=settings, stage=1, device="cpu")
    assert found["stages"] == {"main": 2}
    with pytest.raises(StsbenchError, match="simcse has 1 of them: main"):
        stsbench.train("simcse", output=tmp_path / "other", settings=settings, stage=2, device="cpu")


def with_labels(path, **names):
    """Pairs whose labels have other names."""
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
    said = (f'--from {tmp_path / "one"} tells the labels ["contradiction", "entailment", "neutral"] apart, and the labelled '
            "rows are of {} here: give rows with the same labels")  # fmt: skip
    other = with_labels(tmp_path / "other.tsv", entailment="yes", contradiction="no")
    assert refused(other) == said.format('["neutral", "no", "yes"]')
    two = with_labels(tmp_path / "two.tsv", neutral="contradiction")
    assert refused(two) == said.format('["contradiction", "entailment"]')
    triplets = nli_files.triplets(tmp_path)
    assert refused(triplets) == said.format('["contradiction", "entailment"]')
    # triplets have two classes; pairs of two go on from them by the same names alone
    call("triplets", triplets, stage=1)
    swapped = with_labels(tmp_path / "swapped.tsv", neutral="entailment", contradiction="not entailment")
    assert '["contradiction", "entailment"] apart' in refused(swapped, "triplets")
    call("pairs", two, stage=2, start_from=tmp_path / "triplets")
    # a run of an older version does not tell its labels: the weights do
    shutil.copytree(tmp_path / "one", tmp_path / "old")
    for path in (tmp_path / "old" / "checkpoints").glob("*/position.json"):
        stored = json.loads(path.read_text())
        del stored["inputs"]["labels"]
        path.write_text(json.dumps(stored))
    found = refused(two, "old")
    assert found.startswith(f"--from {tmp_path / 'old'}: its weights do not fit what this run trains")
    assert "size mismatch for nli_classifier.linear.weight" in found
    # resumed, with other labels in the same file
    (tmp_path / "one" / "train.json").unlink()
    shutil.copy(other, known)
    with pytest.raises(StsbenchError, match=r'^--resume: .* tells the labels .* are of \["neutral", "no", "yes"\] here'):
        call("one", known, resume=True)


def test_what_a_method_learns_from_its_first_rows_when_a_stage_comes_before_it(place, tmp_path):
    """With semi the stage sup is no stage of sarcse's: the token weights of Eq. 8 are learnt by the second command."""
    texts = tiny_models.sentences(60, longest=9)
    rows = [",".join(texts[i : i + 3]) for i in range(0, 60, 3)]
    (tmp_path / "nli.csv").write_text("\n".join(["sent0,sent1,hard_neg", *rows]) + "\n")
    values = {
        **training_runs.settings(place / "tiny", place / "second.txt"), "selection.by": "none", "training.max_steps": 2,
        "training.batch_size": 8, "backbone.pooler": "text_cnn", "backbone.text_cnn": {"kernels": [1, 2, 3], "channels": 12},
        "labelled.file": str(tmp_path / "nli.csv"), "semi.procedure": "sup-unsup",
    }  # fmt: skip

    def call(name, **more):
        return stsbench.train("sarcse", output=tmp_path / name, settings=values, device="cpu", **more)

    whole, one = call("whole"), call("one", stage=1)
    two = call("two", stage=2, start_from=tmp_path / "one")
    assert {**one["stages"], **two["stages"]} == whole["stages"] == {"sup": 2, "main": 2}
    assert weights_of(tmp_path / "two") == weights_of(tmp_path / "whole")
    assert log_of(tmp_path / "one") + log_of(tmp_path / "two") == log_of(tmp_path / "whole")
    assert float(load_trained(tmp_path / "two", "cpu").weights.std()) > 0
