"""The terms of `distil` against loops over texts encoded one at a time, the library's losses, and scikit-learn's PCA."""

import math

import numpy as np
import pytest
import sentence_transformers.sentence_transformer.losses as library
import torch
from method_oracle import MemoryRows, batch_of, make, states, tokens
from method_runs import cached_place, recipe_of, train
from safetensors.torch import load_file
from simcse_oracle import PLAIN, cosine, folder, naive_teacher, same  # noqa: F401
from sklearn import decomposition
from torch import nn
from torch.nn import functional
from training_runs import one_thread  # noqa: F401

from stsbench import losses
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.methods.distil.method import Distil, principal_components
from stsbench.training.api.batch import Shares
from stsbench.training.api.teachers import Teachers
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.finish import load_trained

TEXTS, WORDS = PLAIN["sentence"], {"model": "lexical:token-set"}


def teacher(folder, pooler="cls", **more):
    return {"model": str(folder), "settings": {"pooler": pooler}, **more}


def ready(folder, **options):
    method = make(Distil, folder, options, pooler="mean")
    method.start_stage("main")
    return method


def naive_vectors(student, target, kind):
    if kind == "mse":
        squares = [(x - y) ** 2 for a, b in zip(student, target, strict=True) for x, y in zip(a, b, strict=True)]
        return sum(squares) / len(squares)
    return sum(1 - cosine(a, b) for a, b in zip(student, target, strict=True)) / len(student)


def value_and_gradient(student, teachers, **options):
    student = student.clone().requires_grad_(True)
    value = losses.distil(student, teachers, **options)
    return value.item(), torch.autograd.grad(value, student)[0]


class VectorsThemselves(nn.Module):
    device, similarity_fn_name = "cpu", "cosine"

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self):
        return 8


@pytest.mark.parametrize(("kind", "options", "library_options"), [
    (library.MSELoss, {}, {}), (library.EmbedDistillLoss, {}, {"distance_metric": "mse"}),
    (library.EmbedDistillLoss, {"loss": "cosine"}, {"distance_metric": "cosine"}),
])
def test_the_library_s_losses_of_vectors(kind, options, library_options):
    torch.manual_seed(0)
    student, teachers = torch.randn(6, 8, dtype=torch.float64), torch.randn(6, 8, dtype=torch.float64)
    value, gradient = value_and_gradient(student, teachers, **options)
    leaf = student.clone().requires_grad_(True)
    reference = kind(VectorsThemselves(), **library_options)([{"vectors": leaf}], teachers)
    assert value == pytest.approx(reference.item(), abs=1e-6)
    assert torch.allclose(gradient, torch.autograd.grad(reference, leaf)[0], rtol=0, atol=1e-6)


def test_the_library_s_divergence_is_temperature_squared_times_that_here():
    torch.manual_seed(1)
    student, cosines = torch.randn(5, 8, dtype=torch.float64), torch.rand(5, 5, dtype=torch.float64)
    options = {"student_temperature": 0.3, "teacher_temperature": 0.2}
    value, gradient = value_and_gradient(student, cosines, objective="similarities", loss="kl", **options)
    leaf = student.clone().requires_grad_(True)
    unit = functional.normalize(leaf)
    others = torch.tensor([[j for j in range(5) if j != i] for i in range(5)])
    model = VectorsThemselves()
    model.similarity_fn_name = "dot"
    reference = library.DistillKLDivLoss(model, **options).compute_loss_from_embeddings(
        [unit, *(unit[others[:, k]] for k in range(4))], cosines.gather(1, others)) / 0.3**2
    assert value == pytest.approx(reference.item(), abs=1e-6)
    assert torch.allclose(gradient, torch.autograd.grad(reference, leaf)[0], rtol=0, atol=1e-6)


def means(folder, texts):
    return [state.mean(0).tolist() for state in states(folder, tokens(folder, texts))]


def teacher_vectors(folder, texts, pooler="cls"):
    return load_encoder(str(folder), pooler=pooler).encode(texts).tolist()  # float32, as a teacher has them


@pytest.mark.parametrize("kind", ["mse", "cosine"])
def test_vectors_of_equal_width(folder, kind):
    method = ready(folder, teachers=[teacher(folder)], loss=kind)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=3))
    same(terms["vectors"].value, naive_vectors(means(folder, TEXTS), teacher_vectors(folder, TEXTS), kind))
    assert terms["vectors"].count == len(TEXTS) and terms.keys() == {"vectors"}


@pytest.mark.parametrize(("objective", "kind", "t", "tau"), [
    ("similarities", "mse", 0.05, 0.05), ("similarities", "kl", 0.3, 0.2), ("ranks", "listmle", 0.3, 0.05),
])
def test_rows_of_similarities_of_two_weighted_teachers(folder, objective, kind, t, tau):
    taught = {"teachers": [teacher(folder, weight=0.5), {**WORDS, "weight": 1.5}]}
    method = ready(folder, **taught, objective=objective, loss=kind, student_temperature=t, teacher_temperature=tau)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=3))
    target = naive_teacher(folder, TEXTS, TEXTS, "cls")
    student = torch.tensor(means(folder, TEXTS), dtype=torch.float64)
    expected = losses.distil(student, target, objective=objective, loss=kind, student_temperature=t, teacher_temperature=tau)
    # A teacher's vectors are float32, and not the same to the last bit on every processor.
    assert terms[objective].value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert terms[objective].count == len(TEXTS)


