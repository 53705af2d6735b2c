"""What the terms of every method keep: they are the public loss of the vectors compared, padding changes nothing,
bfloat16 reaches no loss, several processes have the same gradient and another device the same loss, every weight that is
trained has a gradient, and none that is frozen; an option has an effect, and a state holds what a method goes on with.
CoSENT and AnglE on pairs of classes. WhitenedCSE's views and draws (its whitening:
tests/training/modules/test_generator.py)."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, grown, make, tokens, total
from pretend_device import pretend_device
from term_cases import CASES, CPU, ELSEWHERE, NLI, PLAIN, method_and_batch, numbers, split_of
from tiny_models import sentences
from two_processes import both_find, same_gradients, second_pass

from stsbench.errors import StsbenchError
from stsbench.methods.angle.method import AnglE, check_scores
from stsbench.methods.cosent.method import CoSENT
from stsbench.methods.whitenedcse.method import WhitenedCSE
from stsbench.training.api.batch import Shares
from stsbench.training.recipes.methods import load_method

PUBLIC = [case for case in CASES if len(CASES[case]) > 3]
PADDED = {"pcl, released", "is-bert, states"}  # what stands behind a text's end is read, as the authors' code does
STATISTICS = {"infocse", "whitenedcse", "whitenedcse, per third", "whitenedcse, whole"}  # of a batch's rows
OF_ALL_ROWS = {"teacher similarities"}  # which have a column for each row of the whole batch
ALONE = {"ct", "esimcse"}  # groups of rows, and a queue of all processes' vectors: their own tests
# of these each process's own rows alone have a gradient with training.gather simcse; a method of each kind of loss
CONTRASTIVE = {"simcse, given", "mirror-bert", "pcl", "sg-opt", "rankcse", "angle, triplets"}
RELEASED = ["infocse", "whitenedcse, per third"]
# These gather what another case does.
SAME = {"pcl, released", "pcl, frozen", "mirror-bert, drophead", "angle, positives", "sbert, sts", "sbert, triplet",
        "distil", "tsdae", "is-bert, states", "sg-opt, trained", "diffcse", "infocse, no masks", "pcl, no group",
        "rankcse, no teachers", "simcse", "promptbert, words", "whitenedcse, whole", "pcl, no peer"}
SHARED = [case for case in CASES if case not in ALONE | SAME]
# These make something on a device that no other does.
MADE = ("distil", "distil, rows", "promptbert, words", "consert, joint", "pcl", "diffaug", "rankcse", "sncse",
        "sg-opt, opt2", "tsdae", "whitenedcse", "infocse", "esimcse", "angle, triplets", "mirror-bert, drophead", "ct",
        "is-bert, states", "sbert, sts", "cosent")


@pytest.mark.parametrize("case", PUBLIC)
def test_the_term_is_the_public_loss_of_the_vectors(folder, case):
    method, batch = method_and_batch(folder, case)
    _, _, texts, name, loss = CASES[case]
    if batch.views == len(texts) > 1:
        rows = [ids[: int(mask.sum())].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]
        assert rows == [ids for role in texts for ids in tokens(folder, texts[role])]
    terms = method(batch)
    value = total(terms) if name is None else terms[name].value
    again = loss(method, batch)
    assert value.item() > 1e-6 and again.item() == pytest.approx(value.item(), abs=1e-12)
    weights = [weight for weight in method.parameters() if weight.requires_grad]
    gradients = [torch.autograd.grad(each, weights, allow_unused=True) for each in (value, again)]
    pairs = [pair for pair in zip(*gradients, strict=True) if pair[0] is not None]
    assert len(pairs) > 20 and all(torch.allclose(one, other, rtol=0, atol=1e-10) for one, other in pairs)


@pytest.mark.parametrize("case", {case.partition(",")[0]: case for case in CASES}.values())
def test_under_autocast_every_term_is_computed_in_float32_from_vectors_that_are_not(folder, case):
    method, batch = method_and_batch(folder, case)
    method, exact = method.float(), numbers(method(batch))
    with torch.autocast("cpu", torch.bfloat16):
        terms = method(batch)
    assert {term.value.dtype for term in terms.values()} == {torch.float32}
    assert numbers(terms) == pytest.approx(exact, rel=0.1, abs=0.05) and numbers(terms) != exact


@pytest.mark.parametrize("case", [case for case in CASES if case not in SAME or case in PADDED or "," not in case])
def test_a_term_s_gradients_counts_metrics_padding_and_tested_backbone(folder, case):
    """Gradients are finite, counts foreseen, metrics of what was read since they were logged last; padding that no row needs
    changes nothing unless it is read; the backbone is tested without what only training has."""
    method, batch = method_and_batch(folder, case)
    assert method.metrics() == {} or case == "ct, in batch"  # which logs its scale
    counters = {name: value.clone() for name, value in method.named_buffers()
                if not name.startswith(("queue.", "projector."))}
    terms = method(batch)
    changed = [name for name, value in counters.items() if not torch.equal(dict(method.named_buffers())[name], value)]
    total(terms).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in method.parameters()
               if weight.requires_grad)
    foreseen = method.counts(batch)
    assert {name: terms[name].count for name in foreseen} == foreseen
    assert all(term.count % len(batch) == 0 for name, term in terms.items() if name not in foreseen)
    metrics = method.metrics()
    assert all(np.isfinite(value) and value >= 0 for value in metrics.values())
    if case != "ct, in batch":
        assert bool(metrics) == bool(changed) and method.metrics() == {}
    method(batch)
    assert method.metrics() == metrics
    if case != "esimcse":  # whose queue is another one by now
        longer = method(grown(method, batch))
        assert (numbers(terms) == pytest.approx(numbers(longer), rel=1e-9)) == (case not in PADDED)
        assert [term.count for term in terms.values()] == [term.count for term in longer.values()]
    vectors = method.vectors(batch.ids, batch.mask)  # what the semi-supervised wrappers compare
    assert vectors.ndim == 2 and len(vectors) == len(batch.ids) and vectors.requires_grad and vectors.isfinite().all()
    inference, pooler = method.inference(), "last2" if case.startswith("consert") else CASES[case][1]  # tested by another
    assert inference.model is method.backbone.model and inference.tokenizer is method.backbone.tokenizer
    assert (inference.pooler, inference.dense) == (pooler, None) and inference.token_pooler is method.backbone.head
    assert (inference.prompt is not None) == (pooler == "mask") and (inference.masked_lm is not None) == (case == "mlm")


@pytest.mark.parametrize("case", [*MADE, *ELSEWHERE])
def test_on_a_device_that_refuses_the_cpu_s_tensors_losses_are_the_cpu_s(folder, case):
    """A backward pass and the optimiser there: test_method_contract.py."""
    actual = []
    with pretend_device() as pretended:
        for device in (CPU, pretended.device):
            method, batch = method_and_batch(folder, case, device=device)
            actual.append({**numbers(method(batch)), **method.metrics()})
    assert actual[0] and actual[1] == pytest.approx(actual[0], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(("method", "options"), [("tsdae", {}), ("infocse", {"frozen_layers": 1})])
def test_a_masked_lm_head_that_the_checkpoint_lacks_is_said_to_be_new(folder, encoders, method, options):
    stored, made_up = (make(load_method(method), place, options) for place in (folder, encoders["bert"]))
    assert stored.notes() == [] and ["stores no masked-LM head" in line for line in made_up.notes()] == [True]


@pytest.mark.parametrize(("method", "options"), [
    ("mlm", {"probability": 1e-9}), ("cmlm", {"probability": 1e-9, "sentence": "same"}),
    ("diffcse", {"task": "conditional_mlm", "mask_ratio": 1e-9, "generator": None})])
def test_a_batch_without_a_masked_token_has_no_loss_but_a_gradient(folder, method, options):
    method = make(load_method(method), folder, options)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN)))
    *_, last = terms.values()
    total(terms).backward()
    assert last.value.item() == last.count == 0 and method.metrics() == {}
    assert all(weight.grad is not None for weight in method.parameters() if weight.requires_grad)


@pytest.mark.parametrize("case", SHARED)
def test_local_gathering_leaves_each_process_to_its_own_rows(folder, case):
    method, batch = method_and_batch(folder, case, split_of(case), 1)
    method.gather_mode = "local"
    actual, counts = numbers(method(batch)), method.counts(batch)
    for name in OF_ALL_ROWS & {*batch.by_row}:
        batch.by_row[name] = batch.by_row[name][:, batch.shares.start :]
    method.gather_mode, batch.shares = "exact", Shares((len(batch),))
    assert actual == pytest.approx(numbers(method(batch)), rel=1e-12)
    assert counts == method.counts(batch)


def passes_of_rank(rank, folder):
    """(case, mode) -> terms, gradients and running statistics."""
    passes = {}
    for case in SHARED:
        for mode in ("exact", *["simcse"] * (case in CONTRASTIVE or case in RELEASED)):
            method, batch = method_and_batch(folder, case, split_of(case), rank)
            method.gather_mode = mode
            terms, gradients = second_pass(method, batch, processes=2)
            running = {name: value.clone() for name, value in method.named_buffers() if "running" in name}
            passes[case, mode] = terms, gradients, running
    return passes


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    return both_find(tmp_path_factory.mktemp("shares"), passes_of_rank, folder)


@pytest.mark.parametrize("case", SHARED)
def test_two_processes_have_the_gradient_and_the_statistics_of_one(folder, both, case):
    method, batch = method_and_batch(folder, case)
    terms, gradients = second_pass(method, batch)
    for by_case in both:
        theirs, their_gradients, running = by_case[case, "exact"]
        assert theirs == pytest.approx(terms, rel=1e-8)
        same_gradients(their_gradients, gradients, 1e-7 if case in STATISTICS else 1e-9)
        for name, value in running.items():
            assert torch.allclose(value, dict(method.named_buffers())[name], rtol=1e-12), name


@pytest.mark.parametrize("case", sorted(CONTRASTIVE))
def test_gathered_as_simcse_does_two_processes_have_the_loss_of_one_and_half_its_gradient(folder, both, case):
    terms, gradients = second_pass(*method_and_batch(folder, case))
    theirs, halved, *_ = both[1][case, "simcse"]
    assert theirs == pytest.approx(terms, rel=1e-9)
    same_gradients({name: None if each is None else 2 * each for name, each in halved.items()}, gradients)


@pytest.mark.parametrize("case", RELEASED)
def test_gathered_otherwise_each_process_has_its_own_statistics_as_released(both, case):
    exact, released = ([by_case[case, mode] for by_case in both] for mode in ("exact", "simcse"))
    assert all(abs(one[0]["contrastive"] / other[0]["contrastive"] - 1) > 1e-6
               for one, other in zip(exact, released, strict=True))
    for name in released[0][2]:
        assert torch.equal(exact[0][2][name], exact[1][2][name])
        assert not torch.allclose(released[0][2][name], released[1][2][name]), name
    assert case != "infocse" or released[0][0]["mlm"] == pytest.approx(exact[0][0]["mlm"], rel=1e-10)


def test_scores_that_in_batch_negatives_cannot_use_or_without_an_order_are_found(folder):
    assert check_scores(AnglE.Options(), np.array([0.0, 1.0, 3.0]))[0] == 2
    assert check_scores(AnglE.Options(), np.array([1.0, 0.0])) is None
    assert check_scores(AnglE.Options(angle_weight=0), np.array([1.0, 1.0])) is None  # nothing is put in order
    assert check_scores(AnglE.Options(), np.array([1.0, 1.0])) is not None
    assert check_scores(AnglE.Options(ibn_weight=0), np.array([1.5, 0.0])) is None
    assert AnglE.Options(format="labelled", label_scores={"a": 0, "b": 2}, ibn_weight=0)
    texts, method = sentences(6, longest=9, seed=3), make(AnglE, folder)
    with pytest.raises(StsbenchError):  # of a foreign trainer, whose rows nobody looked at before
        batch_of(method, MemoryRows(folder, {"sentence1": texts[:3], "sentence2": texts[3:]}, values=[4.2, 0, 2.5]))
    method.backbone.model.config.hidden_size = 33
    assert "33 numbers have no halves" in method.notes()[0]


@pytest.mark.parametrize(("kind", "options"), [(CoSENT, {}), (AnglE, {"ibn_weight": 0})])
def test_pairs_with_a_class_are_read_as_the_same_pairs_with_its_number(folder, kind, options):
    """What a run makes of them, and of a class without a number: test_method_contract.py."""
    method = make(kind, folder, {"format": "labelled", "label_scores": {"no": 2, "maybe": 1, "yes": 0}, **options})
    rows = MemoryRows(folder, NLI, values=[0, 2, 1, 0])
    rows.store = SimpleNamespace(label_names=("maybe", "no", "yes"))
    method.prepare_labelled(rows)
    views = method.labelled_views(rows, None)
    assert views.scores == [1, 0, 2, 1]
    assert [[ids.tolist() for ids in text] for text in views.tokens] == [tokens(folder, NLI[role]) for role in NLI]


# A case, a change of an option that no other test compares with loops over the equations, and what it needs beside it
EFFECTS = [
    ("simcse", {"head": "none"}), ("simcse, masked", {"mlm_probability": 0.6}), ("esimcse", {"head": "none"}),
    ("pcl", {"head": "mlp"}), ("mirror-bert", {"temperature": 0.3}), ("rankcse", {"head": "none"}),
    ("rankcse", {"gamma": 0.3}), ("rankcse", {"beta": 0.3}), ("rankcse", {"consistency": "entropy"}),
    ("rankcse", {"ranks": "mean"}, {"loss": "listmle"}), ("rankcse", {"eps": 0.1}, {"loss": "listmle"}),
    ("infocse", {"projector": "tanh"}), ("infocse", {"mlm_probability": 0.8}), ("mlm", {"probability": 0.8}),
    ("mlm", {"masked": 0.1}), ("mlm", {"random": 0.9}, {"masked": 0.1}), ("mlm", {"mask_token": "man"}),
    ("mlm", {"tied": False}), ("tsdae", {"delete": 0.1}), ("ct, in batch", {"learned_scale": False}),
    ("sbert, nli", {"bias": True}), ("sbert, nli", {"classifier_init": "truncated_normal"}),
    ("sbert, nli", {"test_pooler": "first_last:layer1"}), ("angle, triplets", {"cln_weight": 0.5}),
    ("angle, triplets", {"cosine_scale": 3.0}), ("angle, triplets", {"angle_scale": 3.0}),
    ("angle, triplets", {"test_pooler": "mean"}), ("whitenedcse", {"views": 2}), ("whitenedcse", {"reduce": "mean"}),
    ("whitenedcse", {"groups": 2}), ("whitenedcse", {"eps": 0.3}), ("whitenedcse", {"detach_matrix": False}),
    ("whitenedcse", {"repeat": {"rate": 0.5}}), ("diffcse, edits", {"detach": True}),
    ("diffcse, edits", {"replacement": "sampling"}), ("consert", {"contrastive_weight": 0.3}),
    ("consert", {"test_pooler": "cls"}), ("sncse", {"head": "mlp"}), ("sg-opt", {"freeze_embeddings": False}),
    ("sg-opt", {"reference_dropout": True})]


def test_every_option_has_an_effect_on_the_loss_its_gradients_or_the_tested_encoder(folder):
    first, idle = {}, []
    for case, change, *needed in EFFECTS:
        needs = dict(*needed)
        key = case, str(needs)
        if key not in first:
            first[key] = begun(folder, case, needs)
        if begun(folder, case, {**needs, **change}) == first[key]:
            idle.append((case, change))
    assert not idle


def begun(folder, case, changes):
    method, batch = method_and_batch(folder, case, changes=changes)
    terms = method(batch)
    total(terms).backward()
    gradients = {name: float(weight.grad.norm()) for name, weight in method.named_parameters() if weight.grad is not None}
    tested = [(each.pooler, each.dense is None, each.prompt is None or each.prompt.head is None)
              for each in (method.inference(), method.dev_inference())]
    dropping = [part.training for part in method.modules() if isinstance(part, torch.nn.Dropout)]
    return {name: (term.value.item(), term.count, term.weight) for name, term in terms.items()}, gradients, tested, dropping


@pytest.mark.parametrize("case", {case.partition(",")[0]: case for case in CASES}.values())
def test_with_the_state_of_another_a_method_goes_on_as_that_one(folder, case):
    """A resumed run: its queue, statistics, counters, and weights that it drew itself."""
    method, batch = method_and_batch(folder, case)
    total(method(batch)).backward()
    with torch.no_grad():
        for weight in method.parameters():
            if weight.grad is not None:
                weight -= 0.01 * weight.grad / weight.grad.norm().clamp(min=1e-9)
    other, same = method_and_batch(folder, case)
    other.load_state_dict(method.state_dict())
    results = []
    for one, read in ((method, batch), (other, same)):
        torch.manual_seed(1)
        results.append((numbers(one(read)), one.metrics()))
    assert results[0] == results[1]


# the weights that are frozen and those that are trained, by the beginnings of their names (a trained part may be inside a
# frozen one's name); whether the frozen part has dropout in training
@pytest.mark.parametrize(("method", "options", "frozen", "trained", "drops"), [
    ("pcl", {"peer": {"frozen": True, "head": "own"}}, ["peer.", "peer_head."], ["head."], True),
    ("sg-opt", {"projection_width": 8, "reference_dropout": True, "freeze_embeddings": False}, ["reference."],
     ["projector.", "backbone.model.embeddings."], True),
    ("infocse", {"frozen_layers": 1}, ["auxiliary.frozen."], ["auxiliary.head.", "auxiliary.lm_head."], False),
    ("infocse", {"frozen_layers": 1, "frozen_mode": "train"}, ["auxiliary.frozen."], ["auxiliary.head."], True),
    ("diffcse", {"generator": None}, ["changer."], ["auxiliary.", "projector."], True),
    ("esimcse", {"queue": {"size": 4, "momentum": 0.9, "start": "copy"}}, ["queue."], ["backbone.", "head."], False),
    ("diffaug", {"template": "the man : {} means [MASK] .", "prefix_length": 2, "joint_trains": "model"},
     ["modules_of_views."], ["backbone."], True)])
def test_nothing_frozen_takes_a_gradient_and_everything_else_does(folder, method, options, frozen, trained, drops):
    method = make(load_method(method), folder, options, dropout=0.3, pooler="mask" if "template" in options else "cls")
    method.start_stage(type(method.options).stages[-1])
    batch = batch_of(method, MemoryRows(folder, {"sentence": sentences(6, longest=6, seed=3)}))
    total(method(batch)).backward()
    named = dict(method.named_parameters())
    kept = {name: weight for name, weight in named.items() if name.startswith(tuple(frozen))}
    assert kept and all(weight.grad is None and not weight.requires_grad for weight in kept.values())
    for beginning in trained:
        moved = [weight for name, weight in named.items() if name.startswith(beginning)]
        assert any(weight.grad is not None and weight.grad.any() for weight in moved), beginning
    rates = [part.training for name, part in method.named_modules()
             if isinstance(part, torch.nn.Dropout) and f"{name}.".startswith(tuple(frozen))]
    assert rates and all(mode == drops for mode in rates)


WHITENED = {"groups": 8, "eps": 0.2}


@pytest.mark.parametrize(("method", "options", "needed"), [
    ("simcse", {}, True), ("simcse", {"mlm_weight": 0.1}, True), ("simcse", {"encoders": 2}, True),
    ("simcse", {"fixed_dropout_mask": True}, False), ("simcse", {"mlm_weight": 0.1, "mlm_in_place": True}, False),
    ("simcse", {"repeat": {}}, False), ("simcse", {"view": "given"}, False), ("simcse", {"view": "next"}, False),
    ("consert", {}, False), ("consert", {"views": ("none", "none"), "rates": (None, None)}, True),
    ("consert", {"setting": "sup"}, False),
    ("consert", {"setting": "joint", "joint_views": ("none", "none"), "joint_rates": (None, None)}, True),
    ("mirror-bert", {"span_chars": 0}, True), ("mirror-bert", {"span_chars": 0, "drophead": 0.1}, False),
    ("mirror-bert", {}, False), ("whitenedcse", {"repeat": {"rate": 0.6}}, False)])
def test_dropout_is_needed_where_the_views_are_one_text_twice(method, options, needed):
    kind = load_method(method)
    assert kind.needs(kind.Options(**options)).dropout == needed


def whitened_batch(method, folder, count=11, **more):
    return batch_of(method, MemoryRows(folder, {"sentence": sentences(60, longest=9, seed=7)[:count]}), **more)


def test_views_that_shuffling_distorts_need_no_dropout(folder):
    for options, alone in (({"split": "per_view"}, True), ({"split": "per_third"}, False), ({"split": "none"}, False),
                           ({"split": "per_view", "shuffle": False}, False), ({"split": "whole"}, False)):
        options = {**options, **(WHITENED if options["split"] != "none" else {})}
        assert WhitenedCSE.needs(WhitenedCSE.Options(**options)).dropout != alone
        method = make(WhitenedCSE, folder, options)
        first, second = method.view_vectors(whitened_batch(method, folder, 17))
        assert bool(((first - second).norm(dim=1) > 1e-5).all()) == alone


def test_permutations_are_drawn_with_the_views_and_by_nothing_else(folder):
    """So that a run that is resumed has them, and held-out rows the same at every evaluation."""
    method = make(WhitenedCSE, folder, {"split": "per_view", **WHITENED})
    one, other, later = (whitened_batch(method, folder, seed=seed) for seed in (1, 1, 2))
    torch.manual_seed(5)
    value = method(one)["contrastive"].value
    torch.manual_seed(6)
    method.eval()
    assert torch.equal(method(other)["contrastive"].value, value)
    assert not torch.equal(method(later)["contrastive"].value, value)
    drawn = method._permutations(one, method.whitening)
    assert drawn.shape == (3, 32) and not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn.sort(1).values, torch.arange(32).expand(3, 32))
