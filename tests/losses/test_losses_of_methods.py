"""The methods' losses as functions of vectors: against formulas written out in plain loops, and against the methods' own."""

from __future__ import annotations

import doctest
import inspect
import math
import pkgutil
import subprocess
import sys
from importlib import import_module

import promptbert_oracle
import pytest
import tiny_models
import torch
from method_oracle import MemoryRows, batch_of, make
from public_losses import FOLDERS, OF_METHODS
from torch.nn import functional

from stsbench import losses
from stsbench.methods.consert.augment import SLOTS
from stsbench.training.api.batch import Shares, Views
from stsbench.training.recipes.methods import load_method, options_of
from stsbench.training.rows.batches import to_batch

INFO_NCE = ("simcse", "promptbert", "diffaug", "diffcse", "sarcse")


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cos(a, b):
    return float(a @ b / (a.norm() * b.norm()))


def naive_info_nce(anchors, positives, blocks, s, alpha=1.0):
    losses = []
    for i, a in enumerate(anchors):
        total = sum(math.exp(s(a, p)) for p in positives)
        for block in blocks:
            total += sum((alpha if i == j else 1) * math.exp(s(a, m)) for j, m in enumerate(block))
        losses.append(-math.log(math.exp(s(a, positives[i])) / total))
    return sum(losses) / len(losses)


def naive_nt_xent(first, second, t):
    views, n, losses = [*first, *second], len(first), []
    for i, r in enumerate(views):
        others = sum(math.exp(cos(r, other) / t) for j, other in enumerate(views) if j != i)
        losses.append(-math.log(math.exp(cos(r, views[(i + n) % (2 * n)]) / t) / others))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("name", INFO_NCE)
def test_info_nce_written_out(name):
    loss = getattr(losses, name)
    a, p, m = (vectors(5, 8, seed=seed) for seed in range(3))
    n = vectors(10, 8, seed=3)
    assert loss(a, p).item() == pytest.approx(naive_info_nce(a, p, [], lambda x, y: cos(x, y) / 0.05), abs=1e-9)
    assert loss(a, p, m, temperature=0.3).item() == pytest.approx(
        naive_info_nce(a, p, [m], lambda x, y: cos(x, y) / 0.3), abs=1e-12
    )
    value = loss(a, p, n, similarity="dot")
    assert value.item() == pytest.approx(naive_info_nce(a, p, [n[:5], n[5:]], lambda x, y: float(x @ y)), abs=1e-9)
    if name == "simcse":
        value = loss(a, p, m, temperature=0.3, alpha=3.0)
        assert value.item() == pytest.approx(naive_info_nce(a, p, [m], lambda x, y: cos(x, y) / 0.3, 3.0), abs=1e-12)


def test_nt_xent_written_out():
    first, second = vectors(5, 8), vectors(5, 8, seed=1)
    assert losses.consert(first, second).item() == pytest.approx(naive_nt_xent(first, second, 0.1), abs=1e-12)
    assert losses.mirrorbert(first, second).item() == pytest.approx(naive_nt_xent(first, second, 0.04), abs=1e-12)
    summed = losses.consert(first, second, temperature=0.5, nt_xent="sum")
    assert summed.item() == pytest.approx(2 * naive_nt_xent(first, second, 0.5), abs=1e-12)
    three = vectors(5, 3, 8, seed=2)
    means = [row.sum(0) / 3 for row in three]
    declutr = losses.declutr
    assert declutr(first, three).item() == pytest.approx(naive_nt_xent(first, means, 0.05), abs=1e-9)
    assert declutr(first, second).item() == pytest.approx(naive_nt_xent(first, second, 0.05), abs=1e-9)


