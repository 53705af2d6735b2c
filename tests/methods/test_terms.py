"""What the terms of every method keep: they are the public loss of the vectors compared, padding changes nothing, bfloat16
reaches no loss, several processes have the gradient of one, and every weight that is trained has a gradient."""

from __future__ import annotations

from copy import copy

import numpy as np
import promptbert_oracle
import pytest
import tiny_models
import torch
from method_oracle import MemoryRows, make, states, tokens, total
from two_processes import both_find, same_gradients, second_pass, shares_of

from stsbench import losses
from stsbench.methods.consert.augment import SLOTS
from stsbench.training.api.batch import IGNORED, Shares, Views
from stsbench.training.recipes.methods import load_method
from stsbench.training.rows.batches import to_batch

TEXTS = tiny_models.sentences(12, longest=7, seed=3)
PLAIN = {"sentence": TEXTS[:6]}
TRIPLETS = {"anchor": TEXTS[:4], "positive": TEXTS[4:8], "negative": TEXTS[8:]}
TWO_TEXTS = {"anchor": TEXTS[:6], "positive": TEXTS[6:]}
PAIRS = {"sentence1": TEXTS[:4], "sentence2": TEXTS[4:8]}
NLI = {"premise": TEXTS[:4], "hypothesis": TEXTS[4:8]}
TEMPLATES = {"template": "the man : {} means [MASK] .", "second_template": "a man : {} eats [MASK] ."}
ONE_TEMPLATE = {**TEMPLATES, "second_template": None}
WARM = {"temperature": 0.3}  # at 0.05 the softmax of a few texts is all but one number
KL = {"objective": "similarities", "loss": "kl"}
WORDS = {"teachers": [{"model": "lexical:token-set"}]}
CLEAN = {"group_positive": "bce", "reduce": "row"}
FEW = {"augmentations": ["shuffle", "delete", "repeat"], **WARM}
MARGINS = {"alpha": 0.7, "beta": 0.7, "weight": 1.0}  # every sentence is outside of them
INFOCSE = {"frozen_layers": 1, "mlm_weight": 0.3, "mlm_probability": 0.4}
WHITENED = {"groups": 8, "eps": 0.1, **WARM}
SGOPT = {"projection_width": 8, "temperature": 0.1}


class LabelledRows(MemoryRows):
    """Rows with a score and a class each."""

    def scores(self):
        return [float(row) for row in self.rows]

    def labels(self):
        return [row % 3 for row in self.rows]


def views(method, batch):
    return method.vectors(batch.ids, batch.mask).split(len(batch))


def peer_views(method, batch, head=None):
    return (head or method.head)(method.peer(batch.ids, batch.mask)).split(len(batch))


def frozen_pcl(method, batch):
    """Without the two terms of the peer's own, which would train nothing."""
    peer = [view.detach() for view in peer_views(method, batch)]
    return losses.pcl(views(method, batch), peer, **WARM) - losses.pcl(peer, **WARM)


def layers(method, batch):
    states = method.reference.states(batch.ids, batch.mask, method.layers)
    real = batch.mask.unsqueeze(2)
    return method.projector(torch.stack([(state * real).sum(1) / real.sum(1) for state in states], dim=1))


def token_features(method, batch):
    features = method.backbone.head.features(method.backbone(batch.ids, batch.mask)[0], batch.mask, zero_padding=True)
    return features.tokens, features.real, features.vectors


def tension(method, batch):
    n = len(batch)
    both = method.options.objective == "in-batch"
    rows = (slice(None), slice(None)) if both else (slice(n), slice(n, None))
    return [encoder.pooled(batch.ids[row], batch.mask[row])
            for encoder, row in zip((method.first, method.backbone), rows, strict=True)]


def whitened(method, batch):
    first, *others = method._compared(batch)
    return first, torch.cat(others)


