"""What a step is made of. training.accumulate: several forward passes have the loss and the gradient of one over all of
their rows. Two views that are one vector: a model without dropout is refused, or stopped at the first step; others are not.
Semi-supervised training of any method: its loss on vectors read one at a time, stages, batches and labels."""

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
from families import family_model
from method_oracle import MemoryRows, make, states, tokens
from safetensors.torch import load_file
from training_runs import log_of, make_text

import stsbench
from stsbench import losses
from stsbench.errors import StsbenchError
from stsbench.methods.mlm.method import MaskedLM
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api import Views
from stsbench.training.api.batch import Shares
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.objective import make_objective
from stsbench.training.engine.passes import ROWS, part_shares
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.finish import load_trained

ROWS_OF_TEXT = 11


def trained(place, folder, method="simcse", recipe=None, model="tiny", **more):
    """The log's line of the only one, after two steps unless told otherwise."""
    values = {"backbone.model": str(place / model), "data.file": str(place / "text.txt"), "training.batch_size": 8,
              "training.max_steps": 2, "selection.by": "none", "precision": "float32", "backbone.max_length": 16,
              "backbone.dropout": None, **more}
    stsbench.train(method, output=folder, recipe=recipe, settings=values, device="cpu")
    (line,) = [line for line in log_of(folder) if line["kind"] == "train"]
    return line


# --- several forward passes ---


def by_row(make):
    """Views whose masks are drawn row by row, so that they do not depend on the batch."""

    def views(self, rows, rng=None):
        each = [make(self, rows.at([number]), np.random.default_rng(int(number))) for number in rows.rows]
        extra = {name: [[part.extra[name][view][0] for part in each] for view in range(len(one))]
                 for name, one in each[0].extra.items()}
        return Views([[part.tokens[view][0] for part in each] for view in range(len(each[0].tokens))], extra)

    return views


@pytest.fixture
def one_step(place, tmp_path, monkeypatch):
    """Train a single step over all rows: the log's line. A large epsilon: the step goes with the gradient's size."""
    monkeypatch.setattr(MaskedLM, "views", by_row(MaskedLM.views))
    monkeypatch.setattr(SimCSE, "views", by_row(SimCSE.views))
    text = str(make_text(tmp_path, ROWS_OF_TEXT))

    def step(name, method, size, accumulate, **more):
        line = trained(place, tmp_path / name, method, **{
            "backbone.dropout": 0.0, "data.file": text, "data.held_out": 0, "training.batch_size": size,
            "training.accumulate": accumulate, "training.max_steps": None, "training.epochs": 1, "training.warmup": 0,
            "training.epsilon": 1.0, "training.learning_rate": 1.0, "training.clip": None, **more})
        assert line["step"] == 1
        return line

    return step


def test_masked_tokens_of_uneven_parts_whose_counts_have_to_be_known(one_step, tmp_path, monkeypatch):
    want, got = one_step("one", "mlm", ROWS_OF_TEXT, 1), one_step("parts", "mlm", 4, 3)
    assert got["loss"] == pytest.approx(want["loss"], rel=1e-5) and got["terms"] == pytest.approx(want["terms"], rel=1e-5)
    assert got["gradient_norm"] == pytest.approx(want["gradient_norm"], rel=1e-4)
    weights, parts = (load_file(tmp_path / name / "best" / "model.safetensors") for name in ("one", "parts"))
    for name, weight in weights.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-4, atol=1e-5, msg=name)
    monkeypatch.setattr(MaskedLM, "counts", lambda self, batch: {})
    with pytest.raises(StsbenchError, match=r"^MaskedLM.counts .*: in two forward passes the term 'mlm' counts \d+ and"):
        one_step("unknown", "mlm", 4, 3)


