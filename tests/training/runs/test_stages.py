"""Two commands, a stage each, give what one command does, bit for bit; what cannot go on from a run is refused. What the
stages of a run share: the best of all, schedules, the classes of labelled rows; and the runs of several seeds or subsets, a
stage each."""

import json
import shutil
from types import SimpleNamespace

import nli_files
import pytest
import tiny_models
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from stage_runs import one, place, recipe_of, refused, run, summary, two, whole  # noqa: F401
from training_runs import log_of, weights_of

import stsbench
from stsbench.cli.train import train as command
from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import load_records
from stsbench.files import sha256_file
from stsbench.training.engine import loop
from stsbench.training.engine.callbacks import to_scalars
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.selection import diagnosed
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.finish import load_trained
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.report import best_dev, over_runs, read_log, shared_line
from stsbench.training.runs.seed_runs import train_seeds, train_subsets


def test_two_commands_are_one(place, whole, one, two):
    """Whether the second goes on from the first stage alone, or from a run of both."""
    assert log_of(one) + log_of(two) == log_of(whole) and weights_of(two) == weights_of(whole)
    mine, theirs = summary(two), summary(whole)
    for key in ("best", "after", "exported", "dev_data", "seed", "selected_by"):
        assert mine[key] == theirs[key]
    assert {**summary(one)["stages"], **mine["stages"]} == theirs["stages"] == {"first": 6, "second": 3}
    assert {**summary(one)["data"], **mine["data"]} == theirs["data"]
    assert summary(one)["before"] == theirs["before"] and summary(one)["after"] == mine["before"]
    # by the rows of stage first, which the second command never saw
    assert float(load_trained(two, "cpu").learnt) == pytest.approx(0.3)
    texts = stsbench.load_encoder(str(two)).traits.training_overlap
    assert texts == (summary(one)["overlap"]["first"], mine["overlap"]["second"])
    assert texts == stsbench.load_encoder(str(whole)).traits.training_overlap and all(text["none"] for text in texts)
    run(place, "from-whole", stage=2, start_from=whole)
    assert weights_of(place / "from-whole") == weights_of(two) and log_of(place / "from-whole") == log_of(two)
    assert {path.name for path in (whole / "checkpoints").glob("[0-9]*")} == {
        "0-first-00000006", "1-second-00000002", "1-second-00000003"}
    best = summary(one)["best"]  # the second goes on from the end of the first, and not from its best
    assert (best["stage"], best["step"] < 6) == ("first", True)  # else this shows nothing
    warm_start = summary(two)["from"]
    assert (warm_start["run"], warm_start["stage"], warm_start["step"], warm_start["seed"]) == ("one", "first", 6, 42)
    assert warm_start["weights"] == sha256_file(one / "checkpoints" / "0-first-00000006" / "model.safetensors")
    assert warm_start["stages"] == {"first": 6} and warm_start["from"] is None
    assert warm_start["data"] == summary(one)["data"] and summary(two)["stage"] == "second"
    manifest = json.loads((two / "begun.json").read_text())
    assert manifest["origin"] == warm_start and manifest["start_from"] == str(one)
    # a method's own numbers stand beside each dev score
    assert summary(whole)["best"]["stage"] == "second"  # the last one's, by default
    lines = [line for line in log_of(whole) if line["kind"] == "dev"]
    first = [line for line in lines if line["stage"] == "first"]
    assert [line["step"] for line in first] == [0, 2, 4, 6] and len({line["delta"] for line in first}) == 4
    assert len({line["kappa"] for line in first}) == 1  # drawn by the same seed every time
    assert all(line["broken"] is None for line in first)
    assert not any("delta" in line for line in lines if line["stage"] == "second")
    assert set(to_scalars(first[0])) == {"first/sts-b-dev-(sample)", "first/delta", "first/kappa"}


def test_the_next_stage_begins_with_the_mean_in_two_commands_as_in_one(place):
    recipe = recipe_of(place, training__average__decay=0.5, training__max_steps=2)
    _, said = run(place, "mean", recipe)
    run(place, "mean-one", recipe, stage=1)
    run(place, "mean-two", recipe, stage=2, start_from=place / "mean-one")
    first, second = log_of(place / "mean-one"), log_of(place / "mean-two")
    assert first + second == log_of(place / "mean") and weights_of(place / "mean-two") == weights_of(place / "mean")
    average = next((place / "mean-one" / "checkpoints").glob("0-first-*2/average.safetensors"))
    assert summary(place / "mean-two")["from"]["weights"] == sha256_file(average)
    scores = [line["score"] for line in (*first[-2:], *second) if line["kind"] == "dev"]
    assert first[-1] == {"kind": "end", "stage": "first", "step": 2, "averaged": 2} and scores[0] == scores[1]
    assert "scored and exported: the mean of the weights after 2 steps, from 1 on" in said


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