# name, which begins with the method's -> options, pooler, texts; the term, None for the whole loss, and the public loss
CASES = {
    "simcse": (WARM, "cls", PLAIN, "contrastive", lambda m, b: losses.simcse(*m.view_vectors(b), **WARM)),
    "simcse, given": ({"view": "given", "alpha": 2.0}, "cls", TRIPLETS, "contrastive",
                      lambda m, b: losses.simcse(*views(m, b), alpha=2.0)),
    "simcse, dot": ({"similarity": "dot", "head": "none"}, "max", PLAIN, "contrastive",
                    lambda m, b: losses.simcse(*m.view_vectors(b), similarity="dot")),
    "simcse, masked": ({"mlm_weight": 0.1, **WARM}, "cls", PLAIN),
    "esimcse": (WARM, "cls", PLAIN, "contrastive", lambda m, b: losses.esimcse(*m.view_vectors(b), **WARM)),
    "consert": ({"views": ("none", "shuffle"), "rates": (None, None), "nt_xent": "sum"}, "mean", PLAIN, "contrastive",
                lambda m, b: losses.consert(*(m._view(b, slot, "unsup") for slot in SLOTS), nt_xent="sum")),
    "mirror-bert": ({"span_chars": 3, "min_chars": 6}, "mean", PLAIN, "contrastive",
                    lambda m, b: losses.mirrorbert(*m.view_vectors(b))),
    "mirror-bert, drophead": ({"drophead": 0.3}, "cls", TWO_TEXTS),
    "promptbert": (TEMPLATES, "mask", PLAIN, "contrastive",
                   lambda m, b: losses.promptbert(*m._vectors(b.ids, b.mask, len(b)).split(len(b)))),
    "promptbert, transform": ({**TEMPLATES, "head": "transform", "denoise_second_shift": "first", **WARM}, "mask", PLAIN),
    "promptbert, words": ({**ONE_TEMPLATE, "head": "transform", "trained": "prompt"}, "mask", PLAIN),
    "promptbert, given": ({**ONE_TEMPLATE, "view": "given", "denoise_gradient": False}, "mask", TRIPLETS),
    "diffaug": ({"template": TEMPLATES["template"], "denoise": False, "prefix_length": 2}, "mask", PLAIN, "contrastive",
                lambda m, b: losses.diffaug(*m.view_vectors(b))),
    "diffcse": ({"rtd_weight": 0.0, **WARM}, "cls", PLAIN, "contrastive",
                lambda m, b: losses.diffcse(*m.view_vectors(b), **WARM)),
    "infocse": ({**INFOCSE, **WARM}, "cls", PLAIN, "contrastive",
                lambda m, b: losses.infocse(*m.view_vectors(b), **WARM)),
    "infocse, tanh": ({**INFOCSE, "projector": "tanh", **WARM}, "cls", PLAIN),
    "sarcse": ({"beta": 0.0, "gamma": 0.0}, "text_cnn", PLAIN, "contrastive", lambda m, b: losses.sarcse(*views(m, b))),
    "sarcse, rebuilt": ({"beta": 0.3, "gamma": 0.7, "self_adaptive": False}, "text_cnn", PLAIN),
    "sarcse, given": ({"unpool": "repeat+position", "transposed_fusion": "separate", "beta": 1.0, "self_adaptive": False,
                       "view": "given"}, "text_cnn", TRIPLETS),
    "ct": ({"k": 1, "reduction": "mean"}, "mean", PLAIN, "tension", lambda m, b: losses.ct(*tension(m, b), b.labels)),
    "ct, in batch": ({"objective": "in-batch", "scale": 2.0}, "mean", PLAIN, "in_batch",
                     lambda m, b: losses.ct_in_batch(*tension(m, b), scale=m.log_scale.exp())),
    "sbert, nli": ({"objective": "nli"}, "mean", NLI, "nli", lambda m, b: losses.sbert_nli(
        *views(m, b), b.labels, m.classifier.linear.weight, m.classifier.linear.bias)),
    "sbert, features": ({"objective": "nli", "features": ["product", "u"], "bias": False}, "max", NLI, "nli",
                        lambda m, b: losses.sbert_nli(*views(m, b), b.labels, m.classifier.linear.weight,
                                                      features=("product", "u"))),
    "sbert, rescaled": ({"objective": "sts", "similarity": "rescaled_cosine", "scale": [-1, 6]}, "cls", PAIRS, "sts",
                        lambda m, b: losses.sbert_regression(*views(m, b), b.scores, scale=(-1, 6),
                                                             similarity="rescaled_cosine")),
    "sbert, sts": ({"objective": "sts"}, "mean", PAIRS, "sts", lambda m, b: losses.sbert_regression(*views(m, b), b.scores)),
    "sbert, triplet": ({"objective": "triplet", "margin": 2.0}, "mean", TRIPLETS, "triplet",
                       lambda m, b: losses.triplet(*views(m, b), margin=2.0)),
    "cosent": ({"scale": 5.0}, "cls", PAIRS, "cosent", lambda m, b: losses.cosent(*views(m, b), b.scores, scale=5.0)),
    "angle, triplets": ({"format": "triplets", "cosine_weight": 0.5}, "cls", TRIPLETS, None,
                        lambda m, b: losses.angle_triplets(*views(m, b), cosine_weight=0.5)),
    "angle, scores": ({"ibn_weight": 0.0, "angle_weight": 1.0}, "mean", PAIRS, "angle",
                      lambda m, b: losses.angle(*views(m, b), b.scores, ibn_weight=0.0, angle_weight=1.0)),
    "rankcse": ({**WORDS, "loss": "listnet"}, "cls", PLAIN, "ranking",
                lambda m, b: losses.rankcse(*m.view_vectors(b), b.by_row["teacher similarities"], loss="listnet")),
    "whitenedcse": ({"split": "per_view", **WHITENED}, "cls", PLAIN, "contrastive",
                    lambda m, b: losses.whitenedcse(*whitened(m, b), **WARM)),
    "whitenedcse, per third": ({"split": "per_third", **WHITENED}, "cls", PLAIN),
    "whitenedcse, no constant": ({"split": "per_view", "groups": 8, "detach_matrix": False, **WARM}, "cls", PLAIN),
    "whitenedcse, whole": ({"split": "whole", **WHITENED, "groups": 4, "reduce": "mean"}, "cls", PLAIN),
    "whitenedcse, repeated": ({"split": "per_third", "groups": 16, "repeat": {"rate": 0.6}}, "cls", PLAIN),
    "pcl": ({"peer": {"mask": True}}, "cls", PLAIN, None, lambda m, b: losses.pcl(views(m, b), peer_views(m, b))),
    "pcl, clean": ({**FEW, "peer": {"mask": True, "head": "own"}, **CLEAN}, "cls", PLAIN, None,
                   lambda m, b: losses.pcl(views(m, b), peer_views(m, b, m.peer_head), **CLEAN, **WARM)),
    "pcl, released": ({**FEW, "peer": {}}, "cls", PLAIN, None,
                      lambda m, b: losses.pcl(views(m, b), peer_views(m, b), **WARM)),
    "pcl, frozen": ({**FEW, "peer": {"frozen": True, "mask": True}}, "cls", PLAIN, None, frozen_pcl),
    "pcl, no head": ({**FEW, "peer": {"mask": True}, "head": "none", "augmentations": []}, "cls", PLAIN, None,
                     lambda m, b: losses.pcl(views(m, b), m.peer(b.ids, b.mask).split(len(b)), **WARM)),
    "pcl, no peer": ({**FEW, "peer": None}, "cls", PLAIN, None, lambda m, b: losses.pcl(views(m, b), **WARM)),
    "distil": ({"teachers": [{"model": "minilm"}], "projection": "linear"}, "mean", PLAIN, "vectors",
               lambda m, b: losses.distil(m.linear(*views(m, b)), b.by_row["teacher vectors"])),
    "distil, rows": ({**WORDS, **KL}, "mean", PLAIN, "similarities",
                     lambda m, b: losses.distil(*views(m, b), b.by_row["teacher similarities"], **KL)),
    "sncse": ({**TEMPLATES, "negation": "verbs", "lookup": "line", **MARGINS}, "mask", PLAIN, None,
              lambda m, b: losses.sncse(*m._vectors(b.ids, b.mask, len(b)).split(len(b)), **MARGINS)),
    "sg-opt": ({**SGOPT, "regulariser_weight": 0.0}, "mean", PLAIN, "contrastive",
               lambda m, b: losses.sgopt(m.projector(*views(m, b)), layers(m, b), temperature=0.1)),
    **{f"sg-opt, {objective}{', trained' * (guide == 'trained')}": (
        {**SGOPT, "objective": objective, "guide": guide, "skip_negative": skip}, "cls", PLAIN)
       for objective, guide, skip in (("sg", "frozen", False), ("opt1", "frozen", False), ("opt2", "frozen", True),
                                      ("sg-opt", "trained", False), ("opt1", "trained", False))},
    "is-bert": ({}, "mean_cnn", PLAIN, None, lambda m, b: losses.isbert(*token_features(m, b))),
    "is-bert, states": ({"padding": "states"}, "mean_cnn", PLAIN),
    "mlm": ({"probability": 0.4}, "mean", PLAIN),
    "tsdae": ({}, "cls", PLAIN),
}
POOLS = {"cls": lambda state: state[0], "mean": lambda state: state.mean(0), "max": lambda state: state.amax(0)}
# methods whose vectors are of the texts as they are read -> the tanh layer behind the pooler
ENCODED = {**dict.fromkeys(("simcse", "rankcse", "esimcse", "pcl"), "head"),
           **dict.fromkeys(("mirror-bert", "cosent", "angle", "sbert", "mlm", "distil"), "")}