def test_contrastive_parts_go_by_their_rows_and_each_term_by_its_own_count(one_step, monkeypatch):
    more = {"options.mlm_weight": 0.1, "options.head": "none"}
    whole = one_step("one", "simcse", ROWS_OF_TEXT, 1, **more)
    passes, real = [], SimCSE.forward
    monkeypatch.setattr(SimCSE, "forward", lambda self, batch: passes.append(real(self, batch)) or passes[-1])
    line = one_step("parts", "simcse", 4, 3, **more)
    terms = [each["contrastive"] for each in passes]
    values, counts = [float(term.value.detach()) for term in terms], tuple(term.count for term in terms)
    contrastive = line["terms"]["contrastive"]
    assert counts == (4, 4, 3) and contrastive == pytest.approx(np.average(values, weights=counts), rel=1e-6)
    assert contrastive != pytest.approx(np.mean(values), rel=1e-4)
    assert line["terms"]["mlm"] == pytest.approx(whole["terms"]["mlm"], rel=1e-5)
    assert line["loss"] == pytest.approx(contrastive + 0.1 * line["terms"]["mlm"], rel=1e-5)


def test_equal_counts_change_nothing_to_the_bit_and_some_passes_may_lack_a_term():
    assert part_shares([{ROWS: 3, "mlm": 7}] * 9) == [{ROWS: 1.0, "mlm": 1.0}] * 9
    shares = part_shares([{ROWS: 4, "rtd": 6}, {ROWS: 4}, {ROWS: 4, "rtd": 2}])
    assert [share.get("rtd") for share in shares] == [1.5, None, 0.5]


# --- two views that are one vector ---

TOY = '''
from torch.nn.functional import normalize
from stsbench.training.api import Method, Term, Views
class Toy(Method):
    def views(self, rows, rng):
        return Views([rows.ids("sentence")] * 2)
    def forward(self, batch):
        x, y = normalize(self.vectors(batch.ids, batch.mask)).split(len(batch))
        return {"far": Term((x @ y.T).logsumexp(1).mean() - (x * y).sum(1).mean(), len(batch))}
class Still(Toy):
    def train(self, mode=True):
        return super().train(False)
'''


@pytest.fixture(scope="module")
def modernbert(place):
    """modernbert, tiny, whose rates of dropout are all zero."""
    tokens = tiny_models.tokenizer("bert")
    for part in (family_model("modernbert", vocab_size=len(tokens), pad_token_id=tokens.pad_token_id), tokens):
        part.save_pretrained(place / "modernbert")
    return "modernbert"


def refused(place, folder, *parts, **more):
    with pytest.raises(StsbenchError) as error:
        trained(place, folder, **more)
    text = str(error.value)
    assert "\n" not in text and all(part in text for part in parts), text
    return text


def test_a_model_whose_rates_are_all_zero_is_refused_with_advice_that_helps(place, modernbert, tmp_path):
    line = refused(place, tmp_path / "out", "two views of simcse differ by dropout alone", "embedding_dropout, mlp_dropout",
                   "--set backbone.dropout=0.1", model=modernbert)
    assert "null" not in line and not (tmp_path / "out").exists()
    assert trained(place, tmp_path / "out", model=modernbert, **{"backbone.dropout": 0.1})["loss"] > 0.01


def test_another_method_is_stopped_at_its_first_step_unless_the_recipe_asks_for_none(place, modernbert, tmp_path):
    (tmp_path / "toy.py").write_text(TOY, "utf-8")
    (tmp_path / "toy.yaml").write_text("backbone: {model: x}\n", "utf-8")
    toy = {"method": f"{tmp_path / 'toy.py'}:Toy", "recipe": tmp_path / "toy.yaml", "model": modernbert}
    refused(place, tmp_path / "out", "the two views of a sentence are one vector at step 1 of stage main", "has no dropout",
            "--set backbone.dropout=0.1", **toy)
    assert not list((tmp_path / "out").glob("checkpoints/*"))
    refused(place, tmp_path / "still", "dropout of", "has no effect: choose another backbone",
            **{**toy, "method": f"{tmp_path / 'toy.py'}:Still", "backbone.dropout": 0.1})
    assert trained(place, tmp_path / "none", **toy, **{"backbone.dropout": 0.0})["loss"] > 0


