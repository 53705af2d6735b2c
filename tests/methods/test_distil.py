"""The terms of `distil` and RankCSE, and of the section that RankCSE is to other methods, on texts encoded one at a time;
scikit-learn's PCA; teachers that cannot be read. The losses: tests/losses."""

import math

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, states, tokens, total
from shipped_recipes import one_line
from simcse_oracle import PLAIN, TRIPLETS, cls, info_nce, naive_teacher, same
from sklearn import decomposition

from stsbench import losses
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.losses.ranking import consistency, listmle, listnet, without_own
from stsbench.methods.distil.method import PCA, Distil, principal_components
from stsbench.methods.rankcse.method import RankCSE
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.batch import Shares
from stsbench.training.api.options import RankingOptions
from stsbench.training.api.teachers import Teachers
from stsbench.training.engine.objective import FurtherTerms
from stsbench.training.rows.batches import to_batch

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


def test_vectors_of_equal_width(folder):
    how = {"student_temperature": 0.07, "loss": "contrastive"}
    method = ready(folder, teachers=[teacher(folder)], **how)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=3))
    taught = torch.tensor(teacher_vectors(folder, TEXTS), dtype=torch.float64)
    same(terms["vectors"].value, losses.distil(means(folder, TEXTS), taught, **how))
    assert terms["vectors"].count == len(TEXTS) and terms.keys() == {"vectors"}
    assert "by a linear map" in ready(folder, teachers=[teacher(folder)], projection="linear").notes()[-1]


@pytest.mark.parametrize(("objective", "kind", "tau"), [("similarities", "kl", 0.2), ("ranks", "listmle", 0.05)])
def test_rows_of_similarities_of_two_weighted_teachers(folder, objective, kind, tau):
    how = {"objective": objective, "loss": kind, "student_temperature": 0.3, "teacher_temperature": tau}
    method = ready(folder, teachers=[teacher(folder, weight=0.5), {**WORDS, "weight": 1.5}], **how)
    terms = method(batch_of(method, MemoryRows(folder, PLAIN), more_padding=3))
    expected = losses.distil(means(folder, TEXTS), naive_teacher(folder, TEXTS, TEXTS, "cls"), **how)
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
    vectors = np.random.default_rng(0).normal(size=(5000, 24)) @ np.diag(np.linspace(3, 1, 24)) + 5
    mean, components = principal_components(vectors, 10)
    pca = decomposition.PCA(10, svd_solver="full").fit(vectors)
    assert np.abs(mean - pca.mean_).max() < 1e-12 and np.abs(components - pca.components_).max() < 1e-8
    for center, expected in ((True, pca.transform(vectors)), (False, vectors @ pca.components_.T)):
        fitted = PCA(center).double()
        fitted.fit(vectors, 10)
        assert np.abs(fitted(torch.from_numpy(vectors)).numpy() - expected).max() < 1e-6


def test_pca_to_the_student_s_width_is_scikit_learn_s(folder):
    every = [" ".join(TEXTS[k % 5].split()[k % 3 :]) + f" {('cat', 'dog', 'man', 'park')[k % 4]} {k}" for k in range(60)]
    teachers = [teacher(folder, weight=0.25), teacher(folder, "mean", weight=0.75)]  # twice the student's width
    method = make(Distil, folder, {"teachers": teachers, "center": True, "pca_texts": 40}, pooler="mean")
    method.prepare(MemoryRows(folder, {"sentence": every}))
    fitted = method.texts
    assert sorted({*fitted}, key=every.index) == fitted and len(fitted) == 40
    assert method.notes()[-1] == "teachers: 64 numbers to 32 by PCA of 40 texts of the training text, without their mean"
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
    target = pca.transform(joined(TEXTS))
    projected = method.pca(torch.from_numpy(joined(TEXTS))).detach().numpy()
    strong = pca.explained_variance_ > 1e-6 * pca.explained_variance_[0]  # of equal variance a direction is any
    assert strong.sum() > 5 and np.abs(projected - target)[:, strong].max() < 1e-3 * scale
    assert value.item() == pytest.approx((means(folder, TEXTS) - torch.tensor(target)).square().mean().item(), rel=1e-4)


def teachers(folder):
    return [{"model": str(folder), "settings": {"pooler": "mean"}, "weight": 0.5}, {**WORDS, "weight": 1.5}]


@pytest.mark.parametrize(("data", "options", "own"), [
    (PLAIN, {"self_column": "out"}, False), (TRIPLETS, {"view": "given", "loss": "listnet"}, False),
    (PLAIN, {"loss": "listnet", "self_column": "in", "student_temperature": 0.3, "teacher_temperature": 0.2,
             "temperature": 0.2}, True)])
def test_every_term_is_that_of_the_equations(folder, data, options, own):
    method = make(RankCSE, folder, {"teachers": teachers(folder), **options})
    terms = method(batch_of(method, MemoryRows(folder, data), more_padding=3))
    texts = list(data.values()) * (2 if len(data) == 1 else 1)
    queries, keys, *negatives = [cls(folder, each, method.head.dense) for each in texts]
    teacher = naive_teacher(folder, texts[0], [text for each in texts[1:] for text in each], "mean")
    t, tau = options.get("student_temperature", 0.05), options.get("teacher_temperature", 0.05)
    student = torch.cosine_similarity(queries[:, None], torch.cat([keys, *negatives])[None], dim=2) / t
    same(terms["contrastive"].value, info_nce(queries, keys, *negatives, temperature=options.get("temperature", 0.05)))
    lists = [scores if own else without_own(scores, 0) for scores in (student, teacher / tau)]
    ranking = (listnet if options.get("loss") == "listnet" else listmle)(*lists)  # in loops: tests/losses
    assert terms["ranking"].value.item() == pytest.approx(ranking.item(), rel=1e-6)  # teachers' vectors are of float32
    square = student[:, : len(keys)]
    same(terms["consistency"].value, consistency(square, square.T).item())
    assert {term.count for term in terms.values()} == {len(queries)}


def test_any_contrastive_method_with_the_section_ranking_has_the_same_terms(folder):
    rows, values = MemoryRows(folder, PLAIN), []
    ranking = {"teachers": teachers(folder), "loss": "listnet", "consistency": "entropy", "gamma": 0.3, "beta": 0.2}
    for ranked in (False, True):
        method = make(SimCSE if ranked else RankCSE, folder, {} if ranked else ranking, dropout=0.1)
        objective = FurtherTerms(method, method, RankingOptions(**ranking), None) if ranked else method
        torch.manual_seed(5)
        terms = objective(to_batch(objective.views(rows, np.random.default_rng(0)), Shares((5,)), 0, torch.device("cpu")))
        values.append({name: (term.value.item(), term.weight, term.count) for name, term in terms.items()})
        values[-1]["gradient"] = torch.autograd.grad(total(terms), next(method.backbone.parameters()))[0].tolist()
    assert values[0] == values[1]


def test_a_text_that_the_method_makes_of_rows_is_not_ranked(folder):
    method = make(SimCSE, folder, {})
    objective = FurtherTerms(method, method, RankingOptions(teachers=(WORDS,)), None)
    method.views = lambda rows, rng: type(views)([each[:2] for each in views.tokens])
    views = make(SimCSE, folder, {}).views(MemoryRows(folder, PLAIN), None)
    one_line(lambda: objective.views(MemoryRows(folder, PLAIN), None), "ranking.teachers ranks rows, and this method")
