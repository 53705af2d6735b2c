"""The terms of `distil` against loops over texts encoded one at a time, the library's losses, and scikit-learn's PCA."""

import math

import numpy as np
import pytest
import sentence_transformers.sentence_transformer.losses as library
import torch
from method_oracle import MemoryRows, batch_of, make, states, tokens
from shipped_recipes import one_line
from simcse_oracle import PLAIN, folder, same
from sklearn import decomposition
from torch import nn

from stsbench import losses
from stsbench.config import validate
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.losses.choices import DISTIL_LOSSES as LOSSES
from stsbench.methods.distil.method import Distil
from stsbench.methods.distil.options import DistilOptions
from stsbench.methods.distil.projections import principal_components
from stsbench.training.api.batch import Shares
from stsbench.training.api.teachers import Teachers
from stsbench.training.rows.batches import to_batch

__all__ = ["folder"]
WORDS = {"model": "lexical:token-set"}
TEXTS = PLAIN["sentence"]


def teacher(folder, pooler="cls", **more):
    return {"model": str(folder), "settings": {"pooler": pooler}, **more}


def ready(folder, texts=None, pooler="mean", **options):
    """The method where a training begins, PCA fitted on `texts`."""
    method = make(Distil, folder, options, pooler=pooler)
    method.texts = texts
    method.start_stage("main")
    return method


def means(folder, texts):
    return [state.mean(0).tolist() for state in states(folder, tokens(folder, texts))]


def exp(x):
    return x.exp() if isinstance(x, torch.Tensor) else math.exp(x)


def log(x):
    return x.log() if isinstance(x, torch.Tensor) else math.log(x)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def naive_teacher(folder, texts, pooler="cls"):
    return load_encoder(str(folder), pooler=pooler).encode(texts).tolist()  # float32, as a teacher has them


def naive_vectors(student, target, kind):
    if kind == "mse":
        squares = [(x - y) ** 2 for a, b in zip(student, target, strict=True) for x, y in zip(a, b, strict=True)]
        return sum(squares) / len(squares)
    return sum(1 - cosine(a, b) for a, b in zip(student, target, strict=True)) / len(student)


def naive_rows(student, target, kind, t, tau):
    """student, target: [i][j] cosines."""
    losses = []
    for i, (row, known) in enumerate(zip(student, target, strict=True)):
        columns = [j for j in range(len(row)) if j != i]
        s, q = [row[j] for j in columns], [known[j] for j in columns]
        if kind == "mse":
            losses.append(sum((a - b) ** 2 for a, b in zip(s, q, strict=True)) / len(s))
            continue
        s, q = [x / t for x in s], [x / tau for x in q]
        if kind == "listmle":
            order = sorted(range(len(s)), key=lambda j: -q[j])
            losses.append(sum(log(sum(exp(s[m]) for m in order[k:])) - s[order[k]] for k in range(len(s))))
            continue
        p, q = ([exp(x) / sum(map(exp, each)) for x in each] for each in (s, q))
        cross = -sum(b * log(a) for a, b in zip(p, q, strict=True))
        losses.append(cross + (sum(b * log(b) for b in q) if kind == "kl" else 0))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(("objective", "kind"), [
    (objective, kind) for objective, kinds in LOSSES.items() for kind in kinds])
