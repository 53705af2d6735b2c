"""The terms of `distil` on texts encoded one at a time, and scikit-learn's PCA. Its losses: tests/losses."""

import math

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, states, tokens
from simcse_oracle import PLAIN, naive_teacher, same
from sklearn import decomposition

from stsbench import losses
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.methods.distil.method import Distil, principal_components
from stsbench.training.api.teachers import Teachers

TEXTS, WORDS = PLAIN["sentence"], {"model": "lexical:token-set"}


def teacher(folder, pooler="cls", **more):
    return {"model": str(folder), "settings": {"pooler": pooler}, **more}


def ready(folder, **options):
    method = make(Distil, folder, options, pooler="mean")
    method.start_stage("main")
    return method


def means(folder, texts):
    return torch.stack([state.mean(0) for state in states(folder, tokens(folder, texts))])


def teacher_vectors(folder, texts, pooler="cls"):
    return load_encoder(str(folder), pooler=pooler).encode(texts)  # float32, as a teacher has them


@pytest.mark.parametrize("kind", ["cosine", "contrastive"])
def test_vectors_of_equal_width(folder, kind):
    t = {"student_temperature": 0.07} if kind == "contrastive" else {}
    method = ready(folder, teachers=[teacher(folder)], loss=kind, **t)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=3))
    taught = torch.tensor(teacher_vectors(folder, TEXTS), dtype=torch.float64)
    same(terms["vectors"].value, losses.distil(means(folder, TEXTS), taught, loss=kind, **t))
    assert terms["vectors"].count == len(TEXTS) and terms.keys() == {"vectors"}
    assert "by a linear map" in ready(folder, teachers=[teacher(folder)], projection="linear").notes()[-1]


@pytest.mark.parametrize(("objective", "kind", "t", "tau"), [
    ("similarities", "kl", 0.3, 0.2), ("ranks", "listmle", 0.3, 0.05),
])
def test_rows_of_similarities_of_two_weighted_teachers(folder, objective, kind, t, tau):
    taught = {"teachers": [teacher(folder, weight=0.5), {**WORDS, "weight": 1.5}]}
    method = ready(folder, **taught, objective=objective, loss=kind, student_temperature=t, teacher_temperature=tau)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=3))
    target = naive_teacher(folder, TEXTS, TEXTS, "cls")
    how = {"objective": objective, "loss": kind, "student_temperature": t, "teacher_temperature": tau}
    expected = losses.distil(means(folder, TEXTS), target, **how)
    # A teacher's vectors are float32, and not the same to the last bit on every processor.
    assert terms[objective].value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert terms[objective].count == len(TEXTS)


def test_a_teacher_s_vector_that_is_not_finite_is_refused_where_it_enters():
    """A loss compares it with other numbers, and no comparison with NaN holds."""
    teachers = Teachers([("letters", {}, 1.0)], "options.teachers")
    teachers.encoders = [load_encoder(lambda texts: [[math.nan if text == "worn" else len(text), 1.0] for text in texts])]
    for asked in (lambda: teachers.vectors(["new", "worn"]), lambda: teachers.similarities(["new"], ["worn"])):
        with pytest.raises(StsbenchError, match="'worn'"):
            asked()
    assert len(teachers.vectors(["new"])) == 1


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
            rows = teacher_vectors(folder, texts, pooler).astype(float)
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
    assert value.item() == pytest.approx((means(folder, TEXTS) - torch.tensor(target)).square().mean().item(), rel=1e-4)