def stop_before(monkeypatch, number, place, name, **options):
    """A run that is broken off before it takes its `number`-th step, counted from 0."""
    real, steps = Loop._step, []

    def stop(self, step):
        if len(steps) == number:
            raise KeyboardInterrupt
        steps.append(step)
        real(self, step)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Loop, "_step", stop)
        run(place, name, **options)


@pytest.mark.parametrize("steps", [0, 2])
def test_a_stopped_second_stage_resumes_without_from(place, one, two, monkeypatch, tmp_path, steps):
    """The earlier run is needed only until there is a checkpoint."""
    origin = shutil.copytree(one, tmp_path / "one")
    stop_before(monkeypatch, steps, tmp_path, "run", recipe=recipe_of(place), stage=2, start_from=origin)
    for wrong, why in (({"stage": 1}, "began with stage second alone: leave out --stage"),
                       ({"start_from": two}, f"began from {origin}: leave out --from")):
        with pytest.raises(StsbenchError, match=why):
            run(tmp_path, "run", recipe_of(place), resume=True, **wrong)
    if steps:
        shutil.rmtree(origin)
    run(tmp_path, "run", recipe_of(place), resume=True)
    assert weights_of(tmp_path / "run") == weights_of(two) and log_of(tmp_path / "run") == log_of(two)
    assert summary(tmp_path / "run")["from"] == summary(two)["from"]


def test_a_stopped_whole_run_resumes_in_either_stage_and_counts_the_seconds_of_all(place, whole, monkeypatch, tmp_path):
    """By a clock on which each step takes a hundred; those that are taken again count once."""
    now, real = [5000.0], Loop._step

    def timed(self, step):
        now[0] += 100
        real(self, step)

    monkeypatch.setattr(Loop, "_step", timed)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stop_before(monkeypatch, 3, tmp_path, "run", recipe=recipe_of(place))  # in stage first
    stop_before(monkeypatch, 6, tmp_path, "run", recipe=recipe_of(place), resume=True)  # from step 2 on: in stage second
    run(tmp_path, "run", recipe_of(place), resume=True)
    assert weights_of(tmp_path / "run") == weights_of(whole) and log_of(tmp_path / "run") == log_of(whole)
    assert summary(tmp_path / "run")["seconds"] == 100 * (6 + 3)


def test_what_has_nothing_to_go_on_from_or_has_not_finished(place, one, two, monkeypatch, tmp_path):
    assert "--stage 1 --output RUN, then this with --stage 2 --from RUN" in refused(place, stage=2)
    assert "stage first is the first" in refused(place, stage=1, start_from=one)
    assert "--from needs --stage N" in refused(place, start_from=one)
    assert "is not a run folder of `stsbench train`" in refused(place, stage=2, start_from=place / "tiny")
    said = refused(place, stage=2, start_from=two)
    assert "it trained stage second alone (it began from one); name the run that trained stage first" in said
    stop_before(monkeypatch, 5, tmp_path, "run", recipe=recipe_of(place), stage=1)
    assert "it has not finished stage first" in refused(place, stage=2, start_from=tmp_path / "run")
    weights = shutil.copytree(one, tmp_path / "damaged") / "checkpoints" / "0-first-00000006" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    assert "checkpoint is damaged" in refused(place, stage=2, start_from=tmp_path / "damaged")