def test_value_and_gradient_are_those_of_loops(objective, kind):
    generator = torch.Generator().manual_seed(3)
    student, vectors = (torch.randn(6, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    target = vectors if objective == "vectors" else torch.nn.functional.normalize(vectors) @ torch.nn.functional.normalize(
        vectors).T
    value, gradient = of_here(student, target, objective=objective, loss=kind, student_temperature=0.3)
    leaves = [[x.clone().requires_grad_(True) for x in row] for row in student]
    if objective == "vectors":
        loss = naive_vectors(leaves, target.tolist(), kind)
    else:
        loss = naive_rows([[cosine(a, b) for b in leaves] for a in leaves], target.tolist(), kind, 0.3, 0.05)
    expected = torch.stack(torch.autograd.grad(loss, [x for row in leaves for x in row])).view_as(gradient)
    assert value == pytest.approx(loss.item(), abs=1e-10) and (gradient - expected).abs().max() < 1e-10


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("kind", ["mse", "cosine"])
def test_vectors_of_equal_width(folder, kind, padding):
    method = ready(folder, teachers=[teacher(folder)], loss=kind)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=padding))
    same(terms["vectors"].value, naive_vectors(means(folder, TEXTS), naive_teacher(folder, TEXTS), kind))
    assert terms["vectors"].count == len(TEXTS) and terms.keys() == {"vectors"}


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(("objective", "kind", "t", "tau"), [
    ("similarities", "mse", 0.05, 0.05), ("similarities", "kl", 0.05, 0.05), ("similarities", "kl", 0.3, 0.2),
    ("ranks", "listnet", 0.3, 0.2), ("ranks", "listmle", 0.3, 0.05),
])
def test_rows_of_similarities_of_two_weighted_teachers(folder, objective, kind, t, tau, padding):
    taught = {"teachers": [teacher(folder, weight=0.5), {**WORDS, "weight": 1.5}]}
    method = ready(folder, **taught, objective=objective, loss=kind, student_temperature=t, teacher_temperature=tau)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=padding))
    vectors, student = naive_teacher(folder, TEXTS), means(folder, TEXTS)

    def words(a, b):
        one, other = set(a.lower().split()), set(b.lower().split())
        return len(one & other) / math.sqrt(len(one) * len(other))

    target = [[float(np.float32(0.25 * cosine(a, b) + 0.75 * words(one, other)))
               for b, other in zip(vectors, TEXTS, strict=True)] for a, one in zip(vectors, TEXTS, strict=True)]
    same(terms[objective].value, naive_rows([[cosine(a, b) for b in student] for a in student], target, kind, t, tau))
    assert terms[objective].count == len(TEXTS)


@pytest.mark.parametrize("center", [False, True])
def test_pca_to_the_student_s_width_is_scikit_learn_s(folder, center):
    fitted = [" ".join(TEXTS[k % 5].split()[k % 3 :]) + f" {('cat', 'dog', 'man', 'park')[k % 4]}" for k in range(40)]
    teachers = [teacher(folder, weight=0.25), teacher(folder, "mean", weight=0.75)]  # twice the student's width
    method = ready(folder, fitted, teachers=teachers, center=center)
    value = method(batch_of(method, MemoryRows(folder, PLAIN)))["vectors"].value

    def joined(texts):
        blocks = []
        for pooler, weight in (("cls", 0.25), ("mean", 0.75)):
            rows = np.asarray(naive_teacher(folder, texts, pooler))
            blocks.append(math.sqrt(weight) * rows / np.linalg.norm(rows, axis=1, keepdims=True))
        return np.concatenate(blocks, 1)

    width = method.backbone.vector_width
    pca = decomposition.PCA(width, svd_solver="full").fit(joined(fitted))
    assert method.pca.components.shape == (width, 2 * width)
    scale = np.linalg.norm(joined(TEXTS) - pca.mean_, axis=1).max()
    target = pca.transform(joined(TEXTS)) if center else joined(TEXTS) @ pca.components_.T
    got = method.pca(torch.from_numpy(joined(TEXTS)))
    strong = pca.explained_variance_ > 1e-6 * pca.explained_variance_[0]  # of equal variance a direction is any
    assert strong.sum() > 5 and np.abs(got.detach().numpy() - target)[:, strong].max() < 1e-3 * scale
    assert value.item() == pytest.approx(naive_vectors(means(folder, TEXTS), target.tolist(), "mse"), rel=1e-4)