def test_contrastive_tension_written_out():
    x, y, labels = vectors(6, 8), vectors(6, 8, seed=1), [1, 0, 0, 1, 0, 0]
    probabilities = [1 / (1 + math.exp(-float(a @ b))) for a, b in zip(x, y, strict=True)]
    values = [-math.log(p if label else 1 - p) for p, label in zip(probabilities, labels, strict=True)]
    assert losses.ct(x, y, torch.tensor(labels)).item() == pytest.approx(sum(values) / 6, abs=1e-12)
    assert losses.ct(x, y, torch.tensor(labels), reduction="sum").item() == pytest.approx(sum(values), abs=1e-12)
    for similarity, s in (("dot", lambda a, b: 2 * float(a @ b)), ("cosine", lambda a, b: 2 * cos(a, b))):
        both = (naive_info_nce(x, y, [], s) + naive_info_nce(y, x, [], s)) / 2
        value = losses.ct_in_batch(x, y, similarity=similarity, scale=2.0)
        assert value.item() == pytest.approx(both, abs=1e-9)


def test_sentence_bert_written_out():
    u, v, n, labels = vectors(4, 6), vectors(4, 6, seed=1), vectors(4, 6, seed=2), torch.tensor([2, 0, 1, 1])
    weight, bias = vectors(3, 18, seed=3), vectors(3, seed=4)
    logits = torch.stack([weight @ torch.cat([a, b, (a - b).abs()]) + bias for a, b in zip(u, v, strict=True)])
    assert losses.sbert_nli(u, v, labels, weight, bias).item() == pytest.approx(
        functional.cross_entropy(logits, labels).item(), abs=1e-12
    )
    scores = torch.tensor([0.0, 5.0, 2.0, 1.0], dtype=torch.float64)
    squares = [(cos(a, b) - float(score) / 5) ** 2 for a, b, score in zip(u, v, scores, strict=True)]
    assert losses.sbert_regression(u, v, scores).item() == pytest.approx(sum(squares) / 4, abs=1e-12)
    squares = [((cos(a, b) + 1) / 2 - (float(score) + 1) / 7) ** 2 for a, b, score in zip(u, v, scores, strict=True)]
    value = losses.sbert_regression(u, v, scores, scale=(-1, 6), similarity="rescaled_cosine")
    assert value.item() == pytest.approx(sum(squares) / 4, abs=1e-12)
    hinges = [max(float((a - b).norm() - (a - c).norm()) + 1.5, 0) for a, b, c in zip(u, v, n, strict=True)]
    assert losses.triplet(u, v, n, margin=1.5).item() == pytest.approx(sum(hinges) / 4, abs=1e-12)


def test_sg_opt_written_out():
    c, h, t, values = vectors(4, 6), vectors(4, 3, 6, seed=1), 0.2, []
    for i in range(4):
        others = sum(math.exp(cos(c[i], h[m, k]) / t) for m in range(4) if m != i for k in range(3))
        for k in range(3):
            positive = math.exp(cos(c[i], h[i, k]) / t)
            values.append(-math.log(positive / (positive + others)))
    assert losses.sgopt(c, h, temperature=t).item() == pytest.approx(sum(values) / 12, abs=1e-12)
    part = losses.sgopt(c[2:], h[2:], temperature=t, all_layers=h, start=2)
    assert part.item() == pytest.approx(sum(values[6:]) / 6, abs=1e-12)


