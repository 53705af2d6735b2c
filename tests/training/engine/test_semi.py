"""Semi-supervised training of any method: its losses against loops, its stages, batches and resumption."""

from __future__ import annotations

import json
import math

import diffcse_oracle
import nli_files
import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from method_oracle import MemoryRows, make, states, tokens
from training_runs import log_of, one_thread, weights_of

import stsbench
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Shares
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.objective import make_objective
from stsbench.training.recipes.method_plan import plan_of
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.finish import load_trained

__all__ = ["one_thread"]
CPU = torch.device("cpu")
TEXTS = tiny_models.sentences(40, longest=9, seed=5)
METHODS = {
    "simcse": {}, "diffcse": {}, "mlm": {"backbone.max_length": 16, "data.held_out": 6, "selection.by": "held-out"},
    "sarcse": {"backbone.pooler": "text_cnn", "backbone.text_cnn": {"kernels": [2, 3], "channels": 6, "fusion_channels": 2}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("semi")
    diffcse_oracle.masked_lm(folder / "tiny", num_hidden_layers=2)
    diffcse_oracle.masked_lm(folder / "generator", seed=12, copies=True, num_hidden_layers=1)
    training_runs.make_text(folder)
    nli_files.triplets(folder)
    nli_files.pairs(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(place, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(place / "cache"))


def values_of(place, method="simcse", procedure="joint", labelled="triplets-30.csv", **more):
    own = {"options.generator": str(place / "generator")} if method == "diffcse" else METHODS[method]
    return nli_files.settings(place / "tiny", place / "text.txt", place / labelled, procedure, **{**own, **more})


def plan_for(place, method="simcse", procedure="joint", **more):
    return plan_of(load_recipe(method, None, [], values_of(place, method, procedure, **more)))


def objective_of(plan, folder, options):
    return make_objective(plan, make(plan.kind, folder, options))


def naive_nli(first, second, labels, linear):
    losses = []
    for u, v, label in zip(first, second, labels, strict=True):
        features = [*u, *v, *(abs(a - b) for a, b in zip(u, v, strict=True))]
        scores = [sum(w * x for w, x in zip(row, features, strict=True)) + b
                  for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)]
        losses.append(math.log(sum(map(math.exp, scores))) - scores[label])
    return sum(losses) / len(losses)


def naive_contrastive(queries, keys, temperature):
    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    losses = []
    for i, query in enumerate(queries):
        scores = [cosine(query, key) / temperature for key in keys]
        losses.append(math.log(sum(map(math.exp, scores))) - scores[i])
    return sum(losses) / len(losses)


def batch(objective, folder, rows, labelled):
    method = objective.method
    make_views = objective.labelled_views if labelled else method.views
    views = make_views(MemoryRows(folder, rows), np.random.default_rng(0))
    return to_batch(views, Shares((5,)), method.backbone.tokenizer.pad_token_id, CPU)


def test_the_joint_loss_of_simcse_is_that_of_loops(place):
    """Contrastive of plain sentences + alpha * Eq. 4 of triplets, both through the MLP head, texts encoded one at a time."""
    folder, alpha = place / "tiny", 0.3
    objective = objective_of(plan_for(place, **{"semi.alpha": alpha}), folder, {})
    method = objective.method
    triplets = {"anchor": TEXTS[5:10], "positive": TEXTS[10:15], "negative": TEXTS[15:20]}
    objective.prepare_labelled(MemoryRows(folder, triplets))
    method.double()
    plain = batch(objective, folder, {"sentence": TEXTS[:5]}, False)
    plain.labelled = batch(objective, folder, triplets, True)
    terms = objective(plain)
    dense = method.head.dense

    def vectors(texts):
        firsts = [state[0].tolist() for state in states(folder, tokens(folder, texts))]
        return [[math.tanh(sum(w * x for w, x in zip(row, first, strict=True)) + b)
                 for row, b in zip(dense.weight.tolist(), dense.bias.tolist(), strict=True)]
                for first in firsts]

    sentences, anchors, positives, negatives = (vectors(TEXTS[start : start + 5]) for start in (0, 5, 10, 15))
    contrastive = naive_contrastive(sentences, sentences, 0.05)
    nli = naive_nli(anchors * 2, positives + negatives, [1] * 5 + [0] * 5, method.nli_classifier.linear)
    loss = sum(term.weight * term.value for term in terms.values())
    assert loss.item() == pytest.approx(contrastive + alpha * nli, abs=1e-6)
    assert {name: term.count for name, term in terms.items()} == {"contrastive": 5, "nli": 10}
    assert terms["nli"].value.item() == pytest.approx(nli, abs=1e-6)


def test_labelled_pairs_have_a_class_a_label(place, tmp_path):
    stsbench.train("simcse", output=tmp_path / "run", device="cpu",
                   settings=values_of(place, procedure="sup-joint", labelled="pairs-30.tsv"))
    assert load_trained(tmp_path / "run").nli_classifier.linear.weight.shape == (3, 96)


@pytest.mark.parametrize(("method", "procedure"), [
    ("simcse", "joint"), ("simcse", "sup-unsup"), *((method, "sup-joint") for method in METHODS)
])
def test_every_procedure_trains_every_method(place, tmp_path, method, procedure):
    run = tmp_path / "run"
    summary = stsbench.train(method, output=run, settings=values_of(place, method, procedure), device="cpu")
    assert summary["stages"] == ({} if procedure == "joint" else {"sup": 3}) | {"main": 3}
    terms = {line["stage"]: set(line["terms"]) for line in log_of(run) if line["kind"] == "train"}
    plain = {"simcse": {"contrastive"}, "diffcse": {"contrastive", "rtd"}, "mlm": {"mlm"},
             "sarcse": {"contrastive", "reconstruction", "reconstruction_positive"}}[method]
    assert terms.pop("main") == (plain if procedure == "sup-unsup" else {*plain, "nli"})
    assert all(found == {"nli"} for found in terms.values())
    again = load_trained(run)
    assert again.nli_classifier.linear.weight.shape[0] == 2 and again.backbone.model is not None
    assert not list((run / "best").glob("*nli*"))


def losses(monkeypatch, run, settings, method="simcse"):
    """The token ids of every batch of a run's main stage, and its log."""
    seen, real = [], Loop._batch

    def kept(self, rows, step, number):
        found = real(self, rows, step, number)
        if self.stage.name == "main":
            seen.append(found.ids.tolist())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_batch", kept)
        stsbench.train(method, output=run, settings=settings, device="cpu")
    return seen, [line for line in log_of(run) if line["kind"] == "train" and line["stage"] == "main"]


@pytest.mark.parametrize("procedure", ["joint", "sup-unsup", "sup-joint"])
def test_the_method_s_batches_are_those_of_the_plain_method(place, tmp_path, monkeypatch, procedure):
    """And with alpha next to 0, without dropout, so is all of the training."""
    more = {"backbone.dropout": 0.0, "training.accumulate": 2, "training.epochs": 3, "training.max_steps": 7}
    semi = values_of(place, procedure=procedure, **more, **({} if procedure == "sup-unsup" else {"semi.alpha": 1e-12}))
    plain = {key: value for key, value in semi.items() if not key.startswith(("semi", "labelled"))}
    batches, log = losses(monkeypatch, tmp_path / "semi", semi)
    expected, reference = losses(monkeypatch, tmp_path / "plain", plain)
    assert batches == expected and len({str(ids) for ids in batches}) == len(batches)
    if procedure == "joint":
        for mine, theirs in zip(log, reference, strict=True):
            assert mine["terms"]["contrastive"] == pytest.approx(theirs["terms"]["contrastive"], abs=1e-5)


def test_the_plan_is_the_method_s_but_for_stages_and_batches(place):
    plain, semi = (plan_of(load_recipe("diffcse", None, [], each)) for each in (
        {key: value for key, value in values_of(place, "diffcse").items() if not key.startswith(("semi", "labelled"))},
        values_of(place, "diffcse", "sup-joint")))
    assert semi.kind is plain.kind and semi.name == plain.name and semi.options == plain.options
    assert semi.stages == ("sup", "main") and semi.method_stages == plain.stages == ("main",)
    assert [semi.stream_of(stage) for stage in ("main", "sup")] == [plain.stream_of("main"), 1] == [0, 1]
    assert [semi.labelled(stage) for stage in semi.stages] == ["only", "with"]
    assert plain.labelled("main") == "none" and plan_for(place, "diffcse", "sup-joint") == semi


def test_the_classifier_is_a_part_of_the_method(place):
    """So that weights, checkpoints and learning rates have the names that the method gives them."""
    objective = objective_of(plan_for(place), place / "tiny", {})
    assert objective.classifier is objective.method.nli_classifier
    method = make(objective.method.__class__, place / "tiny", {})
    assert make_objective(plan_of(load_recipe("simcse")), method) is method
    method.nli_classifier = torch.nn.Linear(1, 1)
    with pytest.raises(StsbenchError, match="simcse has an nli_classifier itself"):
        make_objective(plan_for(place), method)


def test_stage_sup_freezes_what_has_no_gradient_and_main_trains_it(place):
    folder = place / "tiny"
    plan = plan_for(place, "diffcse", "sup-unsup")
    method = make(plan.kind, folder, {"generator": str(place / "generator")})
    triplets = {"anchor": TEXTS[:5], "positive": TEXTS[5:10], "negative": TEXTS[10:15]}
    before = {name for name, weight in method.named_parameters() if weight.requires_grad}
    objective = make_objective(plan, method)
    objective.prepare_labelled(MemoryRows(folder, triplets))
    method.double()
    state = torch.get_rng_state()
    objective.start_stage("sup")
    assert torch.equal(torch.get_rng_state(), state) and method.training
    trained = {name for name, weight in method.named_parameters() if weight.requires_grad}
    assert not any(name.startswith("auxiliary") for name in trained)
    assert {"nli_classifier.linear.weight", "projector.inner.weight"} <= trained
    whole = batch(objective, folder, triplets, True)
    whole.labelled_only = True
    objective(whole)["nli"].value.backward()
    assert all((weight.grad is not None) == (name in trained) for name, weight in method.named_parameters())
    objective.start_stage("main")
    assert {name for name, weight in method.named_parameters() if weight.requires_grad} == before


def stopped(monkeypatch, run, values, after):
    """A run that is broken off in the step after so many, counted over its stages."""
    seen, real = [], Loop._step

    def last(self, step):
        seen.append(step)
        if len(seen) > after:
            raise KeyboardInterrupt
        real(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_step", last)
        with pytest.raises(KeyboardInterrupt):
            stsbench.train("simcse", output=run, settings=values, device="cpu", sample=True)


def test_stopped_and_resumed_in_either_stage_is_the_same_run(place, tmp_path, monkeypatch):
    more = {"training.max_steps": 6, "selection.by": "sts-b dev", "backbone.dropout": 0.1}
    values, whole = values_of(place, procedure="sup-joint", **more), tmp_path / "whole"
    stsbench.train("simcse", output=whole, settings=values, device="cpu", sample=True)
    assert [line["stage"] for line in log_of(whole) if line["kind"] == "start"] == ["sup", "main"]
    for after, checkpoint in ((4, "0-sup-00000003"), (10, "1-main-00000003")):
        run = tmp_path / f"run-{after}"
        stopped(monkeypatch, run, values, after)
        assert max(path.name for path in run.glob("checkpoints/[0-9]*")) == checkpoint
        stsbench.train("simcse", output=run, settings=values, device="cpu", sample=True, resume=True)
        assert log_of(run) == log_of(whole) and weights_of(run) == weights_of(whole)


def test_resume_refuses_other_labelled_rows(place, tmp_path):
    labelled = nli_files.triplets(tmp_path)
    values = values_of(place, procedure="sup-unsup", **{"labelled.file": str(labelled)})
    run = tmp_path / "run"
    stsbench.train("simcse", output=run, settings=values, device="cpu")
    (run / "train.json").unlink()
    with pytest.raises(StsbenchError, match=r"^--resume: labelled\.share was 1\.0 "):
        stsbench.train("simcse", output=run, settings={**values, "labelled.share": 0.5}, device="cpu", resume=True)
    labelled.write_text(labelled.read_text().replace("cat", "dog"))
    with pytest.raises(StsbenchError, match=r"^--resume: the labelled data is not what "):
        stsbench.train("simcse", output=run, settings=values, device="cpu", resume=True)


def test_rows_held_out_of_the_method_s_data_are_scored_by_its_own_loss(place, tmp_path):
    """Without the labelled rows, so that the score is that of the plain method."""
    values = values_of(place, procedure="joint", **{"data.held_out": 10, "selection.by": "held-out", "selection.every": 1,
                                                    "training.max_steps": 1})
    stsbench.train("simcse", output=tmp_path / "semi", settings=values, device="cpu")
    plain = {key: value for key, value in values.items() if not key.startswith(("semi", "labelled"))}
    stsbench.train("simcse", output=tmp_path / "plain", settings=plain, device="cpu")
    first, second = ([line for line in log_of(tmp_path / name) if line["kind"] == "dev"] for name in ("semi", "plain"))
    assert first[0]["score"] == second[0]["score"] and len(first) == 2


def test_what_is_refused(place):
    diffaug = pytest.importorskip("stsbench.methods.diffaug.method").DiffAug.Options().model_dump(mode="json")
    recipe = load_recipe("simcse", None, [], values_of(place)).model_copy(update={"method": "diffaug", "options": diffaug})
    with pytest.raises(StsbenchError, match=r"^semi: the method diffaug uses labelled rows itself: set semi to null$"):
        plan_of(recipe)
    with pytest.raises(StsbenchError, match=r"semi\.alpha 0.1 has no effect with procedure sup-unsup: it goes with proc"):
        load_recipe("simcse", None, [], {**values_of(place), "semi.procedure": "sup-unsup", "semi.alpha": 0.1})


def test_the_recipe_says_so(place, tmp_path):
    values = values_of(place, procedure="sup-joint", **{"training.max_steps": 1, "stages.sup.training.batch_size": 5})
    stsbench.train("simcse", output=tmp_path / "run", settings=values, device="cpu")
    starts = {line["stage"]: line["batch_size"] for line in log_of(tmp_path / "run") if line["kind"] == "start"}
    assert starts == {"sup": 5, "main": 10}
    stored = load_recipe("simcse", str(tmp_path / "run" / "recipe.yaml"))
    assert (stored.semi.procedure, stored.semi.alpha) == ("sup-joint", 1e-3)
    assert json.loads((tmp_path / "run" / "train.json").read_text())["stages"] == {"sup": 1, "main": 1}