def test_components_are_scikit_learn_s_to_the_last_digits():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(5000, 24)) @ np.diag(np.linspace(3, 1, 24)) + 5
    mean, components = principal_components(vectors, 10)
    pca = decomposition.PCA(10, svd_solver="full").fit(vectors)
    assert np.abs(mean - pca.mean_).max() < 1e-12 and np.abs(components - pca.components_).max() < 1e-8
    again = principal_components(vectors, 10)
    assert np.array_equal(components, again[1]) and np.array_equal(mean, again[0])


def library_loss(kind, student, teachers, **options):
    """Value and gradient of one of sentence-transformers' losses, of vectors."""
    student = student.clone().requires_grad_(True)

    class Given(nn.Module):
        device, similarity_fn_name = "cpu", "cosine"

        def forward(self, features):
            return {"sentence_embedding": features["vectors"]}

        def get_embedding_dimension(self):
            return student.shape[1]

    loss = kind(Given(), **options)
    value = loss([{"vectors": student}], teachers)
    return value.item(), torch.autograd.grad(value, student)[0]


def of_here(student, teachers, **options):
    student = student.clone().requires_grad_(True)
    value = losses.distil(student, teachers, **options)
    return value.item(), torch.autograd.grad(value, student)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_library_s_losses_of_vectors(dtype):
    torch.manual_seed(0)
    student, teachers = torch.randn(6, 8, dtype=dtype), torch.randn(6, 8, dtype=dtype)
    for kind, options, library_options in (
        (library.MSELoss, {}, {}), (library.EmbedDistillLoss, {}, {"distance_metric": "mse"}),
        (library.EmbedDistillLoss, {"loss": "cosine"}, {"distance_metric": "cosine"}),
    ):
        value, gradient = of_here(student, teachers, **options)
        known, expected = library_loss(kind, student, teachers, **library_options)
        assert value == pytest.approx(known, abs=1e-6) and torch.allclose(gradient, expected, rtol=0, atol=1e-6)


def test_the_library_s_divergence_is_temperature_squared_times_that_here():
    torch.manual_seed(1)
    student, cosines = torch.randn(5, 8, dtype=torch.float64), torch.rand(5, 5, dtype=torch.float64)
    options = {"student_temperature": 0.3, "teacher_temperature": 0.2}
    value, gradient = of_here(student, cosines, objective="similarities", loss="kl", **options)
    leaf = student.clone().requires_grad_(True)
    unit = nn.functional.normalize(leaf)
    others = torch.tensor([[j for j in range(5) if j != i] for i in range(5)])
    columns = [unit[others[:, k]] for k in range(4)]

    class Nothing(nn.Module):
        similarity_fn_name = "dot"

    loss = library.DistillKLDivLoss(Nothing(), **options)
    known = loss.compute_loss_from_embeddings([unit, *columns], cosines.gather(1, others)) / 0.3**2
    assert value == pytest.approx(known.item(), abs=1e-6)
    assert torch.allclose(gradient, torch.autograd.grad(known, leaf)[0], rtol=0, atol=1e-6)


def test_values_by_hand():
    z, t = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[0.0, 4.0], [2.0, 0.0]])
    assert losses.distil(z, t).item() == pytest.approx((9 + 0 + 1 + 0) / 4)
    assert losses.distil(z, t, loss="cosine").item() == pytest.approx((1 - 0.8 + 0) / 2)
    cosines = torch.tensor([[1.0, 0.1], [0.1, 1.0]])  # the student's is .6, both ways
    assert losses.distil(z, cosines, objective="similarities").item() == pytest.approx(0.25)
    for kind in ("kl", "listmle"):  # one other text: nothing to rank
        objective = "ranks" if kind == "listmle" else "similarities"
        assert losses.distil(z, cosines, objective=objective, loss=kind).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("kind", ["kl", "mse"])
