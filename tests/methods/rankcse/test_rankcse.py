"""RankCSE's terms on texts encoded one at a time, as a section of other methods, too; teachers that cannot be read."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, total
from shipped_recipes import one_line
from simcse_oracle import PLAIN, QUADRUPLES, TRIPLETS, cls, naive_info_nce, same

from stsbench.encoders.load import load_encoder
from stsbench.losses.ranking import consistency, listmle, listnet, without_own
from stsbench.methods.rankcse.method import RankCSE
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.batch import Shares
from stsbench.training.api.ranking_options import RankingOptions
from stsbench.training.engine.objective import Ranked
from stsbench.training.rows.batches import to_batch

WORDS = {"model": "lexical:token-set"}
NONE = {"gamma": 0, "consistency": "none"}


def teachers(tiny_lm):
    return [{"model": str(tiny_lm), "settings": {"pooler": "mean"}, "weight": 0.5}, {**WORDS, "weight": 1.5}]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def naive_teacher(tiny_lm, anchors, others):
    """[i][j] a quarter of the mean's cosine and three of the words', as float32 holds them."""
    encoder = load_encoder(str(tiny_lm), pooler="mean")
    vectors = {text: encoder.encode([text])[0].tolist() for text in (*anchors, *others)}

    def words(a, b):
        one, other = set(a.lower().split()), set(b.lower().split())
        return len(one & other) / math.sqrt(len(one) * len(other))

    return [[float(np.float32(0.25 * cosine(vectors[a], vectors[b]) + 0.75 * words(a, b))) for b in others] for a in anchors]


@pytest.mark.parametrize(("data", "options", "own"), [
    (PLAIN, {}, True), (PLAIN, {"loss": "listnet", "teacher_temperature": 0.2}, False),
    (PLAIN, {"loss": "listnet", "self_column": "in", "student_temperature": 0.3}, True),
    (PLAIN, {"self_column": "out"}, False),
    (TRIPLETS, {"view": "given", "loss": "listnet"}, False), (QUADRUPLES, {"view": "given"}, True),
])
def test_every_term_is_that_of_the_equations(tiny_lm, data, options, own):
    method = make(RankCSE, tiny_lm, {"teachers": teachers(tiny_lm), **options})
    terms = method(batch_of(method, MemoryRows(tiny_lm, data), more_padding=3))
    texts = list(data.values()) * (2 if len(data) == 1 else 1)
    queries, keys, *negatives = [cls(tiny_lm, each, method.head.dense) for each in texts]
    columns = [*keys, *(vector for block in negatives for vector in block)]
    teacher = torch.tensor(naive_teacher(tiny_lm, texts[0], [text for each in texts[1:] for text in each])).double()
    t, tau = options.get("student_temperature", 0.05), options.get("teacher_temperature", 0.05)
    student = torch.tensor([[cosine(query, column) / t for column in columns] for query in queries], dtype=torch.float64)
    same(terms["contrastive"].value, naive_info_nce(queries, keys, negatives))
    lists = [scores if own else without_own(scores, 0) for scores in (student, teacher / tau)]
    ranking = (listnet if options.get("loss") == "listnet" else listmle)(*lists)  # in loops: tests/losses
    assert terms["ranking"].value.item() == pytest.approx(ranking.item(), rel=1e-6)  # teachers' vectors are of float32
    square = student[:, : len(keys)]
    same(terms["consistency"].value, consistency(square, square.T).item())
    assert {term.count for term in terms.values()} == {len(queries)}


def test_without_its_terms_it_is_simcse_bit_for_bit(tiny_lm):
    rows, losses = MemoryRows(tiny_lm, PLAIN), []
    for kind, options in ((RankCSE, NONE), (SimCSE, {})):
        method = make(kind, tiny_lm, options, dropout=0.1)
        torch.manual_seed(5)
        loss = total(method(batch_of(method, rows)))
        gradients = torch.autograd.grad(loss, method.backbone.parameters())
        losses.append((loss.item(), [gradient.tolist() for gradient in gradients]))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("options", [{}, {"loss": "listnet", "consistency": "entropy", "gamma": 0.3, "beta": 0.2}])
def test_any_contrastive_method_with_the_section_ranking_has_the_same_terms(tiny_lm, options):
    rows, values = MemoryRows(tiny_lm, PLAIN), []
    ranking = {"teachers": teachers(tiny_lm), **options}
    for ranked in (False, True):
        method = make(SimCSE if ranked else RankCSE, tiny_lm, {} if ranked else ranking, dropout=0.1)
        objective = Ranked(method, method, RankingOptions(**ranking)) if ranked else method
        torch.manual_seed(5)
        batch = to_batch(objective.views(rows, np.random.default_rng(0)), Shares((5,)), 0, torch.device("cpu"))
        terms = objective(batch)
        values.append({name: (term.value.item(), term.weight, term.count) for name, term in terms.items()})
        values[-1]["gradient"] = torch.autograd.grad(total(terms), next(method.backbone.parameters()))[0].tolist()
    assert values[0] == values[1]


def test_local_rows_are_ranked_among_themselves(tiny_lm):
    texts = {role: [*column, *column[:2]] for role, column in TRIPLETS.items()}
    method = make(RankCSE, tiny_lm, {"teachers": [WORDS], "view": "given"})
    method.gather_mode = "local"
    views = method.views(MemoryRows(tiny_lm, texts), np.random.default_rng(0))
    part = method(to_batch(views, Shares((3, 4), 1), 0, torch.device("cpu")))
    alone = method(batch_of(method, MemoryRows(tiny_lm, texts, range(3, 7))))
    for name, term in part.items():
        assert term.value.item() == pytest.approx(alone[name].value.item(), abs=1e-12) and term.count == 4


@pytest.mark.parametrize(("teacher", "message"), [
    ({"model": "no/such-model-here", "settings": {"offline": True}}, "options.teachers: "),
    ({**WORDS, "settings": {"pooler": "cls"}}, "options.teachers: --pooler does not apply"),
    ({**WORDS, "settings": {"poler": "cls"}}, "options.teachers: lexical:token-set: "),
    ({"model": "lexcal:token-set"}, "did you mean 'lexical:'"),
])
def test_a_teacher_that_cannot_be_read_is_one_line(tiny_lm, teacher, message):
    one_line(make(RankCSE, tiny_lm, {"teachers": [teacher]}).inputs, message)


def test_a_text_that_the_method_makes_of_rows_is_not_ranked(tiny_lm):
    method = make(SimCSE, tiny_lm, {})
    objective = Ranked(method, method, RankingOptions(teachers=(WORDS,)))
    method.views = lambda rows, rng: type(views)([each[:2] for each in views.tokens])
    views = make(SimCSE, tiny_lm, {}).views(MemoryRows(tiny_lm, PLAIN), None)
    one_line(lambda: objective.views(MemoryRows(tiny_lm, PLAIN), None), "ranking.teachers ranks rows, and this method")


# Runs ------------------------------------------------------------------------------------------------------------