def test_local_rows_are_compared_among_themselves(folder):
    rows = MemoryRows(folder, {"sentence": [*TEXTS, *TEXTS[:2]]})
    method = ready(folder, teachers=[WORDS], objective="similarities", loss="kl")
    method.gather_mode = "local"
    views = method.views(rows, np.random.default_rng(0))
    part = method(to_batch(views, Shares((3, 4), 1), 0, torch.device("cpu")))["similarities"]
    alone = method(batch_of(method, rows.at(range(3, 7))))["similarities"]
    assert part.value.item() == pytest.approx(alone.value.item(), abs=1e-12) and part.count == 4


def test_a_teacher_s_vector_that_is_not_finite_is_refused_where_it_enters():
    """A loss compares it with other numbers, and no comparison with NaN holds."""
    teachers = Teachers([("letters", {}, 1.0)], "options.teachers")
    teachers.encoders = [load_encoder(lambda texts: [[math.nan if text == "worn" else len(text), 1.0] for text in texts])]
    for asked in (lambda: teachers.vectors(["new", "worn"]), lambda: teachers.similarities(["new"], ["worn"])):
        with pytest.raises(StsbenchError):
            asked()


def test_components_are_scikit_learn_s_to_the_last_digits():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(5000, 24)) @ np.diag(np.linspace(3, 1, 24)) + 5
    mean, components = principal_components(vectors, 10)
    pca = decomposition.PCA(10, svd_solver="full").fit(vectors)
    assert np.abs(mean - pca.mean_).max() < 1e-12 and np.abs(components - pca.components_).max() < 1e-8


@pytest.mark.parametrize("center", [False, True])
def test_pca_to_the_student_s_width_is_scikit_learn_s(folder, center):
    fitted = [" ".join(TEXTS[k % 5].split()[k % 3 :]) + f" {('cat', 'dog', 'man', 'park')[k % 4]}" for k in range(40)]
    teachers = [teacher(folder, weight=0.25), teacher(folder, "mean", weight=0.75)]  # twice the student's width
    method = make(Distil, folder, {"teachers": teachers, "center": center}, pooler="mean")
    method.texts = fitted
    assert method.notes()[-1].startswith("teachers: 64 numbers to 32 by PCA of 40 texts of the training text, ")
    assert method.notes()[-1].endswith("without their mean" if center else "with their mean")
    method.start_stage("main")
    value = method(batch_of(method, MemoryRows(folder, PLAIN)))["vectors"].value

    def joined(texts):
        blocks = []
        for pooler, weight in (("cls", 0.25), ("mean", 0.75)):
            rows = np.asarray(teacher_vectors(folder, texts, pooler))
            blocks.append(math.sqrt(weight) * rows / np.linalg.norm(rows, axis=1, keepdims=True))
        return np.concatenate(blocks, 1)

    width = method.backbone.vector_width
    pca = decomposition.PCA(width, svd_solver="full").fit(joined(fitted))
    assert method.pca.components.shape == (width, 2 * width)
    scale = np.linalg.norm(joined(TEXTS) - pca.mean_, axis=1).max()
    target = pca.transform(joined(TEXTS)) if center else joined(TEXTS) @ pca.components_.T
    projected = method.pca(torch.from_numpy(joined(TEXTS))).detach().numpy()
    strong = pca.explained_variance_ > 1e-6 * pca.explained_variance_[0]  # of equal variance a direction is any
    assert strong.sum() > 5 and np.abs(projected - target)[:, strong].max() < 1e-3 * scale
    assert value.item() == pytest.approx(naive_vectors(means(folder, TEXTS), target.tolist(), "mse"), rel=1e-4)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("distil"))


# two teachers side by side are wider than the student
TWO = [{"model": "model", "settings": {"pooler": pooler}, "weight": weight} for pooler, weight in (("cls", 1), ("mean", 2))]
WIDE = {"options.teachers": TWO, "options.pca_texts": 40, "options.projection": "auto"}


def stored(run):
    return load_file(sorted((run / "checkpoints").glob("0-*"))[-1] / "model.safetensors")


def test_pca_is_of_rows_drawn_by_the_seed_and_stored(place, tmp_path):
    kept = {}
    for name, seed in (("one", 42), ("other", 43)):
        summary, _ = train(recipe_of(place, "distil", **WIDE, seed=seed), tmp_path / name, place)
        weights = stored(tmp_path / name)
        kept[name] = weights["pca.components"], summary["teachers"]["teacher PCA"]
        assert weights["pca.components"].shape == (32, 64) and weights["pca.mean"].shape == (64,)
    assert not torch.equal(kept["one"][0], kept["other"][0]) and kept["one"][1] != kept["other"][1]
    assert torch.equal(load_trained(tmp_path / "one", device="cpu").pca.components, kept["one"][0])