def test_dropout_that_cannot_be_set(place, modernbert, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.encoders.forward.model._SETTINGS", ("no_such_setting",))
    some = {"model": modernbert, "backbone.dropout": 0.1}
    line = refused(place, tmp_path / "out", "backbone.dropout 0.1 cannot be set", "choose another backbone", **some)
    assert "null" not in line
    assert "null" not in refused(place, tmp_path / "out", "no dropout setting", "choose another backbone", model=modernbert)
    refused(place, tmp_path / "out", "choose another backbone, or set backbone.dropout to null", method="mlm", **some)


# --- semi-supervised training ---
TEXTS = tiny_models.sentences(60, longest=9, seed=5)
TRIPLETS = {role: TEXTS[start : start + 5] for role, start in (("anchor", 10), ("positive", 20), ("negative", 30))}


@pytest.fixture(scope="module", autouse=True)
def labelled(place):
    tiny_models.masked_lm(place / "lm", num_hidden_layers=1)
    nli_files.triplets(place)


def values_of(place, method="simcse", procedure="joint", labelled="triplets-30.csv", **more):
    own = {"options.generator": str(place / "lm")} if method == "diffcse" else {}
    return nli_files.settings(place / "lm", place / "text.txt", place / labelled, procedure, **{**own, **more})


def train(output, values, **more):
    return stsbench.train("simcse", output=output, settings=values, device="cpu", **more)


def plan_for(place, method="simcse", procedure="joint", **more):
    return load_plan(load_recipe(method, None, [], values_of(place, method, procedure, **more)))


def objective_of(place, plan, **options):
    """In float64, its classifier made by the triplets."""
    objective = make_objective(plan, make(plan.kind, place / "lm", options or plan.options.model_dump()))
    objective.prepare_labelled(MemoryRows(place / "lm", TRIPLETS))
    objective.method.double()
    return objective


def batch_of(objective, rows):
    """Of labelled rows where they have several texts."""
    method, make_views = objective.method, objective.method.views if "sentence" in rows else objective.labelled_views
    views = make_views(MemoryRows(method.backbone.folder, rows), np.random.default_rng(0))
    return to_batch(views, Shares((5,)), method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def test_the_joint_loss_of_simcse_is_that_of_vectors_read_one_at_a_time(place):
    """Contrastive of plain sentences + alpha * Eq. 4 of triplets, both through the MLP head."""
    folder, alpha = place / "lm", 0.3
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
    plain = {key: value for key, value in joint.items() if not key.startswith(("semi", "labelled"))}
    runs = {"plain": plain, "joint": joint}
    ids, losses, real = {name: [] for name in runs}, {}, Loop._batch
    for name, values in runs.items():
        def kept(self, rows, step, number, name=name):
            batch = real(self, rows, step, number)
            ids[name].append(batch.ids.tolist())
            return batch

        monkeypatch.setattr(Loop, "_batch", kept)
        train(tmp_path / name, values)
        losses[name] = [line["terms"]["contrastive"] for line in log_of(tmp_path / name) if line["kind"] == "train"]
    assert ids["plain"] == ids["joint"]
    assert len({str(each) for each in ids["plain"]}) == len(ids["plain"])
    assert losses["joint"] == pytest.approx(losses["plain"], abs=1e-5)


def test_the_classifier_is_a_part_of_the_method_that_a_method_may_not_have_itself(place):
    objective = objective_of(place, plan_for(place))
    assert objective.classifier is objective.method.nli_classifier
    method = make(objective.method.__class__, place / "lm", {})
    assert make_objective(load_plan(load_recipe("simcse")), method) is method
    method.nli_classifier = torch.nn.Linear(1, 1)
    with pytest.raises(StsbenchError, match="simcse has an nli_classifier itself"):
        make_objective(plan_for(place), method)


def test_stage_sup_freezes_what_has_no_gradient_and_main_trains_it(place):
    objective = objective_of(place, plan_for(place, "diffcse", "sup-unsup"), generator=str(place / "lm"))
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