def test_local_rows_are_compared_among_themselves(folder, kind):
    texts = {"sentence": [*TEXTS, *TEXTS[:2]]}
    method = ready(folder, teachers=[WORDS], objective="similarities", loss=kind)
    method.gather_mode = "local"
    views = method.views(MemoryRows(folder, texts), np.random.default_rng(0))
    part = method(to_batch(views, Shares((3, 4), 1), 0, torch.device("cpu")))["similarities"]
    alone = method(batch_of(method, MemoryRows(folder, texts, range(3, 7))))["similarities"]
    assert part.value.item() == pytest.approx(alone.value.item(), abs=1e-12) and part.count == 4


def test_the_linear_projection_is_the_library_s_and_learns(folder):
    method = ready(folder, teachers=[{"model": "minilm"}], projection="linear")
    assert method.linear.weight.shape == (384, method.backbone.vector_width)
    batch = batch_of(method, MemoryRows(folder, PLAIN))
    value = method(batch)["vectors"].value
    student = torch.tensor(means(folder, TEXTS), dtype=torch.float64)
    target = load_encoder("minilm").encode(TEXTS).tolist()
    projected = student @ method.linear.weight.T + method.linear.bias
    same(value, naive_vectors(projected.tolist(), target, "mse"))
    value.backward()
    assert method.linear.weight.grad.abs().max() > 0 and method.linear.bias.grad.abs().max() > 0


@pytest.mark.parametrize(("options", "message"), [
    ({}, "options.teachers is empty"),
    ({"teachers": [{**WORDS, "weight": 2}]}, "the weight of a single teacher has no effect"),
    ({"teachers": [{"model": "python:os:listdir"}]}, "python:os:listdir would run code that a recipe names"),
    ({"teachers": [WORDS], "loss": "kl"}, "options.loss kl does not go with objective vectors: set it to mse or"),
    ({"teachers": [WORDS], "objective": "ranks"}, "options.loss mse does not go with objective ranks"),
    ({"teachers": [WORDS], "objective": "similarities", "center": True}, "options.center true has no effect with objective"),
    ({"teachers": [WORDS], "projection": "linear", "pca_texts": 10}, "it goes with projection auto or pca"),
    ({"teachers": [WORDS], "student_temperature": 0.1}, "with loss mse: it goes with loss kl, listnet or listmle"),
    ({"teachers": [WORDS], "objective": "ranks", "loss": "listmle", "teacher_temperature": 0.1}, "loss listmle: it goes"),
])
def test_an_option_without_an_effect_is_refused(options, message):
    one_line(lambda: validate(DistilOptions, options, "recipe", "options."), message)


@pytest.mark.parametrize(("options", "message"), [
    ({"projection": "none"}, "options.projection none: the teachers have 384 numbers and the student 32; set"),
    ({"teachers": [WORDS]}, "lexical:token-set gives sparse vectors"),
    ({"teachers": [{"model": "no/such-model-here", "settings": {"offline": True}}]}, "options.teachers: "),
])
def test_teachers_that_do_not_fit_are_one_line(folder, options, message):
    one_line(make(Distil, folder, {"teachers": [{"model": "minilm"}], **options}).inputs, message)


def test_pca_of_fewer_texts_than_components_is_refused(folder):
    method = make(Distil, folder, {"teachers": [{"model": "minilm"}]})
    method.texts = TEXTS
    one_line(lambda: method.start_stage("main"), "32 components need as many texts at least, and there are 5")


def test_a_teacher_s_vector_that_is_not_finite_is_refused_where_it_enters():
    """A loss compares it with other numbers, and no comparison with NaN holds."""
    teachers = Teachers([("letters", {}, 1.0)], "options.teachers")
    teachers.encoders = [load_encoder(lambda texts: [[math.nan if text == "worn" else len(text), 1.0] for text in texts])]
    for asked in (lambda: teachers.vectors(["new", "worn"]), lambda: teachers.similarities(["new"], ["worn"])):
        with pytest.raises(StsbenchError, match=r"options\.teachers: .* gives NaN or infinity for the text 'worn'"):
            asked()
