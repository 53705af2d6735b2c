"""Semi-supervised training of any method: its loss on vectors read one at a time, stages, batches and labels."""

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
from method_oracle import MemoryRows, make, states, tokens
from training_runs import log_of

import stsbench
from stsbench import losses
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Shares
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.objective import make_objective
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import split_shares, to_batch
from stsbench.training.runs.finish import load_trained

TEXTS = tiny_models.sentences(60, longest=9, seed=5)
TRIPLETS = {role: TEXTS[start : start + 5] for role, start in (("anchor", 10), ("positive", 20), ("negative", 30))}


@pytest.fixture(scope="module", autouse=True)
def labelled(place):
    tiny_models.masked_lm(place / "tiny", num_hidden_layers=1)
    nli_files.triplets(place)


def values_of(place, method="simcse", procedure="joint", labelled="triplets-30.csv", **more):
    own = {"options.generator": str(place / "tiny")} if method == "diffcse" else {}
    return nli_files.settings(place / "tiny", place / "text.txt", place / labelled, procedure, **{**own, **more})


def without_labels(values):
    return {key: value for key, value in values.items() if not key.startswith(("semi", "labelled"))}


def train(output, values, **more):
    return stsbench.train("simcse", output=output, settings=values, device="cpu", **more)


def plan_for(place, method="simcse", procedure="joint", **more):
    return load_plan(load_recipe(method, None, [], values_of(place, method, procedure, **more)))


def objective_of(place, plan, **options):
    """In float64, its classifier made by the triplets."""
    objective = make_objective(plan, make(plan.kind, place / "tiny", options or plan.options.model_dump()))
    objective.prepare_labelled(MemoryRows(place / "tiny", TRIPLETS))
    objective.method.double()
    return objective


def batch_of(objective, rows, split=None, rank=0):
    """Of labelled rows where they have several texts; of two processes that of `rank`."""
    method, count = objective.method, len(next(iter(rows.values())))
    make_views = method.views if "sentence" in rows else objective.labelled_views
    views = make_views(MemoryRows(method.backbone.folder, rows), np.random.default_rng(0))
    shares = Shares((count,)) if split is None else split_shares(count, 2, rank)
    return to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def test_the_joint_loss_of_simcse_is_that_of_vectors_read_one_at_a_time(place):
    """Contrastive of plain sentences + alpha * Eq. 4 of triplets, both through the MLP head."""
    folder, alpha = place / "tiny", 0.3
    objective = objective_of(place, plan_for(place, **{"semi.alpha": alpha}))
    method = objective.method
    batch = batch_of(objective, {"sentence": TEXTS[:5]})
    batch.labelled = batch_of(objective, TRIPLETS)
    terms = objective(batch)
    dense, linear = method.head.dense, method.nli_classifier.linear

    def vectors(texts):
        firsts = torch.stack([state[0] for state in states(folder, tokens(folder, texts))])
        return torch.tanh(firsts @ dense.weight.T + dense.bias)

    contrastive = losses.simcse(vectors(TEXTS[:5]), vectors(TEXTS[:5]))
    anchors, positives, negatives = map(vectors, TRIPLETS.values())
    labels = torch.tensor([1] * 5 + [0] * 5)
    nli = losses.sbert_nli(torch.cat([anchors] * 2), torch.cat([positives, negatives]), labels, linear.weight, linear.bias)
    loss = sum(term.weight * term.value for term in terms.values())
    assert loss.item() == pytest.approx((contrastive + alpha * nli).item(), abs=1e-6)
    assert {name: term.count for name, term in terms.items()} == {"contrastive": 5, "nli": 10}
    assert terms["nli"].value.item() == pytest.approx(nli.item(), abs=1e-6)