def test_is_bert_written_out():
    tokens, sentences = vectors(3, 4, 6), vectors(3, 6, seed=1)
    lengths, positive, negative = [4, 2, 3], [], []
    for i, length in enumerate(lengths):
        for at in range(length):
            z = [float(tokens[i, at] @ sentence) for sentence in sentences]
            positive.append(math.log(2) - math.log1p(math.exp(-z[i])))
            negative += [math.log1p(math.exp(z[j])) - math.log(2) for j in range(3) if j != i]
    real = torch.arange(4) < torch.tensor(lengths).unsqueeze(1)
    expected = sum(negative) / len(negative) - sum(positive) / len(positive)
    assert losses.isbert(tokens, real, sentences).item() == pytest.approx(expected, abs=1e-12)
    assert losses.isbert(tokens, real.long(), sentences).item() == pytest.approx(expected, abs=1e-12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return promptbert_oracle.build(tmp_path_factory.mktemp("losses") / "model", "bert")


TEXTS = tiny_models.sentences(12, longest=7, seed=3)
PLAIN = {"sentence": TEXTS[:6]}
TRIPLETS = {"anchor": TEXTS[:4], "positive": TEXTS[4:8], "negative": TEXTS[8:]}
PAIRS = {"sentence1": TEXTS[:4], "sentence2": TEXTS[4:8]}
TEMPLATES = {"template": "the man : {} means [MASK] .", "second_template": "a man : {} eats [MASK] ."}


class Scored(MemoryRows):
    def scores(self):
        return [float(row) for row in self.rows]


def views(method, batch):
    return method.vectors(batch.ids, batch.mask).split(len(batch))


def peer_views(method, batch):
    return method.head(method.peer(batch.ids, batch.mask)).split(len(batch))


def layers(method, batch):
    states = method.reference.states(batch.ids, batch.mask, method.layers)
    real = batch.mask.unsqueeze(2)
    return method.projector(torch.stack([(state * real).sum(1) / real.sum(1) for state in states], dim=1))


def features(method, batch):
    found = method.backbone.head.features(method.backbone(batch.ids, batch.mask)[0], batch.mask, zero_padding=True)
    return found.tokens, found.real, found.vectors


def tension(method, batch):
    n = len(batch)
    both = method.options.objective == "in-batch"
    rows = (slice(None), slice(None)) if both else (slice(n), slice(n, None))
    return [encoder.pooled(batch.ids[row], batch.mask[row])
            for encoder, row in zip((method.first, method.backbone), rows, strict=True)]


def first(method, batch):
    return method._compared(batch)[0]


def later(method, batch):
    return torch.cat(method._compared(batch)[1:])


ASKED = {"temperature": 0.3}
KL = {"objective": "similarities", "loss": "kl"}
# folder -> options, pooler, rows, the term, and the loss of the vectors that the method compares
CASES = {
    "simcse": (ASKED, "cls", PLAIN, "contrastive", lambda m, b: losses.simcse(*m.view_vectors(b), **ASKED)),
    "simcse-given": ({"view": "given", "alpha": 2.0}, "cls", TRIPLETS, "contrastive",
                     lambda m, b: losses.simcse(*views(m, b), alpha=2.0)),
    "consert": ({"views": ("none", "shuffle"), "rates": (None, None), "nt_xent": "sum"}, "mean", PLAIN, "contrastive",
                lambda m, b: losses.consert(*(m._view(b, slot, "unsup") for slot in SLOTS), nt_xent="sum")),
    "mirrorbert": ({}, "mean", PLAIN, "contrastive", lambda m, b: losses.mirrorbert(*m.view_vectors(b))),
    "promptbert": (TEMPLATES, "mask", PLAIN, "contrastive",
                   lambda m, b: losses.promptbert(*m._vectors(b.ids, b.mask, len(b)).split(len(b)))),
    "diffaug": ({"template": TEMPLATES["template"], "denoise": False, "prefix_length": 2}, "mask", PLAIN, "contrastive",
                lambda m, b: losses.diffaug(*m.view_vectors(b))),
    "diffcse": ({"rtd_weight": 0.0, **ASKED}, "cls", PLAIN, "contrastive",
                lambda m, b: losses.diffcse(*m.view_vectors(b), **ASKED)),
    "infocse": ({"mlm_weight": 0.0, **ASKED}, "cls", PLAIN, "contrastive",
                lambda m, b: losses.infocse(*m.view_vectors(b), **ASKED)),
    "sarcse": ({"beta": 0.0, "gamma": 0.0}, "text_cnn", PLAIN, "contrastive",
               lambda m, b: losses.sarcse(*views(m, b))),
    "ct": ({"k": 1, "reduction": "mean"}, "mean", PLAIN, "tension",
           lambda m, b: losses.ct(*tension(m, b), b.labels)),
    "ct-in-batch": ({"objective": "in-batch", "scale": 2.0}, "mean", PLAIN, "in_batch",
                    lambda m, b: losses.ct_in_batch(*tension(m, b), scale=m.log_scale.exp())),
    "sbert-sts": ({"objective": "sts"}, "mean", PAIRS, "sts",
                  lambda m, b: losses.sbert_regression(*views(m, b), b.scores)),
    "sbert-triplet": ({"objective": "triplet", "margin": 2.0}, "mean", TRIPLETS, "triplet",
                      lambda m, b: losses.triplet(*views(m, b), margin=2.0)),
    "cosent": ({"scale": 5.0}, "cls", PAIRS, "cosent", lambda m, b: losses.cosent(*views(m, b), b.scores, scale=5.0)),
    "angle-triplets": ({"format": "triplets", "cosine_weight": 0.5}, "cls", TRIPLETS, None,
                       lambda m, b: losses.angle_triplets(*views(m, b), cosine_weight=0.5)),
    "angle-scored": ({"ibn_weight": 0.0, "angle_weight": 1.0}, "mean", PAIRS, "angle",
                     lambda m, b: losses.angle(*views(m, b), b.scores, ibn_weight=0.0, angle_weight=1.0)),
    "rankcse": ({"teachers": [{"model": "lexical:token-set"}], "loss": "listnet"}, "cls", PLAIN, "ranking",
                lambda m, b: losses.rankcse(*m.view_vectors(b), b.by_row["teacher similarities"], loss="listnet")),
    "whitenedcse": ({"split": "per_view", "groups": 8, "eps": 0.1, **ASKED}, "cls", PLAIN, "contrastive",
                    lambda m, b: losses.whitenedcse(first(m, b), later(m, b), **ASKED)),
    "pcl": ({}, "cls", PLAIN, None, lambda m, b: losses.pcl(views(m, b), peer_views(m, b))),
    "distil": ({"teachers": [{"model": "minilm"}], "projection": "linear"}, "mean", PLAIN, "vectors",
               lambda m, b: losses.distil(m.linear(*views(m, b)), b.by_row["teacher vectors"])),
    "distil-rows": ({"teachers": [{"model": "lexical:token-set"}], **KL}, "mean", PLAIN, "similarities",
                    lambda m, b: losses.distil(*views(m, b), b.by_row["teacher similarities"], **KL)),
    "sncse": ({**TEMPLATES, "negation": "verbs", "weight": 1.0, "lookup": "line"}, "mask", PLAIN, None,
              lambda m, b: losses.sncse(*m._vectors(b.ids, b.mask, len(b)).split(len(b)), weight=1.0)),
    "sgopt": ({"projection_width": 8}, "mean", PLAIN, "contrastive",
              lambda m, b: losses.sgopt(m.projector(*views(m, b)), layers(m, b))),
    "isbert": ({}, "mean_cnn", PLAIN, None, lambda m, b: losses.isbert(*features(m, b))),
}


@pytest.mark.parametrize("case", CASES)
def test_the_method_s_own_forward_is_that_loss(folder, case):
    options, pooler, texts, name, loss = CASES[case]
    method = make(load_method(FOLDERS[case.partition("-")[0]]), folder, options, pooler=pooler)
    method.start_stage(method.stages_for(method.options)[-1])
    batch = batch_of(method, Scored(folder, texts))
    terms = method(batch)
    value = sum(term.weight * term.value for term in terms.values()) if name is None else terms[name].value
    again = loss(method, batch)
    assert value.item() > 1e-6 and again.item() == pytest.approx(value.item(), abs=1e-12)
    weights = [weight for weight in method.backbone.parameters() if weight.requires_grad]
    gradients = [torch.autograd.grad(each, weights, allow_unused=True) for each in (value, again)]
    pairs = [pair for pair in zip(*gradients, strict=True) if pair[0] is not None]
    assert len(pairs) > 20 and all(torch.allclose(one, other, rtol=0, atol=1e-10) for one, other in pairs)


def test_sentence_bert_s_classifier_has_that_loss(folder):
    method = make(load_method("sbert"), folder, pooler="mean")
    method.classifier.set_shape(method.backbone.vector_width, 3)
    method.double()
    rows = MemoryRows(folder, {"premise": TEXTS[:4], "hypothesis": TEXTS[4:8]})
    rows.labels = lambda: [0, 2, 1, 1]
    read = method.labelled_views(rows, None)
    batch = to_batch(read, Shares((4,)), method.backbone.tokenizer.pad_token_id, torch.device("cpu"))
    batch.labelled_only = True
    linear = method.classifier.linear
    value = losses.sbert_nli(*views(method, batch), batch.labels, linear.weight, linear.bias)
    assert value.item() == pytest.approx(method(batch)["nli"].value.item(), abs=1e-12)


def test_declutr_s_forward_has_that_loss(folder):
    method = make(load_method("declutr"), folder, {"mlm_weight": 0.0, "l_min": 2, "l_max": 6}, pooler="mean")
    ids = MemoryRows(folder, PLAIN).ids("sentence")
    read = Views([ids[at : at + 3] for at in (0, 1, 2, 3, 0, 2)])  # two anchors, and two positives of each
    batch = to_batch(read, Shares((3,)), method.backbone.tokenizer.pad_token_id, torch.device("cpu"))
    one, two, *positives = views(method, batch)
    pairs = [torch.stack(positives[:2], dim=1), torch.stack(positives[2:], dim=1)]
    value = losses.declutr(torch.cat([one, two]), torch.cat(pairs))
    assert value.item() == pytest.approx(method(batch)["contrastive"].value.item(), abs=1e-12)


@pytest.mark.parametrize("name", OF_METHODS)
def test_defaults_are_those_of_the_options(name):
    fields = options_of(FOLDERS[OF_METHODS[name]]).model_fields
    parameters = inspect.signature(getattr(losses, name)).parameters.values()
    named = {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    assert {key: fields[key].default for key in named if key in fields} == {
        key: value for key, value in named.items() if key in fields
    }
    assert set(named) - set(fields) <= {"all_layers", "start"}


def test_what_there_is_is_listed():
    assert {*losses.__all__} == {word for word in dir(losses) if not word.startswith("_")}
    modules = {module.name for module in pkgutil.iter_modules(losses.__path__)}
    assert not modules & {*losses.__all__}  # an imported module would hide a function of its name
    for name in losses.__all__:
        assert inspect.getdoc(getattr(losses, name)).strip()
    assert {*FOLDERS} - {*OF_METHODS.values()} == {"cmlm", "mlm", "tsdae"}  # guess words: masked_lm
    with pytest.raises(AttributeError, match=r"^module 'stsbench\.losses' has no attribute 'simsce'$"):
        _ = losses.simsce


@pytest.mark.parametrize("module", sorted({getattr(losses, name).__module__ for name in OF_METHODS}))
def test_the_examples_of_the_docstrings_run(module):
    results = doctest.testmod(import_module(module))
    assert (results.failed, results.attempted > 3) == (0, True)


@pytest.mark.parametrize("name", OF_METHODS)
def test_a_method_s_loss_has_a_formula_an_example_and_a_source(name):
    text = inspect.getdoc(getattr(losses, name))
    assert text.startswith("Return ") and "\n\n    " in text and f"losses.{name}(" in text and "Source" in text


def test_a_loss_loads_torch_and_no_model_code():
    code = (
        "import sys; from stsbench import losses\n"
        "print('torch' in sys.modules); losses.simcse; losses.triplet\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\nTrue False\n", done.stderr


@pytest.mark.parametrize("call", [
    lambda z: losses.simcse(z[:3], z), lambda z: losses.promptbert(z, z[:1]),
    lambda z: losses.diffaug(z[:3], z),
    lambda z: losses.diffcse(z[:3], z), lambda z: losses.sarcse(z[0], z[0]),
    lambda z: losses.whitenedcse(z[:3], z),
    lambda z: losses.simcse(z, z, z[:3]), lambda z: losses.triplet(z, z, z[:1]),
    lambda z: losses.sbert_regression(z, z, torch.rand(5, 1)),
    lambda z: losses.sbert_regression(z, z[:1], torch.rand(5)),
    lambda z: losses.sbert_nli(z, z[:1], torch.zeros(5, dtype=torch.long), torch.rand(3, 12)),
])
def test_rows_that_do_not_belong_together_are_refused(call):
    """torch would stretch one of them over the others, and give a number."""
    with pytest.raises(ValueError, match=r"\(n, d\)|one for each row|needs its own"):
        call(torch.eye(5, 4))


# Numbers without a meaning ----------------------------------------------------------------------------------------

def arguments(loss, n):
    """Tensors of n rows for a public loss, by the names of its parameters."""
    shapes = {"tokens": (n, 4, 6), "weight": (3, 18), "bias": (3,), "layers": (n, 3, 6)}
    made = {}
    for seed, (name, parameter) in enumerate(inspect.signature(loss).parameters.items()):
        if parameter.default is not inspect.Parameter.empty:
            continue
        if name in ("scores", "labels"):
            made[name] = torch.arange(n) % 2 if name == "labels" else (torch.arange(n) % 2).double()
        elif name == "views":
            made[name] = [vectors(n, 6, seed=seed + at).requires_grad_() for at in range(3)]
        elif name == "real":
            made[name] = torch.ones(n, 4)
        elif name == "teacher" and loss is losses.rankcse:
            made[name] = vectors(n, n, seed=seed)
        else:
            made[name] = vectors(*shapes.get(name, (n, 6)), seed=seed).requires_grad_()
    return made


@pytest.mark.parametrize("name", OF_METHODS)
def test_a_public_loss_refuses_numbers_without_a_meaning(name):
    """What is divided by is above 0; a weight may be 0; whatever is compared, and not added up, is finite."""
    loss = getattr(losses, name)
    for number, parameter in inspect.signature(loss).parameters.items():
        if isinstance(parameter.default, float):
            may_be_0 = number.endswith("weight") or number == "eps" or loss is losses.sncse
            below = [] if loss is losses.sncse and number in ("alpha", "beta") else [-1.0]
            for value in (math.nan, math.inf, -math.inf, *below, *([] if may_be_0 and number != "temperature" else [0.0])):
                with pytest.raises(ValueError, match=number):
                    loss(**arguments(loss, 4), **{number: value})
    for number in ("scores", "labels", "teacher"):
        given = arguments(loss, 4)
        for value in (math.nan, math.inf):
            if number in given:
                given[number] = given[number].detach().double()
                given[number].view(-1)[1] = value
                with pytest.raises(ValueError, match=number):
                    loss(**given)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", OF_METHODS)
def test_a_public_loss_of_no_row_or_of_one_is_a_number_with_a_gradient(name, n):
    loss = getattr(losses, name)
    given = arguments(loss, n)
    value = loss(**given)
    assert math.isfinite(value.item()) and (n > 0 or value.item() == 0)
    value.backward()
    tensors = [tensor for each in given.values() for tensor in (each if isinstance(each, list) else [each])]
    assert all(tensor.grad is None or torch.isfinite(tensor.grad).all() for tensor in tensors)


def test_where_a_gpu_is_not_waited_for_the_loss_is_nan():
    """Compiling stands in for it: nothing is looked at, and the comparison with NaN does not pass for an answer."""
    for scores in ([0.0, math.nan, 1.0], [0.0, math.inf, 1.0]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
            assert losses.cosent(vectors(3, 6), vectors(3, 6, seed=1), torch.tensor(scores)).isnan()
            teacher = torch.tensor([scores] * 3)
            assert losses.rankcse(vectors(3, 6), vectors(3, 6, seed=1), teacher).isnan()


def test_no_label_is_left_out_as_if_it_were_padding():
    u, v, weight = vectors(4, 6), vectors(4, 6, seed=1), vectors(3, 18, seed=2)
    with pytest.raises(IndexError):
        losses.sbert_nli(u, v, torch.tensor([0, 1, -100, 2]), weight)
