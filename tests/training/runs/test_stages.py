"""Two commands, a stage each, give what one command does, bit for bit; what cannot go on from a run is refused."""

import json
import shutil
from types import SimpleNamespace

import pytest
import tiny_models
import torch
from stage_runs import one, place, recipe_of, refused, run, summary, two, whole  # noqa: F401
from training_runs import log_of, weights_of

import stsbench
from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import load_records
from stsbench.files import sha256_file
from stsbench.training.engine import loop
from stsbench.training.engine.callbacks import to_scalars
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.selection import diagnosed
from stsbench.training.runs.finish import load_trained


def test_two_commands_are_one(place, whole, one, two):
    """Whether the second goes on from the first stage alone, or from a run of both."""
    assert log_of(one) + log_of(two) == log_of(whole) and weights_of(two) == weights_of(whole)
    mine, theirs = summary(two), summary(whole)
    for key in ("best", "after", "exported", "dev_data", "seed", "selected_by"):
        assert mine[key] == theirs[key]
    assert {**summary(one)["stages"], **mine["stages"]} == theirs["stages"] == {"first": 6, "second": 3}
    assert {**summary(one)["data"], **mine["data"]} == theirs["data"]
    assert summary(one)["before"] == theirs["before"] and summary(one)["after"] == mine["before"]
    learnt = load_trained(two, "cpu").learnt
    assert float(learnt) == pytest.approx(0.3)  # by the rows of stage first, which the second command never saw
    texts = stsbench.load_encoder(str(two)).traits.training_overlap
    assert texts == (summary(one)["overlap"]["first"], mine["overlap"]["second"])
    assert texts == stsbench.load_encoder(str(whole)).traits.training_overlap and all(text["none"] for text in texts)
    run(place, "from-whole", stage=2, start_from=whole)
    assert weights_of(place / "from-whole") == weights_of(two) and log_of(place / "from-whole") == log_of(two)
    assert {path.name for path in (whole / "checkpoints").glob("[0-9]*")} == {
        "0-first-00000006", "1-second-00000002", "1-second-00000003"}


def test_the_next_stage_begins_with_the_mean_in_two_commands_as_in_one(place):
    recipe = recipe_of(place, training__average__decay=0.5)
    run(place, "mean", recipe)
    run(place, "mean-one", recipe, stage=1)
    run(place, "mean-two", recipe, stage=2, start_from=place / "mean-one")
    first, second = log_of(place / "mean-one"), log_of(place / "mean-two")
    assert first + second == log_of(place / "mean") and weights_of(place / "mean-two") == weights_of(place / "mean")
    average = next((place / "mean-one" / "checkpoints").glob("0-first-*6/average.safetensors"))
    assert summary(place / "mean-two")["from"]["weights"] == sha256_file(average)
    scores = [line["score"] for line in (*first[-2:], *second) if line["kind"] == "dev"]
    assert first[-1] == {"kind": "end", "stage": "first", "step": 6, "averaged": 6} and scores[0] == scores[1]
    assert "scored and exported: the mean of the weights after 3 steps, from 1 on" in run(place, "mean-three", recipe)[1]


def test_the_end_of_a_stage_and_not_its_best(one, two):
    best = summary(one)["best"]
    assert (best["stage"], best["step"] < 6) == ("first", True)  # else this shows nothing
    warm_start = summary(two)["from"]
    digest = sha256_file(one / "checkpoints" / "0-first-00000006" / "model.safetensors")
    assert (warm_start["run"], warm_start["stage"], warm_start["step"], warm_start["seed"]) == ("one", "first", 6, 42)
    assert warm_start["weights"] == digest and warm_start["stages"] == {"first": 6} and warm_start["from"] is None
    assert warm_start["data"] == summary(one)["data"] and summary(two)["stage"] == "second"
    manifest = json.loads((two / "begun.json").read_text())
    assert manifest["origin"] == warm_start and manifest["start_from"] == str(one)


def test_a_methods_own_numbers_stand_beside_each_dev_score(whole):
    assert summary(whole)["best"]["stage"] == "second"  # the last one's, by default
    lines = [line for line in log_of(whole) if line["kind"] == "dev"]
    first = [line for line in lines if line["stage"] == "first"]
    assert [line["step"] for line in first] == [0, 2, 4, 6] and len({line["delta"] for line in first}) == 4
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
    shutil.copytree(one, tmp_path / "damaged")
    weights = tmp_path / "damaged" / "checkpoints" / "0-first-00000006" / "model.safetensors"
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