def test_stages_terms_and_classes_of_a_run_which_is_resumed_with_the_same_labelled_rows_only(place, tmp_path):
    labelled = nli_files.pairs(tmp_path)
    values = values_of(place, procedure="sup-unsup", labelled=labelled, **{
        "stages.sup.training.batch_size": 5, "training.accumulate": 2, "training.epochs": 1, "training.max_steps": 4})
    assert train(tmp_path / "run", values)["stages"] == {"sup": 3, "main": 3}
    log = log_of(tmp_path / "run")
    assert {line["stage"]: line["batch_size"] for line in log if line["kind"] == "start"} == {"sup": 5, "main": 10}
    terms = {line["stage"]: set(line["terms"]) for line in log if line["kind"] == "train"}
    assert terms == {"sup": {"nli"}, "main": {"contrastive"}}
    assert load_trained(tmp_path / "run").nli_classifier.linear.weight.shape[0] == 3
    assert not list((tmp_path / "run" / "best").glob("*nli*"))
    (tmp_path / "run" / "train.json").unlink()
    labelled.write_text(labelled.read_text().replace("cat", "dog"))
    with pytest.raises(StsbenchError, match=r"^--resume: the labelled data is not what "):
        train(tmp_path / "run", values, resume=True)


def test_the_methods_batches_are_those_of_the_plain_method(place, tmp_path, monkeypatch):
    """And with alpha next to 0, without dropout, so is all of the training."""
    more = {"backbone.dropout": 0.0, "training.accumulate": 2, "training.epochs": 3, "training.max_steps": 4}
    joint = values_of(place, **more, **{"semi.alpha": 1e-12})
    runs = {"plain": without_labels(joint), "joint": joint}
    ids, losses, real = {name: [] for name in runs}, {}, Loop._batch
    for name, values in runs.items():
        def kept(self, rows, step, number, name=name):
            batch = real(self, rows, step, number)
            ids[name].append(batch.ids.tolist())
            return batch

        monkeypatch.setattr(Loop, "_batch", kept)
        train(tmp_path / name, values)
        log = [line for line in log_of(tmp_path / name) if line["kind"] == "train"]
        losses[name] = [line["terms"]["contrastive"] for line in log]
    assert ids["plain"] == ids["joint"]
    assert len({str(each) for each in ids["plain"]}) == len(ids["plain"])
    assert losses["joint"] == pytest.approx(losses["plain"], abs=1e-5)


def test_the_classifier_is_a_part_of_the_method_that_a_method_may_not_have_itself(place):
    objective = objective_of(place, plan_for(place))
    assert objective.classifier is objective.method.nli_classifier
    method = make(objective.method.__class__, place / "tiny", {})
    assert make_objective(load_plan(load_recipe("simcse")), method) is method
    method.nli_classifier = torch.nn.Linear(1, 1)
    with pytest.raises(StsbenchError, match="simcse has an nli_classifier itself"):
        make_objective(plan_for(place), method)


def test_stage_sup_freezes_what_has_no_gradient_and_main_trains_it(place):
    plan = plan_for(place, "diffcse", "sup-unsup")
    objective = objective_of(place, plan, generator=str(place / "tiny"))
    method, state = objective.method, torch.get_rng_state()
    before = {name for name, weight in method.named_parameters() if weight.requires_grad}
    objective.start_stage("sup")
    assert torch.equal(torch.get_rng_state(), state) and method.training
    trained = {name for name, weight in method.named_parameters() if weight.requires_grad}
    assert not any(name.startswith("auxiliary") for name in trained)
    assert {"nli_classifier.linear.weight", "projector.inner.weight"} <= trained
    batch = batch_of(objective, TRIPLETS)
    batch.labelled_only = True
    objective(batch)["nli"].value.backward()
    assert all((weight.grad is not None) == (name in trained) for name, weight in method.named_parameters())
    objective.start_stage("main")
    after = {name for name, weight in method.named_parameters() if weight.requires_grad}
    assert after == {name for name in before if not name.startswith("nli_classifier")}  # nothing trains it there