PUBLIC = [case for case in CASES if len(CASES[case]) > 3]
PADDED = {"pcl, released", "is-bert, states"}  # what stands behind a text's end is read, as the authors' code does
STATISTICS = {"infocse", "whitenedcse", "whitenedcse, per third", "whitenedcse, no constant", "whitenedcse, whole",
              "whitenedcse, repeated"}  # of a batch's rows
OF_ALL_ROWS = {"rankcse", "distil, rows"}  # a teacher's similarities have a column for each row of the whole batch
ALONE = {"ct", "esimcse"}  # groups of rows, and a queue of all processes' vectors: their own tests
TOO_FEW = {"whitenedcse, no constant", "whitenedcse, repeated"}  # no covariance of full rank of a process's own rows
# of these each process's own rows alone have a gradient with training.gather simcse
CONTRASTIVE = {"simcse", "simcse, given", "mirror-bert", "promptbert", "pcl", "sarcse", "sg-opt", "rankcse"}
RELEASED = ["infocse", "whitenedcse, per third"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return promptbert_oracle.build(tmp_path_factory.mktemp("terms") / "model", "bert")


def method_and_batch(folder, case, split=None, rank=0, more_padding=0):
    """In float64, at its last stage. split: the rows of each process, None where there is one."""
    options, pooler, texts, *_ = CASES[case]
    method = make(load_method(case.partition(",")[0]), folder, options, pooler=pooler)
    rows, generator = LabelledRows(folder, texts), np.random.default_rng(0)
    if labelled := texts is NLI:
        torch.manual_seed(1)
        method.classifier.set_shape(method.backbone.vector_width, 3)
        method.double()
    method.start_stage(method.stages_for(method.options)[-1])
    read = method.labelled_views(rows, generator) if labelled else method.views(rows, generator)
    pad = method.backbone.tokenizer.pad_token_id
    batch = to_batch(read, shares_of(len(read.tokens[0]), split, rank), pad, torch.device("cpu"))
    batch.labelled_only = labelled
    grow = torch.nn.functional.pad
    batch.ids, batch.mask = grow(batch.ids, (0, more_padding), value=pad), grow(batch.mask, (0, more_padding))
    batch.extra = {name: grow(values, (0, more_padding), value=IGNORED if name.endswith("labels") else pad)
                   for name, values in batch.extra.items()}
    return method, batch


def split_of(case):
    """An uneven one: an even one would hide a mean of means."""
    count = len(next(iter(CASES[case][2].values())))
    return count - count // 3, count // 3


def numbers(terms):
    return {name: term.value.item() for name, term in terms.items()}


@pytest.mark.parametrize("case", PUBLIC)
def test_the_term_is_the_public_loss_of_the_vectors(folder, case):
    method, batch = method_and_batch(folder, case)
    *_, name, loss = CASES[case]
    terms = method(batch)
    value = total(terms) if name is None else terms[name].value
    again = loss(method, batch)
    assert value.item() > 1e-6 and again.item() == pytest.approx(value.item(), abs=1e-12)
    weights = [weight for weight in method.parameters() if weight.requires_grad]
    gradients = [torch.autograd.grad(each, weights, allow_unused=True) for each in (value, again)]
    pairs = [pair for pair in zip(*gradients, strict=True) if pair[0] is not None]
    assert len(pairs) > 20 and all(torch.allclose(one, other, rtol=0, atol=1e-10) for one, other in pairs)


@pytest.mark.parametrize("case", [case for case in CASES if case.partition(",")[0] in ENCODED and CASES[case][1] in POOLS])
def test_the_vectors_compared_are_of_each_text_alone_as_transformers_reads_it(folder, case):
    method, batch = method_and_batch(folder, case, more_padding=2)
    rows = [ids[: int(mask.sum())].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]
    pooled = torch.stack([POOLS[CASES[case][1]](state) for state in states(folder, rows)])
    head = getattr(method, ENCODED[case.partition(",")[0]], None)
    expected = pooled if head is None else torch.tanh(pooled @ head.dense.weight.T + head.dense.bias)
    assert (method.vectors(batch.ids, batch.mask) - expected).abs().max() < 1e-10
    if case in ("simcse", "simcse, given", "rankcse", "cosent", "sbert, nli", "sbert, sts", "sbert, triplet"):
        texts = CASES[case][2]
        assert rows == [ids for role in texts for ids in tokens(folder, texts[role])] * (batch.views // len(texts))


def test_declutr_s_term_is_the_public_loss_of_anchors_and_their_positives(folder):
    """Two anchors, and two positives of each: views that documents of six texts do not give."""
    method = make(load_method("declutr"), folder, {"mlm_weight": 0.0, "l_min": 2, "l_max": 6}, pooler="mean")
    ids = MemoryRows(folder, PLAIN).ids("sentence")
    batch = to_batch(Views([ids[at : at + 3] for at in (0, 1, 2, 3, 0, 2)]), Shares((3,)), 0, torch.device("cpu"))
    one, two, *positives = views(method, batch)
    pairs = [torch.stack(positives[:2], dim=1), torch.stack(positives[2:], dim=1)]
    value = losses.declutr(torch.cat([one, two]), torch.cat(pairs))
    assert value.item() == pytest.approx(method(batch)["contrastive"].value.item(), abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_padding_that_no_row_needs_changes_no_term_unless_it_is_read(folder, case):
    short, long = (method(batch) for method, batch in (method_and_batch(folder, case, more_padding=more) for more in (0, 3)))
    assert (numbers(short) == pytest.approx(numbers(long), rel=1e-9)) == (case not in PADDED)
    assert [term.count for term in short.values()] == [term.count for term in long.values()]


@pytest.mark.parametrize("case", CASES)
def test_under_autocast_every_term_is_computed_in_float32_from_vectors_that_are_not(folder, case):
    method, batch = method_and_batch(folder, case)
    method, exact = method.float(), numbers(method(batch))
    with torch.autocast("cpu", torch.bfloat16):
        terms = method(batch)
    assert {term.value.dtype for term in terms.values()} == {torch.float32}
    assert numbers(terms) == pytest.approx(exact, rel=0.1, abs=0.05) and numbers(terms) != exact


@pytest.mark.parametrize("case", CASES)
def test_what_is_trained_has_a_finite_gradient_and_counts_are_foreseen(folder, case):
    method, batch = method_and_batch(folder, case)
    terms = method(batch)
    total(terms).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in method.parameters()
               if weight.requires_grad)
    foreseen = method.counts(batch)
    assert {name: terms[name].count for name in foreseen} == foreseen
    assert all(term.count % len(batch) == 0 for name, term in terms.items() if name not in foreseen)


@pytest.mark.parametrize("case", [case for case in CASES if case != "ct, in batch"])  # which logs its scale
def test_metrics_are_of_what_was_read_since_they_were_logged_last(folder, case):
    method, batch = method_and_batch(folder, case)
    assert method.metrics() == {}
    counters = {name: value.clone() for name, value in method.named_buffers()
                if not name.startswith(("queue.", "projector."))}
    method(batch)
    changed = [name for name, value in counters.items() if not torch.equal(dict(method.named_buffers())[name], value)]
    metrics = method.metrics()
    assert bool(metrics) == bool(changed) and all(np.isfinite(value) and value >= 0 for value in metrics.values())
    assert method.metrics() == {}
    method(batch)
    assert method.metrics() == metrics


@pytest.mark.parametrize("case", [case for case in CASES if case != "consert"])  # which is tested by another pooler
def test_the_backbone_is_tested_without_what_only_training_has(folder, case):
    method, _ = method_and_batch(folder, case)
    inference = method.inference()
    prompted = CASES[case][1] == "mask"
    assert inference.model is method.backbone.model and inference.tokenizer is method.backbone.tokenizer
    assert (inference.pooler, inference.dense) == (CASES[case][1], None) and inference.token_pooler is method.backbone.head
    assert (inference.prompt is not None) == prompted and (inference.masked_lm is not None) == (case == "mlm")


@pytest.mark.parametrize("method", ["simcse", "pcl", "rankcse", "sncse", "promptbert"])
def test_a_head_that_is_kept_is_tested(folder, method):
    more = {"rankcse": WORDS, "sncse": {**TEMPLATES, "negation": "verbs"}, "promptbert": TEMPLATES}.get(method, {})
    pooler = "mask" if "template" in more else "cls"
    method = make(load_method(method), folder, {"head": "mlp", **more}, pooler=pooler)
    inference = method.inference()
    if inference.prompt is None:
        assert (inference.pooler, inference.dense) == ("cls+dense", method.head.dense)
    else:
        assert inference.pooler == "mask" and inference.prompt.head is not None


HEADS = {"mlm": {}, "tsdae": {}, "infocse": {**INFOCSE}, "simcse": {"mlm_weight": 0.1}}


@pytest.mark.parametrize("method", HEADS)
def test_a_masked_lm_head_that_the_checkpoint_lacks_is_said_to_be_new(folder, encoders, method):
    stored, made_up = (make(load_method(method), place, HEADS[method]) for place in (folder, encoders["bert"]))
    assert stored.notes() == [] and ["stores no masked-LM head" in line for line in made_up.notes()] == [True]


@pytest.mark.parametrize("case", [case for case in CASES if case not in OF_ALL_ROWS | ALONE | TOO_FEW])
def test_local_gathering_leaves_each_process_to_its_own_rows(folder, case):
    for rank in range(2):
        method, batch = method_and_batch(folder, case, split_of(case), rank)
        method.gather_mode = "local"
        alone, batch_alone = method_and_batch(folder, case)[0], copy(batch)
        batch_alone.shares = Shares((len(batch),))
        assert numbers(method(batch)) == pytest.approx(numbers(alone(batch_alone)), rel=1e-12)
        assert method.counts(batch) == alone.counts(batch_alone)


def passes_of_rank(rank, folder):
    """(case, mode) -> terms, gradients, running statistics and vectors."""
    passes = {}
    for case in [case for case in CASES if case not in ALONE]:
        for mode in ("exact", *["simcse"] * (case in CONTRASTIVE or case in RELEASED)):
            method, batch = method_and_batch(folder, case, split_of(case), rank)
            method.gather_mode = mode
            terms, gradients = second_pass(method, batch, processes=2)
            running = {name: value.clone() for name, value in method.named_buffers() if "running" in name}
            vectors = method.vectors(batch.ids, batch.mask).detach() if case == "infocse" else None
            passes[case, mode] = terms, gradients, running, vectors
    return passes


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    return both_find(tmp_path_factory.mktemp("shares"), passes_of_rank, folder)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ALONE])
def test_two_processes_have_the_gradient_and_the_statistics_of_one(folder, both, case):
    method, batch = method_and_batch(folder, case)
    terms, gradients = second_pass(method, batch)
    for by_case in both:
        theirs, their_gradients, running, _ = by_case[case, "exact"]
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


def test_the_vectors_behind_a_batch_norm_are_normalised_over_all_processes(folder, both):
    method, batch = method_and_batch(folder, "infocse")
    expected = views(method, batch)
    parts = [by_case["infocse", "exact"][3].chunk(2) for by_case in both]
    for view in range(2):
        assert torch.allclose(torch.cat([part[view] for part in parts]), expected[view], atol=1e-10)