def test_a_run_that_does_not_fit(place, one, tmp_path):
    def against(**settings):
        return refused(place, recipe=recipe_of(place, **settings), stage=2, start_from=one)

    assert "options.hidden was 16 there and is 8 here" in against(options__hidden=8)
    assert "backbone.dropout was 0.1 there" in against(backbone__dropout=0.2)
    other = tiny_models.build(tmp_path / "roberta", family="roberta", pooler=False)
    assert f"another backbone: {place / 'tiny'} there, {other} here" in against(backbone__model=str(other))
    nowhere = against(backbone__model=str(place / "nowhere"))
    assert nowhere.endswith(f"; --from {one} began with {place / 'tiny'}: --backbone names it")
    vocabulary = shutil.copytree(place / "tiny", tmp_path / "tiny") / "tokenizer.json"
    vocabulary.write_text(vocabulary.read_text().replace('"guitar"', '"violin"'))
    assert "began with another tokenizer" in against(backbone__model=str(tmp_path / "tiny"))
    shutil.copytree(place / "tiny", tmp_path / "moved")
    stored = shutil.copytree(one, tmp_path / "simcse") / "recipe.yaml"
    stored.write_text(stored.read_text().replace("method: toy", "method: simcse"))
    assert "was trained by the method simcse, not by toy" in refused(place, stage=2, start_from=tmp_path / "simcse")
    # the same backbone in another place is the same
    moved, _ = run(tmp_path, "ok", recipe_of(place, backbone__model=str(tmp_path / "moved")), stage=2, start_from=one)
    assert moved["best"] == summary(place / "two")["best"] and moved["from"]["differs"] == {}


def test_another_seed_has_its_own_randomness_and_other_settings_of_the_stage_that_is_over_are_said(place, one, two):
    """And records say what was gone on from."""
    pairs = place / "own.tsv"
    pairs.write_text("sentence1\tsentence2\tscore\na cat\tthe cat\t4\na dog\tthe park\t1\na man\ta woman\t2\n", "utf-8")
    stages = {"first.training.epochs": 1.0, "second.training.learning_rate": 2e-3}
    actual, said = run(place, "differs", recipe_of(place, seed=7, stages=stages), stage=2, start_from=one,
                      evaluate=[f"sts:{pairs}"])
    assert any("random states are not taken over: seed 42, 1 process(es) there, seed 7, 1 process(es) here" in line
               for line in said)
    assert actual["from"]["seed"] == 42 and weights_of(place / "differs") != weights_of(two)
    assert actual["from"]["differs"] == {"stages.first.training.epochs": 2.0}
    data = {name: each["digest"] for name, each in actual["data"].items()}
    records = [record.provenance for _, record in load_records(place / "differs" / "eval")]
    assert records and data
    for record in records:  # seeds are paired by the backbone and the training text, whatever their files are called
        assert (record["from"], record["stage"], record["data"]) == (actual["from"], "second", data)
        assert len(record["backbone"]) == 64


# --- what the stages share ---


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
    """A stage that holds out none has no score."""
    values = {"selection__by": "held-out", "selection__every": 2, "training__max_steps": 2}
    actual, _ = run(tmp_path, "last", recipe_of(place, stages={"second.data.held_out": 10}, **values))
    lines = [line for line in read_log(tmp_path / "last" / "log.jsonl") if line["kind"] == "dev"]
    assert {line["stage"] for line in lines} == {actual["best"]["stage"]} == {"second"}


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

    def refused(labelled):
        with pytest.raises(StsbenchError) as error:
            call("two", labelled, stage=2, start_from=tmp_path / "one")
        assert "\n" not in str(error.value) and not (tmp_path / "two").exists()
        return str(error.value)

    call("one", known, stage=1)
    said = (f'--from {tmp_path / "one"} was trained on the labels ["contradiction", "entailment", "neutral"], and the '
            "labelled rows have {} here: give rows with the same labels")
    other = with_labels(tmp_path / "other.tsv", entailment="yes", contradiction="no")
    assert refused(other) == said.format('["neutral", "no", "yes"]')
    assert refused(nli_files.triplets(tmp_path)) == said.format('["contradiction", "entailment"]')
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
    assert [summary(tmp_path / "twos" / f"seed-{seed}")["from"]["run"] for seed in (42, 43)] == ["seed-42", "seed-43"]
    assert json.loads((tmp_path / "twos" / "seeds.json").read_text())["shared"] is None
    from_one = over_runs(dict.fromkeys((42, 43), tmp_path / "twos" / "seed-42"))
    assert from_one["shared"] == {"runs": 2, "origins": 1, "stage": "first", "first": "seed-42"}
    assert shared_line({"shared": None}) is None and "of stage first of one run, seed-42" in str(shared_line(from_one))
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
    began, real = [], Loop.run

    def stop(*words):
        began.append(words)
        if len(began) > 1:
            raise StopIteration
        return real(*words)

    with monkeypatch.context() as patch, pytest.raises(StopIteration):  # before the second subset has begun
        patch.setattr(Loop, "run", stop)
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
